"""Two values side by side, aligned as diff and merge align them.  Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from perkey.flows.align import Pair, align
from perkey.flows.diff import ABSENT
from perkey.server.pages.tree import Line, printed, quoted, scalar
from perkey.store.codec import same

MOST_ROWS = 3000
AROUND = 3
"""How many lines that are the same are shown beside one that is not."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the old value beside one of the new."""

    kind: str
    """same | changed | removed | added | fold"""
    old: Line | None = None
    new: Line | None = None
    hidden: int = 0
    """For a fold: how many lines that are the same it stands for."""


def side_by_side(old: Any, new: Any) -> tuple[list[Row], bool]:
    """The rows of two values (or ``ABSENT``), long same parts folded, and whether some are
    left out at the end."""
    found = list(islice(_rows(old, new, 0, "", ("", "")), MOST_ROWS + 1))
    return folded(found[:MOST_ROWS]), len(found) > MOST_ROWS


def folded(rows: Sequence[Row]) -> list[Row]:
    """Same lines that are far from any other become one fold."""
    near = [False] * len(rows)
    for at, row in enumerate(rows):
        if row.kind != "same":
            for place in range(max(0, at - AROUND), min(len(rows), at + AROUND + 1)):
                near[place] = True
    found: list[Row] = []
    for row, shown in zip(rows, near, strict=True):
        if shown:
            found.append(row)
        elif found and found[-1].kind == "fold":
            found[-1] = replace(found[-1], hidden=found[-1].hidden + 1)
        else:
            found.append(Row("fold", hidden=1))
    return found


Commas = tuple[str, str]


def _rows(old: Any, new: Any, depth: int, label: str, commas: Commas) -> Iterator[Row]:
    """``commas``: what stands behind the value on either side."""
    if old is ABSENT or new is ABSENT:
        if old is new:
            return
        if new is ABSENT:
            yield from (Row("removed", old=each) for each in _whole(old, depth, label, commas[0]))
        else:
            yield from (Row("added", new=each) for each in _whole(new, depth, label, commas[1]))
    elif same(old, new):
        sides = (_whole(old, depth, label, commas[0]), _whole(new, depth, label, commas[1]))
        yield from (Row("same", *pair) for pair in zip(*sides, strict=True))
    elif isinstance(old, dict) and isinstance(new, dict) and old and new:
        yield from _inside(_in_dict(old, new, depth + 1), "{}", depth, label, commas)
    elif isinstance(old, list) and isinstance(new, list) and old and new:
        yield from _inside(_in_list(old, new, depth + 1), "[]", depth, label, commas)
    else:
        yield from _replaced(old, new, depth, label, commas)


def _inside(
    rows: Iterator[Row], brackets: str, depth: int, label: str, commas: Commas
) -> Iterator[Row]:
    opening = Line(depth, label, brackets[0], "mark")
    yield Row("same", opening, opening)
    yield from rows
    old, new = (Line(depth, "", brackets[1] + comma, "mark") for comma in commas)
    yield Row("same", old, new)


def _in_dict(old: dict[str, Any], new: dict[str, Any], depth: int) -> Iterator[Row]:
    order = [*old, *(each for each in new if each not in old)]
    ends = next(reversed(old)), next(each for each in reversed(order) if each in new)
    for name in order:
        commas = "" if name == ends[0] else ",", "" if name == ends[1] else ","
        values = old.get(name, ABSENT), new.get(name, ABSENT)
        yield from _rows(*values, depth, f"{quoted(name)}: ", commas)


def _in_list(old: list[Any], new: list[Any], depth: int) -> Iterator[Row]:
    ends = len(old) - 1, len(new) - 1
    i = j = 0
    for x, y, replaced in [*align(old, new), Pair(len(old), len(new))]:
        for at in range(i, x):
            yield from _rows(old[at], ABSENT, depth, "", ("," if at < ends[0] else "", ""))
        for at in range(j, y):
            yield from _rows(ABSENT, new[at], depth, "", ("", "," if at < ends[1] else ""))
        if x < len(old):
            commas = "," if x < ends[0] else "", "," if y < ends[1] else ""
            step = _replaced if replaced else _rows
            yield from step(old[x], new[y], depth, "", commas)
        i, j = x + 1, y + 1


def _replaced(old: Any, new: Any, depth: int, label: str, commas: Commas) -> Iterator[Row]:
    """Line by line, the first beside the first; what is longer goes on alone."""
    ours = _whole(old, depth, label, commas[0])
    theirs = _whole(new, depth, label, commas[1])
    for at in range(max(len(ours), len(theirs))):
        left = ours[at] if at < len(ours) else None
        right = theirs[at] if at < len(theirs) else None
        kind = "removed" if right is None else "added" if left is None else "changed"
        yield Row(kind, left, right)


def _whole(value: Any, depth: int, label: str, comma: str) -> list[Line]:
    if not isinstance(value, dict | list):
        text, kind = scalar(value)
        return [Line(depth, label, text + comma, kind)]
    found = [replace(each, depth=each.depth + depth) for each in printed(value)]
    found[0] = replace(found[0], label=label)
    found[-1] = replace(found[-1], text=found[-1].text + comma)
    return found
