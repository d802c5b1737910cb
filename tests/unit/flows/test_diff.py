"""Changes by path: as few and as large as they can be, aware of lists and of null."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from perkey.flows import pointer
from perkey.flows.diff import ABSENT, Change, diff
from perkey.store.codec import same
from tests.unit.strategies import alike, json_values


def brief(old: Any, new: Any) -> list[tuple[str, str]]:
    return [(change.kind, pointer.format(change.path)) for change in diff(old, new)]


@given(json_values)
def test_a_value_has_no_changes_against_itself(value: Any) -> None:
    assert diff(value, value) == []
    assert diff(value, pointer.get(value, "")) == []


@given(alike, alike)
def test_there_is_a_change_exactly_where_values_differ(old: Any, new: Any) -> None:
    changes = diff(old, new)
    assert bool(changes) is not same(old, new)
    for change in changes:
        assert not (change.old is not ABSENT and change.new is not ABSENT) or not same(
            change.old, change.new
        )
        if change.kind != "add":
            assert same(pointer.get(old, change.was), change.old)
        if change.kind != "remove":
            assert same(pointer.get(new, change.path), change.new)


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ({"a": 1, "b": 2}, {"b": 3, "c": 4}, [("remove", "/a"), ("replace", "/b"), ("add", "/c")]),
        ({"a": {"b": {"c": 1}}}, {"a": {"b": {"c": 2}}}, [("replace", "/a/b/c")]),
        ({}, {"a": {"b": {"c": 1}}}, [("add", "/a")]),
        ({"a": [1]}, {"a": {"0": 1}}, [("replace", "/a")]),
        ([1, 2], [1, 2, 3], [("add", "/2")]),
        ([1, 2], [0, 1, 2], [("add", "/0")]),
        ([1, 2, 3], [1, 3], [("remove", "/1")]),
        ([1, 2, 3], [3, 1, 2], [("add", "/0"), ("remove", "/2")]),
        ([{"id": 1, "n": 1}], [{"id": 2}, {"id": 1, "n": 2}], [("add", "/0"), ("replace", "/1/n")]),
        ({"a~/b": 1}, {}, [("remove", "/a~0~1b")]),
        (1, True, [("replace", "")]),
        ({"x": 1}, {"x": 1.0}, [("replace", "/x")]),
        ({"x": None}, {}, [("remove", "/x")]),
        ({}, {"x": None}, [("add", "/x")]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, []),
    ],
)
def test_examples(old: Any, new: Any, changes: list[tuple[str, str]]) -> None:
    assert brief(old, new) == changes


def test_a_changed_item_says_where_it_stood() -> None:
    old = [{"id": 1, "n": 1}]
    new = [{"id": 2}, {"id": 1, "n": 2, "m": 3}]
    assert diff(old, new) == [
        Change("add", (0,), ABSENT, {"id": 2}, (0,)),
        Change("replace", (1, "n"), 1, 2, (0, "n")),
        Change("add", (1, "m"), ABSENT, 3, (0, "m")),
    ]


def test_a_document_that_comes_or_goes_is_one_change() -> None:
    assert brief(ABSENT, {"a": 1}) == [("add", "")]
    assert brief({"a": 1}, ABSENT) == [("remove", "")]
    assert brief(ABSENT, None) == [("add", "")]
    assert brief(ABSENT, ABSENT) == []


def test_changes_are_written_for_people_and_as_json() -> None:
    changes = diff({"b": 1, "c": None}, {"b": 2, "a": None})
    assert [str(change) for change in changes] == ["/b: 1 -> 2", "/c: remove None", "/a: add None"]
    assert [change.as_json() for change in changes] == [
        {"op": "replace", "path": "/b", "old": 1, "new": 2},
        {"op": "remove", "path": "/c", "old": None},
        {"op": "add", "path": "/a", "new": None},
    ]
    assert str(diff(1, 2)[0]) == "the value itself: 1 -> 2"
    assert repr(ABSENT) == "ABSENT"


def test_appending_to_a_long_list_is_one_change() -> None:
    old = [{"line": at, "text": f"line {at}"} for at in range(3_000)]
    assert brief(old, [*old, {"line": 3_000}]) == [("add", "/3000")]
    assert brief(old, old[:1_500] + old[1_501:]) == [("remove", "/1500")]
