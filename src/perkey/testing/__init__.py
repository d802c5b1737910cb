"""Public tools for testing code that stands on perkey, and perkey itself."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perkey.testing.conformance import CheckFailed, Report, check_backend

__all__ = ["CheckFailed", "Report", "check_backend"]

_HOMES = {
    "CheckFailed": "conformance",
    "Report": "conformance",
    "check_backend": "conformance",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'perkey.testing' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"perkey.testing.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
