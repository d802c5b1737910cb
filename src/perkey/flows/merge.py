"""Three-way merge of JSON values, by path.

``base`` is what both sides started from, ``theirs`` the head that was committed meanwhile,
``ours`` the value that is to be written.  Where only one side changed something, that change
stands; where both changed the same thing differently, that is an overlap and nobody guesses.
Texts and numbers are atomic.  In lists, items put in at the same place are all kept, theirs
first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from perkey.flows import pointer
from perkey.flows.align import align, mark
from perkey.flows.diff import ABSENT
from perkey.flows.pointer import Path
from perkey.store.codec import same

__all__ = ["Merged", "Overlap", "merge"]


@dataclass(frozen=True, slots=True)
class Overlap:
    """One place that both sides changed differently.  ``ABSENT`` stands for no value."""

    path: Path
    """In ``base``; of something that both sides added, where it would stand."""
    base: Any
    ours: Any
    theirs: Any

    def as_json(self) -> dict[str, Any]:
        """The overlap as a JSON value, without the sides that are absent."""
        sides = {"base": self.base, "ours": self.ours, "theirs": self.theirs}
        present = {name: value for name, value in sides.items() if value is not ABSENT}
        return {"path": pointer.format(self.path)} | present


@dataclass(frozen=True, slots=True)
class Merged:
    """The merged value; where there are overlaps, it holds theirs and must not be written."""

    value: Any
    overlaps: list[Overlap] = field(default_factory=list)


def merge(base: Any, ours: Any, theirs: Any) -> Merged:
    """Both sides' changes in one value.  Any of the three may be ``ABSENT``.

    The result shares parts with its inputs; none of them is changed.
    """
    overlaps: list[Overlap] = []
    return Merged(_merged(base, ours, theirs, (), overlaps), overlaps)


def _merged(
    base: Any, ours: Any, theirs: Any, path: Path, overlaps: list[Overlap], whole: bool = False
) -> Any:
    """``whole``: one side put another thing in this place, so only all of it can be taken."""
    if same(ours, theirs) or same(base, ours):
        return theirs
    if same(base, theirs):
        return ours
    if not whole and _all(dict, base, ours, theirs):
        return _merged_dicts({} if base is ABSENT else base, ours, theirs, path, overlaps)
    if not whole and _all(list, base, ours, theirs):
        return _merged_lists([] if base is ABSENT else base, ours, theirs, path, overlaps)
    overlaps.append(Overlap(path, base, ours, theirs))
    return theirs


def _all(kind: type, base: Any, ours: Any, theirs: Any) -> bool:
    """Whether all are of that type; what both sides added had nothing in it before."""
    inside = isinstance(ours, kind) and isinstance(theirs, kind)
    return inside and (base is ABSENT or isinstance(base, kind))


def _merged_dicts(
    base: dict[str, Any],
    ours: dict[str, Any],
    theirs: dict[str, Any],
    path: Path,
    overlaps: list[Overlap],
) -> dict[str, Any]:
    merged = {}
    for key in [*theirs, *(key for key in ours if key not in theirs)]:
        was, us, them = (side.get(key, ABSENT) for side in (base, ours, theirs))
        item = _merged(was, us, them, (*path, key), overlaps)
        if item is not ABSENT:
            merged[key] = item
    return merged


# -------------------------------------------------------------------------------------- lists


class _Side:
    """What one side made of the base list: each item kept, changed or gone, and what came."""

    def __init__(self, base: Sequence[Any], new: Sequence[Any]) -> None:
        self.now: list[Any] = [ABSENT] * len(base)
        """What became of each item of ``base``."""
        self.replaced = [False] * len(base)
        self.came: list[list[Any]] = [[] for _ in range(len(base) + 1)]
        """The items put in before each item of ``base``, and behind the last one."""
        at = i = 0
        for x, y, replaced in align(base, new):
            self.came[i] += new[at:y]
            self.now[x], self.replaced[x] = new[y], replaced
            i, at = x + 1, y + 1
        self.came[i] += new[at:]


def _merged_lists(
    base: list[Any], ours: list[Any], theirs: list[Any], path: Path, overlaps: list[Overlap]
) -> list[Any]:
    us, them = _Side(base, ours), _Side(base, theirs)
    moved = _moved(base, us, them)
    merged: list[Any] = []
    for at in range(len(base) + 1):
        merged += them.came[at]
        if us.came[at]:
            merged += _only_ours(us.came[at], them.came[at], moved)
        if at == len(base):
            break
        whole = us.replaced[at] or them.replaced[at]
        item = _merged(base[at], us.now[at], them.now[at], (*path, at), overlaps, whole)
        if item is not ABSENT:
            merged.append(item)
    return merged


def _only_ours(ours: list[Any], theirs: list[Any], moved: Counter[Any]) -> list[Any]:
    """Our new items that are not among theirs too: what both sides put in stands once."""
    here = Counter(map(mark, theirs))
    only = []
    for item in ours:
        known = [each for each in (here, moved) if each[mark(item)]]
        for each in known:
            each[mark(item)] -= 1
        if not known:
            only.append(item)
    return only


def _moved(base: list[Any], us: _Side, them: _Side) -> Counter[Any]:
    """Items that both sides took out and put in again elsewhere; theirs decides the place."""
    gone = Counter(
        mark(item)
        for item, here, there in zip(base, us.now, them.now, strict=True)
        if here is ABSENT and there is ABSENT
    )
    return gone & Counter(mark(item) for came in them.came for item in came) if gone else gone
