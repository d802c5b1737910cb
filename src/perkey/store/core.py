"""What both colours of a store share: the backend, its committer, its readers, its counters."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from threading import get_ident
from typing import Any, TypeVar

from perkey.clock import SYSTEM, Clock
from perkey.errors import ForkedStore, NotSupported, StoreClosed, UsageError
from perkey.observe import events
from perkey.observe.hooks import Hook, Observers
from perkey.store.abc import Backend
from perkey.store.calls import Calls
from perkey.store.committer import Committer
from perkey.store.keys import DOCUMENTS, names_of
from perkey.store.lane import Lane
from perkey.store.limits import check_keys, seconds
from perkey.store.listening import Listening
from perkey.store.transaction import Outcome, Transaction

T = TypeVar("T")

MULTI_KEY_STORES = (
    "memory://, sqlite://, postgresql://, redis://, etcd://, dynamodb:// or nats:// (2.12 or newer)"
)
"""The stores that commit several keys at once; ``atomic_keys`` of each says how many."""


class Core:
    """One open backend.  Shared by any number of threads and event loops of one process."""

    def __init__(
        self,
        backend: Backend,
        *,
        clock: Clock = SYSTEM,
        observers: tuple[Hook, ...] = (),
        strict: bool = False,
        lane: threading.Lock | None = None,
    ) -> None:
        """``lane``: another core's, where two of them share one backend."""
        self.backend = backend
        self.limits = backend.limits
        self.clock = clock
        self.strict = strict
        self.observers = Observers(observers)
        self.spans: Any = None
        """What puts spans around transactions, where somebody asked for them."""
        self.lane = lane or threading.Lock()
        self._committer = Committer(backend, clock, self._report, self.lane)
        reader = backend.reader()
        self._reader = reader or backend
        self._lane = Lane(threading.Lock() if reader else self.lane)
        self._wakers = Calls[None]()
        self._listening = Listening(backend, self._wakers)
        self.closed = False
        self.forked = False
        self._closing = threading.Lock()
        self._gone = False
        _open_cores.add(self)

    # ------------------------------------------------------------------ writing

    def transact(self, transaction: Transaction, timeout: float | None) -> Outcome:
        """Commit, blocking; returns the outcome, its error not raised."""
        self.check(transaction)
        wait = self.limits.timeout_s if timeout is None else seconds(timeout)
        return self._committer.submit(transaction, wait)

    def transact_async(
        self, transaction: Transaction, timeout: float | None
    ) -> Coroutine[Any, Any, Outcome]:
        """Commit without blocking the loop; to be awaited."""
        self.check(transaction)
        wait = None if timeout is None else seconds(timeout)
        return self._committer.submit_async(transaction, wait)

    def check(self, transaction: Transaction) -> None:
        """Refuse, before anything runs, what this store cannot do in one commit."""
        self.check_open()
        if self._committer.owner == get_ident():
            raise _nested()
        check_keys(len(transaction.keys), self.limits)
        atomic = self.backend.atomic_keys
        if atomic is None:
            return
        count = len(transaction.keys) - (transaction.fence is not None and atomic == 1)
        if count > atomic:
            raise NotSupported(
                f"this store ({self.backend.name}) commits at most {atomic} keys at once, and this "
                f"transaction needs {count} (its receipt counts too); "
                f"use {MULTI_KEY_STORES} for that"
            )

    def check_open(self) -> None:
        """Raise unless this store is open, in the process that opened it."""
        if self.forked:
            raise ForkedStore
        if self.closed:
            raise StoreClosed

    def _report(self, transactions: Sequence[Transaction], outcomes: Sequence[Outcome]) -> None:
        """Count what became of one commit's transactions, and wake the watchers once."""
        try:
            self._tell(transactions, outcomes)
        finally:
            self.observers.interrupted()

    def _tell(self, transactions: Sequence[Transaction], outcomes: Sequence[Outcome]) -> None:
        attempts: list[int] = []
        documents: list[str] = []
        slow, notable, landed = self.limits.slow_fn_s, self.observers.listening, False
        for transaction, outcome in zip(transactions, outcomes, strict=True):
            if outcome.writes:
                landed = True
                several = transaction.stands_for
                attempts += [outcome.attempts] * (several(outcome.result) if several else 1)
                # Only documents can conflict: leases, boards and receipts would thin the rate.
                keys = [record.key for record in outcome.writes]
                documents += [key[2:] for key in keys if key.startswith(DOCUMENTS)]
            notable = notable or outcome.replayed or outcome.seconds > slow
        if landed:
            self.observers.committed(attempts, documents)
        if notable:
            for transaction, outcome in zip(transactions, outcomes, strict=True):
                self._tell_of(transaction, outcome, len(transactions))
        if landed:
            self.wake_watchers()

    def _tell_of(self, transaction: Transaction, outcome: Outcome, size: int) -> None:
        observers, by = self.observers, transaction.by
        if outcome.writes:
            if observers.listening:  # else its event is not worth building
                names = names_of(record.key for record in outcome.writes)
                observers.hand_out(
                    events.Committed(names, by, transaction.op, size, outcome.attempts)
                )
        elif outcome.replayed:
            observers.tell(events.Replayed(transaction.op, by))
        if outcome.seconds > self.limits.slow_fn_s:
            observers.tell(events.SlowFunction(names_of(transaction.keys), by, outcome.seconds))

    # ------------------------------------------------------------------ reading

    def read(self, use: Callable[[Backend], T]) -> T:
        """Call ``use`` with the reading backend; blocks the calling thread."""
        self._check_may_read()
        return self._lane.run(lambda: use(self._reader))

    async def read_async(self, use: Callable[[Backend], T]) -> T:
        """Call ``use`` with the reading backend, off the loop where it may block."""
        self._check_may_read()
        if not self.backend.blocking:
            return self._lane.run(lambda: use(self._reader))
        return await self._lane.run_async(lambda: use(self._reader))

    def _check_may_read(self) -> None:
        self.check_open()
        committer = self._committer
        if committer.applying and committer.owner == get_ident():
            raise _nested()

    def on_commit(self, owner: object, wake: Callable[[None], None]) -> Callable[[], object]:
        """Call ``wake(None)`` after each commit of this process, and at close, for as long as
        ``owner`` lives; returns the undo.  ``wake`` must not refer to ``owner``."""
        undo = self._wakers.add(owner, wake)
        self._listening.start()
        return undo

    def before_commit(self, owner: object, look: Callable[[Backend], None]) -> Callable[[], object]:
        """Call ``look`` once with the backend, right before the next commit of this process."""
        return self._committer.before.add(owner, look)

    def wake_watchers(self) -> None:
        """Let every watcher look again."""
        if self._wakers.kept:
            self._wakers.use(None)

    # ------------------------------------------------------------------ the rest

    def statistics(self) -> dict[str, Any]:
        """Counters since this store was opened."""
        observers = self.observers
        return {
            "backend": self.backend.name,
            "commits": self._committer.commits,
            "largest_batch": self._committer.largest,
            "waiting": self._committer.waiting(),
            "events": dict(observers.counts),
            "attempts": dict(observers.attempts),
            "conflict_rate": observers.conflict_rates(),
            "observer_errors": observers.errors,
        }

    def close(self) -> None:
        """Finish what was handed over, then give the backend back.  Blocks; repeatable, also
        after an interrupt."""
        if self.forked:
            return
        if self._committer.owner == get_ident():
            raise _nested()
        self.closed = True
        with self._closing:
            if self._gone:
                return
            self._committer.close()
            self._lane.close()
            self.wake_watchers()
            self._listening.close()
            with self.lane:
                if self._reader is not self.backend:
                    self._reader.close()
                self.backend.close()
            _open_cores.discard(self)
            self._gone = True


def _nested() -> UsageError:
    return UsageError(
        "the store was called from inside a transaction or an observer of this very store, and "
        "would wait for itself: read and write through tx, and do the rest before or after"
    )


_open_cores: weakref.WeakSet[Core] = weakref.WeakSet()
_inherited: list[Core] = []


def _after_fork() -> None:
    # A child must neither use nor close what its parent has open (closing an inherited
    # SQLite file can drop the parent's locks), so it is kept, unused, until the child exits.
    for core in list(_open_cores):
        core.forked = True
        _inherited.append(core)


os.register_at_fork(after_in_child=_after_fork)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs on this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
