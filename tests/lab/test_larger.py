"""The right ways with more callers than can be searched: seeded random schedules of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from perkey.lab import catalogue, double_move, lost_update
from perkey.lab.catalogue import Chosen
from perkey.lab.scenario import Variant
from perkey.testing import Result, explore

CROWD = 7
RIGHT = [
    each
    for each in catalogue.choose([])
    if catalogue.find(each)[1].kind != "wrong" and each != ("lost-update", "turn-lock")
]
"""All but the one whose callers share a process, which is no matter of their number."""


def crowd(variant: Variant) -> list[Any]:
    """Seven callers of the kinds that the variant has."""
    if variant.name in ("merge", "update", "retry-turn"):
        work = variant.callers[0].func  # type: ignore[attr-defined]
        return [partial(work, name) for name in "abcdefg"]
    return [variant.callers[number % len(variant.callers)] for number in range(CROWD)]


def sampled(variant: Variant, callers: list[Any], runs: int, seed: int = 5) -> Result:
    return explore(
        variant.setup, callers, check=variant.judge, raises=variant.raises,
        failures=2 * variant.failures, cancellations=2 * variant.cancellations,
        crashes=2 * variant.crashes, mode="random", runs=runs, seed=seed,
    )  # fmt: skip


@pytest.mark.parametrize("chosen", RIGHT, ids="/".join)
def test_nothing_is_found_in_a_crowd(chosen: Chosen) -> None:
    _, variant = catalogue.find(chosen)
    result = sampled(variant, crowd(variant), runs=60)
    result.assert_nothing_found()
    assert result.schedules == 60


@pytest.mark.parametrize(
    "chosen",
    [each for each in catalogue.choose([]) if catalogue.find(each)[1].kind == "wrong"],
    ids="/".join,
)
def test_a_sample_of_a_crowd_finds_each_wrong_way(chosen: Chosen) -> None:
    """So the test above can fail: the same callers done wrong do, within the same runs."""
    _, variant = catalogue.find(chosen)
    if chosen[0] == "lost-update":
        work = variant.callers[0].func  # type: ignore[attr-defined]
        callers = [partial(work, name) for name in "abcdefg"]
    else:
        callers = [variant.callers[number % len(variant.callers)] for number in range(CROWD)]
    assert sampled(variant, callers, runs=600).failure is not None


def test_a_counted_lock_leaves_nothing_after_a_crowd() -> None:
    variant = double_move.SCENARIO.variant("counted")
    result = explore(
        variant.setup, [double_move.counted] * CROWD, check=double_move.judge_empty,
        outcome=lambda bank: (bank.moved, len(bank.users)), failures=3, cancellations=3,
        mode="random", runs=60, seed=2,
    )  # fmt: skip
    result.assert_nothing_found()
    assert set(result.outcomes) <= {(0, 0), (1, 0)}


def test_all_sections_of_a_crowd_are_there() -> None:
    variant = lost_update.SCENARIO.variant("update")
    result = explore(
        variant.setup, crowd(variant), check=variant.judge,
        outcome=lambda desk: "".join(sorted(desk.sections())), mode="random", runs=40, seed=3,
    )  # fmt: skip
    result.assert_nothing_found()
    assert set(result.outcomes) == {"abcdefg"}
