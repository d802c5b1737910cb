"""The registry's lock, and the proof that nothing foreign happens while it is held.

Only maps may be touched under this lock.  A hub, a store, an instance or a user's function
called while it is held is how an engine deadlocks on reading its own state; with ``DEBUG`` on
(it is, in every test) ``outside`` raises where that would happen.
"""

from __future__ import annotations

import threading
from types import TracebackType

DEBUG = False
"""Check every boundary; costs a little, so it is off unless a test turns it on."""

_held = threading.local()


class RegistryLock:
    """A plain lock that knows whether this thread holds it."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if DEBUG and getattr(_held, "yes", False):
            raise AssertionError("the registry's lock is taken while it is held: that deadlocks")
        self._lock.acquire()
        _held.yes = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _held.yes = False
        self._lock.release()


def outside(what: str) -> None:
    """Assert that this thread does not hold a registry's lock at this boundary."""
    if DEBUG and getattr(_held, "yes", False):
        raise AssertionError(f"{what} while the registry's lock is held")
