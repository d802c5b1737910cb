"""After a fork the child starts with empty locks, and never waits for a thread it lacks."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from perkey.locks import KeyedLocks, Sections
from tests.unit.locks.helpers import Crew, eventually, visit

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

MAKERS = [
    pytest.param(KeyedLocks, id="keyed"),
    pytest.param(lambda: KeyedLocks(profile="lean"), id="keyed-lean"),
    pytest.param(lambda: KeyedLocks(shared=True), id="keyed-shared"),
    pytest.param(lambda: KeyedLocks(capacity=1), id="keyed-capped"),
    pytest.param(Sections, id="sections"),
    pytest.param(lambda: Sections(profile="lean"), id="sections-lean"),
    pytest.param(lambda: Sections(shared=True), id="sections-shared"),
]


@pytest.fixture(autouse=True)
def what_was_there_before_is_left_alone() -> Iterator[None]:
    """Who meets a dead claim asks the collector, and a child would copy all of pytest for it."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def in_child(work: Callable[[], None]) -> int:
    """The exit status of a forked child that runs ``work`` for at most two minutes."""
    child = os.fork()
    if child == 0:
        watchdog = threading.Timer(120, os._exit, [3])
        watchdog.daemon = True
        watchdog.start()
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("make", MAKERS)
def test_a_child_does_not_hang_on_what_another_thread_held(make: Any) -> None:
    locks = make()

    def child() -> None:
        with locks("k", timeout=60):
            pass
        guard = locks.try_acquire("k")
        guard.release()

    with Crew() as crew, crew.holding(locks, "k"):
        crew.start(visit, locks)
        assert in_child(child) == 0


@pytest.mark.parametrize("make", MAKERS)
def test_a_child_forked_inside_a_block_leaves_it_in_peace(make: Any) -> None:
    locks = make()

    def child() -> None:
        with locks("k", timeout=60):
            pass

    read, write = os.pipe()
    with locks("k"):
        status = in_child(child)
        grandchild = os.fork()
        if grandchild == 0:
            os.write(write, b"inside ")
    if grandchild == 0:
        with locks("k", timeout=60):
            os.write(write, b"again")
        os._exit(0)
    os.waitpid(grandchild, 0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"inside again"
    assert status == 0


def test_a_child_forked_in_the_middle_of_the_wait_structure() -> None:
    """The mutex is held by a thread that the child does not have."""
    locks = KeyedLocks()
    with locks._table.mutex:
        assert in_child(lambda: visit(locks, 60)) == 0

        def contend() -> None:
            thread = threading.Thread(target=visit, args=(locks, 60))
            with locks("k"):
                thread.start()
                eventually(lambda: bool(locks._table.queues))
            thread.join(60)
            assert not thread.is_alive()

        assert in_child(contend) == 0


@pytest.mark.parametrize("make", MAKERS)
def test_a_hold_that_was_kept_is_as_good_in_a_child_and_its_child(make: Any) -> None:
    locks = make()
    hold = locks.hold

    def child() -> None:
        for _ in range(2):
            with hold("k", timeout=60):
                pass
        guard = locks.try_acquire("k")
        guard.release()
        assert locks._table.claims == {}

    def child_and_grandchild() -> None:
        child()
        with hold("k"):
            assert in_child(child) == 0
        child()

    with Crew() as crew, crew.holding(locks, "k"):
        assert in_child(child_and_grandchild) == 0
