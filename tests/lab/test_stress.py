"""The ordinary stress test sees errors, hangs and what the judge says, on loops and threads."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from perkey.lab import half_open, stress
from perkey.lab.scenario import Diary, Variant
from perkey.lab.worlds import WEATHER, ThreadLock, Weather, drive, io, new_lock
from perkey.testing import InjectedFailure


class World:
    def __init__(self) -> None:
        self.diary = Diary()
        self.calls = 0


def judge(world: World) -> None:
    assert world.calls == 2, "not all came"


def variant(call: Any, **more: Any) -> Variant:
    return Variant("v", "v", "right", World, (call, call), ("A", "B"), judge, **more)


async def comes(world: World) -> None:
    await io("walk")
    world.calls += 1


async def stays_away(world: World) -> None:
    await io("walk")


async def raises(world: World) -> None:
    await comes(world)
    raise ValueError("broken")


async def hangs(world: World) -> None:
    await comes(world)
    await asyncio.Event().wait()


@pytest.mark.parametrize(("call", "found"), [(comes, 0), (stays_away, 7), (raises, 7)])
def test_what_a_round_does_is_judged_in_all_kinds(call: Any, found: int) -> None:
    assert stress.on_asyncio(variant(call), 7, jitter=False) == found
    assert stress.on_asyncio(variant(call), 7, jitter=True) == found
    assert stress.on_threads(variant(call), 7) == found


def test_an_error_that_is_allowed_is_none() -> None:
    allowed = variant(raises, raises=(ValueError,))
    assert stress.on_asyncio(allowed, 3, jitter=False) == 0
    assert stress.on_threads(allowed, 3) == 0


def test_a_hang_is_seen_without_a_stop_watch() -> None:
    assert stress.on_asyncio(variant(hangs), 3, jitter=False) == 3


def test_no_way_of_the_lab_needs_more_patience_than_there_is() -> None:
    """Else a slow round would pass for a hang: the right ways would be found wrong."""
    for name in ("compare-and-swap", "perkey-engine"):
        assert stress.on_asyncio(half_open.SCENARIO.variant(name), 50, jitter=True) == 0


async def test_saves_fail_in_a_stress_test_and_nowhere_else() -> None:
    async def failures() -> int:
        failed = 0
        for _ in range(200):
            try:
                await io("save", InjectedFailure)
            except InjectedFailure:
                failed += 1
        return failed

    assert await failures() == 0
    WEATHER.set(Weather(jitter=False))
    assert 30 < await failures() < 90


def test_weather_is_decided_by_its_seed() -> None:
    one, other = Weather(jitter=True), Weather(jitter=True)
    assert [one.turns() for _ in range(50)] == [other.turns() for _ in range(50)]
    assert {one.turns() for _ in range(100)} == {0, 1, 2, 3}
    assert Weather(jitter=False).turns() == 0


def test_the_lock_is_that_of_the_world() -> None:
    assert isinstance(new_lock(), ThreadLock)

    async def on_a_loop() -> None:
        assert isinstance(new_lock(), asyncio.Lock)

    asyncio.run(on_a_loop())


def test_a_thread_lock_keeps_threads_apart() -> None:
    lock, inside, most = ThreadLock(), 0, 0

    async def work() -> None:
        nonlocal inside, most
        async with lock:
            assert lock.locked()
            inside += 1
            most = max(most, inside)
            await io("walk")
            inside -= 1

    threads = [threading.Thread(target=lambda: drive(work())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert not lock.locked()


def test_a_coroutine_that_waits_cannot_be_driven_on_a_thread() -> None:
    class Suspends:
        def __await__(self) -> Any:
            yield

    async def waits() -> None:
        await Suspends()

    with pytest.raises(RuntimeError, match="never waits"):
        drive(waits())
