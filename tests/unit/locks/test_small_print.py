"""What the locks promise in passing: counters, names in errors, groups.  Mutants lived here."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from perkey import errors
from perkey.locks import KeyedLocks, Sections
from perkey.locks.hashing import encode
from perkey.locks.owner import describe, ended, may_be_gone
from tests.unit.manual_clock import ManualClock

MAKES = [Sections, KeyedLocks]
SHARED: list[Any] = [{}, {"shared": True}]


# ------------------------------------------------------------------------------ counters


@pytest.mark.parametrize("options", SHARED)
@pytest.mark.parametrize("make", MAKES)
def test_every_entry_is_counted_once(make: Any, options: Any) -> None:
    locks = make(**options)
    for _ in range(3):
        with locks("k"):
            pass
    with locks.try_acquire("k"):
        pass
    with locks.many(["k"]):
        pass
    assert locks.statistics().acquisitions == 5


@pytest.mark.parametrize("options", SHARED)
@pytest.mark.parametrize("make", MAKES)
async def test_every_entry_of_a_task_is_counted_once(make: Any, options: Any) -> None:
    locks = make(**options)
    for _ in range(3):
        async with locks("k"):
            pass
    with locks.try_acquire("k"):
        pass
    async with locks.many(["k"]):
        pass
    assert locks.statistics().acquisitions == 5
    if make is Sections:
        assert locks.statistics().hottest == ((locks.index("k"), 5),)


@pytest.mark.parametrize("options", SHARED)
@pytest.mark.parametrize("make", MAKES)
async def test_how_long_tasks_waited_is_counted(make: Any, options: Any) -> None:
    clock = ManualClock()
    locks = make(clock=clock, **options)

    async def enters() -> None:
        async with locks("k"):
            pass

    for waits in (5.0, 2.0):
        async with locks("k"):
            waiter = asyncio.ensure_future(enters())
            await asyncio.sleep(0)
            clock.elapsed += waits
        await waiter
    found = locks.statistics()
    assert (found.contended, found.waited_total, found.waited_longest) == (2, 7.0, 5.0)


def test_the_hottest_sections_are_eight_and_those_never_entered_are_none() -> None:
    sections = Sections(16, hash=int)
    for index in range(10):
        for _ in range(index):
            with sections(index):
                pass
    assert sections.statistics().hottest == tuple((index, index) for index in range(9, 1, -1))


# ---------------------------------------------------------------------------- who it was


def test_an_owner_is_named_as_people_know_it() -> None:
    mine, over = threading.Event(), threading.Event()

    def works() -> None:
        mine.set()
        over.wait()

    thread = threading.Thread(target=works, name="a worker")
    thread.start()
    try:
        mine.wait()
        assert describe(threading.get_ident()) == f"thread {threading.current_thread().name!r}"
        assert describe(thread.ident) == "thread 'a worker'"
        assert may_be_gone(threading.main_thread().ident)  # a signal may have ended its block
        assert not may_be_gone(thread.ident)
    finally:
        over.set()
        thread.join()
    assert describe(-1) == "thread -1"
    assert may_be_gone(-1)


async def test_a_task_is_gone_when_it_is_done() -> None:
    task = asyncio.create_task(asyncio.sleep(0), name="brief")
    assert describe(task) == "task 'brief'"
    assert not may_be_gone(task)
    assert not ended(task)
    await task
    assert may_be_gone(task)
    assert ended(task)
    assert not ended(threading.get_ident())


# -------------------------------------------------------------------------------- groups


@pytest.mark.parametrize("profile", ["checked", "lean"])
@pytest.mark.parametrize("make", MAKES)
async def test_a_group_gives_itself_and_is_all_or_nothing(make: Any, profile: str) -> None:
    locks = make(profile=profile)
    group = locks.many(["a", "b"])
    async with group as entered:
        assert entered is group
    keys = list("abcdefgh")
    taken = asyncio.Event()
    leave = asyncio.Event()

    async def holds() -> None:
        async with locks("d"):
            taken.set()
            await leave.wait()

    holder = asyncio.create_task(holds())
    await taken.wait()
    group = locks.many(keys, timeout=0)
    with pytest.raises(errors.Timeout):
        async with group:
            raise AssertionError("one of them is held")
    leave.set()
    await holder
    for key in keys:  # ``group`` is still here, and holds none of them
        guard = locks.try_acquire(key)
        assert guard is not None
        guard.release()


@pytest.mark.parametrize("profile", ["checked", "lean"])
@pytest.mark.parametrize("make", MAKES)
def test_a_group_of_threads_gives_itself(make: Any, profile: str) -> None:
    group = make(profile=profile).many(["a", "b"])
    with group as entered:
        assert entered is group


@pytest.mark.parametrize("bad", ["soon", float("nan")])
def test_a_timeout_that_is_none_is_refused_when_it_is_given(bad: Any) -> None:
    """Not only when somebody is there to wait for."""
    for take in (Sections(), Sections().many, KeyedLocks().many):
        with pytest.raises(errors.UsageError):
            take("k", bad)


# -------------------------------------------------------------------------------- hashes


def test_the_bytes_of_a_number_are_decimal_up_to_1024_bits() -> None:
    """Pinned: another process, or a later version, must find the same section."""
    last, beyond = 2**1024 - 1, 2**1024
    assert encode(last) == b"%d" % last
    assert encode(beyond) == b"%x" % beyond
