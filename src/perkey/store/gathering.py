"""Whom a leader waits for before it commits: those who were answered together with it.

Of eight threads that are answered at once, the first to come back would commit alone, and the
other seven wait for that; then all eight, then one again: twice as many commits as it takes.
So a leader waits as long as they keep coming, each within a fraction of the time that the last
commit took, and never longer than half of it: what is lost where nobody comes back stays small
against the commit itself.  Where commits are short, waiting costs more than it saves.
"""

from __future__ import annotations

import threading

from perkey.clock import Clock
from perkey.store.requests import locked

SHARE = 1 / 8
"""What part of the last commit's time a leader waits for one more."""
IN_ALL = 1 / 2
"""What part of it a leader waits for all."""
SHORTEST_S = 0.0001
"""Nobody waits where the first would be less, in seconds."""
LONGEST_S = 0.02
"""The longest wait for all, in seconds, however long the last commit took."""


class Gathering:
    """What leaders know of the last commit, and the one place where a leader waits for others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._took = 0.0
        self._expected = 0
        self._arrival: threading.Lock | None = None

    def committed(self, began: float) -> None:
        """A commit is over that began at ``began``, by ``Clock.monotonic``."""
        self._took = self._clock.monotonic() - began

    def expect(self, callers: int) -> None:
        """So many are being answered, or are queued already.  Called before they are told."""
        self._expected = callers

    def end(self, deadline: float) -> float:
        """When a leader stops waiting at the latest, by ``Clock.monotonic``; never after its own
        ``deadline``.  Now, where waiting does not pay."""
        now = self._clock.monotonic()
        if self._took * SHARE < SHORTEST_S or self._expected < 2:
            return now
        return min(now + min(self._took * IN_ALL, LONGEST_S), deadline)

    def moment(self, end: float) -> float:
        """How many seconds to wait for the next to come; 0 or less when the wait is over."""
        return min(self._took * SHARE, end - self._clock.monotonic())

    def missing(self, here: int) -> threading.Lock | None:
        """What the next arrival releases; None when as many are here as were expected.

        Like ``arrived``, it is called with the committer's mutex held.
        """
        self._arrival = locked() if here < self._expected else None
        return self._arrival

    def arrived(self) -> None:
        """Somebody has queued."""
        arrival, self._arrival = self._arrival, None
        if arrival is not None:
            arrival.release()
