"""JSON Pointer (RFC 6901): ``/tasks/0/done`` <-> ("tasks", 0, "done")."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from perkey.errors import NotFound, UsageError
from perkey.store.unfit import pointer as format
from perkey.store.unfit import shown

__all__ = ["Path", "format", "get", "index", "parse", "shown"]

Path = tuple[str | int, ...]
"""Keys of dicts as text, indexes of lists as integers; what ``parse`` gives is all text."""

_BAD_ESCAPE = re.compile(r"~(?![01])")
_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")


def parse(text: str) -> tuple[str, ...]:
    """The path's tokens; ``UsageError`` where the text is no JSON Pointer."""
    if not isinstance(text, str):
        raise UsageError(f"expected a JSON Pointer such as '/a/0', found {text!r}")
    if text and not text.startswith("/"):
        raise UsageError(
            f"expected a JSON Pointer (empty, or starting with '/'), found {shown(text)}"
        )
    if _BAD_ESCAPE.search(text):
        raise UsageError(f"expected '~' only as '~0' or '~1' (for '/'), found {shown(text)}")
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in text.split("/")[1:])


def index(token: str | int, length: int) -> int | None:
    """The place in a list of ``length`` items that a token names, or None where it names none.

    Digits without leading zeros.  Source: RFC 6901, section 4.
    """
    if isinstance(token, str):
        if not _INDEX.fullmatch(token):
            return None
        token = int(token)
    return token if 0 <= token < length else None


def get(value: Any, path: str | Sequence[str | int]) -> Any:
    """What stands at ``path`` (text or tokens); ``NotFound`` names the part that is missing."""
    tokens = parse(path) if isinstance(path, str) else tuple(path)
    for at, token in enumerate(tokens):
        found = child(value, token)
        if found is None:
            where = shown(format(tokens[:at])) if at else "the value itself"
            raise NotFound(
                f"there is nothing at {shown(format(tokens))}: {where} is {describe(value)}",
                path=format(tokens),
            )
        value = found[0]
    return value


def child(value: Any, token: str | int) -> tuple[Any] | None:
    """(the child,) of a dict or list, or None where there is none."""
    if isinstance(value, dict):
        return (value[token],) if token in value else None
    if isinstance(value, list):
        at = index(token, len(value))
        return None if at is None else (value[at],)
    return None


def describe(value: Any) -> str:
    """What a value is, for messages: never its contents, which may be long or secret."""
    if isinstance(value, dict):
        return f"a dict of {len(value)} keys"
    if isinstance(value, list):
        return f"a list of {len(value)} items"
    name = type(value).__name__
    return "null" if value is None else f"an {name}" if name == "int" else f"a {name}"
