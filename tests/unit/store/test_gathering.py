"""A leader waits for those who were answered together with it, and for nobody else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from perkey import Limits, Store
from perkey.store import gathering
from perkey.store.backends.memory import MemoryBackend
from perkey.store.evaluate import Batch
from perkey.store.gathering import IN_ALL, LONGEST_S, SHARE, SHORTEST_S, Gathering
from perkey.store.requests import locked
from perkey.store.transaction import Outcome, Tx
from perkey.testing import explore_threads
from tests.unit.manual_clock import ManualClock

THREADS, EACH = 8, 20
PATIENCE = 60.0


class SlowBackend(MemoryBackend):
    """Commits take as long as it says, by a clock that nobody waits for."""

    blocking = True

    def __init__(self, clock: ManualClock, takes: float) -> None:
        super().__init__(Limits(), clock)
        self.clock = clock
        self.takes = takes
        self.sizes: list[int] = []
        self.first: Callable[[], object] = lambda: None

    def apply(self, batch: Batch) -> list[Outcome]:
        first, self.first = self.first, lambda: None
        first()
        self.clock.elapsed += self.takes
        self.sizes.append(len(batch.transactions))
        return super().apply(batch)


def slow_store(takes: float) -> tuple[Store, SlowBackend]:
    clock = ManualClock()
    backend = SlowBackend(clock, takes)
    return Store(backend, clock=clock), backend


def add(tx: Tx) -> None:
    tx["n"] = tx.get("n", 0) + 1


def run_all(backend: SlowBackend, store: Store) -> None:
    """The first thread commits alone, while all others queue; then they go round and round."""
    gone = threading.Event()

    def others_queue() -> None:
        gone.set()
        while store.statistics()["waiting"] < THREADS - 1:
            pass

    backend.first = others_queue

    def work(extra: int) -> None:
        for _ in range(EACH + extra):
            store.transact("n", add)

    threads = [threading.Thread(target=work, args=(int(n == 0),)) for n in range(THREADS)]
    threads[0].start()
    assert gone.wait(PATIENCE)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_threads_that_are_answered_together_commit_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gathering, "LONGEST_S", 10 * PATIENCE)
    store, backend = slow_store(PATIENCE / SHARE)
    run_all(backend, store)
    assert store.get("n").value == THREADS * EACH + 1
    assert backend.sizes == [1] + [THREADS] * EACH
    store.close()


def test_without_waiting_they_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above would see: the first to come back commits alone."""
    monkeypatch.setattr(Gathering, "moment", lambda self, end: 0)
    store, backend = slow_store(PATIENCE / SHARE)
    run_all(backend, store)
    assert store.get("n").value == THREADS * EACH + 1
    assert len(backend.sizes) > EACH + 1
    store.close()


def test_nobody_waits_for_callers_that_were_never_there() -> None:
    """Waiting here would last for ever: the commits of this store take ages."""
    store, backend = slow_store(1e9)
    for _ in range(3):
        store.transact("n", add)
    assert backend.sizes == [1, 1, 1]
    store.close()


def test_what_does_not_come_back_is_not_expected_again(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    right = Gathering.moment

    def noted(self: Gathering, end: float) -> float:
        waits.append(right(self, end))
        return min(waits[-1], 1e-6)

    monkeypatch.setattr(Gathering, "moment", noted)
    store, backend = slow_store(1.0)
    run_all(backend, store)
    waits.clear()
    for _ in range(3):
        store.transact("n", add)
    assert sum(each > 0 for each in waits) <= 1, "the first may wait for the threads of before"
    assert backend.sizes[-3:] == [1, 1, 1]
    store.close()


# --------------------------------------------------------------------------- how long, in numbers


def gathered(took: float, expected: int = 2) -> tuple[Gathering, ManualClock]:
    clock = ManualClock()
    began = clock.elapsed
    clock.elapsed += took
    it = Gathering(clock)
    it.committed(began)
    it.expect(expected)
    return it, clock


def spent(it: Gathering, clock: ManualClock, deadline: float = 1e12) -> list[float]:
    """All the waits, each of them to its end."""
    waits = []
    end = it.end(deadline)
    while (moment := it.moment(end)) > 1e-12:
        waits.append(moment)
        clock.elapsed += moment
    return waits


def test_a_wait_is_a_share_of_the_last_commit_and_so_are_all_of_them() -> None:
    took = 0.008
    waits = spent(*gathered(took))
    assert waits[0] == pytest.approx(took * SHARE)
    assert sum(waits) == pytest.approx(took * IN_ALL)


def test_however_long_a_commit_took_the_wait_has_an_end() -> None:
    assert sum(spent(*gathered(3600.0))) == pytest.approx(LONGEST_S)


def test_no_wait_goes_beyond_the_leaders_own_time() -> None:
    it, clock = gathered(0.008)
    assert sum(spent(it, clock, clock.elapsed + 0.0015)) == pytest.approx(0.0015)
    assert spent(it, clock, clock.elapsed) == []
    assert spent(it, clock, clock.elapsed - 1) == []


@pytest.mark.parametrize(("took", "expected"), [(SHORTEST_S / SHARE / 2, 8), (1.0, 1), (1.0, 0)])
def test_where_it_does_not_pay_nobody_waits(took: float, expected: int) -> None:
    assert spent(*gathered(took, expected)) == []


def test_arrivals_are_told_once_and_only_while_somebody_waits() -> None:
    it, _ = gathered(1.0, 3)
    it.arrived()
    arrival = it.missing(2)
    assert arrival is not None
    assert not arrival.acquire(blocking=False)
    it.arrived()
    it.arrived()
    assert arrival.acquire(blocking=False)
    assert it.missing(3) is None
    it.arrived()


# ------------------------------------------------------------------------------- every schedule


def expecting() -> Store:
    """A store whose last commit took long, and whose next leader expects one more to come."""
    store, _ = slow_store(1.0)
    store.put("n", 0, create=True)
    store.core._committer._gathering.expect(2)
    return store


def twice(store: Store) -> None:
    for _ in range(2):
        store.transact("n", add)


def once(store: Store) -> None:
    store.transact("n", add)


def three(store: Store) -> None:
    assert store.get("n").value == 3
    assert store.statistics()["waiting"] == 0


def test_whoever_waits_for_whom_all_are_answered() -> None:
    explore_threads(expecting, [twice, once], check=three, seconds=200).assert_holds()


class Endless:
    """A lock that is waited for as if no timeout had been given."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def acquire(self, timeout: float) -> bool:
        return bool(self.lock.acquire())

    def release(self) -> None:
        self.lock.release()


def test_a_leader_that_waits_without_an_end_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "locked", lambda: Endless(locked()))
    explore_threads(expecting, [twice, once]).assert_fails("deadlock")
