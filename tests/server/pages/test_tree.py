"""A value as lines with their authors, and two values side by side."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perkey.flows.blame import NOTHING, blame
from perkey.flows.diff import ABSENT
from perkey.server.pages import sides, tree
from perkey.server.pages.sides import Row, side_by_side
from perkey.server.pages.tree import Line

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=4)
    ),
    max_leaves=12,
)


def as_text(lines: list[Line]) -> str:
    return "\n".join(f"{each.label}{each.text}" for each in lines)


def whole(value: Any) -> list[Line]:
    return list(tree.printed(value))


@given(JSON)
def test_the_lines_are_the_value(value: Any) -> None:
    lines = whole(value)
    assert json.loads(as_text(lines)) == value
    depth = 0
    for line in lines:
        depth -= closes(line)
        assert line.depth == depth
        depth += line.kind == "mark" and line.text in "{["


def closes(line: Line) -> bool:
    return line.kind == "mark" and line.text.rstrip(",") in ("}", "]")


@settings(deadline=None)
@given(JSON, JSON)
def test_every_scalar_knows_its_author(old: Any, new: Any) -> None:
    found = blame([(1, "ann", old), (2, "bob", new)])
    lines, cut = tree.lines(found)
    assert not cut
    assert as_text(lines) == as_text(whole(new))
    origins = [each.origin for each in lines if each.origin is not None]
    assert origins == [origin for _, origin in found.leaves()]


def test_who_set_what() -> None:
    found = blame([(1, "ann", {"a": 1, "b": [1]}), (2, "bob", {"a": 1, "b": [1, {}]})])
    told = "".join(
        f"{each.text}{each.origin.by if each.origin else ''} " for each in tree.lines(found)[0]
    )
    assert told == "{ 1,ann [ 1,ann {}bob ] } "


def test_a_deleted_document_has_no_lines() -> None:
    assert tree.lines(NOTHING) == ([], False)
    assert tree.lines(blame([(1, "a", 1), (2, "b", ABSENT)])) == ([], False)


def test_long_values_are_cut_and_say_so() -> None:
    lines, cut = tree.lines(blame([(1, "a", list(range(5000)))]), most=100)
    assert (len(lines), cut) == (100, True)
    text, kind = tree.scalar("x" * 5000)
    assert kind == "text"
    assert text.endswith('x"… (5,000 characters)')
    assert len(text) < 2100


@pytest.mark.parametrize(
    ("value", "kind"),
    [(True, "word"), (None, "word"), (1, "number"), (1.5, "number"), ("", "text"), ({}, "mark")],
)
def test_kinds(value: Any, kind: str) -> None:
    assert tree.scalar(value) == (json.dumps(value), kind)


# ---------------------------------------------------------------------------- side by side


def side(rows: list[Row], name: str) -> str:
    lines = [getattr(row, name) for row in rows]
    return as_text([line for line in lines if line is not None])


@settings(deadline=None)
@given(JSON, JSON)
def test_each_side_is_its_value(old: Any, new: Any) -> None:
    rows = list(sides._rows(old, new, 0, "", ("", "")))
    for row in rows:
        assert (row.old is None) == (row.kind == "added")
        assert (row.new is None) == (row.kind == "removed")
    assert json.loads(side(rows, "old")) == old
    assert json.loads(side(rows, "new")) == new
    if old == new and json.dumps(old) == json.dumps(new):
        assert {row.kind for row in rows} == {"same"}


def kinds(old: Any, new: Any) -> list[str]:
    return [row.kind for row in side_by_side(old, new)[0]]


def test_what_changed_stands_beside_what_it_was() -> None:
    assert kinds({"a": 1, "b": 2}, {"a": 1, "b": 3}) == ["same", "same", "changed", "same"]
    assert kinds({"a": 1}, {"a": 1, "b": 2}) == ["same", "same", "added", "same"]
    assert kinds([1, 2, 3], [1, 3]) == ["same", "same", "removed", "same", "same"]
    assert kinds([1, 3], [0, 1, 3]) == ["same", "added", "same", "same", "same"]
    assert kinds(1, [1, 2]) == ["changed", "added", "added", "added"]
    assert kinds(ABSENT, {"a": 1}) == ["added"] * 3
    assert kinds({"a": 1}, ABSENT) == ["removed"] * 3
    assert kinds(ABSENT, ABSENT) == []


def test_a_long_same_part_is_folded() -> None:
    old = {f"k{n:02}": n for n in range(40)}
    rows, cut = side_by_side(old, {**old, "k20": "x"})
    assert not cut
    assert [row.kind for row in rows] == ["fold", *["same"] * 3, "changed", *["same"] * 3, "fold"]
    assert (rows[0].hidden, rows[-1].hidden) == (18, 17)
    assert sum(max(row.hidden, 1) for row in rows) == 42


def test_the_same_value_twice_is_one_fold() -> None:
    assert side_by_side([1, 2], [1, 2]) == ([Row("fold", hidden=4)], False)


def test_there_is_an_end() -> None:
    rows, cut = side_by_side([], list(range(5000)))
    assert (len(rows), cut) == (sides.MOST_ROWS, True)
