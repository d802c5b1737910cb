"""Every error perkey raises, in one tree::

    PerkeyError
    ├── UsageError (ValueError)          the call itself is wrong; nothing was done
    │   ├── InvalidKey                   InvalidValue        LimitExceeded
    │   ├── UndeclaredKey                ImpureMutation      NestedSection
    │   ├── WrongColour                  NotSupported        InvalidAmount
    │   ├── UnitMismatch                 SameAccount         Unbalanced
    │   ├── InvalidPatch                 ConditionRequired
    │   └── Unauthorised                 Forbidden
    ├── Refused                          the state of the key forbids it; nothing was done
    │   ├── Conflict                     ConflictExhausted   Rejected
    │   ├── NotFound (KeyError)          Gone
    │   ├── KeyReused                    InProgress          Expired
    │   ├── LeaseHeld                    LeaseLost
    │   ├── IncompleteRun                InsufficientFunds   BalanceOverflow
    │   ├── AccountClosed                AccountFrozen
    │   └── InvalidState
    ├── Busy                             a limit or a timeout was reached; try again later
    │   ├── Timeout (TimeoutError)       QueueFull
    │   └── StillRunning
    ├── OutcomeUnknown                   it may or may not have happened; never a plain failure
    └── StoreError                       the store could not be used
        ├── StoreClosed                  StoreCorrupt        SchemaMismatch
        ├── StoreUnavailable             BackendNotConditional
        ├── ForkedStore                  MissingExtra
        └── HistoryGap

A class's docstring is its default message, so the documentation and what a person sees
cannot drift apart.  ``code`` is stable and is what machines should compare; ``status`` is
the HTTP status that the server answers with.  Structured facts are attributes of the
exception and stand in ``details``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

__all__ = [
    "AccountClosed",
    "AccountFrozen",
    "BackendNotConditional",
    "BalanceOverflow",
    "Busy",
    "ConditionRequired",
    "Conflict",
    "ConflictExhausted",
    "Expired",
    "Forbidden",
    "ForkedStore",
    "Gone",
    "HistoryGap",
    "ImpureMutation",
    "InProgress",
    "IncompleteRun",
    "InsufficientFunds",
    "InvalidAmount",
    "InvalidKey",
    "InvalidPatch",
    "InvalidState",
    "InvalidValue",
    "KeyReused",
    "LeaseHeld",
    "LeaseLost",
    "LimitExceeded",
    "MissingExtra",
    "NestedSection",
    "NotFound",
    "NotSupported",
    "OutcomeUnknown",
    "PerkeyError",
    "QueueFull",
    "Refused",
    "Rejected",
    "SameAccount",
    "SchemaMismatch",
    "StillRunning",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreUnavailable",
    "Timeout",
    "Unauthorised",
    "Unbalanced",
    "UndeclaredKey",
    "UnitMismatch",
    "UsageError",
    "WrongColour",
]


class PerkeyError(Exception):
    """Something that perkey refuses or cannot do."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500

    def __init__(self, message: str | None = None, /, **details: Any) -> None:
        """``message`` defaults to the class's docstring; ``details`` become attributes."""
        self.message = message or " ".join((type(self).__doc__ or "").split())
        self.details: dict[str, Any] = details
        super().__init__(self.message)

    def __getattr__(self, name: str) -> Any:
        details = self.__dict__.get("details")
        if details is not None and name in details:
            return details[name]
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.details))


def _rebuild(cls: type[PerkeyError], message: str, details: dict[str, Any]) -> PerkeyError:
    return cls(message, **details)


# --------------------------------------------------------------------- the call is wrong


class UsageError(PerkeyError, ValueError):
    """The call is wrong; nothing was done."""

    code = "usage"
    status = 400


class InvalidKey(UsageError):
    """A key is text of 1 to 512 bytes in UTF-8, without lone surrogates."""

    code = "invalid-key"


class InvalidValue(UsageError):
    """The value cannot be stored as JSON and come back as it went in."""

    code = "invalid-value"
    status = 422


class LimitExceeded(UsageError):
    """A limit was exceeded."""

    code = "limit-exceeded"
    status = 413


class UndeclaredKey(UsageError):
    """A transaction may touch only the keys it declared."""

    code = "undeclared-key"


class ImpureMutation(UsageError):
    """The function gave different results for the same input; it may run again, so it must not."""

    code = "impure-mutation"


class NestedSection(UsageError):
    """A section must never wait for another section of the same array."""

    code = "nested-section"


class WrongColour(UsageError):
    """This object belongs to threads or to another event loop."""

    code = "wrong-colour"


class NotSupported(UsageError):
    """This store cannot do that."""

    code = "not-supported"
    status = 501


class InvalidAmount(UsageError):
    """An amount is a positive integer of minor units, below 2**63."""

    code = "invalid-amount"
    status = 422


class UnitMismatch(UsageError):
    """The accounts of one transfer must have the same unit."""

    code = "unit-mismatch"
    status = 422


