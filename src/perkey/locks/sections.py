"""``Sections``: a fixed array of locks over keys without end."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from perkey import errors
from perkey.clock import SYSTEM, Clock
from perkey.locks.abandoned import abandoned
from perkey.locks.entries import Entry, Section, Several, SharedEntry, TaskEntry, ThreadEntry
from perkey.locks.hashing import HashName, section_hash
from perkey.locks.held import Group, Held
from perkey.locks.keyed import Profile
from perkey.locks.lean import LeanFirst, LeanTaskSection, LeanThreadSection, TimedSection
from perkey.locks.owner import running_loop
from perkey.locks.table import THREADS, SharedTable, Table, limit, on_fork

MAX_SECTIONS = 1 << 20
REMEMBERED = 8  # keys an array remembers for each of its sections, to find them faster


@dataclass(frozen=True, slots=True)
class SectionStatistics:
    """Counters since the array was made; times in seconds; ``hottest`` is (section, count)."""

    acquisitions: int
    contended: int
    waited_total: float
    waited_longest: float
    timeouts: int
    skipped: int
    hottest: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Advice:
    """How many sections to have.

    ``false_contention`` is the chance that a caller finds its section taken for another key.
    """

    sections: int
    false_contention: float


class Sections:
    """``n`` locks for any number of keys: a key always has the same one, and may share it.

    ``with sections(key):`` or ``async with sections(key):`` enters the key's section.  Sharing
    costs delay, never correctness; there is nothing to create for a new key and nothing to
    delete for an old one.  A section must never wait for another of its array: entering a
    second one raises ``NestedSection`` even if it is free, because the collision is luck.

    ``profile="lean"`` leaves out the refusal of nested entry (a thread may re-enter the same
    section, a task would wait for itself), the counters, and the queue of blocked threads.
    """

    __slots__ = (
        "__call__",
        "__weakref__",
        "_hash",
        "_lean",
        "_size",
        "_table",
        "_timeout",
        "hold",
        "inside",
        "sections",
    )

    __call__: Callable[..., Any]
    hold: Any

    def __init__(
        self,
        n: int = 256,
        *,
        hash: HashName | Callable[[Any], int] = "fast",
        profile: Profile = "checked",
        shared: bool = False,
        timeout: float | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        """``n`` is a power of two; ``timeout`` (seconds) is for calls without one."""
        if not (isinstance(n, int) and 1 <= n <= MAX_SECTIONS and n & (n - 1) == 0):
            raise errors.UsageError(f"n is a power of two from 1 to {MAX_SECTIONS}, not {n!r}")
        if profile not in ("checked", "lean"):
            raise errors.UsageError(f"profile is 'checked' or 'lean', not {profile!r}")
        if profile == "lean" and shared:
            raise errors.UsageError("a shared array knows its owners, so it is never lean")
        self._size = n
        self._hash = section_hash(hash, _secret(clock))
        self._lean = profile == "lean"
        self._timeout = timeout
        limit(timeout)
        self._table: Table = (SharedTable if shared else Table)(clock)
        if not self._lean:
            self._table.suspect = self.suspect
        # A C function that finds the entry of a key it saw before: no Python code at all.  It
        # has no limit of its own, for keeping the keys in order costs as much as a look-up.
        self.__call__ = self.hold = lru_cache(maxsize=None)(self._maker())
        self._restart()
        on_fork(self, Sections._restart)

    def _restart(self) -> None:
        """Make the sections anew, all free."""
        self.inside: dict[Any, int] = {}
        if self._lean:
            self.sections: list[Any] = [
                LeanThreadSection(threading.RLock(), index, self._table)
                for index in range(self._size)
            ]
        else:
            self.sections = [Section() for _ in range(self._size)]
        self.hold.cache_clear()

    def _maker(self) -> Callable[..., Any]:
        make = self._make_lean if self._lean else self._make_checked
        default = self._timeout
        left = REMEMBERED * self._size

        def hold(key: Hashable, timeout: float | None = default) -> Any:
            nonlocal left
            left -= 1
            if left <= 0:
                left = REMEMBERED * self._size
                self.hold.cache_clear()
            return make(key, timeout)

        return hold

    def _make_lean(self, key: Hashable, timeout: float | None) -> Any:
        home = self._table.home
        limit(timeout)
        if home is None:
            return LeanFirst(self, key, timeout)
        index = self.index(key)
        if home is not THREADS:
            return LeanTaskSection(self._table, index, key, timeout)
        section = self.sections[index]
        return section if timeout is None else TimedSection(section, key, timeout)

    def _make_checked(self, key: Hashable, timeout: float | None) -> Entry:
        home = self._table.home
        if isinstance(self._table, SharedTable):
            kind: type[Entry] = SharedEntry
        elif home is None:
            kind = Entry
        else:
            kind = ThreadEntry if home is THREADS else TaskEntry
        limit(timeout)  # refused at once, not only when somebody is there
        index = self.index(key)
        entry = kind(self, self._table, self.sections[index], index, key)
        entry.timeout = timeout
        return entry

    def settle(self, home: Any) -> None:
        """Belong to threads, or to this event loop, from now on."""
        self._table.settle(home)
        self.hold.cache_clear()

    # ------------------------------------------------------------------------- the verbs

    def index(self, key: Hashable) -> int:
        """The number of the key's section, 0 to n - 1."""
        return self._hash(key) & (self._size - 1)

    def __len__(self) -> int:
        return self._size

    def try_acquire(self, key: Hashable) -> Held | None:
        """A guard that holds the key's section, or None if it is taken; never waits."""
        if self._table.home is None:
            self.settle(running_loop() or THREADS)
        self._table.settle_try()
        entry = self(key, None)
        if self._lean:
            return Held(key, entry) if entry.acquire(False) else None
        return Held(key, entry) if entry.take() else None

    def many(self, keys: Iterable[Hashable], timeout: float | None = None) -> Any:
        """The sections of all these keys or none, in the order of their numbers, each once."""
        if self._table.home is None:
            self.settle(running_loop() or THREADS)
        limited = limit(self._timeout if timeout is None else timeout)
        by_section = {self.index(key): key for key in keys}
        order = sorted(by_section)
        if not self._lean:
            return Several([self(by_section[index], None) for index in order], limited)
        # Not those that are remembered: each of these gets what is left of the time.
        chosen: list[Any] = (
            [TimedSection(self.sections[index], by_section[index], None) for index in order]
            if self._table.home is THREADS
            else [LeanTaskSection(self._table, index, by_section[index], None) for index in order]
        )
        return Group(chosen, limited, self._table.clock)

    # ------------------------------------------------------------------------ to look at

    def statistics(self) -> SectionStatistics:
        """Counters so far; the lean profile keeps none."""
        if self._lean:
            raise errors.NotSupported("the lean profile keeps no counters; use profile='checked'")
        table = self._table
        counts = [section.count for section in self.sections]
        ranked = sorted(enumerate(counts), key=lambda pair: -pair[1])[:8]
        return SectionStatistics(
            sum(counts),
            table.contended,
            table.waited_total,
            table.waited_longest,
            table.timeouts,
            table.skipped,
            tuple(pair for pair in ranked if pair[1]),
        )

    @staticmethod
    def advise(holders: int, keys: int | None = None, at_most: float = 0.01) -> Advice:
        """How many sections keep false contention under ``at_most``.

        ``holders`` is how many callers are inside at the busiest moment, ``keys`` how many
        different keys there are (None: more than anyone counts).  Callers on the same key
        wait for each other with any lock, so at most ``keys - 1`` others can collide falsely.
        """
        if holders < 1 or (keys is not None and keys < 1) or not 0 < at_most < 1:
            raise errors.UsageError("advise() takes holders >= 1, keys >= 1 and 0 < at_most < 1")
        others = holders - 1 if keys is None else min(holders, keys) - 1
        n = 1
        while _collision(others, n) > at_most and n < MAX_SECTIONS:
            n *= 2
        return Advice(n, _collision(others, n))

    def suspect(self, index: int, token: Any) -> bool:
        """True if nobody is left who could leave this section."""
        entry = self.sections[index].entry
        if entry is None:
            return True
        remembered = [thing for thing in gc.get_referents(self.hold) if type(thing) is dict]

        def known(holder: Any) -> bool:
            return isinstance(holder, Section) or any(holder is one for one in remembered)

        return abandoned(entry, known)


def _secret(clock: Clock) -> bytes:
    chance = repr([clock.random() for _ in range(4)])
    return blake2b(chance.encode(), digest_size=16).digest()


def _collision(others: int, n: int) -> float:
    return float(1.0 - (1.0 - 1.0 / n) ** others)
