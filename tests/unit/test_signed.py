"""Errors name the author of what was found, and say nothing of one where nobody signed."""

from __future__ import annotations

import pytest

from perkey import Board, Conflict, Documents, NotFound
from perkey.flows.blame import Origin
from perkey.server import conditions
from perkey.store.record import Record, signed
from tests.unit.manual_clock import ManualClock, memory_store

AUTHORS = [("ann", " by 'ann'"), ("", "")]


def test_nobody_is_not_quoted() -> None:
    assert [signed("ann"), signed("it's"), signed(""), signed(None)] == [
        " by 'ann'",
        ' by "it\'s"',
        "",
        "",
    ]


@pytest.mark.parametrize(("by", "said"), AUTHORS)
def test_what_is_found_is_told_with_its_author(by: str, said: str) -> None:
    with memory_store(ManualClock()) as store:
        docs = Documents(store)
        docs.put("report", {"a": 1}, create=True, by=by)
        with pytest.raises(Conflict) as exists:
            docs.put("report", {}, create=True)
        with pytest.raises(Conflict) as stale:
            docs.put("report", {}, if_match=7)
        docs.delete("report", by=by)
        with pytest.raises(NotFound) as gone:
            docs.get("report")
        with pytest.raises(Conflict) as deleted:
            docs.put("report", {}, if_match=1)
        docs.put("report", {"a": 2}, create=True)
        with pytest.raises(Conflict) as between:
            docs.put("report", {"a": 3}, if_match=1, merge=True)
    assert str(exists.value) == (
        f"expected nothing at 'report', found version 1{said}; read it, or use if_match="
    )
    assert f"found version 1{said}; " in str(stale.value)
    assert str(gone.value) == f"'report' was deleted{said} in version 2"
    assert f"found it deleted{said} in version 2; " in str(deleted.value)
    assert str(between.value).startswith(f"'report' was deleted{said} in version 2, after")


@pytest.mark.parametrize(("by", "said"), AUTHORS)
def test_boards_and_blame_say_it_the_same_way(by: str, said: str) -> None:
    with memory_store(ManualClock()) as store:
        Board(store, "audit").create(["links"], by=by)
        with pytest.raises(Conflict) as other:
            Board(store, "audit").create(["words"])
    assert str(other.value) == (
        f"board 'audit' exists with other tasks{said}; use another run name"
    )
    assert str(Origin(3, by)) == f"version 3{said}"


@pytest.mark.parametrize(("by", "said"), AUTHORS)
def test_a_request_on_a_condition_hears_the_same(by: str, said: str) -> None:
    asked = conditions.Condition(match=conditions.parse("If-Match", ['"7"']), none_match=None)
    with pytest.raises(Conflict) as refused:
        asked.check("report", Record("d/report", 2, b"{}", by=by))
    assert f"found version 2{said}; " in str(refused.value)
