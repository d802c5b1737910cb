"""What changed between two JSON values: added, removed and replaced, by path.

Lists are aligned first, so an item put in front of a list is one addition, not a change of
every item behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal

from perkey.flows.align import Pair, align
from perkey.flows.pointer import Path
from perkey.flows.pointer import format as text
from perkey.store.codec import same

__all__ = ["ABSENT", "Absent", "Change", "diff"]


class Absent(Enum):
    """The type of ``ABSENT``."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent.ABSENT
"""Stands where there is no value; null is a value."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference, as large as it can be: a new subtree is one addition."""

    kind: Literal["add", "remove", "replace"]
    path: Path
    """In the new value; of a removal in the old one.  Indexes of lists are integers."""
    old: Any
    """``ABSENT`` for an addition."""
    new: Any
    """``ABSENT`` for a removal."""
    was: Path
    """In the old value, where the items of a list may have stood elsewhere; of an addition the
    place that it was put before."""

    def __str__(self) -> str:
        place = text(self.path) or "the value itself"
        if self.kind == "replace":
            return f"{place}: {self.old!r} -> {self.new!r}"
        return f"{place}: {self.kind} {self.new if self.kind == 'add' else self.old!r}"

    def as_json(self) -> dict[str, Any]:
        """The change as a JSON value, without the sides that are absent."""
        found = {"op": self.kind, "path": text(self.path)}
        sides = {"old": self.old, "new": self.new}
        return found | {name: value for name, value in sides.items() if value is not ABSENT}


def diff(old: Any, new: Any) -> list[Change]:
    """The changes from ``old`` to ``new``, in document order; ``ABSENT`` may stand for either."""
    return list(_changes(old, new, (), ()))


def _changes(old: Any, new: Any, was: Path, path: Path) -> Iterator[Change]:
    if old is ABSENT or new is ABSENT:
        if old is not new:
            kind: Literal["add", "remove"] = "add" if old is ABSENT else "remove"
            yield Change(kind, path if old is ABSENT else was, old, new, was)
    elif same(old, new):
        return
    elif isinstance(old, dict) and isinstance(new, dict):
        yield from _in_dict(old, new, was, path)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _in_list(old, new, was, path)
    else:
        yield Change("replace", path, old, new, was)


def _in_dict(old: Any, new: Any, was: Path, path: Path) -> Iterator[Change]:
    for key in [*old, *(key for key in new if key not in old)]:
        yield from _changes(old.get(key, ABSENT), new.get(key, ABSENT), (*was, key), (*path, key))


def _in_list(old: Any, new: Any, was: Path, path: Path) -> Iterator[Change]:
    i = j = 0
    for x, y, replaced in [*align(old, new), Pair(len(old), len(new))]:
        for at in range(i, x):
            yield Change("remove", (*was, at), old[at], ABSENT, (*was, at))
        for at in range(j, y):
            yield Change("add", (*path, at), ABSENT, new[at], (*was, x))
        if replaced:
            yield Change("replace", (*path, y), old[x], new[y], (*was, x))
        elif x < len(old):
            yield from _changes(old[x], new[y], (*was, x), (*path, y))
        i, j = x + 1, y + 1
