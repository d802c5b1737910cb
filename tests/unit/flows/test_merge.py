"""Three-way merge: every change of either side is in the result, or reported as an overlap."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perkey.flows.diff import ABSENT, Change, diff
from perkey.flows.merge import Merged, Overlap, merge
from perkey.flows.pointer import Path, get
from perkey.store.codec import same
from tests.unit.strategies import alike, few, json_values, listy, nested

dicts = st.recursive(
    few, lambda child: st.dictionaries(st.sampled_from("abcd"), child, max_size=4), max_leaves=10
)
"""Values without lists: every path names one place on all sides."""

maybe = alike | st.just(ABSENT)


@given(maybe, maybe)
def test_one_side_alone_is_taken_as_it_is(base: Any, changed: Any) -> None:
    for merged in (merge(base, changed, base), merge(base, base, changed)):
        assert same(merged.value, changed)
        assert merged.overlaps == []


@given(json_values, json_values)
def test_one_side_alone_is_taken_whatever_it_is(base: Any, changed: Any) -> None:
    assert same(merge(base, changed, base).value, changed)
    assert same(merge(base, base, changed).value, changed)


@given(maybe, maybe)
def test_what_both_sides_did_alike_is_done_once(base: Any, changed: Any) -> None:
    assert merge(base, changed, changed) == Merged(changed)


@given(maybe, maybe, maybe)
def test_overlaps_are_the_same_from_both_sides(base: Any, ours: Any, theirs: Any) -> None:
    here = merge(base, ours, theirs).overlaps
    there = [Overlap(o.path, o.base, o.theirs, o.ours) for o in merge(base, theirs, ours).overlaps]
    assert sorted(map(repr, here)) == sorted(map(repr, there))
    assert len({repr(o.path) for o in here}) == len(here)


@given(maybe, maybe, maybe)
def test_an_overlap_holds_what_three_sides_have(base: Any, ours: Any, theirs: Any) -> None:
    for overlap in merge(base, ours, theirs).overlaps:
        assert not same(overlap.ours, overlap.theirs)
        assert not same(overlap.base, overlap.ours)
        assert not same(overlap.base, overlap.theirs)
        if overlap.base is not ABSENT:
            assert same(get(base, overlap.path), overlap.base)


@given(alike, alike, alike)
def test_the_sides_are_not_changed(base: Any, ours: Any, theirs: Any) -> None:
    before = copy.deepcopy((base, ours, theirs))
    merge(base, ours, theirs)
    assert same(list(before), [base, ours, theirs])


@given(dicts, dicts, dicts)
def test_no_change_in_dicts_is_lost_or_made_up(base: Any, ours: Any, theirs: Any) -> None:
    """The oracle is the diff: each side's changes stand in the result, unless an overlap
    covers them, and the result has no other changes."""
    merged = merge(base, ours, theirs)
    for side in (ours, theirs):
        for change in diff(base, side):
            assert stands(merged.value, change) or covered(merged, change.path)
    for change in diff(base, merged.value):
        assert any(stands(side, change) for side in (ours, theirs)) or inside(change, ours, theirs)


def stands(value: Any, change: Change) -> bool:
    """Whether the value shows the change: all that was put in is there, what went is not."""
    found = lookup(value, change.path)
    if change.kind == "remove":
        return found is ABSENT
    return contains(found, change.new)


def lookup(value: Any, path: Path) -> Any:
    for token in path:
        if not isinstance(value, dict) or token not in value:
            return ABSENT
        value = value[token]
    return value


def contains(value: Any, part: Any) -> bool:
    """Dicts may hold more than the part: the other side put it there."""
    if isinstance(value, dict) and isinstance(part, dict):
        return all(key in value and contains(value[key], item) for key, item in part.items())
    return same(value, part)


def covered(merged: Merged, path: Path) -> bool:
    return any(
        path[: len(o.path)] == o.path or o.path[: len(path)] == path for o in merged.overlaps
    )


def inside(change: Change, ours: Any, theirs: Any) -> bool:
    """Whether both sides together put in the dict that the result gained."""
    parts = [lookup(side, change.path) for side in (ours, theirs)]
    return all(isinstance(part, dict) for part in parts) and all(
        any(isinstance(part, dict) and key in part for part in parts) for key in change.new
    )


@given(listy, listy, listy)
def test_no_item_of_a_list_is_lost(base: list[int], ours: list[int], theirs: list[int]) -> None:
    """Counted per item, by the edits that the diff sees on each side: nothing goes that
    neither took out, and all that came is there, once where both sides put it in."""
    merged = merge(base, ours, theirs)
    if merged.overlaps:
        return
    (out_here, in_here), (out_there, in_there) = edits(base, ours), edits(base, theirs)
    was, now = Counter(base), Counter(merged.value)
    for item in now | was | in_here | in_there:
        gone, came = out_here[item] + out_there[item], max(in_here[item], in_there[item])
        assert now[item] >= was[item] - gone + came
        gone, came = max(out_here[item], out_there[item]), in_here[item] + in_there[item]
        assert now[item] <= was[item] - gone + came


def edits(old: list[int], new: list[int]) -> tuple[Counter[int], Counter[int]]:
    """(items taken out, items put in)."""
    changes = diff(old, new)
    return (
        Counter(change.old for change in changes if change.kind != "add"),
        Counter(change.new for change in changes if change.kind != "remove"),
    )


def tagged(name: str) -> st.SearchStrategy[list[str]]:
    """Items that no other side can have."""
    return st.lists(st.integers(0, 99), max_size=4).map(
        lambda found: [f"{name}{at}-{item}" for at, item in enumerate(found)]
    )


@given(tagged("base"), tagged("ours"), tagged("theirs"))
def test_two_writers_append_to_one_list(
    base: list[str], ours: list[str], theirs: list[str]
) -> None:
    for wrap in (lambda x: x, lambda x: {"log": x, "n": 1}):
        merged = merge(wrap(base), wrap(base + ours), wrap(base + theirs))
        assert merged == Merged(wrap(base + theirs + ours))


@settings(max_examples=200)
@given(tagged("base"), st.data())
def test_items_put_in_and_taken_out_anywhere(base: list[str], data: Any) -> None:
    """Each side puts its own items in or takes items out, at drawn places: no overlap, all
    that came is there once, all that went is gone, and each side's order is kept."""
    sides, came = [], []
    for name in ("ours", "theirs"):
        if data.draw(st.booleans(), label=f"{name} takes out"):
            sides.append([item for item in base if data.draw(st.booleans())])
            continue
        side, mine = list(base), data.draw(tagged(name))
        for item in mine:
            side.insert(data.draw(st.integers(0, len(side))), item)
        sides.append(side)
        came += mine
    ours, theirs = sides
    merged = merge(base, ours, theirs)
    kept = [item for item in base if item in ours and item in theirs]
    assert merged.overlaps == []
    assert Counter(merged.value) == Counter(kept + came)
    for side in sides:
        assert [x for x in merged.value if x in side] == [x for x in side if x in merged.value]


