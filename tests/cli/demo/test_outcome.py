"""What became of a run is read from the report's history alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from perkey import Document
from perkey.cli.demo.outcome import Figures, Vanished, brought_by, figures, sections_of, vanished


def history(*steps: tuple[str, dict[str, int], int]) -> list[Document]:
    """Versions 1, 2, ... from (author, section -> the version its author began from, base)."""
    return [
        Document(
            key="report",
            value={"sections": {name: {"began_from": start} for name, start in held.items()}},
            version=number,
            by=by,
            at=datetime(2026, 1, 1, tzinfo=UTC),
            base=base,
            op=f"op{number}",
        )
        for number, (by, held, base) in enumerate(steps, 1)
    ]


EMPTY: tuple[str, dict[str, int], int] = ("demo", {}, 0)
CAREFUL = history(EMPTY, ("w1", {"a": 1}, 1), ("w2", {"a": 1, "b": 1}, 2))
BLIND = history(EMPTY, ("w1", {"a": 1}, 1), ("w2", {"b": 1}, 1), ("w3", {"c": 1}, 1))


def test_nothing_vanishes_when_everyone_adds() -> None:
    assert vanished(CAREFUL) == []


def test_what_vanished_and_through_whom() -> None:
    assert vanished(BLIND) == [Vanished("a", "w1", 2, "w2", 3), Vanished("b", "w2", 3, "w3", 4)]


def test_a_section_that_came_back_did_not_vanish() -> None:
    back = history(EMPTY, ("w1", {"a": 1}, 1), ("w2", {"b": 1}, 1), ("w1", {"a": 3, "b": 1}, 3))
    assert vanished(back) == []


def test_the_last_author_of_a_section_that_was_lost_twice() -> None:
    twice = history(
        EMPTY, ("w1", {"a": 1}, 1), ("w2", {}, 1), ("w3", {"a": 3}, 3), ("w4", {"b": 3}, 3)
    )
    assert vanished(twice) == [Vanished("a", "w3", 4, "w4", 5)]


def test_what_each_version_brought() -> None:
    rows = [(v.version, added, dropped) for v, added, dropped in brought_by(BLIND)]
    assert rows == [(1, [], []), (2, ["a"], []), (3, ["b"], ["a"]), (4, ["c"], ["b"])]


def test_conflict_figures() -> None:
    assert figures(CAREFUL) == Figures(writes=2, from_older=1, overwrote_unseen=0, reapplied=1)
    assert figures(BLIND) == Figures(writes=3, from_older=2, overwrote_unseen=2, reapplied=0)


def test_a_value_of_another_shape_holds_no_sections() -> None:
    odd: list[Any] = [None, [], "x", {}, {"sections": []}]
    (version,) = history(EMPTY)
    for value in odd:
        assert sections_of(Document(**{**as_dict(version), "value": value})) == {}


def as_dict(version: Document) -> dict[str, Any]:
    return {name: getattr(version, name) for name in Document.__dataclass_fields__}
