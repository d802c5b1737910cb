"""The committer: many callers, one commit at a time, in the order they came.

Group commit with leader and followers.  The first caller leads: it commits its own
transaction and is gone, so a lone caller pays no thread hand-off.  Whoever arrives meanwhile
queues; when a leader is done, the first in the queue leads next and takes the whole queue
along in one commit, so a crowd shares one fsync; ``gathering.py`` says whom a leader waits for.
Callers on an event loop never lead on a backend that may block; one worker thread leads for
them.  It is called when all tasks that were ready have queued, and wakes each loop once a commit.

A caller that gives up while it is still queued is withdrawn: nothing was done.  Once handed
over, its ``op`` in the record tells whether it committed.

Ctrl-C may strike between any two calls.  What a leader has in hand therefore stands in
``_taken``, ``_batch`` and ``_outcomes``, and every step that moves it may be repeated.
``_step_down`` can be called at any moment: it answers what was committed, puts back what was
not, and passes leadership on.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import get_ident

from perkey.clock import Clock
from perkey.errors import OutcomeUnknown, PerkeyError, QueueFull, StoreClosed, Timeout
from perkey.store.abc import Backend
from perkey.store.calls import Calls
from perkey.store.evaluate import Batch, unknown_op
from perkey.store.gathering import Gathering
from perkey.store.requests import (
    DONE,
    QUEUED,
    TAKEN,
    WITHDRAWN,
    Request,
    locked,
    own_copy,
    resolve,
    tell,
    too_late,
)
from perkey.store.settle import settled
from perkey.store.transaction import Outcome, Transaction

INTERRUPTS = 100
"""How often a leader that is stepping down may be interrupted before it gives up."""

Report = Callable[[Sequence[Transaction], Sequence[Outcome]], None]
"""(transactions, outcomes) of one commit, called by its leader; raises nothing but what is to
interrupt the leader itself."""


class Committer:
    """The queue in front of one backend.  Safe from any thread and any event loop."""

    def __init__(
        self, backend: Backend, clock: Clock, report: Report, lane: threading.Lock
    ) -> None:
        self._backend = backend
        self._limits = backend.limits
        self._clock = clock
        self._report = report
        self.lane = lane
        """Held around every use of the backend; readers that share it take it too."""
        self._mutex = threading.Lock()
        self._queue: deque[Request] = deque()
        self._withdrawn = 0
        self._leader: Request | None = None
        self._gathering = Gathering(clock)
        self._taken: list[Request] = []
        self._batch: Batch | None = None
        self._outcomes: list[Outcome] | None = None
        self._error: Exception | None = None
        self.before = Calls[Backend]()
        """Called by the leader with the backend, right before its commit; they may not raise."""
        self.owner = 0
        """The thread that leads: what it calls must not wait for the queue."""
        self.applying = False
        """Whether it is inside the backend, where it must not read either."""
        self._worker = Request(Transaction((), lambda tx: None), 0.0)
        self._closer = Request(Transaction((), lambda tx: None), 0.0)
        self._closer.wake = locked()
        self._thread: threading.Thread | None = None
        self._signal: SimpleQueue[None] = SimpleQueue()
        self._calling: asyncio.AbstractEventLoop | None = None
        """The loop that is about to call the worker."""
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
            if self._lead_here(request) or self._enlist(request):
                self._lead(request)
            else:
                self._follow(request, timeout)
        except BaseException as error:
            self._leave(request, error)
            raise
        return request.answer()

    def _lead_here(self, request: Request) -> bool:
        """Make ``request`` the leader where there is none."""
        with self._mutex:
            if self._closed:
                raise StoreClosed
            if self._leader is not None:
                return False
            self._leader = request
            return True

    def _enlist(self, request: Request) -> bool:
        """Queue ``request``, unless it may lead after all (then True)."""
        request.wake = locked()
        with self._mutex:
            if self._leader is None and not self._closed:
                self._leader = request
                return True
            self._put_in_queue(request)
            return False

    def _put_in_queue(self, request: Request) -> None:
        if self._closed:
            raise StoreClosed
        if len(self._queue) >= self._limits.queue and self._withdrawn:
            self._queue = deque(each for each in self._queue if each.state != WITHDRAWN)
            self._withdrawn = 0
        if len(self._queue) >= self._limits.queue:
            raise QueueFull(
                f"{len(self._queue)} transactions wait for this store and its limit is "
                f"{self._limits.queue}; slow down or raise Limits.queue"
            )
        self._queue.append(request)
        self._gathering.arrived()

    def _follow(self, request: Request, timeout: float) -> None:
        assert request.wake is not None
        if not request.wake.acquire(timeout=timeout):
            if self._withdraw(request):
                raise too_late(timeout)
            request.wake.acquire()  # handed over: it will not be long
        if request.state != DONE:
            self._lead(request)

    def _withdraw(self, request: Request) -> bool:
        with self._mutex:
            if request.state != QUEUED:
                return False
            request.state = WITHDRAWN
            self._withdrawn += 1
            return True

    def _leave(self, request: Request, error: BaseException) -> None:
        """The caller goes away with ``error``, perhaps in the middle of leading."""
        for _ in range(INTERRUPTS):
            if self._leader is not request:
                break
            try:
                self._step_down(request)
            except BaseException:  # another interrupt: one is on its way already
                continue
        if not isinstance(error, PerkeyError) and not self._withdraw(request):
            self._let_go(request, error)

    def _let_go(self, request: Request, error: BaseException) -> None:
        with self._mutex:
            # Nobody waits for it any more, so it must never be made the leader.
            request.wake = None
            if request.state != WITHDRAWN:
                error.add_note(
                    f"perkey: the transaction (op {request.transaction.op}) had been handed "
                    "over already; its op in the record tells whether it committed"
                )

    # ------------------------------------------------------------------ asyncio

    async def submit_async(self, transaction: Transaction, timeout: float | None) -> Outcome:
        """Like ``submit``, without ever blocking the loop."""
        wait = self._limits.timeout_s if timeout is None else timeout
        request = Request(transaction, self._clock.monotonic() + wait)
        timer = None
        try:
            if not self._backend.blocking and self._lead_here(request):
                self._lead(request)
                return request.answer()
            request.loop = asyncio.get_running_loop()
            request.future = request.loop.create_future()
            self._enlist_async(request)
            if timeout is not None:
                timer = request.loop.call_later(timeout, self._expire, request, timeout)
            await request.future
        except BaseException as error:
            self._leave(request, error)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return request.answer()

    def _enlist_async(self, request: Request) -> None:
        with self._mutex:
            self._put_in_queue(request)
            if self._thread is None:
                self._start_worker()
            if self._leader is None and self._calling is not request.loop:
                assert request.loop is not None
                request.loop.call_soon(self._call_worker)
                self._calling = request.loop

    def _call_worker(self) -> None:
        """Let the worker lead, after all that was ready on a loop has queued.

        Until then nobody leads: a thread that comes before takes the queue along.
        """
        with self._mutex:
            self._calling = None
            if self._leader is None and self._queue:
                self._leader = self._worker
                self._signal.put(None)

    def _expire(self, request: Request, timeout: float) -> None:
        if self._withdraw(request):
            request.error = too_late(timeout)
            resolve([request])

    def _start_worker(self) -> None:
        thread = threading.Thread(target=self._work, name="perkey-committer", daemon=True)
        thread.start()
        self._thread = thread

    def _work(self) -> None:
        while True:
            self._signal.get()
            if self._leader is self._worker:
                try:
                    self._lead(self._worker)
                except BaseException as error:  # each caller is told; the worker goes on
                    self._leave(self._worker, error)
            elif self._closed:
                return

    # ------------------------------------------------------------------ leading

    def _lead(self, leader: Request) -> None:
        """Commit the queue's first transactions, the leader's own among them; then pass on."""
        self.owner = get_ident()
        if leader is not self._worker and self._backend.blocking:
            self._gather(leader)  # a loop gathers its tasks itself, and must not be made to wait
        self._take(leader)
        while self._taken and not self._decided:
            self._commit(self._taken)
        self._step_down(leader)

    def _gather(self, leader: Request) -> None:
        """Wait a little for those who were answered with this leader; they come back, too."""
        end = self._gathering.end(leader.deadline)
        while (moment := self._gathering.moment(end)) > 0:
            with self._mutex:
                here = len(self._queue) + (leader.state != TAKEN)  # or it is one of the queue
                arrival = self._gathering.missing(here)
            if arrival is None or not arrival.acquire(timeout=moment):
                return

    def _take(self, leader: Request) -> None:
        with self._mutex:
            queue, taken = self._queue, self._taken
            if leader is not self._worker:
                leader.state = TAKEN
                taken.append(leader)
            most = self._limits.batch
            while queue and len(taken) < most:
                request = queue[0]
                if request is self._closer:
                    break
                if request.state == QUEUED:
                    request.state = TAKEN
                    taken.append(request)
                elif request.state == WITHDRAWN:
                    self._withdrawn -= 1
                queue.popleft()

    def _commit(self, requests: list[Request]) -> None:
        batch = self._batch
        if batch is None:
            batch = self._batch = Batch(
                [each.transaction for each in requests],
                value_bytes=self._limits.value_bytes,
                clock=self._clock,
                deadline=min([each.deadline for each in requests]),
            )
        began = self._clock.monotonic()
        try:
            with self.lane:
                self.applying = True
                try:
                    if self.before.kept:
                        self.before.use_up(self._backend)
                    self._outcomes, interrupt = settled(
                        self._backend.apply, batch, self._limits, self._clock
                    )
                finally:
                    self.applying = False
        except Timeout as late:
            self._fail_late(requests, late)
            return
        except Exception as error:
            self._error = error
            return
        self._gathering.committed(began)
        self.commits += 1
        self.largest = max(self.largest, len(requests))
        self._report(batch.transactions, self._outcomes)
        if interrupt is not None:
            raise interrupt

    def _fail_late(self, requests: list[Request], late: Timeout) -> None:
        """Fail those whose time is up; the others go on waiting for the store."""
        now = self._clock.monotonic()
        self._batch = None
        over = [each for each in requests if each.deadline <= now] or requests
        for request in over:
            request.error = own_copy(late)
            request.state = DONE
        tell(over)
        self._taken = [each for each in requests if each.state != DONE]

    @property
    def _decided(self) -> bool:
        """Whether it is known what became of ``_taken``."""
        return self._outcomes is not None or self._error is not None

    def _step_down(self, leader: Request) -> None:
        """Answer what was decided, put back what was not, and let the next one lead."""
        taken = self._taken
        if not self._decided and self._batch is not None and self._batch.in_doubt:
            self._commit(taken)
        if self._decided:
            self._decide(taken)
        else:
            self._put_back(taken, leader)
        self._gathering.expect(len(taken) + len(self._queue))
        others = [each for each in taken if each.state == DONE and each is not leader]
        if others:
            tell(others)
        with self._mutex:
            if self._leader is not leader:
                return
            self._taken, self._batch, self._outcomes, self._error = [], None, None, None
            if leader.state == TAKEN:
                leader.state = WITHDRAWN
            queue = self._queue
            while queue and (queue[0] is leader or queue[0].state == WITHDRAWN):
                queue.popleft()
            self.owner = 0
            if not queue:
                self._leader = None
                return
            # The queue's first leads next; it leaves the queue when it takes its batch.  No
            # interrupt strikes between two of the statements below: each pair is one call.
            first = queue[0]
            if first.wake is not None:
                first.state = TAKEN
                self._leader = first
                first.wake.release()
            elif self._calls_back(first.loop):
                self._leader = None
            else:
                self._leader = self._worker
                self._signal.put(None)

    def _calls_back(self, loop: asyncio.AbstractEventLoop | None) -> bool:
        """Whether ``loop``, the only one to wait, will call the worker when its round is over.

        Those that were just answered are queueing again: they come along.
        """
        if loop is None or any(each.loop is not loop for each in self._queue):
            return False
        with suppress(RuntimeError):  # it is closed
            loop.call_soon_threadsafe(self._call_worker)
            self._calling = loop
            return True
        return False

    def _decide(self, requests: list[Request]) -> None:
        for index, request in enumerate(requests):
            if request.state == DONE:
                continue
            if self._outcomes is not None:
                request.outcome = self._outcomes[index]
            elif isinstance(self._error, OutcomeUnknown):
                transaction = request.transaction
                request.error = unknown_op(transaction.op, "".join(transaction.keys[:1]))
                request.error.__cause__ = self._error
            else:
                request.error = own_copy(self._error)
            request.state = DONE

    def _put_back(self, requests: list[Request], leader: Request) -> None:
        """Nothing was done, and the leader is interrupted: the others keep their place."""
        with self._mutex:
            for request in reversed(requests):
                if request is leader or request.state != TAKEN:
                    continue
                if request.wake is None and request.loop is None:
                    request.state = WITHDRAWN  # its caller has gone
                    continue
                if not self._queue or self._queue[0] is not request:
                    self._queue.appendleft(request)
                request.state = QUEUED

    # ------------------------------------------------------------------ the end

    def waiting(self) -> int:
        """How many callers are queued."""
        with self._mutex:
            return sum(each.state == QUEUED for each in self._queue)

    def close(self) -> None:
        """Refuse new work, fail what is queued, and wait for what was handed over."""
        with self._mutex:
            self._closed = True
            while self._queue and self._queue[-1].state != TAKEN:
                last = self._queue[-1]
                if last.state == QUEUED and last is not self._closer:
                    last.error = StoreClosed()
                    last.state = DONE
                if last.state == DONE:
                    tell([last])
                self._queue.pop()
            # Closing is the last turn in the queue, and it is never passed on.
            if self._leader is None:
                self._leader = self._closer
            elif self._leader is not self._closer:
                self._closer.state = QUEUED
                self._queue.append(self._closer)
        if self._leader is not self._closer:
            assert self._closer.wake is not None
            self._closer.wake.acquire()
        if self._thread is not None:
            self._signal.put(None)
            self._thread.join()
