"""When a timer is next due: fixed intervals and cron expressions, in UTC.

The five fields are those of crontab(5): minute, hour, day of month, month, day of week, with
``*``, lists, ranges, steps and English names.  As there, when both days are restricted either
may match.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from perkey.errors import UsageError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("weekday", 0, 7, _DAYS),
)
_HORIZON = timedelta(days=366 * 5)


def interval_ms(text: str | float) -> int:
    """``"5m"``, ``"1.5s"``, ``"250ms"`` or seconds, as whole milliseconds."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        seconds = float(text)
    else:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", str(text).strip())
        if match is None:
            raise UsageError(f"expected an interval like '30s', '5m' or '1h', found {text!r}")
        seconds = float(match[1]) * _UNITS[match[2]]
    if not 0.001 <= seconds <= 366 * 86400:
        raise UsageError(f"expected an interval from 1 ms to 366 days, found {seconds:g} s")
    return round(seconds * 1000)


def interval_text(ms: int) -> str:
    """The shortest text that ``interval_ms`` reads as so many milliseconds: ``5m``, ``500ms``."""
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(ms, round(_UNITS[unit] * 1000))
        if count and not rest:
            return f"{count}{unit}"
    return f"{ms}ms"


class Cron:
    """A parsed cron expression."""

    def __init__(self, text: str) -> None:
        parts = text.split()
        if len(parts) != 5:
            raise UsageError(
                f"expected five cron fields (minute hour day month weekday), found {text!r}"
            )
        self.text = text
        self._minutes, self._hours, self._days, self._months, weekdays = (
            _field(part, *spec) for part, spec in zip(parts, _FIELDS, strict=True)
        )
        self._weekdays = {day % 7 for day in weekdays}
        self._any_day, self._any_weekday = parts[2].startswith("*"), parts[4].startswith("*")

    def next_ms(self, after_ms: int) -> int:
        """The first due time after ``after_ms``, both in ms since the epoch."""
        start = datetime.fromtimestamp(after_ms / 1000, UTC).replace(second=0, microsecond=0)
        moment = start + timedelta(minutes=1)
        while moment - start < _HORIZON:
            if moment.month not in self._months or not self._day_matches(moment):
                moment = (moment + timedelta(days=1)).replace(hour=0, minute=0)
            elif moment.hour not in self._hours:
                moment = (moment + timedelta(hours=1)).replace(minute=0)
            elif moment.minute not in self._minutes:
                moment += timedelta(minutes=1)
            else:
                return int(moment.timestamp() * 1000)
        raise UsageError(f"the cron expression {self.text!r} is never due within five years")

    def _day_matches(self, moment: datetime) -> bool:
        day = moment.day in self._days
        weekday = (moment.isoweekday() % 7) in self._weekdays
        if self._any_day or self._any_weekday:
            return day and weekday
        return day or weekday


def _field(text: str, name: str, low: int, high: int, words: Sequence[str]) -> set[int]:
    values: set[int] = set()
    for part in text.lower().split(","):
        span, slash, step_text = part.partition("/")
        step = _number(step_text, name, 1, high, ()) if slash else 1
        if span == "*":
            first, last = low, high
        else:
            begin, dash, end = span.partition("-")
            first = _number(begin, name, low, high, words)
            last = _number(end, name, low, high, words) if dash else (high if slash else first)
        if first > last:
            raise UsageError(f"the cron {name} {part!r} runs backwards")
        values.update(range(first, last + 1, step))
    return values


def _number(text: str, name: str, low: int, high: int, words: Sequence[str]) -> int:
    if text in words:
        return list(words).index(text) + low
    if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
        raise UsageError(f"expected a cron {name} from {low} to {high}, found {text!r}")
    return int(text)
