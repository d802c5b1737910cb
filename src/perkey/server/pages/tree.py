"""A JSON value as numbered lines, each with the version and the author that set it.

Pure functions.  Recursion is bounded: a stored value nests at most ``codec.MAX_DEPTH`` deep.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from perkey.flows.blame import Blame, Origin
from perkey.flows.diff import ABSENT
from perkey.flows.pointer import Path

MOST_LINES = 3000
"""How much of a value a page shows."""
MOST_TEXT = 2000
"""How much of one text, in characters."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a value as JSON is printed."""

    depth: int
    label: str
    """``"title": `` in front of the value; empty in a list and at the top."""
    text: str
    """A bracket or a scalar, with its comma."""
    kind: str
    """mark | text | number | word"""
    origin: Origin | None = None
    """Who set it; None for a bracket."""


def lines(blame: Blame, most: int = MOST_LINES) -> tuple[list[Line], bool]:
    """The value of a blame as lines, and whether there are more of them than ``most``."""
    origins = dict(blame.leaves())
    found = list(islice(printed(blame.value, origins), most + 1))
    return found[:most], len(found) > most


def printed(value: Any, origins: dict[Path, Origin] | None = None) -> Iterator[Line]:
    """The lines of a value; of ``ABSENT`` none."""
    if value is not ABSENT:
        yield from _printed(value, (), "", "", origins or {})


def _printed(
    value: Any, path: Path, label: str, comma: str, origins: dict[Path, Origin]
) -> Iterator[Line]:
    depth = len(path)
    if not isinstance(value, dict | list) or not value:
        text, kind = scalar(value)
        yield Line(depth, label, text + comma, kind, origins.get(path))
        return
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    yield Line(depth, label, opening, "mark")
    last = len(value) - 1
    steps = value.items() if isinstance(value, dict) else enumerate(value)
    for number, (step, item) in enumerate(steps):
        name = f"{quoted(step)}: " if isinstance(value, dict) else ""
        after = "," if number < last else ""
        yield from _printed(item, (*path, step), name, after, origins)
    yield Line(depth, "", closing + comma, "mark")


def scalar(value: Any) -> tuple[str, str]:
    """A scalar or an empty container as JSON, cut where it is long, and its kind."""
    text = quoted(value)
    if isinstance(value, str):
        return text, "text"
    if isinstance(value, dict | list):
        return text, "mark"
    word = value is None or isinstance(value, bool)
    return text, "word" if word else "number"


def quoted(value: Any) -> str:
    """A value as JSON on one line; a long text is cut, and says how long it is."""
    if isinstance(value, str) and len(value) > MOST_TEXT:
        shown = json.dumps(value[:MOST_TEXT], ensure_ascii=False)
        return f"{shown}… ({len(value):,} characters)"
    return json.dumps(value, ensure_ascii=False)
