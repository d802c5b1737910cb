"""Starting the worker processes, watching the board, killing one if asked, ending all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO

from perkey import Board, Documents, Store
from perkey.cli.demo import report
from perkey.cli.demo.plan import Plan
from perkey.cli.demo.view import Quiet, Row
from perkey.clock import SYSTEM

POLL_S = 0.05
GRACE_S = 10.0
"""How long the workers may take to leave when the board is done."""
MAX_ERROR_BYTES = 4_000
SUPERVISOR = "demo"
FINISHED = {"done", "failed"}


@dataclass(slots=True)
class Process:
    """One worker process and what it says when it fails."""

    name: str
    popen: subprocess.Popen[bytes]
    errors: IO[bytes]

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    def said(self) -> str:
        """The end of its standard error."""
        self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, self.errors.tell() - MAX_ERROR_BYTES))
        return self.errors.read().decode("utf-8", "replace").strip()


@dataclass(slots=True)
class Ended:
    """How the processes ended."""

    seconds: float = 0.0
    killed: tuple[str, str] | None = None
    """Worker and task, if one was killed."""
    failed: dict[str, str] = field(default_factory=dict)
    """Workers that failed by themselves, with what they said."""
    timed_out: bool = False


def prepare(store: Store, plan: Plan, tasks: Sequence[str], title: str) -> None:
    """Store the plan, the empty report and the board."""
    docs = Documents(store)
    docs.put(plan.key("plan"), plan.stored(), create=True, by=SUPERVISOR)
    docs.put(plan.key("report"), report.empty(title), create=True, by=SUPERVISOR)
    Board(store, plan.key("board")).create(tasks, by=SUPERVISOR)


def supervise(store: Store, url: str, plan: Plan, view: Quiet, *, kill: bool) -> Ended:
    """Run the workers to the end of the board, or of the plan's time.  None outlives this."""
    begun = SYSTEM.monotonic()
    ended = Ended()
    processes: list[Process] = []
    try:
        for number in range(1, plan.workers + 1):
            processes.append(_start(f"worker-{number}", plan.run, url))  # noqa: PERF401
        with view:
            _watch(store, plan, view, processes, ended, kill=kill)
        _join(processes)
    finally:
        for process in processes:
            _end(process, ended)
    ended.seconds = SYSTEM.monotonic() - begun
    return ended


def _start(name: str, run: str, url: str) -> Process:
    errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed when its process has ended)
    popen = subprocess.Popen(
        [sys.executable, "-m", "perkey.cli.demo.worker", run, name],
        env={**os.environ, "PERKEY_STORE": url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
    )
    return Process(name, popen, errors)


def _watch(
    store: Store, plan: Plan, view: Quiet, processes: list[Process], ended: Ended, *, kill: bool
) -> None:
    board = Board(store, plan.key("board"))
    end = SYSTEM.monotonic() + plan.deadline_s
    while True:
        status = board.status()
        rows = [Row(t.name, t.state, t.worker, t.attempts) for t in status.tasks]
        if kill and ended.killed is None:
            ended.killed = _kill_one(rows, processes)
        view.show(rows, _note(ended))
        over = all(task.state in FINISHED for task in status.tasks)
        if over or not any(process.running for process in processes):
            return
        if SYSTEM.monotonic() >= end:
            ended.timed_out = True
            return
        SYSTEM.sleep(POLL_S)


def _note(ended: Ended) -> str:
    if ended.killed is None:
        return ""
    worker, task = ended.killed
    return f"{worker} was killed (SIGKILL) while it held {task}; its lease has to run out"


def _kill_one(rows: Sequence[Row], processes: Sequence[Process]) -> tuple[str, str] | None:
    """Kill the first worker that holds a task: it is between claim and finish."""
    running = {process.name: process for process in processes if process.running}
    for row in rows:
        if row.state == "running" and row.worker in running:
            victim = running[row.worker].popen
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            return row.worker, row.task
    return None


def _join(processes: Sequence[Process]) -> None:
    end = SYSTEM.monotonic() + GRACE_S
    while any(process.running for process in processes) and SYSTEM.monotonic() < end:
        SYSTEM.sleep(POLL_S / 5)


def _end(process: Process, ended: Ended) -> None:
    """Whatever happened, no process is left behind."""
    if process.running:
        process.popen.kill()
    code = process.popen.wait()
    killed = ended.killed is not None and ended.killed[0] == process.name
    if code > 0 and not killed:
        ended.failed[process.name] = process.said() or f"exit code {code}"
    process.errors.close()
