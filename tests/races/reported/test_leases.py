"""Leases and claims that outlive their time: what other projects reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perkey import Board, Documents, IncompleteRun, LeaseHeld, LeaseLost, Leases, Once
from perkey.flows import leases as lease_flows
from perkey.flows import tasklist
from perkey.store import evaluate
from perkey.store.fencing import lease_state
from tests.unit.manual_clock import ManualClock, memory_store

TTL_S = 10.0

# ------------------------------------------------------ a late release frees another's lock


def third_gets_in_after_a_late_release() -> bool:
    """A overruns its lease, B takes it, A releases "its" lock: does C get in beside B?"""
    clock = ManualClock()
    leases = Leases(memory_store(clock))
    late = leases.acquire("report", ttl=TTL_S, holder="a")
    clock.elapsed += TTL_S + 1
    leases.acquire("report", ttl=TTL_S, holder="b")
    late.release()
    try:
        leases.acquire("report", ttl=TTL_S, holder="c")
    except LeaseHeld:
        return False
    return True


def test_a_late_release_frees_nobody_elses_lease() -> None:
    """As in https://github.com/laravel/framework/issues/26213, and many others since."""
    assert not third_gets_in_after_a_late_release()


def test_a_release_that_does_not_compare_tokens_lets_a_third_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        lease_flows, "_checked", lambda wanted, tx: lease_state(tx.record(wanted.lease))
    )
    assert third_gets_in_after_a_late_release()


# ------------------------------------------------------ the lock expires while the job runs


def what_two_workers_wrote() -> list[Any]:
    """A worker's job takes longer than its lock; a second one starts it too; both finish."""
    clock = ManualClock()
    store = memory_store(clock)
    docs, leases = Documents(store), Leases(store)
    slow = leases.acquire("email-1", ttl=TTL_S, holder="worker-1")
    clock.elapsed += TTL_S + 1
    quick = leases.acquire("email-1", ttl=TTL_S, holder="worker-2")
    docs.put("email-1", "sent by worker-2", create=True, fence=quick.fence)
    try:
        docs.put("email-1", "sent by worker-1", overwrite=True, fence=slow.fence)
    except LeaseLost:
        pass
    return [version.value for version in docs.history("email-1")]


def test_the_worker_whose_lock_ran_out_cannot_finish() -> None:
    """As in https://github.com/rafidahmed870/queue-jobs-worker/issues/11."""
    assert what_two_workers_wrote() == ["sent by worker-2"]


def test_without_the_fence_both_workers_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "check_fence", lambda *given: None)
    # The record itself remembers the highest token that wrote it, and would still refuse.
    monkeypatch.setattr(evaluate, "_raised", lambda known, token, key: token)
    assert what_two_workers_wrote() == ["sent by worker-2", "sent by worker-1"]


# -------------------------------------------- a lock that excludes at once, not for the slot

Guarded = Callable[[Any, str, Callable[..., Any]], Any]


def runs_of_one_slot(guarded: Guarded) -> int:
    """Two machines run the job of 18:10, one after the other: the first was done quickly."""
    clock = ManualClock()
    store = memory_store(clock)
    runs: list[str] = []
    for machine in ("a", "b"):
        guarded(store, "2022-04-08T18:10", lambda *_, m=machine: runs.append(m))
        clock.elapsed += 0.03
    return len(runs)


def once_per_slot(store: Any, slot: str, job: Callable[..., Any]) -> None:
    Once(store).run(slot, None, job, operation="preheat")


def under_a_lock(store: Any, slot: str, job: Callable[..., Any]) -> None:
    with Leases(store).acquire("preheat", ttl=599):
        job()


def test_the_job_of_one_slot_runs_once() -> None:
    """As in https://github.com/cameronmaske/celery-once/issues/43 and
    https://github.com/celery/celery/issues/3930: the lock is gone when the task has ended."""
    assert runs_of_one_slot(once_per_slot) == 1


def test_a_lock_alone_runs_the_job_of_one_slot_twice() -> None:
    assert runs_of_one_slot(under_a_lock) == 2


# --------------------------------------------------- who did not get the lock releases it


class CacheLock:
    """``add`` and ``delete`` on a cache, as in a recipe: the release asks nobody whose it is."""

    def __init__(self) -> None:
        self.cache: dict[str, str] = {}

    def try_to_import(self, worker: str) -> bool:
        """Whether ``worker`` got in; a second one comes while it is at work."""
        got = self.cache.setdefault("feed", worker) == worker
        try:
            return got
        finally:
            if worker != "a":  # a is still at work
                del self.cache["feed"]


class Leased:
    """The same with leases: what was not acquired cannot be released."""

    def __init__(self) -> None:
        self.leases = Leases(memory_store(ManualClock()))

    def try_to_import(self, worker: str) -> bool:
        try:
            lease = self.leases.acquire("feed", ttl=TTL_S, holder=worker)
        except LeaseHeld:
            return False
        if worker != "a":
            lease.release()
        return True


def who_got_in(locks: CacheLock | Leased) -> list[str]:
    return [worker for worker in "abc" if locks.try_to_import(worker)]


def test_whoever_did_not_get_the_lease_has_nothing_to_release() -> None:
    """As in https://github.com/celery/celery/pull/4344, in the recipe of Celery's manual."""
    assert who_got_in(Leased()) == ["a"]


def test_a_release_in_a_finally_frees_anothers_lock() -> None:
    assert who_got_in(CacheLock()) == ["a", "c"]


# ------------------------------------------------------------ a dead worker keeps its task


def tasks_done_after_a_death() -> int:
    """A worker claims a task and is gone; another one works for as long as it gets tasks."""
    clock = ManualClock()
    board = Board(memory_store(clock), "run")
    board.create(["consolidation"])
    assert board.claim("dead", lease=TTL_S) is not None
    clock.elapsed += TTL_S + 1
    try:
        return board.work("alive", lambda claim: "done", lease=TTL_S, wait=0)
    except LeaseHeld:
        return 0


def test_a_dead_workers_task_is_taken_over() -> None:
    """As in https://github.com/vectorize-io/hindsight/issues/991: stuck for 38 days."""
    assert tasks_done_after_a_death() == 1


def test_a_claim_without_an_end_blocks_the_task_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasklist, "claimable", lambda task, now: task.state == tasklist.OPEN)
    assert tasks_done_after_a_death() == 0


# ----------------------------------------------------------------------- a false success


def lacking_in_the_end() -> list[str]:
    """Every task says that it is done; one of them left nothing where its output should be."""
    board = Board(memory_store(ManualClock()), "run")
    board.create(["prints", "copies"])
    board.work("worker", lambda claim: "out.txt" if claim.task == "copies" else [], lease=TTL_S)
    try:
        board.complete()
    except IncompleteRun as incomplete:
        return list(incomplete.details["no_output"])
    return []


def test_a_task_without_its_output_is_no_success() -> None:
    """As in https://github.com/broadinstitute/cromwell/issues/4147."""
    assert lacking_in_the_end() == ["prints"]


def test_asking_only_whether_tasks_ended_reports_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasklist, "empty", lambda value: False)
    assert lacking_in_the_end() == []
