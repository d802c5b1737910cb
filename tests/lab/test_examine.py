"""A lab that is shown the wrong thing says so: the mutants of its own judgement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from perkey.errors import UsageError
from perkey.lab import catalogue, double_move, half_open, lost_update
from perkey.lab.examine import examine, search
from perkey.lab.scenario import Variant

ROUNDS = 3


def variant(scenario: Any, name: str, **changes: Any) -> Variant:
    return replace(scenario.SCENARIO.variant(name), **changes)


def test_a_right_way_with_the_bug_put_back_is_not_as_expected() -> None:
    broken = variant(double_move, "counted", callers=(double_move.delete,) * 3)
    report = examine(double_move.SCENARIO, broken, ROUNDS)
    assert not report.as_expected
    assert report.drawing is not None


def test_a_wrong_way_that_cannot_fail_is_not_as_expected() -> None:
    harmless = variant(double_move, "delete", callers=(double_move.keep,) * 3)
    report = examine(double_move.SCENARIO, harmless, ROUNDS)
    assert not report.as_expected
    assert report.drawing is None


def test_a_judge_that_sees_nothing_finds_nothing() -> None:
    blind = variant(lost_update, "whole-document", judge=lambda desk: None)
    assert not examine(lost_update.SCENARIO, blind, ROUNDS).as_expected


def test_locks_that_are_left_behind_are_seen() -> None:
    left = variant(double_move, "counted", callers=(double_move.keep,) * 3)
    result, _ = search(left)
    assert "a lock is still in the map" in result.assert_fails("check").message


@pytest.mark.parametrize("name", ["merge", "update"])
def test_a_document_written_blindly_is_found_through_perkeys_own_faces(name: str) -> None:
    async def blindly(author: str, desk: Any) -> None:
        read = await desk.look()
        value = {**read.value, author: 1}
        desk.wrote(author, "writes", await desk.docs.put("report", value, overwrite=True))

    from functools import partial

    callers = tuple(partial(blindly, author) for author in "abc")
    result, crew = search(variant(lost_update, name, callers=callers, kind="wrong"))
    assert "what it wrote is gone" in result.assert_fails("check").message
    assert len(crew) == 2


def test_a_payment_without_its_receipt_in_the_commit_is_found() -> None:
    async def unreceipted(bank: Any) -> None:
        await bank.store.transact(
            ["money"], lambda tx: tx.__setitem__("money", (tx.get("money") or 0) + 1)
        )

    result, _ = search(variant(double_move, "perkey-once", callers=(unreceipted,) * 3))
    assert "moved the money" in result.assert_fails("check").message


def test_an_engine_that_loses_messages_is_found() -> None:
    async def said_too_early(machine: Any) -> None:
        machine.accepted += 1

    callers = (half_open.run, said_too_early)
    broken = variant(half_open, "perkey-engine", callers=callers, names=("run", "send"))
    result, _ = search(broken)
    assert "a message was sent to a started engine" in result.assert_fails("check").message


def test_only_three_callers_move_twice() -> None:
    """Two of them alone, in every schedule, do not."""
    result, crew = search(variant(double_move, "delete"))
    assert result.failure is not None
    assert crew == (0, 1, 2)
    pair = variant(double_move, "delete", callers=(double_move.delete,) * 2)
    assert search(pair)[0].holds


def test_a_report_as_json() -> None:
    report = examine(double_move.SCENARIO, variant(double_move, "delete"), ROUNDS)
    facts = report.as_dict()
    assert facts["scenario"] == "double-move"
    assert facts["schedules"]["all"] == 78
    assert facts["failure"]["replay"]
    assert facts["drawing"]["names"] == ("A", "B", "C")
    assert facts["stress"]["rounds"] == facts["stress"]["orderly_rounds"] == ROUNDS


# ---------------------------------------------------------------------- choosing by name


def test_names_choose_scenarios_and_variants_once_in_order() -> None:
    everything = catalogue.choose([])
    assert len(everything) == sum(len(each.variants) for each in catalogue.SCENARIOS.values())
    chosen = catalogue.choose(["half-open/check-then-set", "double-move", "double-move/keep"])
    assert chosen[-1] == ("half-open", "check-then-set")
    assert [scenario for scenario, _ in chosen[:-1]] == ["double-move"] * 6


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("double", "there are lost-update, double-move"),
        ("double-move/", "the variants of double-move are delete, "),
        ("double-move/none", "the variants of double-move are delete, "),
        ("", "there are lost-update"),
        ("/", "there are lost-update"),
    ],
)
def test_a_name_that_names_nothing_is_refused(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        catalogue.choose([name])
