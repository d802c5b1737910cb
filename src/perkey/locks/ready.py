"""Classes whose objects have their own ``__enter__`` and ``__exit__``, ready to be called.

``with`` asks the class for its two methods and binds each of them anew, at the price of two
objects an entry.  Here they are slots that hold something to call as it is: a method of a lock
in C, or a closure over all it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Ready(type):
    """The class of such classes, whose ``__slots__`` name the methods.

    ``ExitStack`` asks the class and passes the object; it gets a function that goes on.
    """

    @property
    def __enter__(cls) -> Callable[[Any], Any]:
        return enter

    @property
    def __exit__(cls) -> Callable[..., Any]:
        return leave

    @property
    def __aenter__(cls) -> Callable[[Any], Any]:
        return enter_async

    @property
    def __aexit__(cls) -> Callable[..., Any]:
        return leave_async


def enter(entry: Any) -> Any:
    return entry.__enter__()


def leave(entry: Any, *error: object) -> Any:
    return entry.__exit__(*error)


def enter_async(entry: Any) -> Any:
    return entry.__aenter__()


def leave_async(entry: Any, *error: object) -> Any:
    return entry.__aexit__(*error)


# Whether somebody may still release is read off the names, see abandoned.py.
enter.__name__, leave.__name__ = "__enter__", "__exit__"
