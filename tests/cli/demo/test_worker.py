"""Workers as threads on one in-memory store: the same code, without processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import perkey
from perkey import Board, Store
from perkey.cli.audit import SECTIONS
from perkey.cli.demo import outcome, results, supervise
from perkey.cli.demo.plan import Plan
from perkey.cli.demo.worker import Worker
from perkey.clock import SystemClock


@pytest.fixture
def store() -> Iterator[Store]:
    with perkey.open("memory://") as opened:
        yield opened


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "a.md").write_text("# Title\n\nIs it clear? See [x](none.md).\n")
    return Plan("run", (str(tmp_path),), 6, False, 1.5, 600.0, 600.0)


class Together(SystemClock):
    """A clock on which thinking lasts until every worker thinks, so all read before one writes."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self._think_s = plan.think_s
        self._barrier = threading.Barrier(plan.workers)

    def sleep(self, seconds: float) -> None:
        if seconds == self._think_s:
            self._barrier.wait(120)
        else:
            super().sleep(seconds)


def run(store: Store, plan: Plan) -> results.Result:
    """All workers of the plan, to the end."""
    supervise.prepare(store, plan, list(SECTIONS), "Title")
    clock = Together(plan)
    workers = [Worker(store, plan, f"worker-{n}", clock) for n in range(1, plan.workers + 1)]
    threads = [threading.Thread(target=worker.work) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    return results.judge(store, plan, supervise.Ended())


def test_careful_workers_lose_nothing(store: Store, plan: Plan) -> None:
    result = run(store, plan)
    assert result.reason == ""
    assert list(result.states.values()) == ["done"] * 6
    assert set(outcome.sections_of(result.history[-1])) == set(SECTIONS)
    assert outcome.vanished(result.history) == []
    assert outcome.figures(result.history).reapplied == 5, "all six began from version 1"
    assert [version.version for version in result.history] == list(range(1, 8))
    assert Board(store, plan.key("board")).status().completed


def test_the_analysis_is_real(store: Store, plan: Plan) -> None:
    report = run(store, plan).report
    assert report["sections"]["inventory"]["summary"]["files"] == 1
    assert report["sections"]["links"]["findings"][0]["text"] == "none.md does not exist"
    assert report["sections"]["questions"]["summary"]["questions"] == 1
    assert report["findings"] == sum(s["found"] for s in report["sections"].values())


def test_blind_workers_lose_sections_and_the_check_says_which(store: Store, plan: Plan) -> None:
    """All six read before the first writes, so of six sections one can stay."""
    result = run(store, replace(plan, blind=True))
    lost = {each.section for each in outcome.vanished(result.history)}
    held = set(outcome.sections_of(result.history[-1]))
    assert list(result.states.values()) == ["done"] * 6, "each worker believes that it succeeded"
    assert (len(lost), len(held)) == (5, 1)
    assert lost | held == set(SECTIONS)
    assert all(name in result.reason for name in lost)
    assert not Board(store, plan.key("board")).status().completed
    assert outcome.figures(result.history).overwrote_unseen == 5


def test_one_worker_does_everything(store: Store, plan: Plan) -> None:
    result = run(store, replace(plan, workers=1, think_s=0.5))
    assert result.reason == ""
    assert outcome.figures(result.history).from_older == 0


def test_a_run_that_ended_early_is_not_complete(store: Store, plan: Plan) -> None:
    supervise.prepare(store, plan, list(SECTIONS), "Title")
    result = results.judge(store, plan, supervise.Ended(timed_out=True))
    assert "links" in result.reason
    assert results.facts(result)["complete"] is False


def test_the_result_is_told(store: Store, plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(store, plan)
    results.tell(result, "report.md", "sqlite:///x.db")
    out = capsys.readouterr().out
    assert "completion check: 6 dispatched, 6 done, 6 sections present" in out
    assert "6 workers, 6 writes, 7 versions" in out
    assert "report: report.md" in out
    assert f"perkey doc history {plan.key('report')} --store 'sqlite:///x.db'" in out


def test_a_loss_is_told(store: Store, plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    ended = supervise.Ended(failed={"worker-9": "Traceback\nValueError: no"}, timed_out=True)
    result = replace(run(store, replace(plan, blind=True)), ended=ended)
    results.tell(result, "report.md", "")
    out = capsys.readouterr().out
    assert "vanished: " in out
    assert "completion check: refused" in out
    assert "worker-9 failed: ValueError: no" in out
    assert "given up after 600 s" in out
    assert "history:" not in out
