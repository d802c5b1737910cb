"""The scenarios on which explorers are compared: ours finds each bug; the mended twins hold."""

from __future__ import annotations

import pytest

from benchmarks import explore_peers
from benchmarks.explore_scenarios import Scenario, of_tasks, of_threads


@pytest.fixture(autouse=True)
def _all_the_time_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explore_peers, "CUT", 250.0)


def name(scenario: Scenario) -> str:
    return f"{scenario.name}{'' if scenario.bug else ', mended'}"


@pytest.mark.parametrize("scenario", of_tasks(), ids=name)
def test_tasks(scenario: Scenario) -> None:
    said = explore_peers.ours(scenario)
    assert said.failing is scenario.bug
    assert said.replayed if scenario.bug else said.exhausted


@pytest.mark.parametrize("scenario", of_threads(), ids=name)
def test_threads(scenario: Scenario) -> None:
    said = explore_peers.our_threads(scenario)
    assert said.failing is scenario.bug
    assert said.replayed if scenario.bug else said.exhausted


def test_a_tool_that_raises_is_named_and_found_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(scenario: Scenario) -> explore_peers.Said:
        raise RuntimeError("no")

    row = explore_peers.judge(broken, of_tasks()[:2]).row()
    assert row[0] == "0 of 1"
    assert "lost update (bug): failing=False RuntimeError: no" in capsys.readouterr().out
