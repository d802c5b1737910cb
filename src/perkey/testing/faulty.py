"""Stores that fail on purpose, the same way each time: for tests of the code that uses them.

    store = FaultyStore("memory://", fail=0.3, lose=0.1, seed=1)

``fail`` stops a save before its commit: nothing is written, and the caller gets
``StoreUnavailable``.  ``lose`` commits and then loses the reply, which perkey finds out by
itself: the caller sees a success, only later.  ``unknown`` raises ``OutcomeUnknown``; half of
those saves were committed.  ``delay`` waits before a save.  Each is a share of the saves, from
0 to 1, or the numbers of those that it befalls: ``fail={1, 4}``.

A save is one commit; callers that arrive together share one, and then share its fate.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from perkey.clock import SYSTEM, Clock
from perkey.errors import OutcomeUnknown, StoreUnavailable, UsageError
from perkey.observe.hooks import Hook
from perkey.store.abc import Backend
from perkey.store.evaluate import Batch, Unit
from perkey.store.keys import Key
from perkey.store.limits import Limits, checked
from perkey.store.record import Page, Record, Walk
from perkey.store.transaction import Outcome
from perkey.store.url import open_backend
from perkey.stores import AsyncStore, Store

Share = float | Collection[int]
"""A share of the saves, or the numbers of the saves, the first being 1."""


class Faults:
    """Which save meets which fault, decided by one seed."""

    def __init__(
        self,
        *,
        fail: Share = 0.0,
        lose: Share = 0.0,
        unknown: Share = 0.0,
        delay: Share = 0.0,
        delay_s: float = 0.01,
        seed: int = 0,
    ) -> None:
        shares = {"delay": delay, "fail": fail, "unknown": unknown, "lose": lose}
        for name, share in shares.items():
            if isinstance(share, int | float) and not 0 <= share <= 1:
                raise UsageError(f"expected {name}= as a share from 0 to 1, found {share!r}")
        self._shares = shares
        self._chance = random.Random(seed)
        self.delay_s = delay_s
        self.counts: Counter[str] = Counter()

    def next(self) -> set[str]:
        """The names of the faults of the next save."""
        self.counts["saves"] += 1
        number = self.counts["saves"]
        found = set()
        for name, share in self._shares.items():
            # Drawn for each save and each fault, hit or not: one share moves no other.
            drawn = self._chance.random()
            if drawn < share if isinstance(share, int | float) else number in share:
                found.add(name)
        return found


class FaultyBackend:
    """A backend that passes every call on, with faults around ``apply``."""

    def __init__(
        self,
        backend: Backend,
        faults: Faults,
        *,
        clock: Clock = SYSTEM,
        owned: bool = True,
    ) -> None:
        """``owned=False`` leaves ``backend`` open when this one is closed."""
        self.inner = backend
        self.name = backend.name
        self.atomic_keys = backend.atomic_keys
        self.blocking = backend.blocking
        self.durability = backend.durability
        self.time_source = backend.time_source
        self.limits = backend.limits
        self._faults = faults
        self._clock = clock
        self._owned = owned

    @property
    def counts(self) -> Counter[str]:
        """How many ``saves`` were asked for, and how many were ``failed``, ``lost``,
        ``unknown`` and ``delayed``."""
        return self._faults.counts

    def apply(self, batch: Batch) -> list[Outcome]:
        """Apply ``batch``, unless this save's turn says otherwise."""
        if batch.doubts:  # the lost reply of an earlier save is being found out
            return self.inner.apply(batch)
        faults, counts = self._faults.next(), self.counts
        number = counts["saves"]
        if "delay" in faults:
            counts["delayed"] += 1
            self._clock.sleep(self._faults.delay_s)
        if "fail" in faults:
            counts["failed"] += 1
            raise StoreUnavailable(f"save {number} of a faulty store fails; nothing was written")
        if "unknown" in faults:
            counts["unknown"] += 1
            if counts["unknown"] % 2:
                self.inner.apply(batch)
            raise OutcomeUnknown(f"save {number} of a faulty store may or may not have happened")
        outcomes = self.inner.apply(batch)
        if "lose" in faults:
            counts["lost"] += 1
            batch.committing = Unit([each for done in outcomes for each in done.writes], outcomes)
            if batch.committing.writes:
                raise StoreUnavailable(f"the reply to save {number} of a faulty store is lost")
            batch.committing = None
        return outcomes

    def now_ms(self) -> int:
        """As the inner backend."""
        return self.inner.now_ms()

    def read(self, keys: Sequence[Key]) -> list[Record | None]:
        """As the inner backend."""
        return self.inner.read(keys)

    def scan(self, prefix: str, after: str, limit: int) -> list[Record]:
        """As the inner backend."""
        return self.inner.scan(prefix, after, limit)

    def history(self, key: str, after: int, limit: int) -> list[Record]:
        """As the inner backend."""
        return self.inner.history(key, after, limit)

    def changes(self, prefix: str, cursor: str, limit: int) -> Page:
        """As the inner backend."""
        return self.inner.changes(prefix, cursor, limit)

    def cursor(self, prefix: str) -> str:
        """As the inner backend."""
        return self.inner.cursor(prefix)

    def walk(self, cursor: str, limit: int) -> Walk:
        """As the inner backend."""
        return self.inner.walk(cursor, limit)

    def reader(self) -> Backend | None:
        """As the inner backend: reading meets no faults."""
        return self.inner.reader()

    def describe(self) -> dict[str, str]:
        """The inner backend's facts, and what went wrong so far."""
        return self.inner.describe() | {name: str(n) for name, n in self.counts.items()}

    def concerns(self) -> list[str]:
        """The inner backend's, and that this one fails on purpose."""
        return [*self.inner.concerns(), "this store fails on purpose; it is for tests"]

    def close(self) -> None:
        """Close the inner backend, where it belongs to this one."""
        if self._owned:
            self.inner.close()


