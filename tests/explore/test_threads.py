"""Threads under every schedule of their lock operations: known bugs are found, right code holds."""

from __future__ import annotations

import _thread
import gc
import os
import queue
import re
import threading
from typing import Any

import pytest

import perkey
from perkey import Documents, KeyedLocks, Sections, Store
from perkey.store import committer
from perkey.store.backends.memory import MemoryBackend
from perkey.testing import ExplorationFailed, explore_threads, switch_point
from perkey.testing.stage import CooperativeLock, Stage, cooperative_locks


class Account:
    """A balance behind a lock; ``careless`` lets the lock go between its read and its write."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.balance = 0

    def deposit(self) -> None:
        with self.lock:
            self.balance += 1

    def careless(self) -> None:
        with self.lock:
            seen = self.balance
        with self.lock:
            self.balance = seen + 1


def test_a_lost_update_is_found_with_one_preemption() -> None:
    found = explore_threads(Account, [Account.careless] * 2, check=lambda a: a.balance == 2)
    failure = found.assert_fails("check")
    assert failure.replay.startswith("t1.")
    assert "careless#1" in failure.story
    assert "test_threads.py" in failure.story
    again = explore_threads(
        Account, [Account.careless] * 2, check=lambda a: a.balance == 2, replay=failure.replay
    )
    assert again.assert_fails("check").story == failure.story


def cells(story: str) -> list[tuple[int, str]]:
    """(caller, what it did) for each line of a story with two callers, without the file."""
    head, _, *lines = story.splitlines()
    second = head.index("#2") - len("careless")
    return [
        (int(not line[4:second].strip()), re.sub(r"^\S+\.py:\d+ ", "", line[4:].strip()))
        for line in lines
    ]


def test_a_row_says_what_the_thread_did_and_nobody_holds_a_held_lock() -> None:
    found = explore_threads(Account, [Account.careless] * 2, check=lambda a: a.balance == 2)
    turn = ["careless  acquire", "careless  release"]
    assert cells(found.assert_fails("check").story) == [
        *((0, each) for each in ["begins", *turn, "careless  goes on"]),
        *((1, each) for each in ["begins", *turn, "careless  goes on", *turn, "ends"]),
        *((0, each) for each in [*turn, "ends"]),
    ]


def test_in_every_story_a_lock_has_one_holder() -> None:
    """Also where the other thread comes while it is held, and waits for it."""

    def careless(account: Account) -> None:
        for _ in range(2):
            with account.lock:
                switch_point("inside")

    waited = 0
    for preempted in range(1, 7):
        replay = "t1." + "-".join(["0"] * preempted + ["1"])
        result = explore_threads(Account, [careless] * 2, check=never, replay=replay)
        told = cells(result.assert_fails("check").story)
        follow_the_lock(told)
        waited += (1, "(waits)") in told
    assert waited == 2  # in each turn there is one point at which it is held


class Counted:
    """A number in one of perkey's stores, read and written back by two threads."""

    def __init__(self) -> None:
        self.docs = Documents(perkey.open("memory://"))
        self.docs.put("n", 0, create=True)

    def careless(self) -> None:
        docs = self.docs
        seen = docs.get("n").value
        docs.put("n", seen + 1, overwrite=True)


def test_code_over_a_store_is_told_in_its_own_lines() -> None:
    """However many locks perkey takes inside: a line of the user's stands once for all of them."""
    callers = [Counted.careless] * 2
    result = explore_threads(Counted, callers, check=lambda it: it.docs.get("n").value == 2)
    story = result.assert_fails("check").story
    told = cells(story)
    read = ' seen = docs.get("n").value'
    write = ' docs.put("n", seen + 1, overwrite=True)'
    assert {did for _, did in told} - {"(waits)"} == {"begins", "ends", read, write}
    assert told.index((1, read)) < max(n for n, one in enumerate(told) if one == (0, write))
    assert len(told) < 20
    assert not re.search(r"committer|lane|requests|acquire|goes on", story)


def test_a_lock_within_the_standard_library_is_told_by_who_uses_it() -> None:
    def pairs(waiting: queue.Queue[int]) -> None:
        waiting.put(1)
        waiting.put(2)

    result = explore_threads(
        queue.Queue, [pairs, pairs], check=lambda it: list(it.queue) != [1, 1, 2, 2]
    )
    told = cells(result.assert_fails("check").story)
    assert {did for _, did in told} - {"(waits)"} == {
        "begins", "ends", " waiting.put(1)", " waiting.put(2)",
    }  # fmt: skip


