"""Opening a store that must first be looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from perkey.store.abc import Backend

B = TypeVar("B", bound=Backend)


def opened(backend: B, check: Callable[[], object]) -> B:
    """``backend`` once ``check`` has returned; where that raises, it is closed first."""
    try:
        check()
    except BaseException:
        backend.close()
        raise
    return backend
