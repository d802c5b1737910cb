"""Which item became which: equal ones in order, changed ones only where it is plain."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perkey.flows import align as module
from perkey.flows.align import align, common, likeness, mark
from perkey.store.codec import same
from tests.unit.strategies import alike, listy


def lcs_length(a: list[int], b: list[int]) -> int:
    """The length of the longest common subsequence, by plain recursion over prefixes."""
    rows = {(-1, j): 0 for j in range(-1, len(b))} | {(i, -1): 0 for i in range(len(a))}
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            rows[i, j] = rows[i - 1, j - 1] + 1 if x == y else max(rows[i - 1, j], rows[i, j - 1])
    return rows[len(a) - 1, len(b) - 1]


def rises(pairs: list[tuple[int, int]]) -> bool:
    return all(i < p and j < q for (i, j), (p, q) in pairwise(pairs))


@given(listy, listy)
def test_equal_items_are_a_longest_common_subsequence(a: list[int], b: list[int]) -> None:
    pairs = common(a, b)
    assert rises(pairs)
    assert all(a[i] == b[j] for i, j in pairs)
    assert len(pairs) == lcs_length(a, b)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 40), max_size=60), st.lists(st.integers(0, 40), max_size=60))
def test_long_lists_are_cut_at_items_that_stand_once(a: list[int], b: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CELLS", 9)
        pairs = common(a, b)
    assert rises(pairs)
    assert all(a[i] == b[j] for i, j in pairs)
    assert len(pairs) <= lcs_length(a, b)


def test_long_lists_with_few_changes_are_aligned_exactly() -> None:
    old = list(range(5_000))
    new = [-1, *old[:1_000], *old[1_001:3_000], -2, -3, *old[3_000:], -4]
    assert len(common(old, new)) == 4_999


def test_the_longest_rising_run_wins_over_a_moved_item() -> None:
    old = list(range(400))
    assert len(common(old, [399, *old[:399]])) == 399
    assert len(common(old, old[200:] + old[:200])) == 200


def test_long_lists_without_a_unique_item_stay_cheap() -> None:
    a, b = [0, 1] * 5_000, [1, 1, 0] * 4_000
    steps = []

    class Counted(int):
        __hash__ = int.__hash__

        def __eq__(self, other: object) -> bool:
            steps.append(1)
            return int.__eq__(self, other)  # type: ignore[arg-type]

    common([Counted(x) for x in a], [Counted(x) for x in b])
    assert len(steps) < 200_000


@given(st.lists(alike, max_size=6), st.lists(alike, max_size=6))
def test_aligned_pairs_rise_and_hold_every_equal_item(a: list[Any], b: list[Any]) -> None:
    pairs = align(a, b)
    assert rises([(i, j) for i, j, _ in pairs])
    equal = sum(same(a[i], b[j]) for i, j, _ in pairs)
    assert equal >= len(common([mark(x) for x in a], [mark(x) for x in b]))


@given(st.lists(alike, max_size=6))
def test_a_list_aligns_with_itself(a: list[Any]) -> None:
    assert align(a, a) == [(i, i, False) for i in range(len(a))]


def test_look_alikes_are_not_equal() -> None:
    assert mark(True) != mark(1) != mark(1.0)
    assert mark("1") != mark(1)
    assert mark("null") != mark(None)
    assert mark({"a": 1, "b": 2}) == mark({"b": 2, "a": 1})


TASK = {"title": "a", "state": "open", "owner": None}


@pytest.mark.parametrize(
    ("old", "new", "pairs"),
    [
        # A scalar in the place of another is that one, changed; otherwise gone and come.
        ([1, 2, 3], [1, 9, 3], [(0, 0), (1, 1), (2, 2)]),
        ([1, 2, 3], [1, 8, 9, 3], [(0, 0), (2, 3)]),
        ([1, 2], [2], [(1, 0)]),
        # Known by name: found again whatever changed, and never taken for another.
        ([{"id": 1, "x": 1}], [{"id": 2}, {"id": 1, "x": 2, "y": 3}], [(0, 1)]),
        ([{"id": 1, "x": 1, "y": 1}], [{"id": 2, "x": 1, "y": 1}], []),
        ([{"id": True}], [{"id": 1}], []),
        ([TASK], [{**TASK, "title": "b"}, {**TASK, "state": "done"}], [(0, 1)]),
        ([TASK], [{**TASK, "title": "b"}], []),
        # Without a name: by place if half of it stayed, from the ends if most of it stayed.
        ([{"x": 1, "y": 1}], [{"x": 1, "y": 2}], [(0, 0)]),
        ([{"x": 1, "y": 1, "z": 1}], [{"x": 1, "y": 1, "z": 2}, 5], [(0, 0)]),
        ([{"x": 1, "y": 1, "z": 1}], [5, {"x": 1, "y": 1, "z": 2}], [(0, 1)]),
        ([{"x": 1, "y": 1}], [{"x": 1, "y": 2}, {"x": 1, "y": 3}], []),
        # One that only grew, or was emptied and filled, is the same one.
        ([[1]], [[1, 2, 3, 4]], [(0, 0)]),
        ([[], []], [[1], []], [(0, 0), (1, 1)]),
        ([[1, 2], [3, 4]], [[1, 9], [3, 4]], [(0, 0), (1, 1)]),
    ],
)
def test_changed_items_pair_up_only_where_it_is_plain(
    old: list[Any], new: list[Any], pairs: list[tuple[int, int]]
) -> None:
    assert [
        (i, j) for i, j, replaced in align(old, new) if not (replaced and nests(old[i]))
    ] == pairs


def nests(item: Any) -> bool:
    return isinstance(item, dict | list)


@pytest.mark.parametrize(
    ("old", "new", "replaced"),
    [
        ([1], [2], True),
        ([["a"]], ["a"], True),
        ([[1, 2]], [{"a": 1}], True),
        ([{"x": 1, "y": 1}], [{"x": 2, "y": 2}], True),
        ([{"x": 1, "y": 1}], [{"x": 1, "y": 2}], False),
        ([{"id": 1, "y": 1}], [{"id": 1, "y": 2}], False),
    ],
)
def test_another_thing_in_the_same_place_is_not_looked_into(
    old: list[Any], new: list[Any], replaced: bool
) -> None:
    assert align(old, new) == [(0, 0, replaced)]


@given(alike, alike)
def test_likeness_is_a_share_and_does_not_depend_on_the_side(a: Any, b: Any) -> None:
    assert 0 <= likeness(a, b) <= 1
    assert likeness(a, b) == likeness(b, a)
    assert likeness(a, a) == 1
