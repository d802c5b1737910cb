"""Every interleaving of a board's workers, of time that goes by, and of a crash at every step."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from perkey import AsyncBoard, IncompleteRun, InvalidState, LeaseHeld, LeaseLost
from perkey.flows import board as flows
from perkey.flows import tasklist
from perkey.flows.tasklist import Claim, Run, Task
from perkey.store.transaction import Tx
from perkey.testing import LostReply, explore
from tests.explore.stepped import SteppedStore

LEASE_S = 10


async def dispatched(*tasks: str) -> SteppedStore:
    store = SteppedStore()
    await AsyncBoard(store, "run").create(tasks)
    return store


one = partial(dispatched, "a")
two = partial(dispatched, "a", "b")


def tasks_of(store: SteppedStore) -> dict[str, Task]:
    (record,) = store.backend.read([flows.board_key("run")])
    return tasklist.decode("run", record).tasks


def places(store: SteppedStore) -> dict[str, tuple[str, str]]:
    return {task: ("report", f"/{task}") for task in tasks_of(store)}


def section(mine: Claim) -> flows.Also:
    """The task's result, added to the report in the commit that finishes the task."""

    def add(tx: Tx) -> None:
        report = tx.get("report", {})
        report[mine.task] = [*report.get(mine.task, []), mine.token]
        tx["report"] = report

    return "report", add


async def worker(store: SteppedStore) -> None:
    """One task, slowly: any amount of time may pass between the claim and the finish."""
    board = AsyncBoard(store, "run")
    try:
        mine = await board.claim("w", lease=LEASE_S)
        if mine is not None:
            await board.finish(mine, "done", also=section(mine))
    except (LeaseHeld, LeaseLost):
        return


async def boss(store: SteppedStore) -> str:
    try:
        await AsyncBoard(store, "run").complete(outputs=places(store))
    except IncompleteRun:
        return "incomplete"
    return "complete"


async def time_passes(store: SteppedStore) -> None:
    await store.pass_time(LEASE_S)


def no_false_success(store: SteppedStore, ended: Any) -> None:
    """Each task is done at most once, and "complete" was only said when all were."""
    report = store.value("report") or {}
    assert all(len(each) == 1 for each in report.values())
    if "complete" in ended.results:
        assert sorted(report) == list(tasks_of(store))


async def in_the_end(store: SteppedStore, ended: Any) -> None:
    """Whatever happened before, a fresh worker can finish the run, and then it is complete."""
    no_false_success(store, ended)
    store.clock.elapsed += LEASE_S
    board = AsyncBoard(store, "run")
    while (mine := await board.claim("fresh", lease=LEASE_S)) is not None:
        await board.finish(mine, "done", also=section(mine))
    assert (await board.complete(outputs=places(store))).completed
    no_false_success(store, ended)
    assert sorted(store.value("report")) == list(tasks_of(store))


@pytest.mark.parametrize("setup", [one, two])
def test_two_workers_and_a_crash_at_every_step(setup: Any) -> None:
    found = explore(
        setup, [worker, worker, time_passes], check=in_the_end, crashes=1, steps=["transact"]
    )
    found.assert_holds()


def test_a_worker_that_restarts_after_its_crash() -> None:
    found = explore(two, [worker, time_passes], check=in_the_end, crashes=1, restart=worker)
    found.assert_holds()


async def persistent(store: SteppedStore) -> None:
    """Repeats what it lost the reply of; a repeated finish must not write a second section."""
    board = AsyncBoard(store, "run")
    try:
        mine = await board.claim("w", lease=LEASE_S)
        if mine is None:
            return
        try:
            await board.finish(mine, "done", also=section(mine))
        except LostReply:
            await board.finish(mine, "done", also=section(mine))
    except (LeaseHeld, LeaseLost, LostReply):
        return


async def lossy() -> SteppedStore:
    store = SteppedStore(replies_may_be_lost=True)
    await AsyncBoard(store, "run").create(["a"])
    return store


def test_a_finish_repeated_after_a_lost_reply_is_done_once() -> None:
    callers = [persistent, persistent, time_passes]
    explore(lossy, callers, check=in_the_end, lost_replies=1).assert_holds()


def test_two_workers_and_a_cancellation_anywhere() -> None:
    callers = [worker, worker, time_passes]
    explore(one, callers, check=in_the_end, cancellations=1).assert_holds()


def test_success_is_never_reported_too_early() -> None:
    found = explore(two, [worker, worker, boss], check=no_false_success)
    found.assert_holds()


def test_the_boss_is_seen_to_say_both() -> None:
    found = explore(two, [worker, worker, boss], outcome=lambda _, ended: ended.results[2])
    assert set(found.outcomes) == {"complete", "incomplete"}


def test_a_finish_without_a_check_of_the_token_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a worker that was paused writes its section a second time."""

    def by_name(run: Run, mine: Claim, now: int) -> Task:
        return run.tasks[mine.task]

    monkeypatch.setattr(tasklist, "held", by_name)
    explore(one, [worker, worker, time_passes], check=in_the_end).assert_fails("check")


def test_a_finish_that_checks_the_worker_only_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_name(run: Run, mine: Claim, now: int) -> Task:
        task = run.tasks[mine.task]
        if task.state != "running" or task.worker != mine.worker or now >= task.expires:
            raise LeaseLost
        return task

    monkeypatch.setattr(tasklist, "held", by_name)
    failing = explore(two, [pair, pair, time_passes], check=late_is_dropped)
    failing.assert_fails("check")


async def pair(store: SteppedStore) -> int | None:
    """Both want the very same task; the result is the token under which it was accepted."""
    board = AsyncBoard(store, "run")
    try:
        mine = await board.claim("w", lease=LEASE_S, task="a")
        assert mine is not None
        await board.finish(mine, mine.token)
    except (InvalidState, LeaseHeld, LeaseLost):
        return None
    return mine.token


def late_is_dropped(store: SteppedStore, ended: Any) -> None:
    """Only the latest claim's result was ever accepted."""
    task = tasks_of(store)["a"]
    assert [each for each in ended.results if each] in ([], [task.token])


def test_of_two_claims_only_the_latest_is_accepted() -> None:
    explore(two, [pair, pair, time_passes], check=late_is_dropped).assert_holds()


async def hollow(store: SteppedStore) -> None:
    """Says that it is done and has written nothing."""
    board = AsyncBoard(store, "run")
    mine = await board.claim("w", lease=LEASE_S)
    assert mine is not None
    await board.finish(mine, "done")


def test_a_completion_that_counts_tasks_only_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    explore(two, [worker, hollow, boss], check=no_false_success).assert_holds()

    def count_only(name: str, run: Run, absent: list[str]) -> None:
        if any(task.state != "done" for task in run.tasks.values()):
            raise IncompleteRun(missing=[])

    monkeypatch.setattr(tasklist, "check_complete", count_only)
    explore(two, [worker, hollow, boss], check=no_false_success).assert_fails("check")
