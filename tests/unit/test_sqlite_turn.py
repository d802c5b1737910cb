"""The queue of processes in front of one file: fair, bounded, and never needed for truth."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from pathlib import Path

import pytest

import perkey
from perkey.clock import SYSTEM
from perkey.store.backends import sqlite_turn
from perkey.store.backends.sqlite_turn import PATIENCE_S, SHUN_S, Turn
from tests.races.processes import Process
from tests.unit.manual_clock import ManualClock
from tests.unit.sqlite_faults import url


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "work.db-turn")


def soon() -> float:
    return SYSTEM.monotonic() + 60


def test_the_second_waits_until_the_first_leaves(path: str) -> None:
    clock = ManualClock()
    first, second = Turn(path, clock), Turn(path, clock)
    first.enter(clock.elapsed + 1)
    clock.on_sleep = first.leave
    second.enter(clock.elapsed + 1)
    assert len(clock.slept) == 1
    with pytest.raises(perkey.Timeout, match="nothing done"):
        first.enter(clock.elapsed + 0.1)
    second.leave()
    first.enter(clock.elapsed + 0.1)


def test_the_wait_ends_at_the_deadline(path: str) -> None:
    clock = ManualClock()
    holder, late = Turn(path, clock), Turn(path, clock)
    holder.enter(clock.elapsed + 1)
    end = clock.elapsed + 0.25
    with pytest.raises(perkey.Timeout):
        late.enter(end)
    assert clock.elapsed == pytest.approx(end)


def test_a_queue_that_stands_still_is_not_believed_in(path: str) -> None:
    """Its first is stopped in a debugger, say: the store's own lock decides then."""
    clock = ManualClock()
    stuck, other = Turn(path, clock), Turn(path, clock)
    stuck.enter(clock.elapsed + 1)
    began = clock.elapsed
    other.enter(began + 60)
    assert PATIENCE_S < clock.elapsed - began < PATIENCE_S + 0.1
    slept = len(clock.slept)
    other.enter(clock.elapsed + 60)
    assert len(clock.slept) == slept  # not asked again for a while
    clock.elapsed += SHUN_S
    clock.on_sleep = stuck.leave
    other.enter(clock.elapsed + 60)
    assert len(clock.slept) == slept + 1


def test_leaving_without_being_in_and_closing_twice_are_harmless(path: str) -> None:
    holder, other = Turn(path, SYSTEM), Turn(path, SYSTEM)
    holder.enter(soon())
    other.leave()
    with pytest.raises(perkey.Timeout):
        other.enter(SYSTEM.monotonic())
    other.close()
    other.close()
    other.enter(soon())  # closed: no queue, no wait
    holder.leave()


def test_without_a_side_file_there_is_no_queue(tmp_path: Path) -> None:
    first = Turn(str(tmp_path / "nowhere" / "turn"), SYSTEM)
    second = Turn(str(tmp_path / "nowhere" / "turn"), SYSTEM)
    first.enter(soon())
    second.enter(soon())


def test_where_locks_are_not_supported_there_is_no_queue(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*args: object) -> None:
        raise OSError("no locks available")

    turn = Turn(path, SYSTEM)
    monkeypatch.setattr(sqlite_turn.fcntl, "flock", unsupported)
    turn.enter(soon())
    turn.leave()


HOLDER = """
from perkey.clock import SYSTEM
from perkey.store.backends.sqlite_turn import Turn
turn = Turn(url, SYSTEM)
turn.enter(SYSTEM.monotonic() + 60)
say("in")
hear()
"""


def test_a_killed_holder_gives_its_place_up(path: str) -> None:
    turn = Turn(path, SYSTEM)
    with Process(HOLDER, path) as holder:
        assert holder.hear() == "in"
        with pytest.raises(perkey.Timeout):
            turn.enter(SYSTEM.monotonic() + 0.01)
        holder.signal(signal.SIGKILL)
        turn.enter(soon())
        turn.leave()


def test_a_child_does_not_keep_its_dead_parents_place(path: str) -> None:
    code = HOLDER.replace(
        'say("in")', "import os\nif os.fork() == 0:\n    say('child')\n    hear()\n    os._exit(0)"
    )
    turn = Turn(path, SYSTEM)
    with Process(code, path) as parent:
        assert parent.hear() == "child"
        parent.signal(signal.SIGKILL)
        turn.enter(soon())  # the child lives on, reading the same pipe
        parent.say()


def test_a_lock_of_someone_else_is_waited_for_and_then_refused(tmp_path: Path) -> None:
    with perkey.open(url(tmp_path)) as store:
        store.put("k", 1, create=True)
        tool = sqlite3.connect(tmp_path / "work.db", isolation_level=None)
        tool.execute("BEGIN IMMEDIATE")
        with pytest.raises(perkey.Timeout) as caught:
            store.transact("k", lambda tx: tx.__setitem__("k", 2), timeout=0.2)
        assert isinstance(caught.value, TimeoutError)
        assert store.get("k").value == 1  # readers do not wait for a writer
        waiting = threading.Thread(target=store.put, args=("k", 3), kwargs={"overwrite": True})
        waiting.start()
        tool.execute("ROLLBACK")
        waiting.join()
        tool.close()
        assert [each.value for each in store.history("k")] == [1, 3]


def test_a_stopped_process_in_the_queue_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_turn, "PATIENCE_S", 0.2)
    with perkey.open(url(tmp_path)) as store:
        store.put("k", 1, create=True)
        with Process(HOLDER, str(tmp_path / "work.db-turn")) as holder:
            assert holder.hear() == "in"
            holder.signal(signal.SIGSTOP)
            assert store.put("k", 2, if_match=1).version == 2
            assert store.put("k", 3, if_match=2).version == 3


def test_the_side_file_stays(tmp_path: Path) -> None:
    """Removing it would give two processes two files to queue at."""
    with perkey.open(url(tmp_path)):
        pass
    assert sorted(os.listdir(tmp_path)) == ["work.db", "work.db-turn"]
