"""The committer: many callers, one commit at a time, in the order they came.

Group commit with leader and followers.  The first caller leads: it commits its own
transaction and is gone, so a lone caller pays no thread hand-off.  Whoever arrives meanwhile
queues; when a leader is done, the first in the queue leads next and takes the whole queue
along in one commit, so a crowd shares one fsync.  Callers on an event loop never lead on a
backend that may block; one worker thread leads for them and wakes each loop once a commit.

A caller that gives up while it is still queued is withdrawn: nothing was done.  Once handed
over, its transaction commits, and its ``op`` tells so in the record.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence

from perkey.clock import Clock
from perkey.errors import PerkeyError, QueueFull, StoreClosed, Timeout
from perkey.store.abc import Backend
from perkey.store.evaluate import Batch
from perkey.store.settle import settled
from perkey.store.transaction import Outcome, Transaction

QUEUED, TAKEN, DONE, WITHDRAWN = range(4)

Report = Callable[[Sequence[Transaction], Sequence[Outcome]], None]
"""(transactions, outcomes) of one commit, called by its leader; may not raise."""


class Request:
    """One caller waiting for one transaction."""

    __slots__ = ("deadline", "error", "future", "loop", "outcome", "state", "transaction", "wake")

    def __init__(self, transaction: Transaction, deadline: float | None) -> None:
        self.transaction = transaction
        self.deadline = deadline
        self.state = QUEUED
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self.wake: threading.Lock | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[None] | None = None

    def answer(self) -> Outcome:
        if self.error is not None:
            raise self.error
        assert self.outcome is not None
        return self.outcome


class Committer:
    """The queue in front of one backend.  Safe from any thread and any event loop."""

    def __init__(self, backend: Backend, clock: Clock, report: Report) -> None:
        self._backend = backend
        self._limits = backend.limits
        self._clock = clock
        self._report = report
        self.lane = threading.Lock()
        """Held around every use of the backend; readers that share it take it too."""
        self._mutex = threading.Lock()
        self._queue: deque[Request] = deque()
        self._worker = Request(Transaction((), lambda tx: None), None)
        self._leader: Request | None = None
        self._thread: threading.Thread | None = None
        self._signal = threading.Semaphore(0)
        self._closed = False
        self.commits = 0
        self.largest = 0

    # ------------------------------------------------------------------ threads

    def submit(self, transaction: Transaction, timeout: float) -> Outcome:
        """Commit ``transaction`` and return its outcome; blocks the calling thread.

        ``timeout`` bounds, in seconds, the wait for its turn; raises ``Timeout`` with nothing
        done.
        """
        request = Request(transaction, self._clock.monotonic() + timeout)
        try:
            if self._enlist(request):
                return self._lead(request)
            return self._follow(request, timeout)
        finally:
            # Also when Ctrl-C strikes anywhere above: leadership is never lost.
            if self._leader is request:
                self._pass_on(request)

    def _enlist(self, request: Request) -> bool:
        """Make ``request`` the leader where there is none (then True), else queue it."""
        if self._lead_here(request):
            return True
        request.wake = threading.Lock()
        request.wake.acquire()
        with self._mutex:
            if self._leader is None and not self._closed:
                self._leader = request
                return True
            self._queue_locked(request)
            return False

    def _lead_here(self, request: Request) -> bool:
        with self._mutex:
            if self._closed:
                raise StoreClosed
            if self._leader is not None:
                return False
            self._leader = request
            return True

    def _queue_locked(self, request: Request) -> None:
        if self._closed:
            raise StoreClosed
        if len(self._queue) >= self._limits.queue:
            raise QueueFull(
                f"{len(self._queue)} transactions wait for this store and its limit is "
                f"{self._limits.queue}; slow down or raise Limits.queue"
            )
        self._queue.append(request)

    def _follow(self, request: Request, timeout: float) -> Outcome:
        assert request.wake is not None
        try:
            woken = request.wake.acquire(timeout=timeout)
        except BaseException as interrupt:
            if not self._withdraw(request) and self._leader is not request:
                interrupt.add_note(_handed_over(request))
            raise
        if not woken:
            if self._withdraw(request):
                raise _too_late(timeout)
            request.wake.acquire()
        if request.state == DONE:
            return request.answer()
        return self._lead(request)

    def _withdraw(self, request: Request) -> bool:
        with self._mutex:
            if request.state != QUEUED:
                return False
            request.state = WITHDRAWN
            return True

    # ------------------------------------------------------------------ asyncio

    async def submit_async(self, transaction: Transaction, timeout: float | None) -> Outcome:
        """Like ``submit``, without ever blocking the loop."""
        wait = self._limits.timeout_s if timeout is None else timeout
        request = Request(transaction, self._clock.monotonic() + wait)
        if not self._backend.blocking and self._lead_here(request):
            try:
                return self._lead(request)
            finally:
                if self._leader is request:
                    self._pass_on(request)
        request.loop = asyncio.get_running_loop()
        request.future = request.loop.create_future()
        self._enlist_async(request)
        timer = None
        if timeout is not None:
            timer = request.loop.call_later(timeout, self._expire, request, timeout)
        try:
            await request.future
        except asyncio.CancelledError as cancelled:
            if not self._withdraw(request):
                cancelled.add_note(_handed_over(request))
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return request.answer()

    def _enlist_async(self, request: Request) -> None:
        with self._mutex:
            self._queue_locked(request)
            if self._leader is not None:
                return
            self._leader = self._worker
        self._start_worker()

    def _expire(self, request: Request, timeout: float) -> None:
        if self._withdraw(request):
            request.error = _too_late(timeout)
            _resolve([request])

    def _start_worker(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="perkey-committer", daemon=True)
            self._thread.start()
        self._signal.release()

    def _work(self) -> None:
        while True:
            self._signal.acquire()
            with self._mutex:
                if self._closed and self._leader is not self._worker:
                    return
            try:
                self._lead(self._worker)
            except Exception:  # each caller was told; the worker goes on
                continue

    # ------------------------------------------------------------------ leading

    def _lead(self, leader: Request) -> Outcome:
        """Commit the queue's first transactions, the leader's own among them; then pass on."""
        requests = self._take(leader)
        try:
            self._commit(requests)
        finally:
            self._pass_on(leader)
        return leader.answer() if leader is not self._worker else Outcome()

    def _take(self, leader: Request) -> list[Request]:
        taken = [] if leader is self._worker else [leader]
        with self._mutex:
            leader.state = TAKEN
            while self._queue and len(taken) < self._limits.batch:
                request = self._queue.popleft()
                if request.state == QUEUED:
                    request.state = TAKEN
                    taken.append(request)
        return taken

    def _commit(self, requests: list[Request]) -> None:
        while requests:
            batch = Batch([each.transaction for each in requests])
            batch.value_bytes = self._limits.value_bytes
            batch.deadline = min(each.deadline or 0.0 for each in requests)
            try:
                with self.lane:
                    outcomes, interrupt = settled(
                        self._backend.apply, batch, self._limits, self._clock
                    )
            except Timeout as late:
                requests = self._fail_late(requests, late)
                continue
            except Exception as error:
                self._finish(requests, None, error)
                return
            except BaseException:
                self._requeue(requests)
                raise
            self.commits += 1
            self.largest = max(self.largest, len(requests))
            self._report(batch.transactions, outcomes)
            self._finish(requests, outcomes, None)
            if interrupt is not None:
                raise interrupt
            return

    def _fail_late(self, requests: list[Request], late: Timeout) -> list[Request]:
        """Fail those whose time is up; the others go on waiting for the store."""
        now = self._clock.monotonic()
        over = [each for each in requests if (each.deadline or 0.0) <= now]
        over = over or requests
        self._finish(over, None, late)
        return [each for each in requests if each.state != DONE]

    def _requeue(self, requests: list[Request]) -> None:
        """Nothing was done, and the leader is being interrupted: the others keep their place."""
        with self._mutex:
            for request in reversed(requests):
                if request is self._leader:
                    request.state = DONE
                elif request.state == TAKEN:
                    request.state = QUEUED
                    self._queue.appendleft(request)

    def _finish(
        self, requests: list[Request], outcomes: list[Outcome] | None, error: Exception | None
    ) -> None:
        loops: dict[asyncio.AbstractEventLoop, list[Request]] = {}
        for index, request in enumerate(requests):
            if outcomes is not None:
                request.outcome = outcomes[index]
            else:
                request.error = _own_copy(error)
            request.state = DONE
            if request.wake is not None:
                request.wake.release()
            elif request.loop is not None:
                loops.setdefault(request.loop, []).append(request)
        for loop, group in loops.items():
            try:
                loop.call_soon_threadsafe(_resolve, group)
            except RuntimeError:  # that loop is closed: nobody waits there any more
                continue

    def _pass_on(self, leader: Request) -> None:
        with self._mutex:
            if self._leader is not leader:
                return
            while self._queue and self._queue[0].state != QUEUED:
                self._queue.popleft()
            if not self._queue:
                self._leader = None
                return
            first = self._queue[0]
            if first.wake is not None:
                self._queue.popleft()
                first.state = TAKEN
                self._leader = first
                first.wake.release()
                return
            self._leader = self._worker
        self._start_worker()

    # ------------------------------------------------------------------ the end

    def waiting(self) -> int:
        """How many callers are queued."""
        return len(self._queue)

    def close(self) -> None:
        """Refuse new work, finish what was handed over, fail what is still queued."""
        with self._mutex:
            self._closed = True
            left = [each for each in self._queue if each.state == QUEUED]
            self._queue.clear()
            for request in left:
                request.state = WITHDRAWN
        self._finish(left, None, StoreClosed())
        if self._thread is not None and self._thread is not threading.current_thread():
            self._signal.release()
            self._thread.join()


def _resolve(requests: list[Request]) -> None:
    for request in requests:
        if request.future is not None and not request.future.done():
            request.future.set_result(None)


def _own_copy(error: Exception | None) -> Exception | None:
    """One exception object a caller: a shared one would collect everybody's tracebacks."""
    if isinstance(error, PerkeyError):
        copy = type(error)(error.message, **error.details)
        copy.__cause__ = error.__cause__ or error
        return copy
    return error


def _too_late(timeout: float) -> Timeout:
    return Timeout(
        f"the store did not get to this transaction within {timeout:g} s; nothing was done"
    )


def _handed_over(request: Request) -> str:
    return (
        f"perkey: the transaction (op {request.transaction.op}) was already handed over and "
        "commits; look for its op in the record"
    )
