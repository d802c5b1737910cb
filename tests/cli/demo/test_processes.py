"""``perkey demo`` as a person runs it: real worker processes on one SQLite file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

import perkey
from perkey import Documents
from perkey.cli import exits
from perkey.cli.audit import SECTIONS
from perkey.cli.demo import supervise
from perkey.cli.demo.plan import Plan
from perkey.cli.demo.view import Quiet

TIMEOUT_S = 120


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "a.md").write_text("# Title\n\nIs it clear? See [x](none.md).\n")
    (folder / "b.md").write_bytes(b"caf\xe9 \x1b[2J\n")
    return folder


def demo(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run the demo in ``folder`` with ``--json``."""
    done = subprocess.run(
        [sys.executable, "-m", "perkey", "demo", "--json", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def test_six_processes_lose_nothing(tmp_path: Path, pages: Path) -> None:
    code, result = demo(tmp_path, "--think", "0.3", "--lease", "60", str(pages))
    assert (code, result["complete"], result["reason"]) == (exits.DONE, True, "")
    assert set(result["sections"]) == set(SECTIONS)
    assert len({v["by"] for v in result["versions"]}) == 7, "six workers and the supervisor"
    assert [v["version"] for v in result["versions"]] == list(range(1, 8))
    report = (tmp_path / result["path"]).read_text("utf-8")
    assert report.startswith("# Audit of ")
    assert "none.md does not exist" in report
    assert "Incomplete" not in report
    assert "\x1b" not in report


def test_the_history_can_be_read_afterwards(tmp_path: Path, pages: Path) -> None:
    _, result = demo(tmp_path, "--think", "0", "--workers", "2", str(pages))
    done = subprocess.run(
        [sys.executable, "-m", "perkey", "doc", "history", result["report_key"], "--json"],
        cwd=tmp_path,
        env={**os.environ, "PERKEY_STORE": result["store"]},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert [v["by"] for v in json.loads(done.stdout)] == [v["by"] for v in result["versions"]]


def test_blind_processes_lose_sections_and_it_is_said(tmp_path: Path, pages: Path) -> None:
    """They wait for each other before they read, and then think longer than they take to claim."""
    code, result = demo(tmp_path, "--blind", "--think", "2", "--lease", "60", str(pages))
    assert code == exits.DONE, "the loss is what was asked for"
    assert result["complete"] is False
    assert set(result["tasks"].values()) == {"done"}
    lost = {each["section"] for each in result["vanished"]}
    assert lost
    assert lost | set(result["sections"]) == set(SECTIONS)
    assert all(name in result["reason"] for name in lost)
    assert "**Incomplete: " in (tmp_path / result["path"]).read_text("utf-8")


def test_a_killed_worker_is_replaced(tmp_path: Path, pages: Path) -> None:
    code, result = demo(tmp_path, "--kill", "--think", "1", "--lease", "1", str(pages))
    assert (code, result["complete"]) == (exits.DONE, True)
    worker, task = result["killed"]
    authors = [v["by"] for v in result["versions"] if task in v["added"]]
    assert len(authors) == 1
    assert worker not in authors
    assert result["failed"] == {}


def test_a_store_of_ones_own_and_two_runs_in_it(tmp_path: Path, pages: Path) -> None:
    url = f"sqlite:///{tmp_path / 'own.db'}"
    arguments = ("--store", url, "--think", "0", "--workers", "1", str(pages))
    first, second = (demo(tmp_path, *arguments)[1] for _ in range(2))
    assert first["run"] != second["run"]
    assert first["complete"]
    assert second["complete"]
    with perkey.open(url) as store:
        reports = [d.key for d in store.scan("audit/") if d.key.endswith("/report")]
    assert len(reports) == 2


def test_ctrl_c_ends_all_of_them(tmp_path: Path, pages: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-m", "perkey", "demo", "--think", "100", str(pages)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    for line in parent.stdout:  # until a worker is at work
        if ": running by" in line:
            break
    workers = psutil.Process(parent.pid).children()
    parent.send_signal(signal.SIGINT)
    _, said = parent.communicate(timeout=TIMEOUT_S)
    assert (parent.returncode, said) == (exits.INTERRUPTED, "")
    assert len(workers) == 6
    assert not any(worker.is_running() for worker in workers)


def plan(pages: Path, **changes: Any) -> Plan:
    settings: dict[str, Any] = {
        "run": "r", "paths": (str(pages),), "workers": 2, "blind": False,
        "think_s": 30.0, "lease_s": 60.0, "deadline_s": 1.0,
    }  # fmt: skip
    return Plan(**{**settings, **changes})


class Noting(Quiet):
    """A view that remembers which processes there were, by looking for them."""

    def __init__(self, then: Exception | None = None) -> None:
        self.then = then

    def show(self, rows: Any, note: str = "") -> None:
        if self.then is not None and any(row.state == "running" for row in rows):
            raise self.then


def started(monkeypatch: pytest.MonkeyPatch) -> list[supervise.Process]:
    """Every process that the supervisor starts from now on."""
    processes: list[supervise.Process] = []
    start = supervise._start

    def noting(name: str, run: str, url: str) -> supervise.Process:
        processes.append(start(name, run, url))
        return processes[-1]

    monkeypatch.setattr(supervise, "_start", noting)
    return processes


def test_the_time_runs_out_and_nobody_is_left_behind(
    pages: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "GRACE_S", 0.1)
    processes = started(monkeypatch)
    with perkey.open(url) as store:
        late = plan(pages)
        supervise.prepare(store, late, list(SECTIONS), "Title")
        ended = supervise.supervise(store, url, late, Quiet(), kill=False)
    assert ended.timed_out
    assert ended.failed == {}
    assert [p.popen.returncode for p in processes] == [-signal.SIGKILL] * 2


def test_whatever_goes_wrong_nobody_is_left_behind(
    pages: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = started(monkeypatch)
    with perkey.open(url) as store:
        long = plan(pages, deadline_s=60.0)
        supervise.prepare(store, long, list(SECTIONS), "Title")
        with pytest.raises(RuntimeError, match="the view broke"):
            supervise.supervise(
                store, url, long, Noting(RuntimeError("the view broke")), kill=False
            )
    assert len(processes) == 2
    assert all(p.popen.returncode == -signal.SIGKILL for p in processes)


def test_a_worker_that_fails_is_reported(pages: Path, url: str) -> None:
    with perkey.open(url) as store:
        broken = plan(pages, deadline_s=60.0)
        supervise.prepare(store, broken, list(SECTIONS), "Title")
        Documents(store).put(broken.key("plan"), {"not": "a plan"}, overwrite=True)
        ended = supervise.supervise(store, url, broken, Quiet(), kill=False)
    assert set(ended.failed) == {"worker-1", "worker-2"}
    assert "KeyError" in ended.failed["worker-1"]
    assert not ended.timed_out
