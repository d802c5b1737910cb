"""Which item of an old list became which item of a new one.

Diff, merge and blame share this one answer.  Equal items pair up first (a longest common
subsequence); between them, changed items pair up by name, by place or by what they kept.
Where it is not plain that two items are the same thing, they are not looked into: a wrong
guess would mix two things in a merge, a missing one only costs a conflict.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from perkey.store import codec

IDENTITY = ("id", "uuid", "key", "name", "title", "slug", "path", "url")
"""A dict in a list is known by the first of these fields that it has."""

CELLS = 10_000
"""Two runs are compared item by item where the product of their lengths is at most this."""

LEVELS = 8
"""How often a long run is cut again into shorter ones."""

Indexes = list[tuple[int, int]]
"""(index in old, index in new), both ascending."""


class Pair(NamedTuple):
    """An item of the old list and the one of the new list that it is, or that replaced it."""

    old: int
    new: int
    replaced: bool = False
    """Another thing in the same place: nothing inside the two is related."""


def align(old: Sequence[Any], new: Sequence[Any]) -> list[Pair]:
    """The items of ``old`` that are still in ``new``, as they were or changed, in order."""
    a, b = [mark(item) for item in old], [mark(item) for item in new]
    pairs: list[Pair] = []
    for gap in _gaps(common(a, b), len(a), len(b)):
        pairs += _changed(old, new, *gap)
        if gap[1] < len(a):
            pairs.append(Pair(gap[1], gap[3]))
    return pairs


def mark(value: Any) -> Hashable:
    """Something that is equal for the same JSON, and cheap to hash."""
    return value if type(value) is str else codec.canonical(value)


def _gaps(pairs: Indexes, n: int, m: int) -> Iterator[tuple[int, int, int, int]]:
    """(start, end in old, start, end in new) before each pair and after the last one."""
    i = j = 0
    for x, y in [*pairs, (n, m)]:
        yield i, x, j, y
        i, j = x + 1, y + 1


# ------------------------------------------------------------------------------- equal items


def common(a: Sequence[Hashable], b: Sequence[Hashable], levels: int = LEVELS) -> Indexes:
    """A common subsequence: the longest where the lists are short, otherwise a good one.

    Long lists are cut at items that stand once in each (patience diff), so that the cost
    stays near n log n; what lies between such cuts and is still too long counts as replaced.
    """
    lo, hi_a, hi_b = 0, len(a), len(b)
    while lo < hi_a and lo < hi_b and a[lo] == b[lo]:
        lo += 1
    while lo < hi_a and lo < hi_b and a[hi_a - 1] == b[hi_b - 1]:
        hi_a, hi_b = hi_a - 1, hi_b - 1
    middle = _middle(a[lo:hi_a], b[lo:hi_b], levels)
    return [
        *((i, i) for i in range(lo)),
        *((lo + i, lo + j) for i, j in middle),
        *((hi_a + k, hi_b + k) for k in range(len(a) - hi_a)),
    ]


def _middle(a: Sequence[Hashable], b: Sequence[Hashable], levels: int) -> Indexes:
    if len(a) * len(b) <= CELLS:
        return _longest(a, b)
    anchors = _anchors(a, b) if levels else []
    if not anchors:
        return []
    pairs: Indexes = []
    for i, x, j, y in _gaps(anchors, len(a), len(b)):
        pairs += [(i + p, j + q) for p, q in common(a[i:x], b[j:y], levels - 1)]
        if x < len(a):
            pairs.append((x, y))
    return pairs


def _longest(a: Sequence[Hashable], b: Sequence[Hashable]) -> Indexes:
    """The longest common subsequence, by the textbook table."""
    rows = [[0] * (len(b) + 1)]
    for i in reversed(range(len(a))):
        below, row = rows[-1], [0] * (len(b) + 1)
        for j in reversed(range(len(b))):
            row[j] = below[j + 1] + 1 if a[i] == b[j] else max(below[j], row[j + 1])
        rows.append(row)
    rows.reverse()
    i = j = 0
    pairs: Indexes = []
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif rows[i + 1][j] >= rows[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs


def _anchors(a: Sequence[Hashable], b: Sequence[Hashable]) -> Indexes:
    """Items that stand once in each list, the most of them that are in the same order."""
    once_a, once_b = Counter(a), Counter(b)
    places = {item: j for j, item in enumerate(b) if once_b[item] == 1}
    pairs = [(i, places[item]) for i, item in enumerate(a) if once_a[item] == 1 and item in places]
    return _rising(pairs)


def _rising(pairs: Indexes) -> Indexes:
    """The longest subsequence whose second numbers rise (patience sorting)."""
    tops: list[int] = []
    heads: list[int] = []
    before: list[int | None] = []
    for at, (_, j) in enumerate(pairs):
        pile = bisect_left(tops, j)
        before.append(heads[pile - 1] if pile else None)
        tops[pile : pile + 1] = [j]
        heads[pile : pile + 1] = [at]
    rising: Indexes = []
    last = heads[-1] if heads else None
    while last is not None:
        rising.append(pairs[last])
        last = before[last]
    return rising[::-1]


# ----------------------------------------------------------------------------- changed items


def _changed(
    old: Sequence[Any], new: Sequence[Any], i: int, x: int, j: int, y: int
) -> Iterator[Pair]:
    """Pairs of changed items between two equal ones."""
    if i == x or j == y:
        return
    names = common(_names(old, i, x), _names(new, j, y))
    for p, q, r, s in _gaps(names, x - i, y - j):
        if q - p == s - r:
            yield from _in_place(old, new, i + p, j + r, q - p)
        else:
            yield from _at_the_ends(old, new, i + p, i + q, j + r, j + s)
        if q < x - i:
            yield Pair(i + q, j + s)


def _names(items: Sequence[Any], start: int, end: int) -> list[Hashable]:
    """What each item is known by; an item without a name is like no other."""
    return [identity(items[at]) or object() for at in range(start, end)]


def identity(item: Any) -> tuple[str, str | int] | None:
    """(field, value) by which a dict in a list is known, or None."""
    if isinstance(item, dict):
        for field in IDENTITY:
            if type(item.get(field)) in (str, int):
                return field, item[field]
    return None


def _in_place(old: Sequence[Any], new: Sequence[Any], i: int, j: int, n: int) -> Iterator[Pair]:
    """As many items are gone as have come: each took the place of one, unless names differ."""
    for x, y in zip(range(i, i + n), range(j, j + n), strict=True):
        if identity(old[x]) == identity(new[y]):
            yield Pair(x, y, replaced=likeness(old[x], new[y]) < 0.5)


def _at_the_ends(
    old: Sequence[Any], new: Sequence[Any], i: int, x: int, j: int, y: int
) -> list[Pair]:
    """Some are gone and others have come: from both ends, while most of each item stayed."""
    front: list[Pair] = []
    while i < x and j < y and _mostly(old[i], new[j]):
        front.append(Pair(i, j))
        i, j = i + 1, j + 1
    back: list[Pair] = []
    while i < x and j < y and _mostly(old[x - 1], new[y - 1]):
        x, y = x - 1, y - 1
        back.append(Pair(x, y))
    return front + back[::-1]


def _mostly(a: Any, b: Any) -> bool:
    return bool(a and b) and isinstance(a, dict | list) and likeness(a, b) > 0.5


def likeness(a: Any, b: Any) -> float:
    """How much two items have in common, 0 to 1: 1 where one of them only grew.

    Dicts with different names, and things of different types, have nothing in common.
    """
    if isinstance(a, dict) and isinstance(b, dict):
        if identity(a) != identity(b):
            return 0
        kept = sum(key in b and codec.same(item, b[key]) for key, item in a.items())
    elif isinstance(a, list) and isinstance(b, list):
        kept = (Counter(map(mark, a)) & Counter(map(mark, b))).total()
    else:
        return float(codec.same(a, b))
    smaller, larger = sorted((len(a), len(b)))
    return 1 if kept == smaller else kept / larger
