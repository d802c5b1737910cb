"""The one wait structure: who has which key, and who stands in line for it.

``claims`` maps a key to the token of its holder; an entry exists exactly while somebody
holds the key.  ``dict.setdefault`` is the atomic step: whoever finds their own token in the
table has the key.  ``queues`` maps a key to those who wait for it, oldest first; it exists
only while somebody waits.  A release hands the claim to the oldest waiter in the same step
that takes it away from the holder, so a key with waiters is never seen free: nobody can
overtake.  An uncontended entry touches neither the mutex nor a queue.

The order of the steps matters.  A waiter joins a queue *before* it looks once more whether
the holder is still there; a holder removes its claim *before* it looks once more whether
somebody joined.  So one of the two always sees the other.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final

from perkey import errors
from perkey.clock import SYSTEM, Clock
from perkey.locks.owner import describe, get_ident, may_be_gone, running_loop, task_of

IDLE: Final = object()  # the queue of those who wait until nothing is held
THREADS: Final = "threads"  # stands where an event loop would: the home of a table of threads
SHARED: Final = "shared"  # the home of a table that everybody may use
NOBODY: Final = object()  # the token of no claim
PATIENCE: Final = 1.0  # seconds after which a blocked thread looks whether its holder is real


class _Ready:
    """An awaitable that is already done: its iterator is one that has ended, always the same.

    It is false, so that one release serves both ``__exit__`` and ``__aexit__``.
    """

    __slots__ = ("__await__",)

    def __init__(self) -> None:
        ended = iter(())
        next(ended, None)  # from now on it changes no more, whoever asks it
        self.__await__ = ended.__iter__

    def __bool__(self) -> bool:
        return False


READY: Any = _Ready()


class Waiter:
    """One caller in line.  ``wake(*args)`` is a single C call, so a signal cannot split it."""

    __slots__ = ("args", "key", "token", "wake")

    def __init__(self, key: Hashable, token: Any, wake: Callable[..., Any], *args: Any) -> None:
        self.key = key
        self.token = token
        self.wake = wake
        self.args = args


class Table:
    """Claims and queues of one array of sections or one registry of locks."""

    def __init__(self, clock: Clock = SYSTEM, claims: Callable[[], dict[Any, Any]] = dict) -> None:
        self.clock = clock
        self.new_claims = claims
        self.home: Any = None  # THREADS or an event loop, settled at first use
        self.thread = 0  # where the home loop runs
        self.guard: Any = None  # the class of the guards, known once the home is settled
        self.suspect: Callable[[Any, Any], bool] | None = None
        self.acquired = self.contended = self.timeouts = self.skipped = 0
        self.waited_total = self.waited_longest = 0.0
        self.reset()
        on_fork(self, Table.reset)

    def reset(self) -> None:
        """Forget everything.  New dicts: a guard from before keeps its own old ones."""
        self.claims: dict[Any, Any] = self.new_claims()
        self.queues: dict[Hashable, deque[Waiter]] = {}
        self.mutex = allocate_lock()

    def settle(self, home: Any) -> None:
        """The first user decides: threads, or one event loop and, when it is closed, another."""
        if self.home is home:
            return
        loops = self.home not in (None, THREADS) and home is not THREADS
        stale = loops and self.home.is_closed() and not self.claims
        if self.home is not None and not stale:
            first = "threads" if self.home is THREADS else "another event loop"
            raise errors.WrongColour(
                f"these locks belong to {first}, which used them first; "
                "use one object for each, or make it with shared=True"
            )
        self.home = home
        self.thread = 0

    def settle_try(self) -> None:
        """For what never waits, so that it may run in any code of the thread at home here."""
        if self.home is not THREADS:
            self.settle(running_loop() or THREADS)

    def settle_task(self) -> Any:
        """Belong to the running event loop; its running task.

        Which loop runs is a system call on some Pythons, so the fast paths only compare the
        thread and ask the home loop for its current task, and come here when in doubt.
        """
        loop = asyncio.get_running_loop()
        self.settle(loop)
        self.thread = get_ident()
        return task_of(loop) or self.thread

    # -------------------------------------------------------------- joining and leaving

    def join(self, waiter: Waiter) -> bool:
        """True if the waiter has the key now, False if it stands in line."""
        key = waiter.key
        with self.mutex:
            while self.claims.setdefault(key, waiter.token) is not waiter.token:
                queue = self.queues.setdefault(key, deque())
                queue.append(waiter)
                if key in self.claims:
                    return False
                # The holder left just before we joined and may not have seen us: start over.
                self._drop(queue, waiter)
        return True

    def leave(self, key: Hashable, token: Any) -> None:
        """Give the key to the oldest waiter, or remove its entry.  Never waits for anybody.

        ``token`` has the key, or nobody has it any more.
        """
        queues = self.queues
        if key not in queues and IDLE not in queues:
            if self.claims.get(key) is token:
                del self.claims[key]
            if key not in queues and IDLE not in queues:
                return
        with self.mutex:
            if self.claims.get(key, token) is token:
                self._hand_over(key, token)

    def _hand_over(self, key: Hashable, token: Any) -> None:
        queue = self.queues.get(key)
        if queue and queue[0].token is token:
            queue.popleft()  # ours, left over when a signal interrupted the one who woke us
        while queue:
            self.claims[key] = queue[0].token
            woken = _wake(queue[0])
            queue.popleft()
            if woken:
                break
        else:
            self.claims.pop(key, None)
        if not queue:
            self.queues.pop(key, None)
        if not self.claims:
            for idler in self.queues.pop(IDLE, ()):
                _wake(idler)

    def withdraw(self, waiter: Waiter) -> None:
        """Leave no trace of a waiter that gave up; what it was already given is passed on."""
        with self.mutex:
            if self.claims.get(waiter.key) is waiter.token:
                self._hand_over(waiter.key, waiter.token)
            else:
                self._drop(self.queues.get(waiter.key), waiter)

    def _drop(self, queue: deque[Waiter] | None, waiter: Waiter) -> None:
        if queue is not None and waiter in queue:
            queue.remove(waiter)
            if not queue:
                self.queues.pop(waiter.key, None)

    # ------------------------------------------------------------------------- waiting

    def block(self, key: Hashable, token: Any, timeout: float | None, entry: Any = None) -> None:
        """Take a key that was held a moment ago, blocking this thread.

        ``entry`` knows the caller's name for a key that is the number of a section.
        """
        timeout = limit(timeout)
        gate = allocate_lock()
        gate.acquire()
        waiter = Waiter(key, token, gate.release)
        began = self.clock.monotonic()
        try:
            if not self.join(waiter):
                self._sit(waiter, gate, began, timeout, entry)
        except BaseException:
            self.withdraw(waiter)
            raise
        finally:
            self._count_wait(began)

    def _sit(
        self, waiter: Waiter, gate: Any, began: float, timeout: float | None, entry: Any
    ) -> None:
        patience = PATIENCE
        while self.claims.get(waiter.key) is not waiter.token:
            left = patience
            if timeout is not None:
                left = min(left, began + timeout - self.clock.monotonic())
                if left <= 0:
                    break
            if gate.acquire(True, left):
                return
            self.look(waiter)
            patience = min(2 * patience, 60.0)
        if self.claims.get(waiter.key) is not waiter.token:
            self.timed_out(waiter.key, timeout, entry)

    def look(self, waiter: Waiter) -> None:
        """Free the key if its holder is gone for good; only the first in line looks."""
        queue = self.queues.get(waiter.key)
        if queue and queue[0] is waiter and self.suspect is not None:
            holder = self.claims.get(waiter.key, waiter)
            gone = holder is waiter or may_be_gone(getattr(holder, "owner", holder))
            if gone and (holder is waiter or self.suspect(waiter.key, holder)):
                self.leave(waiter.key, holder)

    async def suspend(
        self, key: Hashable, token: Any, timeout: float | None, entry: Any = None
    ) -> None:
        """Take a key that was held a moment ago, suspending this task."""
        timeout = limit(timeout)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        waiter = Waiter(key, token, *self.waker(loop, future))
        began = self.clock.monotonic()
        timer = None
        try:
            if not self.join(waiter):
                if timeout is not None:
                    timer = loop.call_later(max(timeout, 0.0), resolve, future)
                await future
                if self.claims.get(key) is not token:
                    self.timed_out(key, timeout, entry)
        except BaseException:
            self.withdraw(waiter)
            raise
        finally:
            if timer is not None:
                timer.cancel()
            self._count_wait(began)

    def waker(self, loop: asyncio.AbstractEventLoop, future: Any) -> tuple[Any, ...]:
        """What wakes a task whose waker runs on the same loop."""
        return future.set_result, None

    def timed_out(self, key: Hashable, timeout: float | None, entry: Any = None) -> None:
        """Raise ``Timeout`` for a key, or for the key of an entry whose section was taken."""
        self.timeouts += 1
        what = repr(key)
        if entry is not None:
            what, key = f"section {key} of {entry.key!r}", entry.key
        raise errors.Timeout(f"{what} was held for all of {timeout} s", key=key, timeout=timeout)

    def _count_wait(self, began: float) -> None:
        waited = self.clock.monotonic() - began
        self.contended += 1
        self.waited_total += waited
        self.waited_longest = max(self.waited_longest, waited)

    def ahead(self, key: Hashable) -> list[Any]:
        """The tokens of the holder and of everybody who waits, in order."""
        with self.mutex:
            holder = self.claims.get(key)
            line = [waiter.token for waiter in self.queues.get(key, ())]
        return line if holder is None else [holder, *line]

    # ---------------------------------------------------------------------------- idle

    def join_idle(self, waiter: Waiter) -> bool:
        """False if nothing is held now; otherwise the waiter is woken when that is so."""
        with self.mutex:
            queue = self.queues.setdefault(IDLE, deque())
            queue.append(waiter)
            if self.claims:
                return True
            self._drop(queue, waiter)
        return False

    def queued(self, waiter: Waiter) -> bool:
        """True while the waiter still stands in line."""
        with self.mutex:
            return waiter in self.queues.get(waiter.key, ())


class SharedTable(Table):
    """A table on which threads and several event loops wait together."""

    def __init__(self, clock: Clock = SYSTEM, claims: Callable[[], dict[Any, Any]] = dict) -> None:
        super().__init__(clock, claims)
        self.home = SHARED

    def settle(self, home: Any) -> None:
        """Everybody is at home here."""

    def waker(self, loop: asyncio.AbstractEventLoop, future: Any) -> tuple[Any, ...]:
        return loop.call_soon_threadsafe, resolve, future


def limit(timeout: float | None) -> float | None:
    """The seconds of a timeout; None for no limit, as for what is longer than anybody waits.

    Below 0 is what is left of a time that is over: as 0.
    """
    if timeout is None:
        return None
    try:
        if timeout < 1e9:
            return timeout
        if timeout >= 1e9:
            return None
    except TypeError:
        pass
    raise errors.UsageError(f"expected a timeout as a number of seconds or None, found {timeout!r}")


def refuse_stall(table: Table, key: Hashable, me: Any, named: Hashable) -> None:
    """Raise if blocking here would stop the event loop whose task has to release the key."""
    loop = running_loop()
    if loop is None:
        return
    for token in table.ahead(key):
        owner = getattr(token, "owner", token)
        if isinstance(owner, asyncio.Task) and owner is not me and owner.get_loop() is loop:
            raise errors.WrongColour(
                f"blocking here for {named!r} would stop the event loop on which "
                f"{describe(owner)} has to release it; use `async with`",
                key=named,
                owner=describe(owner),
            )


def resolve(future: asyncio.Future[None]) -> None:
    """Wake a task that may have been woken or cancelled already."""
    if not future.done():
        future.set_result(None)


def _wake(waiter: Waiter) -> bool:
    """False if nobody is left to wake: the waiter's event loop was closed under it."""
    try:
        waiter.wake(*waiter.args)
    except asyncio.InvalidStateError:
        pass  # cancelled or timed out a moment ago: it runs next, and passes the key on
    except RuntimeError:
        return False
    return True


_restarts: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def on_fork(thing: Any, restart: Callable[[Any], None]) -> None:
    """Call ``restart(thing)`` in a child process; in the order in which things were made."""
    _restarts[thing] = restart


def _forked() -> None:
    for thing, restart in list(_restarts.items()):
        restart(thing)


os.register_at_fork(after_in_child=_forked)
