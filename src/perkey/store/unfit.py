"""What in a value would not survive JSON, where it stands, and what to store instead."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Iterator
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import msgspec

MAX_DEPTH = 100
"""How many lists and dicts may lie in each other; what walks a value recursively relies on it."""

SMALLEST, LARGEST = -(2**63), 2**64 - 1
"""The integers that JSON's readers and writers commonly keep exactly."""


def offender(value: Any) -> tuple[str, str] | None:
    """(JSON Pointer, problem and remedy) of the first thing in ``value``, in its own order,
    that would not come back from JSON; None where all of it would.

    Walks without recursion, so that neither depth nor a cycle can break it.
    """
    problem = _problem(value)
    if problem is not None:
        return "", problem
    if not _nests(value):
        return None
    path: list[Any] = []
    inside: list[Any] = [value]
    steps = [_children(value)]
    while steps:
        for token, child, problem in steps[-1]:
            problem = problem or _problem(child) or _nesting(child, inside)
            if problem is not None:
                return pointer([*path, token]), problem
            if _nests(child):
                path.append(token)
                inside.append(child)
                steps.append(_children(child))
                break
        else:
            steps.pop()
            inside.pop()
            del path[-1:]
    return None


def pointer(path: Iterable[Any]) -> str:
    """The path as a JSON Pointer (RFC 6901); what is not text is written as Python would."""
    return "".join("/" + _token(token) for token in path)


def shown(path: str) -> str:
    """A pointer for people: quoted, a long one without its middle."""
    return repr(path if len(path) <= 200 else f"{path[:120]}...{path[-60:]}")


def _token(token: Any) -> str:
    text = token if isinstance(token, str) else repr(token)
    # Lone surrogates are written out: an error message must be printable.
    text = text.encode("utf-8", "backslashreplace").decode()
    return text.replace("~", "~0").replace("/", "~1")


def _children(value: Any) -> Iterator[tuple[Any, Any, str | None]]:
    """(key or index, child, problem of the key) of each child."""
    if type(value) is dict:
        return ((key, child, _key_problem(key)) for key, child in value.items())
    return ((index, child, None) for index, child in enumerate(value))


def _nests(value: Any) -> bool:
    return type(value) is dict or type(value) is list


def _nesting(child: Any, inside: list[Any]) -> str | None:
    if not _nests(child):
        return None
    if any(child is parent for parent in inside):
        return f"a {type(child).__name__} that contains itself"
    if len(inside) >= MAX_DEPTH:
        return f"more than {MAX_DEPTH} lists and dicts in each other (flatten it)"
    return None


def _key_problem(key: Any) -> str | None:
    if type(key) is not str:
        return f"a key of type {_name(key)} (use a plain str)"
    return _text_problem(key, "a key")


def _text_problem(text: str, what: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        lone = f"U+{ord(text[error.start]):04X}"
        return f"{what} with the lone surrogate {lone} (decode it with the right encoding)"
    return None


def _problem(value: Any) -> str | None:
    """What is wrong with this one value, its children left aside."""
    kind = type(value)
    if value is None or kind is bool or _nests(value):
        return None
    if kind is str:
        return _text_problem(value, "text")
    if kind is float:
        return None if math.isfinite(value) else f"the float {value} (use None or a string)"
    if kind is int:
        if SMALLEST <= value <= LARGEST:
            return None
        return f"an integer outside {SMALLEST}..{LARGEST} (use a string)"
    return f"a value of type {_name(value)} ({_remedy(value)})"


def _name(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


_REMEDIES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (enum.Enum, "use its .value"),
    (tuple, "use a list"),
    ((bytes, bytearray, memoryview), "use text, such as base64"),
    ((set, frozenset), "use a sorted list"),
    ((date, time), "use text, such as .isoformat()"),
    (timedelta, "use a number of seconds"),
    (Decimal, "use a string"),
    (str, "use str(value)"),
    (int, "use int(value)"),
    (float, "use float(value)"),
    (dict, "use dict(value)"),
    (list, "use list(value)"),
    (msgspec.Struct, "use msgspec.to_builtins(value)"),
)


def _remedy(value: Any) -> str:
    for kinds, remedy in _REMEDIES:
        if isinstance(value, kinds):
            return remedy
    if dataclasses.is_dataclass(value):
        return "use dataclasses.asdict(value)"
    return "use None, bool, int, float, str, list or dict"
