"""The only module that reads a clock or draws random numbers.

Everything else is handed a ``Clock``; the simulator hands out a virtual one, so a schedule
that failed once fails again.
"""

from __future__ import annotations

import base64
import itertools
import os
import random
import time
from typing import Protocol


class Clock(Protocol):
    """Time and chance, injected."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the Unix epoch; may jump, so it decides nothing."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin; never goes back."""

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""

    def random(self) -> float:
        """A float in [0, 1), for jitter."""

    def token(self) -> str:
        """A text that no other process, thread or call ever gets; about 18 ASCII characters."""


class SystemClock:
    """The machine's clock and random source."""

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        # 80 random bits name the process; a child gets a name of its own, or it would mint
        # its parent's tokens again.
        self._prefix = base64.b32encode(os.urandom(10)).decode("ascii").lower()
        self._next = itertools.count(1).__next__
        self._chance = random.Random(os.urandom(16))

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def random(self) -> float:
        return self._chance.random()

    def token(self) -> str:
        return f"{self._prefix}{self._next():x}"


SYSTEM = SystemClock()


def host_ms() -> int:
    """Milliseconds since this machine booted, counting sleep: the same in all its processes.

    Nobody can set this clock, so stores that live on one machine build their time on it.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000


def secret() -> str:
    """256 random bits as 43 characters for URLs and headers: nobody can guess it."""
    return base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode("ascii")