def never(account: Account) -> bool:
    return False


def follow_the_lock(told: list[tuple[int, str]]) -> None:
    holder: int | None = None
    for place, (who, did) in enumerate(told):
        if did.endswith("acquire") and told[place + 1] != (who, "(waits)"):
            assert holder is None
            holder = who
        elif did.endswith(("inside", "release")):
            assert holder == who
            holder = None if did.endswith("release") else who
    assert holder is None
    assert sum(did.endswith("release") for _, did in told) == 4


def test_a_wait_that_times_out_and_a_lock_that_is_held_are_told() -> None:
    class Held(Account):
        def keeps(self) -> None:
            self.lock.acquire()

        def asks(self) -> None:
            if not self.lock.acquire(timeout=1) and not self.lock.acquire(blocking=False):
                raise TimeoutError

    story = explore_threads(Held, [Held.keeps, Held.asks]).assert_fails("raised").story
    lines = [line.strip() for line in story.splitlines()]
    waits, timed_out, held = (lines.index(f"({x})") for x in ("waits", "timed out", "is held"))
    assert [lines[each - 1].endswith("acquire") for each in (waits, timed_out, held)] == [True] * 3
    assert waits < timed_out < held
    assert lines[-1].endswith("TimeoutError()")


def test_a_lock_over_the_whole_turn_holds() -> None:
    found = explore_threads(Account, [Account.deposit] * 3, check=lambda a: a.balance == 3)
    assert found.assert_holds().schedules > 10


class Two:
    def __init__(self) -> None:
        self.a, self.b = threading.Lock(), threading.Lock()

    def forth(self) -> None:
        with self.a, self.b:
            pass

    def back(self) -> None:
        with self.b, self.a:
            pass

    def patient(self) -> None:
        with self.b:
            if self.a.acquire(timeout=1):
                self.a.release()


def test_a_deadlock_says_who_waits_where() -> None:
    failure = explore_threads(Two, [Two.forth, Two.back]).assert_fails("deadlock")
    assert "forth waits at" in failure.message
    assert "back waits at" in failure.message
    assert failure.story.count("(waits)") == 2


def test_one_order_of_locks_holds_and_a_timeout_gets_out() -> None:
    explore_threads(Two, [Two.forth, Two.forth]).assert_holds()
    explore_threads(Two, [Two.forth, Two.patient]).assert_holds()


class LockMap:
    """One lock a key in a dictionary.  ``counted`` keeps it while anybody waits."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.locks: dict[str, list[Any]] = {}
        self.inside = 0
        self.overlaps = 0

    def _work(self) -> None:
        self.inside += 1
        self.overlaps += self.inside > 1
        switch_point("work")
        self.inside -= 1

    def forgets(self) -> None:
        with self.guard:
            lock = self.locks.setdefault("k", [threading.Lock(), 0])[0]
        with lock:
            self._work()
        with self.guard:
            self.locks.pop("k", None)

    def counted(self) -> None:
        with self.guard:
            entry = self.locks.setdefault("k", [threading.Lock(), 0])
            entry[1] += 1
        with entry[0]:
            self._work()
        with self.guard:
            entry[1] -= 1
            if not entry[1]:
                del self.locks["k"]


def alone(map_: LockMap) -> bool:
    return map_.overlaps == 0


def test_a_map_that_forgets_a_lock_in_use_is_found() -> None:
    explore_threads(LockMap, [LockMap.forgets] * 3, check=alone, seconds=120).assert_fails("check")


def test_a_counted_map_holds() -> None:
    def clean(map_: LockMap) -> bool:
        return alone(map_) and not map_.locks

    explore_threads(
        LockMap, [LockMap.counted] * 3, check=clean, preemptions=1, seconds=120
    ).assert_holds()


class Held:
    """Callers of perkey's own locks, and whether two were ever inside at once."""

    def __init__(self) -> None:
        self.locks = KeyedLocks()
        self.sections = Sections(4)
        self.inside = 0
        self.overlaps = 0

    def work(self) -> None:
        self.inside += 1
        self.overlaps += self.inside > 1
        switch_point("inside")
        self.inside -= 1

    def keyed(self) -> None:
        with self.locks("k"):
            self.work()

    def keyed_or_not(self) -> None:
        try:
            with self.locks("k", timeout=0.1):
                self.work()
        except perkey.Timeout:
            pass

    def section(self) -> None:
        with self.sections("k"):
            self.work()