TASK = {"id": 1, "state": "open", "owner": None}

MERGES: dict[str, tuple[Any, Any, Any, Any]] = {
    "different keys": ({"a": 1}, {"a": 1, "b": 2}, {"a": 1, "c": 3}, {"a": 1, "b": 2, "c": 3}),
    "different depths": (
        {"s": {"x": {"n": 1}, "y": 1}},
        {"s": {"x": {"n": 2}, "y": 1}},
        {"s": {"x": {"n": 1}, "y": 2}},
        {"s": {"x": {"n": 2}, "y": 2}},
    ),
    "one removes, one adds": (
        {"a": 1, "b": 2},
        {"a": 1},
        {"a": 1, "b": 2, "c": 3},
        {"a": 1, "c": 3},
    ),
    "both make the same dict": ({}, {"s": {"a": 1}}, {"s": {"b": 2}}, {"s": {"a": 1, "b": 2}}),
    "both make the same list": ({}, {"s": ["a"]}, {"s": ["b"]}, {"s": ["b", "a"]}),
    "both make the document": (ABSENT, {"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
    "both remove": ({"a": 1, "b": 1}, {"b": 1}, {"b": 1}, {"b": 1}),
    "both append": ([1], [1, "us"], [1, "them"], [1, "them", "us"]),
    "both append the same": ([1], [1, 2], [1, 2], [1, 2]),
    "both append, in part the same": ([1], [1, 2, 3], [1, 2], [1, 2, 3]),
    "one appends, one puts in front": ([1], [1, 2], [0, 1], [0, 1, 2]),
    "one appends, one removes": ([1, 2], [1, 2, 3], [2], [2, 3]),
    "different items are changed": ([1, 2, 3], [9, 2, 3], [1, 2, 8], [9, 2, 8]),
    "one changes, one puts in before": ([1, 2], [1, 9], [0, 1, 2], [0, 1, 9]),
    "one item, different fields": (
        [TASK],
        [{**TASK, "state": "done"}],
        [{**TASK, "owner": "ann"}],
        [{"id": 1, "state": "done", "owner": "ann"}],
    ),
    "one changes an item, one puts in before it": (
        [TASK],
        [{**TASK, "state": "done"}],
        [{"id": 0}, TASK],
        [{"id": 0}, {**TASK, "state": "done"}],
    ),
    "both replace an item by new ones with names": (
        [{"id": 1}],
        [{"id": 2}],
        [{"id": 3}],
        [{"id": 3}, {"id": 2}],
    ),
    "both change and append": (
        [{**TASK, "id": 1}, {**TASK, "id": 2}],
        [{**TASK, "id": 1, "state": "done"}, {**TASK, "id": 2}, {"id": 3}],
        [{**TASK, "id": 1}, {**TASK, "id": 2, "state": "done"}, {"id": 4}],
        [
            {**TASK, "id": 1, "state": "done"},
            {**TASK, "id": 2, "state": "done"},
            {"id": 4},
            {"id": 3},
        ],
    ),
    "both move one item": (
        [1, 2, 3, 4, "x"],
        ["x", 1, 2, 3, 4],
        [1, 2, "x", 3, 4],
        [1, 2, "x", 3, 4],
    ),
    "both move one item to one place": ([1, 2, "x"], ["x", 1, 2], [3, "x", 1, 2], [3, "x", 1, 2]),
    "lists in lists": (
        [[1, 2], [3, 4]],
        [[1, 9], [3, 4]],
        [[1, 2, 5], [3, 4]],
        [[1, 9, 5], [3, 4]],
    ),
    "empty lists are filled": ([[], []], [["us"], []], [["them"], []], [["them", "us"], []]),
    "look-alikes": (
        {"a": 1, "b": 1},
        {"a": True, "b": 1},
        {"a": 1, "b": 1.0},
        {"a": True, "b": 1.0},
    ),
}


@pytest.mark.parametrize(("base", "ours", "theirs", "value"), MERGES.values(), ids=MERGES)
def test_merges(base: Any, ours: Any, theirs: Any, value: Any) -> None:
    merged = merge(base, ours, theirs)
    assert merged.overlaps == []
    assert same(merged.value, value)


OVERLAPS: dict[str, tuple[Any, Any, Any, Overlap]] = {
    "a number": ({"n": 1}, {"n": 2}, {"n": 3}, Overlap(("n",), 1, 2, 3)),
    "a text": ("a", "ab", "ac", Overlap((), "a", "ab", "ac")),
    "edit and delete": ({"k": 1}, {"k": 2}, {}, Overlap(("k",), 1, 2, ABSENT)),
    "delete and edit": (
        {"k": {"x": 1}},
        {},
        {"k": {"x": 2}},
        Overlap(("k",), {"x": 1}, ABSENT, {"x": 2}),
    ),
    "edit inside, delete outside": (
        {"a": {"b": {"c": 1}}},
        {"a": {"b": {"c": 2}}},
        {"a": {}},
        Overlap(("a", "b"), {"c": 1}, {"c": 2}, ABSENT),
    ),
    "type changes": (
        {"k": {"x": 1}},
        {"k": [1]},
        {"k": {"x": 2}},
        Overlap(("k",), {"x": 1}, [1], {"x": 2}),
    ),
    "both change the type": (
        {"k": 1},
        {"k": {}},
        {"k": {"a": 1}},
        Overlap(("k",), 1, {}, {"a": 1}),
    ),
    "both add different values": ({}, {"k": 1}, {"k": 2}, Overlap(("k",), ABSENT, 1, 2)),
    "both make documents of different types": (ABSENT, {}, [], Overlap((), ABSENT, {}, [])),
    "1 and true": ({"k": 0}, {"k": 1}, {"k": True}, Overlap(("k",), 0, 1, True)),
    "null and absent": ({"k": 0}, {"k": None}, {}, Overlap(("k",), 0, None, ABSENT)),
    "one item of a list": ([1, 2, 3], [1, 8, 3], [0, 1, 9, 3], Overlap((1,), 2, 8, 9)),
    "a changed item that was removed": (
        [1, TASK],
        [1, {**TASK, "state": "done"}],
        [1],
        Overlap((1,), TASK, {**TASK, "state": "done"}, ABSENT),
    ),
    "one field of one item": (
        [1, TASK],
        [1, {**TASK, "state": "done"}],
        [{**TASK, "state": "failed"}],
        Overlap((1, "state"), "open", "done", "failed"),
    ),
    "another thing in the place of an item": (
        [{"x": 1, "y": 1}],
        [{"x": 2, "y": 2}],
        [{"x": 1, "y": 1, "z": 5}],
        Overlap((0,), {"x": 1, "y": 1}, {"x": 2, "y": 2}, {"x": 1, "y": 1, "z": 5}),
    ),
    "one thing replaced by two": (
        [{"x": 1, "y": 1}],
        [{"x": 2, "y": 2}],
        [{"x": 3, "y": 3}],
        Overlap((0,), {"x": 1, "y": 1}, {"x": 2, "y": 2}, {"x": 3, "y": 3}),
    ),
}


@pytest.mark.parametrize(("base", "ours", "theirs", "overlap"), OVERLAPS.values(), ids=OVERLAPS)
def test_overlaps(base: Any, ours: Any, theirs: Any, overlap: Overlap) -> None:
    merged = merge(base, ours, theirs)
    assert merged.overlaps == [overlap]
    assert repr(merged.overlaps) == repr([overlap])  # == alone takes True for 1


def test_every_overlap_is_reported_and_the_rest_is_merged() -> None:
    base = {"a": 1, "b": 1, "c": 1, "log": []}
    merged = merge(base, {**base, "a": 2, "b": 2, "log": ["us"]}, {**base, "a": 3, "b": 3, "c": 3})
    assert [overlap.path for overlap in merged.overlaps] == [("a",), ("b",)]
    assert merged.value == {"a": 3, "b": 3, "c": 3, "log": ["us"]}


def test_an_overlap_as_json_leaves_out_what_is_absent() -> None:
    assert Overlap(("a", 0), None, 1, ABSENT).as_json() == {"path": "/a/0", "base": None, "ours": 1}


@given(nested(few, st.sampled_from("ab"), 3), st.lists(tagged("w"), min_size=2, max_size=5))
def test_any_number_of_stale_writers_lose_nothing(start: Any, writers: list[list[str]]) -> None:
    """Each writer appends to one list and sets its own key, all from the same base."""
    base = {"start": start, "log": [], "by": {}}
    head = base
    for number, items in enumerate(writers):
        mine = [f"{number}:{item}" for item in items]
        merged = merge(base, {"start": start, "log": mine, "by": {f"w{number}": mine}}, head)
        assert merged.overlaps == []
        head = merged.value
    wanted = [f"{number}:{item}" for number, items in enumerate(writers) for item in items]
    assert head["log"] == wanted
    assert [item for mine in head["by"].values() for item in mine] == wanted


def test_long_lists_merge() -> None:
    base = [{"id": at, "n": 0} for at in range(2_000)]
    ours = [*base[:500], {"id": 500, "n": 1}, *base[501:], {"id": "us"}]
    theirs = [{"id": "them"}, *base[:1_500], *base[1_501:]]
    merged = merge(base, ours, theirs)
    assert merged.overlaps == []
    assert len(merged.value) == 2_001
    assert merged.value[0] == {"id": "them"}
    assert merged.value[501] == {"id": 500, "n": 1}
    assert merged.value[-1] == {"id": "us"}
