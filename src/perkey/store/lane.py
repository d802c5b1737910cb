"""One thread at a time through a backend's reading side, from threads and from event loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from perkey.errors import StoreClosed

T = TypeVar("T")


class _Job:
    __slots__ = ("error", "future", "loop", "result", "use")

    def __init__(self, use: Callable[[], Any]) -> None:
        self.use = use
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None


class Lane:
    """Runs calls under one lock: a thread's own right there, a loop's on one worker thread."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._start = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def run(self, use: Callable[[], T]) -> T:
        """Call ``use`` on this thread when the lane is free."""
        with self._lock:
            if self._closed:
                raise StoreClosed
            return use()

    async def run_async(self, use: Callable[[], T]) -> T:
        """Call ``use`` on the worker thread; cancelling gives up the answer only."""
        job = _Job(use)
        with self._start:
            if self._closed:
                raise StoreClosed
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="perkey-reader", daemon=True)
                thread.start()
                self._thread = thread
            self._jobs.put(job)
        await job.future
        if job.error is not None:
            raise job.error
        result: T = job.result
        return result

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            jobs = [job]
            while not self._jobs.empty() and (more := self._jobs.get()) is not None:
                jobs.append(more)
            self._serve(jobs)
            if self._closed and self._jobs.empty():
                return

    def _serve(self, jobs: list[_Job]) -> None:
        """Run these, then wake each loop once."""
        loops: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        with self._lock:
            for job in jobs:
                try:
                    job.result = job.use()
                except BaseException as error:
                    job.error = error
                loops.setdefault(job.loop, []).append(job)
        for loop, group in loops.items():
            try:
                loop.call_soon_threadsafe(_resolve, group)
            except RuntimeError:  # that loop is closed: nobody waits there any more
                continue

    def close(self) -> None:
        """Serve what is queued, then stop the worker.  May be repeated."""
        with self._start:
            self._closed = True
            self._jobs.put(None)
        if self._thread is not None:
            self._thread.join()
        # Whoever is inside leaves first; the next one sees that it is closed.
        with self._lock:
            pass


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        if not job.future.done():
            job.future.set_result(None)