def exclusive(held: Held) -> None:
    assert held.overlaps == 0
    assert held.locks.active_keys() == []


@pytest.mark.parametrize("callers", [["keyed"] * 3, ["keyed", "keyed_or_not"], ["section"] * 3])
def test_perkeys_own_locks_exclude_and_leave_nothing(callers: list[str]) -> None:
    who = [getattr(Held, name) for name in callers]
    explore_threads(Held, who, check=exclusive, seconds=120).assert_holds()


def counter() -> Store:
    store = Store(MemoryBackend())
    store.put("n", 0, create=True)
    return store


def increment(store: Store) -> None:
    def add(tx: perkey.Tx) -> None:
        tx["n"] = tx["n"] + 1

    store.transact("n", add)


def test_leaders_and_followers_lose_nothing_and_leave_nobody_waiting() -> None:
    def three(store: Store) -> None:
        assert store.get("n").value == 3
        assert store.statistics()["waiting"] == 0

    explore_threads(counter, [increment] * 3, check=three, seconds=200).assert_holds()


def test_a_leader_that_forgets_its_followers_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer, "tell", lambda requests: None)
    explore_threads(counter, [increment] * 3).assert_fails("deadlock")


def test_queues_and_events_are_scheduled_too() -> None:
    class Line:
        def __init__(self) -> None:
            self.queue: queue.Queue[int] = queue.Queue()
            self.ready = threading.Event()
            self.got: list[int] = []

        def produce(self) -> None:
            self.queue.put(1)
            self.ready.set()

        def consume(self) -> None:
            self.ready.wait()
            self.got.append(self.queue.get())

    explore_threads(
        Line, [Line.produce, Line.consume], check=lambda line: line.got == [1], seconds=120
    ).assert_holds()


def test_an_exception_fails_the_run_unless_it_is_expected() -> None:
    def fails(account: Account) -> None:
        with account.lock:
            raise ValueError("no")

    explore_threads(Account, [fails, fails]).assert_fails("raised")
    explore_threads(Account, [fails, fails], raises=(ValueError,)).assert_holds()


def test_a_search_that_stops_early_is_never_green() -> None:
    found = explore_threads(Account, [Account.deposit] * 3, limit=3)
    assert found.verdict.startswith("incomplete")
    with pytest.raises(ExplorationFailed, match="incomplete"):
        found.assert_holds()


def test_a_scenario_without_switch_points_is_never_green() -> None:
    with pytest.raises(ExplorationFailed, match="switch point"):
        explore_threads(list, [lambda state: None] * 1 + [_nothing]).assert_holds()


def _nothing(state: Any) -> None:
    return None


def test_a_thread_of_somebody_else_can_wait_meanwhile() -> None:
    """Such as the thread that renews leases: a lock it makes to wait on is an ordinary one."""
    rounds, over = [0], [False]
    more = threading.Condition()

    def elsewhere() -> None:
        while not over[0]:
            with more:
                more.wait(0.001)
            rounds[0] += 1

    def setup() -> Account:
        before = rounds[0]
        while rounds[0] < before + 2 and thread.is_alive():
            os.sched_yield()
        return Account()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    try:
        explore_threads(setup, [Account.deposit] * 2, check=lambda a: a.balance == 2).assert_holds()
        assert thread.is_alive()
    finally:
        over[0] = True
        thread.join()


def test_a_maker_of_locks_that_outlives_the_exploration_makes_ordinary_ones() -> None:
    """Another thread may look it up at the last moment, and call it when all is over."""
    makers: list[Any] = []

    def setup() -> Account:
        makers.append(threading.Lock)
        return Account()

    explore_threads(setup, [Account.deposit] * 2).assert_holds()
    assert makers[0] is not threading.Lock
    assert type(makers[0]()) is type(threading.Lock())


