"""A signal handler that raises (Ctrl-C) at any point leaves no key held for ever.

Ten thousand interrupts strike while a thread enters and leaves.  After each one the same
thread must get the key again at once, also while the exception is still being handled and
its traceback still refers to the release that was cut off.
"""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from perkey.locks import KeyedLocks, Sections
from tests.unit.locks.helpers import Crew, eventually, visit

INTERRUPTS = 10_000

# By its other method pytest-timeout would need the timer and the signal that strike here.
pytestmark = pytest.mark.timeout(240, method="thread")


class Interrupted(Exception):
    pass


@pytest.fixture
def interrupts() -> Iterator[Callable[[float], None]]:
    """Arm one interrupt in so many seconds."""

    def strike(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, strike)
    gc.collect()
    gc.freeze()  # who meets a dead claim asks the collector; keep it from reading all of pytest
    callbacks, gc.callbacks[:] = gc.callbacks[:], []  # other test tools' own would be struck too
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    gc.callbacks[:] = callbacks
    gc.unfreeze()


MAKERS = [
    pytest.param(KeyedLocks, 3000, id="keyed"),
    pytest.param(lambda: KeyedLocks(shared=True), 2000, id="keyed-shared"),
    pytest.param(lambda: KeyedLocks(reentrant=True), 1000, id="keyed-reentrant"),
    pytest.param(Sections, 2000, id="sections"),
    pytest.param(lambda: Sections(profile="lean"), 1000, id="sections-lean"),
    pytest.param(lambda: Sections(shared=True), 1000, id="sections-shared"),
]


@pytest.mark.parametrize(("make", "count"), MAKERS)
def test_no_interrupt_leaves_a_key_held(
    make: Any, count: int, interrupts: Callable[[float], None]
) -> None:
    locks = make()
    with locks("k"):
        pass
    wedged = struck = 0
    while struck < count:
        try:
            interrupts(20e-6 + (struck % 97) * 1e-6)
            for _ in range(10_000):  # far longer than until the interrupt
                with locks("k"):
                    pass
        except Interrupted:
            struck += 1
            guard = locks.try_acquire("k")
            if guard is None:
                wedged += 1
            else:
                guard.release()
    assert wedged == 0


def test_the_parts_add_up_to_ten_thousand() -> None:
    assert sum(maker.values[1] for maker in MAKERS) == INTERRUPTS


@pytest.mark.parametrize("make", [KeyedLocks, lambda: KeyedLocks(shared=True), Sections])
def test_other_threads_get_the_key_after_an_interrupted_release(
    make: Any, interrupts: Callable[[float], None]
) -> None:
    """Also those that were in line already when the release was cut off."""
    locks = make()
    stop = False
    turns = 0

    def others() -> None:
        nonlocal turns
        while not stop:
            with locks("k"):
                turns += 1

    with Crew() as crew:
        for _ in range(2):
            crew.start(others)
        try:
            for number in range(60):
                try:
                    interrupts(50e-6 + (number % 37) * 10e-6)
                    for _ in range(10_000):
                        visit(locks)
                except Interrupted:
                    pass
                visit(locks, 60)
            eventually(lambda: turns > 0)
        finally:
            stop = True
    assert locks._table.claims == {}


@pytest.mark.parametrize("make", [KeyedLocks, lambda: KeyedLocks(shared=True), Sections])
def test_an_interrupt_while_waiting_leaves_the_line(
    make: Any, interrupts: Callable[[float], None]
) -> None:
    locks = make()
    with Crew() as crew:
        with crew.holding(locks, "k"):
            for _ in range(20):
                with pytest.raises(Interrupted):
                    wait_interrupted(locks, interrupts)
            assert locks._table.queues == {}
        with locks("k", timeout=0):
            pass


def wait_interrupted(locks: Any, interrupts: Callable[[float], None]) -> None:
    interrupts(1e-3)
    visit(locks)


def cut_off(locks: Any, key: str, interrupts: Callable[[float], None]) -> Exception:
    """An exception that was raised in a release before its first line."""
    for number in range(100_000):
        try:
            interrupts(15e-6 + (number % 61) * 1e-6)
            while True:
                with locks(key):
                    pass
        except Interrupted as error:
            if key_is_stuck(locks):
                return error
    raise AssertionError("no interrupt struck a release")


def key_is_stuck(locks: Any) -> bool:
    return len(locks._table.claims) > 0


@pytest.mark.parametrize("make", [KeyedLocks, Sections])
def test_a_thread_in_line_finds_out_that_its_holder_is_gone(
    make: Any, interrupts: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception is kept, and its traceback with it; a waiter looks after a while."""
    monkeypatch.setattr("perkey.locks.table.PATIENCE", 0.01)
    locks = make()
    with locks("k"):
        pass
    kept = cut_off(locks, "k", interrupts)
    with Crew() as crew:
        crew.start(visit, locks, 60)
    assert isinstance(kept, Interrupted)
    assert locks._table.claims == {}


@pytest.mark.parametrize("make", [KeyedLocks, Sections])
def test_a_holder_that_is_only_slow_is_left_alone(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perkey.locks.table.PATIENCE", 0.001)
    locks = make()
    looks = threading.Semaphore(0)
    look = locks._table.look

    def seen(waiter: Any) -> None:
        look(waiter)
        looks.release()

    locks._table.look = seen
    entered = threading.Event()

    def wait() -> None:
        with locks("k"):
            entered.set()

    with Crew() as crew:
        with locks("k"):
            crew.start(wait)
            for _ in range(3):  # whoever was let in looks no more
                assert looks.acquire(timeout=60)
            assert not entered.is_set()
        crew.join()
        assert entered.is_set()
