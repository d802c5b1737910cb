"""What the pytest plugin and an exploration tell each other; imports nothing of either."""

from __future__ import annotations

import contextvars
import weakref
from collections.abc import Callable
from typing import Any

REPLAY: contextvars.ContextVar[str | None] = contextvars.ContextVar("perkey_replay", default=None)
"""The schedule that an ``@explore`` test runs instead of its search."""

RESULTS: contextvars.ContextVar[list[Any] | None] = contextvars.ContextVar(
    "perkey_results", default=None
)
"""Where every exploration leaves its ``Result`` while a test runs."""

ANEW: weakref.WeakKeyDictionary[Any, Callable[[], Any]] = weakref.WeakKeyDictionary()
"""Fixtures that an explored test gets anew for each schedule, and what makes them."""


def anew(thing: Any) -> Any:
    """``thing``, or a fresh one where it is a fixture that a schedule uses up."""
    try:
        make = ANEW.get(thing)
    except TypeError:  # it has no hash or takes no weak reference, so it is none of ours
        return thing
    return thing if make is None else make()


def note(result: Any) -> None:
    """Leave ``result`` for the report of the test that runs."""
    results = RESULTS.get()
    if results is not None:
        results.append(result)