def _options(
    source: str | Store | AsyncStore, limits: Limits | None, clock: Clock, faults: Faults
) -> tuple[FaultyBackend, dict[str, Any]]:
    """(the faulty backend, how its store is opened over it)."""
    if isinstance(source, str):
        backend = open_backend(source, checked(limits), clock)
        return FaultyBackend(backend, faults, clock=clock), {"clock": clock}
    if limits is not None:
        raise UsageError("limits= belongs to the store that is given; open that one with it")
    # Two stores over one backend take turns by one lock, or they would be in it at once.
    core = source.core
    faulty = FaultyBackend(core.backend, faults, clock=core.clock, owned=False)
    return faulty, {"clock": core.clock, "lane": core.lane}


class FaultyStore(Store):
    """A ``Store`` whose saves fail, lose their reply or come late; see ``perkey.testing.faulty``.

    Over a URL it is a store of its own.  Over an open store it is a second, faulty way into
    the same records: give it to the code under test, and look at the truth through the other.
    """

    def __init__(
        self,
        source: str | Store | AsyncStore,
        *,
        fail: Share = 0.0,
        lose: Share = 0.0,
        unknown: Share = 0.0,
        delay: Share = 0.0,
        delay_s: float = 0.01,
        seed: int = 0,
        limits: Limits | None = None,
        observers: Sequence[Hook] = (),
        strict: bool = False,
        clock: Clock = SYSTEM,
    ) -> None:
        faults = Faults(
            fail=fail, lose=lose, unknown=unknown, delay=delay, delay_s=delay_s, seed=seed
        )
        self._faulty, options = _options(source, limits, clock, faults)
        super().__init__(self._faulty, observers=observers, strict=strict, **options)

    @property
    def counts(self) -> Counter[str]:
        """How many ``saves`` there were, and how many ``failed``, ``lost``, ``unknown``,
        ``delayed``."""
        return self._faulty.counts


class AsyncFaultyStore(AsyncStore):
    """``FaultyStore`` for asyncio.  Opening connects on the spot."""

    def __init__(
        self,
        source: str | Store | AsyncStore,
        *,
        fail: Share = 0.0,
        lose: Share = 0.0,
        unknown: Share = 0.0,
        delay: Share = 0.0,
        delay_s: float = 0.01,
        seed: int = 0,
        limits: Limits | None = None,
        observers: Sequence[Hook] = (),
        strict: bool = False,
        clock: Clock = SYSTEM,
    ) -> None:
        faults = Faults(
            fail=fail, lose=lose, unknown=unknown, delay=delay, delay_s=delay_s, seed=seed
        )
        self._faulty, options = _options(source, limits, clock, faults)
        super().__init__(self._faulty, observers=observers, strict=strict, **options)

    @property
    def counts(self) -> Counter[str]:
        """As ``FaultyStore.counts``."""
        return self._faulty.counts
