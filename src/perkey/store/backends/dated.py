"""Time on stores that only tell it in the ``Date`` of their answers, in whole seconds."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from perkey.clock import Clock

DATE_MS = 1_000
"""How exact a date is."""


class DatedTime:
    """The client's clock, held to what the store's answers allow.

    Between clients whose clocks are right the client's own clock is the better one: it is
    exact to milliseconds.  One that is wrong is not believed: its time is never outside of
    what the last answer's date leaves possible, about a second and the time of a request.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told = 0
        """Milliseconds: what the last date said; 0 where there was none."""
        self._asked = self._answered = 0.0
        self._latest = 0

    def saw(self, date: str, asked: float) -> None:
        """Learn from the date of an answer whose request was sent at ``asked`` (monotonic)."""
        try:
            told = int(parsedate_to_datetime(date).timestamp() * 1000)
        except ValueError:
            return
        self._told, self._asked, self._answered = told, asked, self._clock.monotonic()

    def now_ms(self) -> int:
        """Milliseconds since the epoch; never goes back."""
        low, high = self._bounds()
        self._latest = max(self._latest, min(max(self._clock.now_ms(), low), high))
        return self._latest

    def not_before(self, at: int) -> None:
        """Go on from ``at``, which another client has written, where its clock is ahead."""
        self._latest = max(self._latest, min(at, self._bounds()[1]))

    @property
    def off_ms(self) -> int:
        """How far the client's clock is outside of what the store's date allows."""
        low, high = self._bounds()
        now = self._clock.now_ms()
        return max(low - now, 0) or min(high - now, 0)

    def _bounds(self) -> tuple[int, int]:
        if not self._told:
            return 0, 1 << 62
        now = self._clock.monotonic()
        low = self._told + int((now - self._answered) * 1000)
        return low, self._told + DATE_MS + int((now - self._asked) * 1000)
