"""What an operation that runs once is: its names, its options, its record, its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from perkey.errors import InvalidValue, UsageError
from perkey.flows import arguments
from perkey.flows.records import check_by
from perkey.store import receipts
from perkey.store.keys import Key
from perkey.store.transaction import Claim

NOT_DONE = object()
"""What ``verify`` returns when the outside system says that the effect did not happen."""

UNKNOWN = object()
"""What ``verify`` returns when the outside system cannot tell either."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer of an operation that ran once."""

    value: Any
    replayed: bool
    """True: the stored answer of an earlier run; nothing ran now."""


@dataclass(frozen=True, slots=True)
class Context:
    """What an effect gets, to hand on to the systems it calls."""

    key: str
    attempt: int
    token: str
    """Belongs to this attempt alone; a fencing token for systems that compare."""


@dataclass(frozen=True, slots=True)
class Unresolved:
    """An operation whose outcome nobody knows."""

    scope: str
    operation: str
    key: str
    attempt: int
    since: int
    """Milliseconds of store time at which it was claimed."""
    reason: str


class Options(msgspec.Struct, frozen=True):
    """How one external operation is to be run."""

    lease: float = 30.0
    """Seconds a claim lasts; renewed every third of it while the effect runs."""
    keep: float | None = None
    """Seconds the answer can be replayed; later calls raise ``Expired``. None: for ever."""
    wait: float = 30.0
    """Seconds to wait for a running attempt; 0 raises ``InProgress`` at once."""
    on_error: str = "free"
    remember: tuple[type[Exception], ...] = ()
    on_unknown: str = "raise"
    verify: Callable[[Context], Any] | None = None
    by: str = ""

    def check(self) -> None:
        """Refuse options that mean nothing."""
        if self.on_error not in ("free", "unknown"):
            raise UsageError(f"expected on_error='free' or 'unknown', found {self.on_error!r}")
        if self.on_unknown not in ("raise", "rerun"):
            raise UsageError(f"expected on_unknown='raise' or 'rerun', found {self.on_unknown!r}")
        arguments.seconds("lease=", self.lease)
        arguments.seconds("wait=", self.wait, zero=True)
        if self.keep is not None:
            arguments.seconds("keep=", self.keep)
        known = isinstance(self.remember, tuple) and all(
            isinstance(each, type) and issubclass(each, Exception) for each in self.remember
        )
        if not known:
            raise UsageError("expected remember= as a tuple of exception classes")
        check_by(self.by)


class Held(msgspec.Struct, frozen=True):
    """Who has claimed an operation; the ``extra`` of its receipt."""

    token: str
    until: int
    attempt: int
    since: int
    scope: str
    operation: str
    key: str
    reason: str = ""
    slot: int = -1
    """Where the index of open operations lists it; -1: nowhere yet."""


class Operation(msgspec.Struct, eq=False):
    """One operation of one caller: its names, its fingerprint, its options."""

    scope: str
    operation: str
    key: str
    claim: Claim
    options: Options
    token: str = ""
    attempt: int = 0
    apart: bool = False
    """The store commits one key at a time: the index has commits of its own."""
    slot: int = 0
    """Where a claim of this call is listed."""
    listed: int = -1
    """Where the claim that this call is about is listed."""
    entered: bool = False
    """Listed ahead of its claim."""
    seen: int = 0
    """The receipt's version when it was listed; the claim comes right after that one."""
    crowd: int = 0
    """How many are listed beside it."""
    gone: str = ""
    """An entry of the slot that is over, to be taken out on the way."""
    left: str = ""
    """The entry that this call leaves behind for the next one to take out."""

    @property
    def record(self) -> Key:
        return self.claim.key

    @property
    def context(self) -> Context:
        return Context(self.key, self.attempt, self.token)


class Verdict(msgspec.Struct):
    """What a look at the record says must happen next."""

    action: str
    value: Any = None
    held: Held | None = None
    error: dict[str, Any] = {}
    crowd: int = 0
    """How many operations its slot lists."""


def prepare(scope: str, operation: str, key: str, payload: Any, options: Options) -> Operation:
    """Check and fingerprint an operation; nothing is read or written."""
    options.check()
    claim = receipts.claim(scope, operation, key, payload, options.keep)
    return Operation(scope, operation, key, claim, options)


def refuse_unstorable(effect: Callable[..., Any]) -> None:
    """Refuse, before anything runs, an effect that declares a result JSON cannot carry."""
    declared = getattr(effect, "__annotations__", {}).get("return")
    name = declared if isinstance(declared, str) else getattr(declared, "__name__", "")
    if name in _UNSTORABLE:
        raise InvalidValue(
            f"the effect declares that it returns {name}, which cannot be stored and replayed "
            "as it was; return JSON values (text for bytes and times, a list for a set)"
        )


_UNSTORABLE = frozenset(
    {"bytes", "bytearray", "set", "frozenset", "tuple", "datetime", "date", "Decimal", "UUID"}
)
