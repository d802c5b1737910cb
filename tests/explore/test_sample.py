"""Random schedules: they find bugs, repeat themselves, and never claim a proof."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perkey.testing import ExplorationFailed, explore, step


class Counter:
    def __init__(self) -> None:
        self.value = 0
        self.lock = asyncio.Lock()

    async def careless(self) -> None:
        seen = self.value
        await step("save")
        self.value = seen + 1

    async def careful(self) -> None:
        async with self.lock:
            await self.careless()


def eight(counter: Counter) -> bool:
    return counter.value == 8


MODES = ["random", "pct"]


@pytest.mark.parametrize("mode", MODES)
def test_a_lost_update_of_eight_callers_is_found_and_shrunk_to_two(mode: Any) -> None:
    found = explore(Counter, [Counter.careless] * 8, check=eight, mode=mode, runs=200, seed=1)
    failure = found.assert_fails("check")
    again = explore(Counter, [Counter.careless] * 8, check=eight, replay=failure.replay)
    assert again.assert_fails("check").story == failure.story


@pytest.mark.parametrize("mode", MODES)
def test_the_same_seed_draws_the_same_schedules(mode: Any) -> None:
    def drawn(seed: int) -> tuple[int, str]:
        found = explore(
            Counter, [Counter.careless] * 3, check=lambda c: c.value == 3, mode=mode, seed=seed
        )
        return found.schedules, found.assert_fails().replay

    assert drawn(7) == drawn(7)
    assert len({drawn(seed) for seed in range(6)}) > 1


@pytest.mark.parametrize("mode", MODES)
def test_right_code_passes_and_a_sample_is_no_proof(mode: Any) -> None:
    found = explore(
        Counter, [Counter.careful] * 8, check=eight, mode=mode, runs=300, cancellations=0
    )
    found.assert_nothing_found()
    assert found.verdict.startswith(f"sampled ({mode}")
    with pytest.raises(ExplorationFailed):
        found.assert_holds()


@pytest.mark.parametrize("mode", MODES)
def test_budgets_are_spent_in_samples_too(mode: Any) -> None:
    ends: set[int] = set()

    def note(counter: Counter) -> None:
        ends.add(counter.value)

    explore(
        Counter, [Counter.careful] * 4, check=note, mode=mode, runs=300, failures=2
    ).assert_nothing_found()
    assert ends == {2, 3, 4}
