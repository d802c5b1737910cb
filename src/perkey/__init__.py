"""perkey: one at a time per key; never on a stale read; never twice.

The names below are the public interface.  Everything but the errors is imported on first
use, so that ``import perkey`` stays fast and needs no optional package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from perkey.errors import (
    AccountClosed,
    AccountFrozen,
    BackendNotConditional,
    BalanceOverflow,
    Busy,
    ConditionRequired,
    Conflict,
    ConflictExhausted,
    Expired,
    ForkedStore,
    Gone,
    HistoryGap,
    ImpureMutation,
    IncompleteRun,
    InProgress,
    InsufficientFunds,
    InvalidAmount,
    InvalidKey,
    InvalidPatch,
    InvalidState,
    InvalidValue,
    KeyReused,
    LeaseHeld,
    LeaseLost,
    LimitExceeded,
    MissingExtra,
    NestedSection,
    NotFound,
    NotSupported,
    OutcomeUnknown,
    PerkeyError,
    QueueFull,
    Refused,
    Rejected,
    SameAccount,
    SchemaMismatch,
    StillRunning,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    Timeout,
    Unbalanced,
    UndeclaredKey,
    UnitMismatch,
    UsageError,
    WrongColour,
)

if TYPE_CHECKING:
    from perkey.board import AsyncBoard, Board
    from perkey.documents import AsyncDocuments, Documents
    from perkey.engine import AsyncEngine, Engine
    from perkey.leases import AsyncLease, AsyncLeases, Lease, Leases
    from perkey.ledger import AsyncLedger, Ledger
    from perkey.locks import KeyedLocks, Sections
    from perkey.once import AsyncOnce, Once
    from perkey.publishing import AsyncPublisher, Broadcast, Dropped, Latest, Message, Publisher
    from perkey.store.limits import Limits
    from perkey.store.transaction import Fence, Tx
    from perkey.store.views import Change, Document, Gap, Synced
    from perkey.stores import AsyncStore, Store
    from perkey.stores import aopen_store as aopen
    from perkey.stores import open_store as open

__version__ = "0.1.0"

_LAZY = {
    "AsyncBoard": "perkey.board",
    "AsyncDocuments": "perkey.documents",
    "AsyncEngine": "perkey.engine",
    "AsyncLease": "perkey.leases",
    "AsyncLeases": "perkey.leases",
    "AsyncLedger": "perkey.ledger",
    "AsyncOnce": "perkey.once",
    "AsyncPublisher": "perkey.publishing",
    "AsyncStore": "perkey.stores",
    "Board": "perkey.board",
    "Broadcast": "perkey.publishing",
    "Change": "perkey.store.views",
    "Document": "perkey.store.views",
    "Documents": "perkey.documents",
    "Dropped": "perkey.publishing",
    "Engine": "perkey.engine",
    "Fence": "perkey.store.transaction",
    "Gap": "perkey.store.views",
    "KeyedLocks": "perkey.locks",
    "Latest": "perkey.publishing",
    "Lease": "perkey.leases",
    "Leases": "perkey.leases",
    "Ledger": "perkey.ledger",
    "Limits": "perkey.store.limits",
    "Message": "perkey.publishing",
    "Once": "perkey.once",
    "Publisher": "perkey.publishing",
    "Sections": "perkey.locks",
    "Store": "perkey.stores",
    "Synced": "perkey.store.views",
    "Tx": "perkey.store.transaction",
    "aopen": "perkey.stores:aopen_store",
    "open": "perkey.stores:open_store",
}
"""Public name -> its module, and its name there where that differs."""

__all__ = [
    "AccountClosed",
    "AccountFrozen",
    "AsyncBoard",
    "AsyncDocuments",
    "AsyncEngine",
    "AsyncLease",
    "AsyncLeases",
    "AsyncLedger",
    "AsyncOnce",
    "AsyncPublisher",
    "AsyncStore",
    "BackendNotConditional",
    "BalanceOverflow",
    "Board",
    "Broadcast",
    "Busy",
    "Change",
    "ConditionRequired",
    "Conflict",
    "ConflictExhausted",
    "Document",
    "Documents",
    "Dropped",
    "Engine",
    "Expired",
    "Fence",
    "ForkedStore",
    "Gap",
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
    "KeyedLocks",
    "Latest",
    "Lease",
    "LeaseHeld",
    "LeaseLost",
    "Leases",
    "Ledger",
    "LimitExceeded",
    "Limits",
    "Message",
    "MissingExtra",
    "NestedSection",
    "NotFound",
    "NotSupported",
    "Once",
    "OutcomeUnknown",
    "PerkeyError",
    "Publisher",
    "QueueFull",
    "Refused",
    "Rejected",
    "SameAccount",
    "SchemaMismatch",
    "Sections",
    "StillRunning",
    "Store",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreUnavailable",
    "Synced",
    "Timeout",
    "Tx",
    "Unbalanced",
    "UndeclaredKey",
    "UnitMismatch",
    "UsageError",
    "WrongColour",
    "aopen",
    "open",
]


if not TYPE_CHECKING:  # so that a type checker still refuses a name that is not there

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module 'perkey' has no attribute {name!r}")
        module, _, attribute = _LAZY[name].partition(":")
        value = getattr(importlib.import_module(module), attribute or name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
