"""Beats beside an effect: a thread of their own, but only where the effect takes that long.

Most effects are over before the first beat is due.  One alarm for the whole process waits for
the few that are not, and starts their threads.
"""

from __future__ import annotations

import heapq
import itertools
import math
import os
import threading
from collections.abc import Callable
from contextlib import suppress

from perkey.clock import SYSTEM


class Alarm:
    """Calls functions when they are due, on one thread.  They must be quick."""

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        # A child has none of its parent's threads, and none of what they waited for.
        self._more = threading.Condition()
        self._due: list[tuple[float, int, Heartbeat]] = []
        self._number = itertools.count()
        self._over = 0
        self._running = False
        self._looks_at = math.inf
        """When the thread looks next by itself, by the clock; it need not be woken for later."""

    def set(self, seconds: float, what: Heartbeat) -> None:
        """Begin ``what`` after ``seconds``, unless it is over by then."""
        with self._more:
            due = SYSTEM.monotonic() + seconds
            heapq.heappush(self._due, (due, next(self._number), what))
            if not self._running:
                threading.Thread(target=self._work, name="perkey-alarm", daemon=True).start()
                self._running = True
            elif due < self._looks_at:
                self._more.notify()

    def drop(self) -> None:
        """One of those that are set is over; most are, so they are thrown out now and then."""
        with self._more:
            self._over += 1
            if self._over > 100 and self._over > len(self._due) // 2:
                self._due = [entry for entry in self._due if not entry[2].over]
                heapq.heapify(self._due)
                self._over = 0

    def _work(self) -> None:
        while True:
            with self._more:
                # What is over stays until its time: else each short effect, being the only one,
                # would wake this thread to tell it about the next.
                self._looks_at = self._due[0][0] if self._due else math.inf
                left = self._looks_at - SYSTEM.monotonic()
                if left > 0:
                    self._more.wait(None if left == math.inf else left)
                    continue
                due = heapq.heappop(self._due)[2]
            if not due.over:
                due.begin()


ALARM = Alarm()


class Heartbeat:
    """Calls ``beat`` every ``every`` seconds until the end of the block, or until it fails."""

    def __init__(self, every: float, beat: Callable[[], object]) -> None:
        self._every = every
        self._beat = beat
        self._lock = threading.Lock()
        self.over = False
        """Whether the block has ended."""
        self._thread: threading.Thread | None = None
        self._done: threading.Event | None = None
        """Ends the thread's waiting; few blocks get either."""

    def __enter__(self) -> None:
        ALARM.set(self._every, self)

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self.over = True
            if self._done is not None:
                self._done.set()
        ALARM.drop()
        if self._thread is not None:
            self._thread.join()

    def begin(self) -> None:
        """Start beating, unless the block has ended."""
        with self._lock:
            if self.over:
                return
            self._done = done = threading.Event()
            thread = threading.Thread(
                target=self._work, args=(done,), name="perkey-heartbeat", daemon=True
            )
            with suppress(RuntimeError):  # no thread to be had: the lease ends, and says so
                thread.start()
                self._thread = thread

    def _work(self, done: threading.Event) -> None:
        while not self.over:
            try:
                self._beat()
            except Exception:
                return
            done.wait(self._every)
