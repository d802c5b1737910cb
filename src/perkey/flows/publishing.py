"""Load, decide, send, record: one pass over one key, and the guard of those who listen.

The flow runs inside the key's section, in either colour, so two passes over one key never
overlap: the last send carries the last read, and the record follows the order of the sends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from perkey.errors import UsageError

Outcome = Literal["sent", "unchanged"]
NEVER: Final = object()  # nothing was sent for this key yet, or it was forgotten


@dataclass(frozen=True, slots=True)
class Call:
    """Call the user's function; ``bounded`` by the send timeout."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    bounded: bool = False


Pass = Generator[Call, Any, Outcome]


def differs(last: Any, snapshot: Any) -> bool:
    """What ``changed`` is by default."""
    return bool(last != snapshot)


class Remembered:
    """The last value of each of the last ``limit`` keys; the key longest unset goes first."""

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise UsageError(f"a table remembers at least one key, not {limit}")
        self._limit = limit
        self._values: dict[Hashable, Any] = {}
        self._mutex = threading.Lock()

    def get(self, key: Hashable) -> Any:
        return self._values.get(key, NEVER)

    def set(self, key: Hashable, value: Any) -> None:
        with self._mutex:
            self._values.pop(key, None)
            self._values[key] = value
            if len(self._values) > self._limit:
                del self._values[next(iter(self._values))]

    def forget(self, key: Hashable) -> None:
        with self._mutex:
            self._values.pop(key, None)

    def __len__(self) -> int:
        return len(self._values)


@dataclass(slots=True)
class Plan:
    """What a publisher was made of."""

    load: Callable[..., Any]
    send: Callable[..., Any]
    changed: Callable[[Any, Any], bool]
    record: Callable[..., Any] | None
    sent: Remembered
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("sent", "unchanged", "shared", "skipped", "failed", "timeouts"), 0
        )
    )


def one_pass(plan: Plan, key: Hashable) -> Pass:
    """The flow.  A send that fails is not recorded, so the next pass sends again."""
    snapshot = yield Call(plan.load, (key,))
    last = plan.sent.get(key)
    if last is not NEVER and not plan.changed(last, snapshot):
        return "unchanged"
    # From here on nobody knows what the others have seen, until the record says so.
    plan.sent.forget(key)
    yield Call(plan.send, (key, snapshot), bounded=True)
    if plan.record is not None:
        yield Call(plan.record, (key, snapshot))
    plan.sent.set(key, snapshot)
    return "sent"


class Group:
    """Callers of ``publish`` that share one pass, because it began after each of them asked."""

    __slots__ = ("outcome",)

    def __init__(self) -> None:
        self.outcome: Outcome | None = None


class Groups:
    """The group of each key that new callers may still join."""

    def __init__(self) -> None:
        self._open: dict[Hashable, Group] = {}
        self._mutex = threading.Lock()

    def join(self, key: Hashable) -> Group:
        with self._mutex:
            return self._open.setdefault(key, Group())

    def close(self, key: Hashable, group: Group) -> None:
        """The pass of this group begins, or all who asked have given up: nobody may join it."""
        with self._mutex:
            if self._open.get(key) is group:
                del self._open[key]

    def __len__(self) -> int:
        return len(self._open)


@dataclass(frozen=True, slots=True)
class Sweep:
    """What became of the keys of one sweep.  A skipped key is read by a later sweep."""

    sent: int
    unchanged: int
    skipped: int
    failed: dict[Any, Exception]


@dataclass(slots=True)
class Tally:
    """A sweep while it runs."""

    sent: int = 0
    unchanged: int = 0
    skipped: int = 0
    failed: dict[Any, Exception] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        if outcome == "sent":
            self.sent += 1
        else:
            self.unchanged += 1

    def sweep(self) -> Sweep:
        return Sweep(self.sent, self.unchanged, self.skipped, self.failed)


class Latest:
    """A subscriber's guard: lets a message through only if it is newer than what was shown.

    With it neither a transport that reorders nor several producers can move a view backwards.
    """

    def __init__(self, limit: int = 1_000_000) -> None:
        """``limit`` bounds the keys remembered; the one longest without news goes first."""
        self._shown = Remembered(limit)
        self._mutex = threading.Lock()
        self.dropped = 0

    def accept(self, key: Hashable, version: int) -> bool:
        """True, and remembered, if ``version`` is above every one accepted for this key."""
        with self._mutex:
            shown = self._shown.get(key)
            if shown is not NEVER and version <= shown:
                self.dropped += 1
                return False
            self._shown.set(key, version)
            return True

    def version(self, key: Hashable) -> int | None:
        """The version that is shown, or None."""
        shown = self._shown.get(key)
        return None if shown is NEVER else shown

    def forget(self, key: Hashable) -> None:
        """The key is no longer shown; its next message is let through."""
        self._shown.forget(key)
