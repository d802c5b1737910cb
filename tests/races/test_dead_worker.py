"""A worker dies, or is paused, in the middle of its task.

The kind of report: a run of several agents that "completed" with a section missing, because a
worker died and nobody compared what was dispatched with what was delivered; and a worker that
wakes up after its task was given to another and writes its old result over the new one.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import perkey
from perkey import Board, IncompleteRun, Store
from tests.races.processes import Process

WORKER = """
board = Board(perkey.open(url), "audit")
claim = board.claim("first", lease=0.5)
say("claimed", claim.task, claim.attempt)
hear()
try:
    board.finish(claim, "late")
    say("accepted")
except LeaseLost:
    say("LeaseLost")
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/board.db"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with perkey.open(url) as store:
        yield store


def test_a_killed_workers_task_is_done_by_another(url: str, store: Store) -> None:
    board = Board(store, "audit")
    board.create(["links"])
    with Process(WORKER, url) as worker:
        assert worker.hear() == "claimed links 1"
        worker.signal(signal.SIGKILL)
        assert worker.end() == -signal.SIGKILL
    with pytest.raises(IncompleteRun, match="not done: 'links'"):
        board.complete()
    assert board.work("second", lambda claim: f"attempt {claim.attempt}", lease=60, wait=60) == 1
    assert board.complete().tasks[0].output == "attempt 2"


@pytest.mark.parametrize("taken_over", [True, False])
def test_a_paused_workers_late_finish_is_refused(url: str, store: Store, taken_over: bool) -> None:
    board = Board(store, "audit")
    board.create(["links"])
    with Process(WORKER, url) as worker:
        assert worker.hear() == "claimed links 1"
        worker.signal(signal.SIGSTOP)
        if taken_over:
            fresh = board.claim("first", lease=600, wait=60)
            assert fresh is not None
            board.finish(fresh, "fresh")
        else:
            while board.status().tasks[0].remaining_ms:
                pass
        worker.signal(signal.SIGCONT)
        worker.say("go on")
        assert worker.hear() == "LeaseLost"
    if taken_over:
        assert board.complete().tasks[0].output == "fresh"
    else:
        with pytest.raises(IncompleteRun):
            board.complete()