def test_an_exploration_beside_another_leaves_its_locks_alone() -> None:
    """Whoever ends first restores nothing that the other still needs."""
    begun, end = threading.Event(), threading.Lock()
    end.acquire()

    def beside() -> None:
        with cooperative_locks():
            begun.set()
            with end:
                pass

    thread = threading.Thread(target=beside)
    thread.start()
    begun.wait(60)
    with cooperative_locks():
        end.release()
        thread.join()
        assert isinstance(threading.Lock(), CooperativeLock)
    assert type(threading.Lock()).__module__ == "_thread"


def test_locks_made_afterwards_are_ordinary_again() -> None:
    explore_threads(Account, [Account.deposit] * 2).assert_holds()
    assert type(threading.Lock()).__module__ == "_thread"
    switch_point("outside an exploration nothing happens")


def test_what_goes_wrong_between_two_moves_is_told_and_leaves_nobody_waiting() -> None:
    class Unspeakable(Exception):
        def __repr__(self) -> str:
            raise LookupError("it has no words")

    def fails(lock: Any) -> None:
        with lock:
            raise Unspeakable

    with pytest.raises(LookupError, match="no words"):
        explore_threads(lambda: threading.Lock(), [fails] * 2, raises=(Unspeakable,))
    with pytest.raises(ValueError, match="does not belong"):
        explore_threads(lambda: threading.Lock(), [fails] * 2, replay="t1.7-7")


def test_a_collection_of_garbage_is_no_move() -> None:
    """A finaliser that takes a lock would run wherever somebody happens to be."""
    inside: list[bool] = []

    def looks(lock: Any) -> None:
        with lock:
            inside.append(gc.isenabled())

    assert gc.isenabled()
    explore_threads(lambda: threading.Lock(), [looks] * 2).assert_holds()
    assert gc.isenabled()
    assert inside
    assert not any(inside)


def test_a_recursion_that_is_too_deep_is_an_error_of_its_caller() -> None:
    """The bug: it came up where it was decided who moves next, and ended the exploration."""

    def falls(account: Account) -> None:
        account.deposit()
        falls(account)

    found = explore_threads(
        Account, [falls, Account.deposit], raises=(RecursionError,), preemptions=1, limit=3
    )
    assert found.failure is None
    assert found.schedules == 3


def test_ctrl_c_before_anybody_moves_ends_the_exploration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: it waited for somebody to end a move that nobody made."""

    def interrupted(stage: Stage) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Stage, "next", interrupted)
    with pytest.raises(KeyboardInterrupt):
        explore_threads(Account, [Account.deposit] * 2)


@pytest.mark.parametrize("over", [True, False], ids=["as the run is over", "while one moves"])
def test_ctrl_c_unwinds_whoever_has_begun(over: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: struck just when the run was over, it waited for the end of the run once more."""
    begun: list[int] = []
    unwound: list[int] = []
    play = Stage.play

    class Struck:
        """The stage's baton, and a Ctrl-C when it is first waited for."""

        def __init__(self) -> None:
            self.lock = _thread.allocate_lock()
            self.lock.acquire()
            self.release = self.lock.release
            self.struck = False

        def acquire(self) -> None:
            if over or self.struck:
                self.lock.acquire()
            if not self.struck:
                self.struck = True
                raise KeyboardInterrupt

    def struck(stage: Stage, preemptions: int, max_moves: int) -> str:
        stage.baton = Struck()
        return play(stage, preemptions, max_moves)

    def caller(account: Account) -> None:
        begun.append(_thread.get_ident())
        try:
            for _ in range(100):
                account.deposit()
        finally:
            unwound.append(_thread.get_ident())

    monkeypatch.setattr(Stage, "play", struck)
    with pytest.raises(KeyboardInterrupt):
        explore_threads(Account, [caller] * 3, max_moves=150)
    assert sorted(begun) == sorted(unwound)
    monkeypatch.undo()
    explore_threads(Account, [Account.deposit] * 2).assert_holds()


def test_a_thread_that_cannot_be_started_ends_the_exploration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[object] = []
    really = _thread.start_new_thread

    def scarce(*asked: Any) -> int:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(asked)
        return really(*asked)

    monkeypatch.setattr(_thread, "start_new_thread", scarce)
    with pytest.raises(RuntimeError, match="can't start"):
        explore_threads(Account, [Account.deposit] * 3)