class SameAccount(UsageError):
    """A transfer needs two different accounts."""

    code = "same-account"
    status = 422


class Unbalanced(UsageError):
    """The entries of a posting must add up to zero for each unit."""

    code = "unbalanced"
    status = 422


class InvalidPatch(UsageError):
    """The patch is malformed or does not apply to the current value."""

    code = "invalid-patch"
    status = 422


class ConditionRequired(UsageError):
    """A whole-document write needs one of if_match=, create=True or overwrite=True."""

    code = "condition-required"
    status = 428


class Unauthorised(UsageError):
    """The server does not know this caller."""

    code = "unauthorised"
    status = 401


class Forbidden(UsageError):
    """This caller may not do that."""

    code = "forbidden"
    status = 403


# ---------------------------------------------------------------------- the state forbids


class Refused(PerkeyError):
    """The current state of the key forbids this; nothing was changed."""

    code = "refused"
    status = 409


class Conflict(Refused):
    """The key is not at the version that this write was made from."""

    code = "conflict"
    status = 412


class ConflictExhausted(Conflict):
    """Every attempt met a newer version; the change was not applied."""

    code = "conflict-exhausted"
    status = 409


class Rejected(Refused):
    """A rule on this key refused the new value."""

    code = "rejected"
    status = 422


class NotFound(Refused, KeyError):
    """There is nothing at this key."""

    code = "not-found"
    status = 404


class Gone(NotFound):
    """That version was dropped by retention, or the key was deleted."""

    code = "gone"
    status = 410


class KeyReused(Refused):
    """This idempotency key was already used with another payload."""

    code = "key-reused"
    status = 422


class InProgress(Refused):
    """An operation with this idempotency key is still running."""

    code = "in-progress"
    status = 409


class Expired(Refused):
    """The receipt of this idempotency key has expired; the operation is not run a second time."""

    code = "expired"
    status = 409


class LeaseHeld(Refused):
    """Another holder has this lease."""

    code = "lease-held"
    status = 409


class LeaseLost(Refused):
    """The lease ran out or passed to another holder; this late write was refused."""

    code = "lease-lost"
    status = 409


class IncompleteRun(Refused):
    """The run is not complete: tasks or outputs are missing."""

    code = "incomplete-run"
    status = 409


class InsufficientFunds(Refused):
    """The account's available balance does not cover this amount."""

    code = "insufficient-funds"
    status = 409


class AccountClosed(Refused):
    """The account is closed."""

    code = "account-closed"
    status = 409


class AccountFrozen(Refused):
    """The account is frozen."""

    code = "account-frozen"
    status = 409


class BalanceOverflow(Refused):
    """The sum of this account's entries would exceed 63 bits."""

    code = "balance-overflow"
    status = 409


class InvalidState(Refused):
    """The current state does not allow this."""

    code = "invalid-state"
    status = 409


# ------------------------------------------------------------------------- try again later


class Busy(PerkeyError):
    """Too much is going on; try again later."""

    code = "busy"
    status = 503


class Timeout(Busy, TimeoutError):
    """The time allowed for this ran out before it started; nothing was done."""

    code = "timeout"
    status = 503


class QueueFull(Busy):
    """The queue in front of the store is full; nothing was done."""

    code = "queue-full"


class StillRunning(Busy):
    """Some work did not stop in time."""

    code = "still-running"


# -------------------------------------------------------------------------------- unknown


class OutcomeUnknown(PerkeyError):
    """The write may or may not have happened, and the store can no longer tell."""

    code = "outcome-unknown"
    status = 503


# -------------------------------------------------------------------------------- the store


class StoreError(PerkeyError):
    """The store could not do its work."""

    code = "store"
    status = 503


class StoreClosed(StoreError):
    """The store is closed."""

    code = "store-closed"


class StoreUnavailable(StoreError):
    """The store cannot be reached."""

    code = "store-unavailable"


class StoreCorrupt(StoreError):
    """The store's own data is damaged; nothing was written over it."""

    code = "store-corrupt"
    status = 500


class SchemaMismatch(StoreError):
    """The store was written by a newer perkey, or is not a perkey store."""

    code = "schema-mismatch"
    status = 500


class BackendNotConditional(StoreError):
    """The server accepts conditional writes and ignores the condition; it would lose updates."""

    code = "backend-not-conditional"
    status = 500


class ForkedStore(StoreError):
    """This store was opened before fork(); open it again in the child process."""

    code = "forked-store"
    status = 500


class MissingExtra(StoreError):
    """An optional package is not installed."""

    code = "missing-extra"
    status = 500


class HistoryGap(StoreError):
    """Retention dropped versions that were asked for."""

    code = "history-gap"
    status = 410


def by_code() -> dict[str, type[PerkeyError]]:
    """Every class of the tree by its code, those of servers and backends that are loaded too."""
    return {kind.code: kind for kind in _tree(PerkeyError)}


def _tree(kind: type[PerkeyError]) -> Iterator[type[PerkeyError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__.startswith("perkey."):
            yield from _tree(child)
