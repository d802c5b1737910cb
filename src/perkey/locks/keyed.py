"""``KeyedLocks``: one lock per key, exact, whose entry is gone when its last user leaves."""

from __future__ import annotations

import asyncio
from _thread import allocate_lock
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from perkey import errors
from perkey.clock import SYSTEM, Clock
from perkey.locks.abandoned import abandoned
from perkey.locks.guards import Guard, ReentrantGuard, SharedGuard
from perkey.locks.held import Group, Held
from perkey.locks.lean import lean_guards, redirect
from perkey.locks.owner import running_loop
from perkey.locks.table import IDLE, SharedTable, Table, Waiter, limit, on_fork, resolve

# Keys of one hash have no order that all callers agree on (1 and True are equal and look
# different), so a group with two such keys first takes this one: one group at a time.
TIES: Final = object()

Profile = Literal["checked", "lean"]


@dataclass(frozen=True, slots=True)
class LockStatistics:
    """Counters since the object was made; times in seconds."""

    acquisitions: int
    contended: int
    waited_total: float
    waited_longest: float
    timeouts: int
    skipped: int
    active: int
    waiting: int


class KeyedLocks:
    """One lock for each key, for threads, for one event loop, or ``shared`` by all.

    ``with locks(key):`` or ``async with locks(key):`` holds the key alone.  Waiters are served
    first come, first served.  An entry exists while somebody holds or waits, and no longer.

    ``profile="lean"`` leaves out the refusal of re-entry (it hangs, as a plain lock does),
    the counters, and the recovery of a release that a signal cut off; and it looks at a
    ``timeout`` only where it has to wait.

    A timeout is a number of seconds, or None; anything else, NaN too, is a ``UsageError``.  With
    0, and with less (what is left of a time that is over), nobody waits.
    """

    __slots__ = ("__call__", "__weakref__", "_lean", "_table", "_timeout", "hold")

    def __init__(
        self,
        *,
        profile: Profile = "checked",
        shared: bool = False,
        reentrant: bool = False,
        capacity: int | None = None,
        timeout: float | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        """``capacity`` bounds the keys in use; ``timeout`` (seconds) is for calls without one."""
        if profile not in ("checked", "lean"):
            raise errors.UsageError(f"profile is 'checked' or 'lean', not {profile!r}")
        if profile == "lean" and reentrant:
            raise errors.UsageError("the lean profile knows no owners, so it cannot be reentrant")
        claims = dict if capacity is None else lambda: _Capped(capacity)
        self._table = (SharedTable if shared else Table)(clock, claims)
        self._lean = profile == "lean"
        self._timeout = timeout
        limit(timeout)
        if not self._lean:
            self._table.guard = ReentrantGuard if reentrant else SharedGuard if shared else Guard
            self._table.suspect = self._suspect
        self._restart()
        on_fork(self, KeyedLocks._restart)

    def _restart(self) -> None:
        make = lean_guards if self._lean else checked_guards
        # CPython calls a method faster than an instance, above all with a keyword: two names.
        old, new = getattr(self, "hold", None), make(self._table, self._timeout)
        self.__call__ = self.hold = new
        if self._lean and old is not None:
            redirect(old, new)

    __call__: Callable[..., Any]
    hold: Callable[..., Any]

    def try_acquire(self, key: Hashable) -> Held | None:
        """A guard that holds the key, or None if somebody else does; never waits."""
        self._table.settle_try()
        guard = self(key)
        return Held(key, guard) if guard.take() else None

    def many(self, keys: Iterable[Hashable], timeout: float | None = None) -> Group:
        """All of these keys or none, in an order that is the same for every caller."""
        ordered: list[Any] = sorted(set(keys), key=hash)
        if len({hash(key) for key in ordered}) < len(ordered):
            ordered.insert(0, TIES)
        limited = limit(self._timeout if timeout is None else timeout)
        return Group([self(key) for key in ordered], limited, self._table.clock)

    def active_keys(self) -> list[Any]:
        """The keys that somebody holds now."""
        return [key for key in list(self._table.claims) if key is not TIES]

    def __contains__(self, key: Hashable) -> bool:
        return key in self._table.claims

    def __len__(self) -> int:
        return len(self.active_keys())

    def __bool__(self) -> bool:
        return True

    def wait_idle(self, timeout: float | None = None) -> Any:
        """Wait until nobody holds any key; on an event loop, ``await`` it."""
        if running_loop() is not None:
            return self._idle_task(timeout)
        gate = allocate_lock()
        gate.acquire()
        waiter = Waiter(IDLE, object(), gate.release)
        table = self._table
        timeout = limit(timeout)
        patience = -1.0 if timeout is None else max(timeout, 0.0)
        try:
            if table.join_idle(waiter) and not gate.acquire(True, patience):
                table.timed_out(IDLE, timeout)
        finally:
            table.withdraw(waiter)
        return None

    async def _idle_task(self, timeout: float | None) -> None:
        timeout = limit(timeout)
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        table = self._table
        waiter = Waiter(IDLE, object(), *table.waker(loop, future))
        timer = None if timeout is None else loop.call_later(timeout, resolve, future)
        try:
            if table.join_idle(waiter):
                await future
                if table.queued(waiter):
                    table.timed_out(IDLE, timeout)
        finally:
            table.withdraw(waiter)
            if timer is not None:
                timer.cancel()

    def statistics(self) -> LockStatistics:
        """Counters so far; the lean profile keeps none."""
        table = self._table
        if self._lean:
            raise errors.NotSupported("the lean profile keeps no counters; use profile='checked'")
        return LockStatistics(
            table.acquired,
            table.contended,
            table.waited_total,
            table.waited_longest,
            table.timeouts,
            table.skipped,
            len(self),
            sum(len(queue) for queue in list(table.queues.values())),
        )

    def _suspect(self, key: Hashable, guard: Any) -> bool:
        return abandoned(guard, self._knows)

    def _knows(self, holder: Any) -> bool:
        return holder is self._table.claims or isinstance(holder, Waiter)


def checked_guards(table: Table, default: float | None) -> Callable[..., Any]:
    """What makes the guards of a checked ``KeyedLocks``."""

    def hold(key: Hashable, timeout: float | None = default) -> Any:
        if timeout is not default:
            limit(timeout)  # refused at once, not only when somebody is there
        make = table.guard
        guard = make()
        guard.table = table
        guard.key = key
        guard.claims = None
        guard.timeout = timeout
        return guard

    return hold


class _Capped(dict[Any, Any]):
    """A table of claims that refuses one more key than its capacity."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.gate = allocate_lock()

    def setdefault(self, key: Any, token: Any = None) -> Any:
        with self.gate:
            if len(self) >= self.capacity and key not in self:
                raise errors.LimitExceeded(
                    f"{len(self)} keys are in use and the capacity is {self.capacity}",
                    capacity=self.capacity,
                    active=len(self),
                )
            return super().setdefault(key, token)
