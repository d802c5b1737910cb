"""Boards: each task has one worker at a time, and a run never reports a false success."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from perkey import (
    AsyncBoard,
    Board,
    Conflict,
    IncompleteRun,
    InvalidState,
    InvalidValue,
    LeaseHeld,
    LeaseLost,
    NotFound,
    UndeclaredKey,
    UsageError,
)
from perkey.flows.tasklist import Claim
from perkey.observe import events
from perkey.store.transaction import Tx
from perkey.stores import Store
from tests.unit.manual_clock import ManualClock, async_memory_store, memory_store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Iterator[Store]:
    with memory_store(clock) as store:
        yield store


@pytest.fixture
def board(store: Store) -> Board:
    made = Board(store, "audit")
    made.create(["inventory", "links"], attempts=3, by="boss")
    return made


def take(board: Board, worker: str = "w1", **options: Any) -> Claim:
    claim = board.claim(worker, lease=30, **options)
    assert claim is not None
    return claim


def wait_for(happened: Callable[[], bool]) -> None:
    while not happened():
        time.sleep(0.005)


def test_a_run_from_start_to_success(board: Board) -> None:
    assert board.status().names("open") == ["inventory", "links"]
    first, second = take(board, "w1"), take(board, "w2")
    assert (first.task, second.task) == ("inventory", "links")
    assert second.token > first.token
    board.finish(first, {"files": 3})
    board.finish(second, ["a", "b"])
    assert board.claim("w1", lease=30) is None
    done = board.complete(by="boss")
    assert done.completed
    assert [(each.name, each.worker, each.output) for each in done.tasks] == [
        ("inventory", "w1", {"files": 3}),
        ("links", "w2", ["a", "b"]),
    ]
    assert board.complete().version == done.version
    assert [each.by for each in board.history()] == ["boss", "w1", "w2", "w1", "w2", "boss"]


def test_creating_twice(board: Board, store: Store) -> None:
    board.finish(take(board), 1)
    again = board.create(["inventory", "links"], attempts=3)
    assert again.names("done") == ["inventory"]
    for other in [["inventory"], ["links", "inventory"], {"inventory": 1, "links": None}]:
        with pytest.raises(Conflict, match="exists with other tasks"):
            board.create(other, attempts=3)
    with pytest.raises(Conflict):
        board.create(["inventory", "links"], attempts=4)
    assert store.get("audit", None) is None


def test_names_may_come_from_anywhere(store: Store) -> None:
    made = Board(store, "audit").create(each for each in "ab")
    assert made.names("open") == ["a", "b"]


def test_tasks_carry_what_their_workers_need(store: Store) -> None:
    board = Board(store, "audit")
    board.create({"links": {"path": "docs"}, "words": None})
    assert take(board).spec == {"path": "docs"}
    assert take(board).spec is None


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ("inventory", "found one text"),
        ([], "found 0"),
        (["a", "a"], "found a name twice"),
        ((each for each in ["a", "a"]), "found a name twice"),
        ({"": 1}, "empty text"),
        ([""], "empty text"),
    ],
)
def test_what_is_no_list_of_tasks_is_refused(store: Store, tasks: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Board(store, "audit").create(tasks)
    with pytest.raises(UsageError, match="attempts from 1 up"):
        Board(store, "audit").create(["a"], attempts=0)


def test_a_board_that_was_never_created(store: Store) -> None:
    board = Board(store, "nothing")
    for act in [board.status, board.complete, lambda: board.claim("w", lease=1)]:
        with pytest.raises(NotFound, match="no board 'nothing'"):
            act()


def test_a_certain_task(board: Board) -> None:
    links = take(board, task="links")
    assert links.task == "links"
    with pytest.raises(LeaseHeld, match="'links' of 'audit' is at work by 'w1'") as held:
        take(board, task="links")
    assert held.value.retry_after_ms == 30_000
    with pytest.raises(NotFound, match="no task 'words'"):
        take(board, task="words")
    board.finish(links, 1)
    with pytest.raises(InvalidState, match="is done"):
        take(board, task="links")


def test_a_claim_has_a_name(board: Board) -> None:
    """Others are told who is at work; nothing is claimed for nobody."""
    with pytest.raises(UsageError, match="who holds the task"):
        board.claim("", lease=60)
    assert board.status().names("open") == ["inventory", "links"]


def test_claiming_while_all_is_at_work_elsewhere(board: Board, clock: ManualClock) -> None:
    take(board, "w1")
    clock.elapsed += 10
    take(board, "w2")
    with pytest.raises(LeaseHeld, match="every unfinished task") as held:
        take(board, "w3")
    assert held.value.retry_after_ms == 20_000
    began = clock.elapsed
    late = take(board, "w3", wait=60)
    assert (late.task, late.attempt) == ("inventory", 2)
    assert clock.elapsed - began == pytest.approx(20, abs=0.002)


def test_a_late_finish_is_refused_though_nobody_took_the_task(
    board: Board, store: Store, clock: ManualClock
) -> None:
    claim = take(board)
    clock.elapsed += 30
    late: list[Callable[[], object]] = [
        lambda: board.finish(claim, 1),
        lambda: board.fail(claim, "late"),
        lambda: board.release(claim),
        lambda: board.heartbeat(claim, lease=30),
    ]
    for act in late:
        with pytest.raises(LeaseLost, match="ran out 0 ms ago"):
            act()
    assert board.status().tasks[0].remaining_ms == 0
    assert store.statistics()["events"]["LateRefused"] == 4


def test_a_late_finish_is_refused_after_the_same_worker_took_it_again(
    board: Board, clock: ManualClock
) -> None:
    late = take(board, "w1", task="links")
    clock.elapsed += 30
    fresh = take(board, "w1", task="links")
    with pytest.raises(LeaseLost, match=f"under token {fresh.token} of 'w1'"):
        board.finish(late, "late")
    board.finish(fresh, "fresh")
    with pytest.raises(LeaseLost, match="found it done"):
        board.finish(late, "late")
    assert board.status().tasks[1].output == "fresh"


def test_heartbeats_keep_a_task(board: Board, clock: ManualClock) -> None:
    claim = take(board)
    for _ in range(3):
        clock.elapsed += 29
        claim = board.heartbeat(claim, lease=30)
    assert claim.expires - 30_000 == round(clock.elapsed - 1000) * 1000 + clock.wall
    board.finish(claim, 1)


def test_the_same_finish_again_is_harmless(board: Board, store: Store) -> None:
    def count(tx: Tx) -> str:
        tx["total"] = tx.get("total", 0) + 1
        return "counted"

    claim = take(board)
    assert board.finish(claim, [1], also=("total", count)) == "counted"
    version = board.status().version
    assert board.finish(claim, [1], also=("total", count)) is None
    assert (board.status().version, store.get("total").value) == (version, 1)
    with pytest.raises(LeaseLost):
        board.finish(claim, [2])


def test_a_further_change_commits_with_the_finish_or_not_at_all(
    board: Board, store: Store, clock: ManualClock
) -> None:
    claim = take(board)

    def refuse(tx: Tx) -> None:
        tx["report"] = "half"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        board.finish(claim, 1, also=("report", refuse))
    assert board.status().names("done") == []

    def stray(tx: Tx) -> None:
        tx["other"] = 1

    with pytest.raises(UndeclaredKey):
        board.finish(claim, 1, also=("report", stray))
    clock.elapsed += 30
    with pytest.raises(LeaseLost):
        board.finish(claim, 1, also=("report", lambda tx: tx.put_body("report", b"1")))
    assert store.get("report", None) is None


def test_fail_for_good_or_for_another_attempt(board: Board) -> None:
    assert board.fail(take(board, task="links"), "flaky", retry=True) is True
    assert board.status().tasks[1].reason == "flaky"
    assert board.fail(take(board, task="links"), "flaky", retry=True) is True
    assert board.fail(take(board, task="links"), "third time", retry=True) is False
    assert board.fail(take(board, task="inventory"), "broken") is False
    status = board.status()
    assert status.names("failed") == ["inventory", "links"]
    assert [each.attempts for each in status.tasks] == [1, 3]
    assert board.claim("w1", lease=30) is None


def test_release_hands_back_and_does_not_count(board: Board) -> None:
    for _ in range(5):
        board.release(take(board, task="links"))
    assert take(board, task="links").attempt == 1


def test_a_task_that_kills_its_workers_fails_at_last(board: Board, clock: ManualClock) -> None:
    board.finish(take(board, task="inventory"), 1)
    for attempt in (1, 2, 3):
        assert take(board).attempt == attempt
        clock.elapsed += 30
    assert board.claim("w9", lease=30) is None
    assert board.status().tasks[1].reason == "attempt 3, the last, by 'w1' ran out of time"
    with pytest.raises(IncompleteRun) as incomplete:
        board.complete()
    assert incomplete.value.failed == ["links"]


def test_an_incomplete_run_names_what_is_missing(board: Board, store: Store) -> None:
    heard: list[events.Incomplete] = []
    store.observe(lambda each: heard.append(each) if isinstance(each, events.Incomplete) else None)
    with pytest.raises(IncompleteRun, match="2 tasks dispatched, 0 done; not done: 'inventory'"):
        board.complete(by="boss")
    board.fail(take(board, task="inventory"), "broken")
    with pytest.raises(IncompleteRun, match="not done: 'links'; failed: 'inventory'"):
        board.complete()
    take(board)
    with pytest.raises(IncompleteRun) as running:
        board.complete()
    assert (running.value.dispatched, running.value.done) == (2, 0)
    assert running.value.not_done == ["inventory", "links"]
    assert not board.status().completed
    assert heard[0] == events.Incomplete("audit", "boss", ("inventory", "links"))


@pytest.mark.parametrize("nothing", [None, "", [], {}])
def test_done_without_output_is_not_complete(store: Store, nothing: Any) -> None:
    board = Board(store, "audit")
    board.create(["words"])
    board.finish(take(board), nothing)
    with pytest.raises(IncompleteRun, match="1 done; done without output: 'words'") as incomplete:
        board.complete()
    assert incomplete.value.no_output == ["words"]


@pytest.mark.parametrize("something", [0, False, [0], {"found": []}, " "])
def test_a_small_output_is_an_output(store: Store, something: Any) -> None:
    board = Board(store, "audit")
    board.create(["words"])
    board.finish(take(board), something)
    assert board.complete().tasks[0].output == something


def test_outputs_are_looked_for_in_documents_too(board: Board, store: Store) -> None:
    places = {task: ("report", f"/sections/{task}") for task in ("inventory", "links")}
    for _ in range(2):
        board.finish(take(board), "said to be done")
    with pytest.raises(IncompleteRun, match="without output: 'inventory', 'links'"):
        board.complete(outputs=places)
    store.put("report", {"sections": {"inventory": ["x"], "links": {}}}, create=True)
    with pytest.raises(IncompleteRun) as incomplete:
        board.complete(outputs=places)
    assert (incomplete.value.done, incomplete.value.missing) == (2, ["links"])
    store.put("report", {"sections": {"inventory": ["x"], "links": {"n": 1}}}, overwrite=True)
    assert board.complete(outputs=places).completed
    with pytest.raises(NotFound, match="no task 'words'"):
        board.complete(outputs={"words": ("report", "/a")})
    with pytest.raises(UsageError, match="JSON Pointer"):
        board.complete(outputs={"links": ("report", "no pointer")})


def test_work_does_everything_and_retries_failures(board: Board, store: Store) -> None:
    tries: list[str] = []

    def handler(claim: Claim) -> str:
        tries.append(claim.task)
        if claim.task == "links" and claim.attempt < 3:
            raise OSError("no network")
        return f"{claim.task} done"

    assert board.work("w1", handler, lease=30) == 2
    assert tries == ["inventory", "links", "links", "links"]
    assert board.complete().tasks[1].output == "links done"


def test_work_drops_a_result_that_came_too_late(board: Board, clock: ManualClock) -> None:
    def handler(claim: Claim) -> str:
        if claim.attempt == 1:
            clock.elapsed += 31
        return f"attempt {claim.attempt}"

    assert board.work("w1", handler, lease=30) == 2
    assert {each.output for each in board.complete().tasks} == {"attempt 2"}


def test_work_keeps_its_claim_while_the_handler_runs(clock: ManualClock, store: Store) -> None:
    board = Board(store, "slow run")
    board.create(["slow"])

    def handler(claim: Claim) -> str:
        for _ in range(3):  # twice as long as the lease, in all
            beats = len(board.history())
            clock.elapsed += 0.2
            wait_for(lambda: len(board.history()) > beats)  # noqa: B023
        return "done"

    assert board.work("w1", handler, lease=0.3) == 1
    assert board.complete().tasks[0].attempts == 1


async def test_work_keeps_its_claim_on_asyncio(clock: ManualClock) -> None:
    async with async_memory_store(clock) as store:
        board = AsyncBoard(store, "audit")
        await board.create(["slow"])

        async def handler(claim: Claim) -> str:
            for _ in range(3):
                beats = len(await board.history())
                clock.elapsed += 0.2
                while len(await board.history()) == beats:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            return "done"

        assert await board.work("w1", handler, lease=0.3) == 1
        assert (await board.complete()).tasks[0].attempts == 1


def test_work_refuses_an_async_handler_on_threads(board: Board) -> None:
    async def handler(claim: Claim) -> str:
        return "never"

    with pytest.raises(UsageError, match="async"):
        board.work("w1", handler, lease=30)


def test_each_change_is_told(board: Board, store: Store) -> None:
    heard: list[tuple[str, str]] = []
    store.observe(
        lambda e: heard.append((e.task, e.change)) if isinstance(e, events.TaskChanged) else None
    )
    claim = take(board)
    board.heartbeat(claim, lease=60)
    board.release(claim)
    claim = take(board)
    board.fail(claim, "flaky", retry=True)
    board.finish(take(board), 1)
    assert [task for task, _ in heard] == ["inventory"] * 7
    assert [change for _, change in heard] == [
        "claimed",
        "extended",
        "released",
        "claimed",
        "failed",
        "claimed",
        "finished",
    ]


def test_a_task_that_is_given_up_is_told(store: Store, clock: ManualClock) -> None:
    """Whoever claims next commits it, and the event names the worker who was late."""
    board = Board(store, "other run")
    board.create(["a", "b", "c"], attempts=1)
    heard: list[tuple[str, str, int, str]] = []
    store.observe(
        lambda e: (
            heard.append((e.task, e.worker, e.token, e.change))
            if isinstance(e, events.TaskChanged)
            else None
        )
    )
    for worker in ("late", "later"):
        assert board.claim(worker, lease=30) is not None
    clock.wall += 31_000
    clock.elapsed += 31
    assert board.claim("next", lease=30) is not None
    assert board.status().names("failed") == ["a", "b"]
    assert heard == [
        ("a", "late", 1, "claimed"),
        ("b", "later", 2, "claimed"),
        ("a", "late", 1, "given up"),
        ("b", "later", 2, "given up"),
        ("c", "next", 3, "claimed"),
    ]
    heard.clear()
    with pytest.raises(LeaseHeld):  # nothing is written, so nothing is told
        board.claim("another", lease=30)
    clock.wall += 31_000
    clock.elapsed += 31
    assert board.claim("last", lease=30) is None
    assert heard == [("c", "next", 3, "given up")]


def test_output_must_be_json(board: Board) -> None:
    with pytest.raises((InvalidValue, TypeError)):
        board.finish(take(board), object())


async def test_the_same_for_asyncio(clock: ManualClock) -> None:
    async with async_memory_store(clock) as store:
        board = AsyncBoard(store, "audit")
        await board.create({"a": 1, "b": 2, "c": 3})
        first = await board.claim("w1", lease=30)
        assert first is not None
        first = await board.heartbeat(first, lease=60)
        assert await board.fail(first, "flaky", retry=True)
        second = await board.claim("w1", lease=30, task="b")
        assert second is not None
        await board.release(second)
        third = await board.claim("w2", lease=30, task="c")
        assert third is not None
        await board.finish(third, "c", also=("log", lambda tx: tx.put_body("log", b"1")))
        with pytest.raises(IncompleteRun):
            await board.complete()

        async def handler(claim: Claim) -> Any:
            return claim.spec

        assert await board.work("w3", handler, lease=30) == 2
        assert (await board.complete()).completed
        assert [each.output for each in (await board.status()).tasks] == [1, 2, "c"]
        assert len(await board.history()) == 13
