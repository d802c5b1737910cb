"""One thread at a time through a backend's reading side, from threads and from event loops."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
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
        self.error: Exception | None = None


class Lane:
    """Runs calls under one lock: a thread's own right there, a loop's on one worker thread."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._jobs: deque[_Job] = deque()
        self._signal = threading.Semaphore(0)
        self._start = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def run(self, use: Callable[[], T]) -> T:
        """Call ``use`` on this thread when the lane is free."""
        with self._lock:
            return use()

    async def run_async(self, use: Callable[[], T]) -> T:
        """Call ``use`` on the worker thread; cancelling gives up the answer only."""
        job = _Job(use)
        with self._start:
            if self._closed:
                raise StoreClosed
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="perkey-reader", daemon=True
                )
                self._thread.start()
            self._jobs.append(job)
        self._signal.release()
        await job.future
        if job.error is not None:
            raise job.error
        result: T = job.result
        return result

    def _work(self) -> None:
        while True:
            self._signal.acquire()
            if not self._jobs:
                if self._closed:
                    return
                continue
            self._serve()

    def _serve(self) -> None:
        """Run all that is queued, then wake each loop once."""
        loops: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        with self._lock:
            while self._jobs:
                job = self._jobs.popleft()
                try:
                    job.result = job.use()
                except Exception as error:
                    job.error = error
                loops.setdefault(job.loop, []).append(job)
        for loop, jobs in loops.items():
            try:
                loop.call_soon_threadsafe(_resolve, jobs)
            except RuntimeError:  # that loop is closed: nobody waits there any more
                continue

    def close(self) -> None:
        """Serve what is queued, then stop the worker."""
        with self._start:
            self._closed = True
        if self._thread is not None:
            self._signal.release()
            self._thread.join()


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        if not job.future.done():
            job.future.set_result(None)
