"""Blame: each leaf has the version and author that set it, and what is not known says so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perkey import NotFound, UsageError
from perkey.flows.blame import NOTHING, Blame, Origin, blame
from perkey.flows.diff import ABSENT, diff
from perkey.flows.pointer import Path
from perkey.store.codec import same
from tests.unit.strategies import alike, few

flat = st.dictionaries(st.sampled_from("abcd"), few, max_size=4)
people = st.sampled_from(["ann", "ben", "cy"])


def leaves(value: Any, path: Path = ()) -> list[Path]:
    """The paths of all leaves; the oracle for which there are."""
    if not isinstance(value, dict | list) or not value:
        return [path]
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    return [leaf for key, item in inside for leaf in leaves(item, (*path, key))]


def numbered(writes: list[tuple[str, Any]], first: int = 1) -> list[tuple[int, str, Any]]:
    return [(first + at, by, value) for at, (by, value) in enumerate(writes)]


def by_path(found: Blame) -> dict[str, tuple[int, str | None]]:
    return {
        "/".join(map(str, path)): (origin.version, origin.by) for path, origin in found.leaves()
    }


@given(st.lists(st.tuples(people, flat), min_size=1, max_size=6))
def test_a_flat_document_against_a_plain_model(writes: list[tuple[str, Any]]) -> None:
    model: dict[str, tuple[int, str]] = {}
    before: dict[str, Any] = {}
    for version, by, value in numbered(writes):
        model = {
            key: model[key] if key in before and same(before[key], item) else (version, by)
            for key, item in value.items()
        }
        before = value
    if before:
        assert by_path(blame(numbered(writes))) == model


@given(st.lists(st.tuples(people, alike | st.just(ABSENT)), min_size=1, max_size=6))
def test_every_leaf_has_an_origin_that_shows_it(writes: list[tuple[str, Any]]) -> None:
    history = numbered(writes)
    found = blame(history)
    value = history[-1][2]
    assert [path for path, _ in found.leaves()] == ([] if value is ABSENT else leaves(value))
    for _, origin in found.leaves():
        assert origin.known
        assert history[origin.version - 1][1] == origin.by


@given(st.lists(st.tuples(people, alike), min_size=2, max_size=5))
def test_the_last_author_has_exactly_what_the_diff_shows(writes: list[tuple[str, Any]]) -> None:
    history = numbered(writes)
    changes = diff(history[-2][2], history[-1][2])
    put = [change.path for change in changes if change.kind != "remove"]
    for path, origin in blame(history).leaves():
        covered = any(path[: len(each)] == each for each in put)
        # What lost its last item is a leaf now, made by who took that out.
        emptied = leaf(history[-1][2], path) in ({}, []) and bool(changes)
        assert origin.version < len(history) or covered or emptied
        assert origin.version == len(history) or not covered


def leaf(value: Any, path: Path) -> Any:
    for token in path:
        value = value[token]
    return value


@given(st.lists(st.tuples(people, alike), min_size=1, max_size=5), st.integers(2, 9))
def test_history_that_starts_late_is_not_guessed(writes: Any, first: int) -> None:
    history = numbered(writes, first)
    found = blame(history)
    start = blame(history[:1])
    assert all(origin == Origin(first, None, known=False) for _, origin in start.leaves())
    for _, origin in found.leaves():
        assert origin.known is (origin.version > first)
        assert (origin.by is None) is (not origin.known)


@given(st.lists(st.tuples(people, alike), min_size=2, max_size=6), st.data())
def test_a_hole_in_history_makes_everything_before_it_unknown(writes: Any, data: Any) -> None:
    history = numbered(writes)
    hole = data.draw(st.integers(1, len(history) - 1))
    found = blame(history[: hole - 1] + history[hole:])
    for _, origin in found.leaves():
        assert origin.version > hole
        assert origin.known is (origin.version > hole + 1)


def test_lists_are_followed_when_items_come_go_and_change() -> None:
    one, two = {"id": 1, "state": "open"}, {"id": 2, "state": "open"}
    found = blame(
        [
            (1, "ann", {"tasks": [one]}),
            (2, "ben", {"tasks": [two, one]}),
            (3, "cy", {"tasks": [two, {**one, "state": "done"}, "x"]}),
            (4, "ann", {"tasks": [{**one, "state": "done"}, "x"]}),
        ]
    )
    assert by_path(found) == {
        "tasks/0/id": (1, "ann"),
        "tasks/0/state": (3, "cy"),
        "tasks/1": (3, "cy"),
    }


def test_another_thing_in_the_same_place_is_all_new() -> None:
    found = blame([(1, "ann", [{"x": 1, "y": 1}]), (2, "ben", [{"x": 1, "z": 2, "w": 3}])])
    assert {origin.by for _, origin in found.leaves()} == {"ben"}


def test_a_value_written_again_keeps_its_origin_and_one_set_back_does_not() -> None:
    found = blame([(1, "ann", {"a": 1}), (2, "ben", {"a": 1}), (3, "cy", {"a": 1, "b": 2})])
    assert by_path(found) == {"a": (1, "ann"), "b": (3, "cy")}
    found = blame([(1, "ann", {"a": 1}), (2, "ben", {"a": True}), (3, "cy", {"a": 1})])
    assert by_path(found) == {"a": (3, "cy")}


def test_a_deleted_document_starts_again() -> None:
    history = [(1, "ann", {"a": 1}), (2, "ben", ABSENT)]
    assert list(blame(history).leaves()) == []
    assert by_path(blame([*history, (3, "cy", {"a": 1})])) == {"a": (3, "cy")}
    assert by_path(blame([(7, "ben", ABSENT), (8, "cy", {"a": 1})])) == {"a": (8, "cy")}


def test_an_emptied_dict_was_set_by_who_emptied_it() -> None:
    found = blame([(1, "ann", {"a": {"x": 1}}), (2, "ben", {"a": {}})])
    assert by_path(found) == {"a": (2, "ben")}


def test_leaves_below_a_path_and_who_touched_it_last() -> None:
    found = blame([(1, "ann", {"s": [{"a": 1, "b": 1}], "t": 1})]).advance(
        2, "ben", {"s": [{"a": 1, "b": 2}], "t": 1}
    )
    assert list(found.leaves(("s", 0))) == [
        (("s", 0, "a"), Origin(1, "ann")),
        (("s", 0, "b"), Origin(2, "ben")),
    ]
    assert list(found.leaves(("s", "0", "a"))) == [(("s", 0, "a"), Origin(1, "ann"))]
    assert found.origin(("s",)) == Origin(2, "ben")
    assert found.origin(("t",)) == Origin(1, "ann")
    for path in (("u",), ("s", 1), ("t", "x")):
        with pytest.raises(NotFound, match="there is nothing at"):
            found.origin(path)
    with pytest.raises(NotFound):
        NOTHING.origin(("t",))


def test_versions_ascend() -> None:
    with pytest.raises(UsageError, match="expected a version above 2, found 2"):
        blame([(1, "ann", 1), (2, "ben", 2), (2, "cy", 3)])
    assert blame([]) == NOTHING


def test_origins_are_written_for_people() -> None:
    assert str(Origin(7, "ann")) == "version 7 by 'ann'"
    assert str(Origin(4, None, known=False)) == "at or before version 4"


def test_what_did_not_change_is_shared_and_earlier_blames_stay() -> None:
    first = blame(
        [(1, "ann", {"a": {"x": 1}, "b": 1}), (2, "ben", {"a": {"x": 1, "y": 2}, "b": 1})]
    )
    second = first.advance(3, "cy", {"a": {"x": 1, "y": 2}, "b": 2})
    assert isinstance(first.tree, dict)
    assert isinstance(second.tree, dict)
    assert second.tree["a"] is first.tree["a"]
    assert by_path(first) == {"a/x": (1, "ann"), "a/y": (2, "ben"), "b": (1, "ann")}


def test_a_subtree_costs_nothing_until_it_changes() -> None:
    wide = {"rows": [{"id": at, "text": "x"} for at in range(1_000)], "n": 0}
    found = blame([(1, "ann", wide), (2, "ben", {**wide, "n": 1})])
    assert found.tree == {"rows": Origin(1, "ann"), "n": Origin(2, "ben")}


def test_parts_are_as_few_as_the_versions_allow() -> None:
    found = blame(
        [
            (1, "ann", {"a": {"x": 1, "y": 1}, "l": [1]}),
            (2, "ben", {"a": {"x": 1, "y": 1}, "l": [1, 2]}),
        ]
    )
    assert list(found.parts()) == [
        (("a",), Origin(1, "ann")),
        (("l", 0), Origin(1, "ann")),
        (("l", 1), Origin(2, "ben")),
    ]
    assert list(found.parts(("a", "x"))) == [(("a", "x"), Origin(1, "ann"))]
    assert list(blame([(3, "ann", ABSENT)]).parts()) == []
