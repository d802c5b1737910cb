"""perkey: one at a time per key; never on a stale read; never twice.

The names below are the public interface.  They are imported on first use, so that
``import perkey`` stays fast and needs no optional package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from perkey import errors
from perkey.errors import *  # noqa: F403

if TYPE_CHECKING:
    from perkey.store.limits import Limits
    from perkey.store.transaction import Fence, Tx
    from perkey.store.views import Change, Document, Gap, Synced
    from perkey.stores import AsyncStore, Store
    from perkey.stores import aopen_store as aopen
    from perkey.stores import open_store as open

__version__ = "0.1.0"

_LAZY = {
    "AsyncStore": "perkey.stores",
    "Change": "perkey.store.views",
    "Document": "perkey.store.views",
    "Fence": "perkey.store.transaction",
    "Gap": "perkey.store.views",
    "Limits": "perkey.store.limits",
    "Store": "perkey.stores",
    "Synced": "perkey.store.views",
    "Tx": "perkey.store.transaction",
}
_RENAMED = {
    "aopen": ("perkey.stores", "aopen_store"),
    "open": ("perkey.stores", "open_store"),
}

__all__ = [*_LAZY, *_RENAMED, *errors.__all__]


def __getattr__(name: str) -> Any:
    module, attribute = _RENAMED.get(name) or (_LAZY.get(name, ""), name)
    if not module:
        raise AttributeError(f"module 'perkey' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
