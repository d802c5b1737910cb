"""The numbers of schedules: the same as by running every one of them."""

from __future__ import annotations

from math import factorial
from typing import Any

import pytest

from perkey.lab import catalogue, counting, examine
from perkey.lab.counting import Count, Endless, count
from perkey.testing import Fingerprint, InjectedFailure, explore, step
from perkey.testing.runner import Program

SMALL = [
    ("lost-update", "whole-document"),
    ("lost-update", "turn-lock"),
    ("double-move", "delete"),
    ("double-move", "counted"),
    ("backwards-view", "sections"),
    ("half-open", "state-under-the-lock"),
    ("half-open", "check-then-set"),
]


def program(chosen: tuple[str, str]) -> Program:
    _, variant = catalogue.find(chosen)
    return examine.program(variant, tuple(range(len(variant.callers))))


@pytest.mark.parametrize("chosen", SMALL, ids="/".join)
def test_merging_states_changes_no_number(chosen: tuple[str, str]) -> None:
    merged = count(program(chosen))
    whole = count(program(chosen), merge_states=False)
    assert (merged.schedules, merged.failing) == (whole.schedules, whole.failing)
    assert merged.states < whole.schedules


@pytest.mark.parametrize("chosen", SMALL, ids="/".join)
def test_the_explorer_without_pruning_runs_as_many(chosen: tuple[str, str]) -> None:
    _, variant = catalogue.find(chosen)
    result = explore(
        variant.setup, variant.callers, check=variant.judge, prune="none", symmetric=False,
        stop_at_failure=False, failures=variant.failures, cancellations=variant.cancellations,
        crashes=variant.crashes, processes=variant.processes,
    )  # fmt: skip
    assert result.schedules == count(program(chosen)).schedules


@pytest.mark.parametrize(("callers", "steps"), [(1, 3), (2, 1), (2, 3), (3, 2)])
def test_callers_that_never_meet_have_as_many_orders_as_can_be(callers: int, steps: int) -> None:
    async def walks(state: dict[str, int]) -> None:
        for _ in range(steps):
            await step("walk")

    found = count(Program(dict, (walks,) * callers, processes=tuple(range(callers))))
    moves = steps + 1
    assert found.schedules == factorial(callers * moves) // factorial(moves) ** callers
    assert found.failing == 0


def test_every_place_to_fail_is_a_schedule_of_its_own() -> None:
    async def walks(state: dict[str, int]) -> None:
        for _ in range(3):
            await step("walk")

    once = Program(dict, (walks,), budgets=(1, 0, 0, 0, 0), processes=(0,))
    assert count(once).schedules == 4  # none of the three steps fails, or one of them


def test_a_deadlock_and_a_raised_error_count_as_failing() -> None:
    async def breaks(state: dict[str, int]) -> None:
        await step("walk")
        raise ValueError("broken")

    assert count(Program(dict, (breaks,), processes=(0,))) == Count(1, 1, 0)


def test_a_circle_is_refused() -> None:
    async def waits(state: dict[str, int]) -> None:
        while not state:
            await step("look")

    async def ends(state: dict[str, int]) -> None:
        await step("walk")
        state["done"] = 1

    with pytest.raises(Endless, match="goes in a circle"):
        count(Program(dict, (waits, ends), processes=(0, 1)))


class Forgetful(Fingerprint):
    """Takes no account of where a caller stands."""

    def frame(self, coro: Any) -> list[Any]:
        return [type(coro)]


class BudgetBlind(counting._Counter):
    """Takes a state for the same whatever budget is left."""

    def _key(self, run: Any) -> Any:
        key = super()._key(run)
        return key and key[0]


def test_a_fingerprint_that_forgets_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = count(program(SMALL[0]))
    monkeypatch.setattr(counting, "Fingerprint", Forgetful)
    try:
        wrong = count(program(SMALL[0]))
    except Endless:
        return
    assert wrong.schedules != right.schedules


def test_a_count_that_forgets_the_budgets_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def walks(state: dict[str, int]) -> None:
        for _ in range(3):
            try:
                await step("walk")
            except InjectedFailure:
                continue

    async def strolls(state: dict[str, int]) -> None:
        await step("stroll", error=None)

    twice = Program(dict, (walks, strolls), budgets=(2, 0, 0, 0, 0), processes=(0, 1))
    right = count(twice, merge_states=False).schedules
    assert count(twice).schedules == right
    monkeypatch.setattr(counting, "_Counter", BudgetBlind)
    assert count(twice).schedules != right
