"""Drawings: the same schedule as a table, as Mermaid and as SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from perkey.lab import double_move, examine, lost_update, svg
from perkey.lab.drawing import Drawing, Row, cells, draw, heads, markdown, mermaid
from perkey.testing.search import schedule

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def small() -> Drawing:
    rows = (
        Row(-1, "", "v1"),
        Row(0, "reads; thinks", "v1"),
        Row(1, "save fails", "v1", "strikes"),
        Row(1, "waits", "v1", "waits"),
        Row(0, "writes <all> & more", "v2 | a"),
        Row(1, "waits for ever", "v2 | a", "hangs"),
    )
    return Drawing(("A", "B"), "the report", rows, "B waits #1; for ever")


def test_cells_stand_in_their_callers_column(small: Drawing) -> None:
    assert heads(small) == ["", "A", "B", "the report"]
    assert cells(small) == [
        ["", "", "", "v1"],
        ["1", "reads; thinks", "", ""],
        ["2", "", "save fails", ""],
        ["3", "", "waits", ""],
        ["4", "writes <all> & more", "", "v2 | a"],
        ["5", "", "waits for ever", ""],
    ]


def test_markdown_is_one_table(small: Drawing) -> None:
    lines = markdown(small).splitlines()
    assert lines[0] == "|  | A | B | the report |"
    assert lines[1] == "| --- | --- | --- | --- |"
    assert lines[6] == "| 4 | writes <all> & more |  | v2 \\| a |"


def test_mermaid_has_an_arrow_or_a_note_for_each_row(small: Drawing) -> None:
    text = mermaid(small)
    assert text.splitlines() == [
        "sequenceDiagram",
        "    participant C0 as A",
        "    participant C1 as B",
        "    participant S as the report",
        "    Note over S: v1",
        "    C0->>S: reads, thinks",
        "    Note over C1: save fails",
        "    C1-xS: waits",
        "    C0->>S: writes <all> & more",
        "    Note over S: v2 | a",
        "    Note over C1: waits for ever",
        "    Note over C0,C1: B waits no. 1, for ever",
    ]


def test_svg_is_well_formed_and_says_everything(small: Drawing) -> None:
    root = ET.fromstring(svg.picture(small, 'a "title" & more'))
    assert root.get("aria-label") == 'a "title" & more'
    texts = ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]
    for expected in ("A", "B", "the report", "reads", "thinks", "writes <all> & more", "v2 | a"):
        assert expected in texts
    assert small.verdict in texts
    kinds = [each.get("class") for each in root.iter(f"{SVG}rect")]
    assert kinds == ["back", "box", "box strikes", "box waits", "box", "box hangs"]


def test_svg_boxes_do_not_overlap_and_lie_in_the_picture(small: Drawing) -> None:
    root = ET.fromstring(svg.picture(small, "t"))
    boxes = [each for each in root.iter(f"{SVG}rect") if each.get("class") != "back"]
    below = 0.0
    for box in boxes:
        assert float(box.get("y", "0")) >= below
        below = float(box.get("y", "0")) + float(box.get("height", "0"))
        assert float(box.get("x", "0")) + float(box.get("width", "0")) < float(
            root.get("width", "0")
        )
    assert below < float(root.get("height", "0"))


def test_svg_is_readable_on_dark_pages_too() -> None:
    assert "prefers-color-scheme: dark" in svg.STYLE


def test_the_same_schedule_draws_the_same_picture() -> None:
    variant = double_move.SCENARIO.variant("delete")
    result, crew = examine.search(variant)
    moves = schedule(result.assert_fails().replay)
    program = examine.program(variant, crew)
    once, again = (draw(program, moves, "ABC", "the map") for _ in range(2))
    assert once == again
    assert [row.text for row in once.rows if row.mark == "strikes"] == [
        "save fails; leaves, deletes the map's lock"
    ]


def test_who_hangs_is_named() -> None:
    variant = lost_update.SCENARIO.variant("turn-lock-row")
    result, crew = examine.search(variant)
    names = [variant.names[number] for number in crew]
    made = draw(
        examine.program(variant, crew), schedule(result.assert_fails().replay), names, "report"
    )
    assert made.rows[-1].mark == "hangs"
    assert made.verdict == "agent b waits for ever"
    assert [row.text for row in made.rows if row.mark == "strikes"] == ["crashes: no finally runs"]
    assert made.as_dict()["rows"][0] == {"who": -1, "text": "", "shared": "v1: (empty)", "mark": ""}
