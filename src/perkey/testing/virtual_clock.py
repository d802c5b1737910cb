"""``VirtualClock``: time that moves when the test says so."""

from __future__ import annotations

import random
import threading

from perkey.errors import UsageError


class VirtualClock:
    """A ``perkey.clock.Clock``: ``perkey.open("memory://", clock=VirtualClock())``.

    ``advance`` lets time pass; ``set_wall`` sets the wall clock alone, as an administrator
    would, which must change nothing that matters.  A thread that sleeps moves the clock itself
    and goes on at once.  Chance and tokens come from ``seed``, so a run can be repeated.
    """

    def __init__(self, start_ms: int = 1_700_000_000_000, seed: int = 0) -> None:
        self._elapsed = 0.0
        self._wall = start_ms
        self._chance = random.Random(seed)
        self._tokens = 0
        self._mutex = threading.Lock()

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass, on both clocks."""
        if not seconds >= 0:
            raise UsageError(f"expected seconds from 0, found {seconds!r}; time does not go back")
        with self._mutex:
            self._elapsed += seconds

    def set_wall(self, now_ms: int) -> None:
        """Set the wall clock to ``now_ms``, in ms since the epoch; no time passes."""
        with self._mutex:
            self._wall = now_ms - int(self._elapsed * 1000)

    def now_ms(self) -> int:
        """The wall clock, in ms since the epoch."""
        return self._wall + int(self._elapsed * 1000)

    def monotonic(self) -> float:
        """Seconds since this clock was made."""
        return self._elapsed

    def sleep(self, seconds: float) -> None:
        """Return at once, ``seconds`` later."""
        self.advance(max(seconds, 0.0))

    def random(self) -> float:
        """The next number of the seed's series."""
        with self._mutex:
            return self._chance.random()

    def token(self) -> str:
        """``v1``, ``v2``, ..."""
        with self._mutex:
            self._tokens += 1
            return f"v{self._tokens}"
