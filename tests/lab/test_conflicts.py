"""What many writers cost: the arithmetic on virtual time, the same code in real time."""

from __future__ import annotations

import asyncio
import itertools
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from perkey import AsyncDocuments
from perkey.lab import conflicts, costs, plot, virtual
from perkey.lab.conflicts import WAYS, Cost, doublings, measure, simulate

SVG = "{http://www.w3.org/2000/svg}"
TURN = 240.0
LONGEST = 1.5


@pytest.mark.parametrize("writers", [1, 2, 6, 32])
def test_a_lock_makes_the_turns_one_after_another(writers: int) -> None:
    cost = simulate("lock", writers, TURN)
    assert cost.took == pytest.approx(writers * TURN)
    assert (cost.refused, cost.repeated) == (0, 0)
    assert (cost.waited > 0) == (writers > 1)


@pytest.mark.parametrize("writers", [1, 2, 6, 32])
def test_a_merge_takes_as_long_as_the_longest_turn(writers: int) -> None:
    cost = simulate("merge", writers, TURN)
    assert TURN <= cost.took < LONGEST * TURN
    assert (cost.refused, cost.repeated, cost.waited) == (0, 0, 0)
    assert cost.writes == writers


@pytest.mark.parametrize("writers", [2, 6, 32])
def test_who_is_refused_thinks_again(writers: int) -> None:
    cost = simulate("retry", writers, TURN)
    assert cost.writes == writers + cost.refused
    assert cost.refused >= writers - 1
    assert cost.refused * TURN / 2 <= cost.repeated <= cost.refused * LONGEST * TURN
    assert cost.conflict_rate == cost.refused / cost.writes
    assert cost.took > simulate("merge", writers, TURN).took


def test_one_writer_alone_costs_the_same_in_each_way() -> None:
    assert {simulate(way, 1, TURN).took for way in WAYS} == {TURN}


def test_more_writers_conflict_more() -> None:
    rates = [simulate("retry", writers, TURN).conflict_rate for writers in (1, 2, 4, 8, 16)]
    assert rates == sorted(rates)
    assert rates[0] == 0
    assert rates[-1] > 0.8


def test_a_simulation_repeats_itself_and_scales_with_the_turn() -> None:
    once, again = simulate("retry", 6, TURN), simulate("retry", 6, TURN)
    assert once == again
    longer = simulate("retry", 6, 10 * TURN)
    assert longer.took == pytest.approx(10 * once.took, rel=1e-3)
    assert longer.conflict_rate == once.conflict_rate


@pytest.mark.parametrize("way", WAYS)
def test_the_same_code_runs_in_real_time_over_sqlite(way: conflicts.Way) -> None:
    cost = measure(way, 3, 0.01)
    least = 3 if way == "lock" else 1
    assert cost.took >= least * 0.01
    assert cost.writes == 3 + cost.refused
    if way != "retry":
        assert cost.refused == 0


def test_a_way_that_loses_work_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    real = AsyncDocuments.put

    async def blind(self: Any, key: str, value: Any, **more: Any) -> Any:
        if more.get("create"):
            return await real(self, key, value, create=True)
        return await real(self, key, value, overwrite=True)

    monkeypatch.setattr(AsyncDocuments, "put", blind)
    with pytest.raises(AssertionError, match="expected the work of"):
        simulate("merge", 3, TURN)


def test_doublings() -> None:
    assert doublings(2, 64) == [2, 4, 8, 16, 32, 64]
    assert doublings(3, 20) == [3, 6, 12, 20]
    assert doublings(5, 5) == [5]


# ---------------------------------------------------------------------- virtual time


def test_virtual_time_passes_only_while_all_sleep() -> None:
    async def main() -> tuple[float, list[str]]:
        done: list[str] = []

        async def sleeper(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            done.append(name)

        await asyncio.gather(sleeper("long", 3600), sleeper("short", 60))
        return virtual.LoopClock().monotonic(), done

    assert virtual.run(main) == (3600.0, ["short", "long"])


def test_virtual_time_does_not_wait_for_ever() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="everybody waits"):
        virtual.run(main)
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


def test_an_error_comes_out() -> None:
    async def main() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        virtual.run(main)


# ---------------------------------------------------------------------- the costs that are told


def test_what_the_lock_costs() -> None:
    assert costs.turn_lock_minutes() == "6 agents, turns of 4 minutes: 24 min instead of 6"


def test_what_the_retries_cost() -> None:
    text = costs.turn_retry_minutes()
    assert text.startswith("6 agents, turns of 4 minutes: ")
    assert text.endswith(" min of thinking done again")


def test_one_lock_for_all_makes_all_wait() -> None:
    text = costs.one_lock_for_all()
    assert "among 50 units: 49 units wait for it, with 256 sections 0" in text


def test_kept_locks_are_kept() -> None:
    assert costs.kept_locks().startswith("5,000 keys ever used: 5,000 locks and ")


# ---------------------------------------------------------------------- the plot


@contextmanager
def drawn(found: list[Cost]) -> Iterator[ET.Element]:
    yield ET.fromstring(plot.picture(found))


def test_the_plot_has_a_line_for_each_way_in_each_panel() -> None:
    found = conflicts.table([2, 4, 8], TURN)
    with drawn(found) as root:
        lines = list(root.iter(f"{SVG}polyline"))
        assert [each.get("class") for each in lines] == [f"line {way}" for way in WAYS] * 2
        assert [len(each.get("points", "").split()) for each in lines] == [3] * 6
        texts = ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]
    assert "One report, turns of 4 min: what each way costs as writers become more" in texts
    assert any(text.endswith("lock 32") for text in texts)
    assert any(text.endswith("merge 0") for text in texts)


def test_higher_costs_stand_higher_and_inside() -> None:
    with drawn(conflicts.table([2, 64], TURN)) as root:
        for line in root.iter(f"{SVG}polyline"):
            points = [tuple(map(float, each.split(","))) for each in line.get("points", "").split()]
            assert all(plot.TOP <= y <= plot.BOTTOM for _, y in points)
            assert all(x <= plot.WIDTH for x, _ in points)
            if "merge" not in line.get("class", ""):
                assert points[1][1] < points[0][1]


def test_labels_do_not_lie_on_each_other() -> None:
    with drawn(conflicts.table([2], TURN)) as root:
        for right in (panel[1] for panel in plot.PANELS):
            ends = sorted(
                float(each.get("y", "0"))
                for each in root.iter(f"{SVG}text")
                if each.get("x") == str(right + 10)
            )
            assert len(ends) == 3
            assert all(b - a >= plot.LABEL_GAP for a, b in itertools.pairwise(ends))


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(240, "4 min"), (90, "90 s"), (7200, "2 h"), (0.25, "250 ms"), (1.5, "1.5 s")],
)
def test_durations(seconds: float, shown: str) -> None:
    assert plot.duration(seconds) == shown
