"""Several engines on one store: versions, recovery, fencing, ticks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perkey
from perkey.engine import (
    AsyncEngine,
    Handle,
    InstanceState,
    State,
    define,
    every,
    message,
)
from perkey.engine.contexts import Context
from perkey.engine.neighbours import Neighbours
from perkey.store.backends import sqlite
from tests.engine.processes import LEASE_S, LONG, until


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets so many seconds pass on every SQLite store of this process."""
    real, ahead_ms = sqlite.host_ms, 0

    def advance(seconds: float) -> None:
        nonlocal ahead_ms
        ahead_ms += round(seconds * 1000)

    monkeypatch.setattr(sqlite, "host_ms", lambda: real() + ahead_ms)
    return advance


def neighbours(engine: AsyncEngine) -> Neighbours:
    found = engine._runner.neighbours
    assert found is not None
    return found


async def die(engine: AsyncEngine) -> None:
    """What a power cut leaves: no task of the engine ever runs again, nothing is written."""
    neighbours(engine).stop()
    await engine._hub.stop()
    engine._cell.swap(State.STARTED, State.STOPPING)  # its tasks end without a word
    for instance in list(engine._runner._running.values()):
        if instance.task is not None:
            instance.task.cancel()
    await asyncio.sleep(0)


async def take_over(engine: AsyncEngine, pass_time: Callable[[float], None]) -> Handle:
    """What ``engine`` finds left behind when the other's lease, and only that, has run out."""
    pass_time(LEASE_S / 2)
    assert engine._journal is not None
    await engine._journal.renew_lease()
    pass_time(LEASE_S / 2 + 1)
    await neighbours(engine).recover()
    await until(lambda: engine.instances("order"))  # its own look may be about to begin it
    (handle,) = engine.instances("order")
    return handle


async def first_is_stored(engine: AsyncEngine) -> None:
    """No commit of the only instance is under way: one that is might renew the lease later."""

    def stored() -> bool:
        return any("first" in each.results for each in engine._runner._running.values())

    await until(stored)


def work(calls: list[str], gate: asyncio.Event) -> Any:
    async def body(ctx: Context) -> list[Any]:
        first = await ctx.step("first", lambda: calls.append("first") or len(calls))
        if not gate.is_set():
            await gate.wait()
        second = await ctx.step("second", lambda: calls.append("second") or len(calls))
        return [first, second]

    return define("order", body, [message("placed", key="id")])


async def test_another_engine_goes_on_at_the_first_unfinished_step(
    tmp_path: Path, pass_time: Callable[[float], None]
) -> None:
    calls: list[str] = []
    gate = asyncio.Event()
    async with await perkey.aopen(f"sqlite:///{tmp_path}/e.db") as store:
        one, two = AsyncEngine(store, limits=LONG), AsyncEngine(store, limits=LONG)
        for engine in (one, two):
            await engine.register_process(work(calls, gate))
            await engine.run()
        published = await one.publish("placed", {"id": 1})
        await first_is_stored(one)
        await die(one)
        handle = await take_over(two, pass_time)
        gate.set()
        assert await handle.wait(60) is InstanceState.COMPLETED
        assert (handle.id, handle.result(), calls) == (
            published.instance,
            [1, 2],
            ["first", "second"],
        )
        await two.shutdown()


async def test_an_engine_that_lost_its_lease_stores_nothing_more(
    tmp_path: Path, pass_time: Callable[[float], None]
) -> None:
    calls: list[str] = []
    gate = asyncio.Event()
    async with await perkey.aopen(f"sqlite:///{tmp_path}/e.db") as store:
        one, two = AsyncEngine(store, limits=LONG), AsyncEngine(store, limits=LONG)
        for engine in (one, two):
            await engine.register_process(work(calls, gate))
            await engine.run()
        await one.publish("placed", {"id": 1})
        await first_is_stored(one)
        neighbours(one).stop()  # alive, but it no longer renews
        theirs = await take_over(two, pass_time)
        gate.set()
        (ours,) = one.instances("order")
        assert await theirs.wait(60) is InstanceState.COMPLETED
        await ours.wait(60)
        assert ours.state is InstanceState.CANCELLED
        assert theirs.result()[0] == 1
        for engine in (one, two):
            await engine.shutdown()


def test_an_engine_whose_store_is_closed_lets_the_loop_end(
    tmp_path: Path, pass_time: Callable[[float], None]
) -> None:
    """A program that fails without a shutdown ends; its instance goes on elsewhere."""
    calls: list[str] = []
    url = f"sqlite:///{tmp_path}/e.db"

    async def fails() -> None:
        async with await perkey.aopen(url) as store:
            engine = AsyncEngine(store, limits=LONG)
            await engine.register_process(work(calls, asyncio.Event()))
            await engine.run()
            await engine.publish("placed", {"id": 1})
            await first_is_stored(engine)
            raise ArithmeticError("a mistake")

    async def goes_on() -> None:
        async with await perkey.aopen(url) as store:
            engine = AsyncEngine(store, limits=LONG)
            gate = asyncio.Event()
            gate.set()
            await engine.register_process(work(calls, gate))
            await engine.run()
            handle = await take_over(engine, pass_time)
            assert await handle.wait(60) is InstanceState.COMPLETED
            await engine.shutdown()

    with pytest.raises(ArithmeticError):
        asyncio.run(fails())
    asyncio.run(goes_on())
    assert calls == ["first", "second"]


async def test_a_missing_version_fails_that_instance_loudly(
    tmp_path: Path, pass_time: Callable[[float], None]
) -> None:
    calls: list[str] = []
    async with await perkey.aopen(f"sqlite:///{tmp_path}/e.db") as store:
        one, two = AsyncEngine(store, limits=LONG), AsyncEngine(store, limits=LONG)
        await one.register_process(work(calls, asyncio.Event()))
        await two.register_process(define("order", lambda ctx: None, [message("placed", key="id")]))
        for engine in (one, two):
            await engine.run()
        await one.publish("placed", {"id": 1})
        await first_is_stored(one)
        await die(one)
        handle = await take_over(two, pass_time)
        assert await handle.wait(60) is InstanceState.FAILED
        assert "version 1 of 'order'" in handle.error
        await two.shutdown()


async def test_versions_outlive_their_engine(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/e.db"

    async def old(ctx: Context) -> str:
        return "old"

    async def new(ctx: Context) -> str:
        return "new"

    numbers = []
    for bodies in ([old], [old, new], [new], [old, new]):
        async with await perkey.aopen(url) as store:
            engine = AsyncEngine(store)
            given = [await engine.register_process(define("order", body)) for body in bodies]
            numbers.append([each.version for each in given])
            await engine.shutdown()
    assert numbers == [[1], [1, 2], [2], [1, 2]]


async def test_messages_reach_an_instance_of_another_engine(tmp_path: Path) -> None:
    async def body(ctx: Context) -> Any:
        return [await ctx.receive("paid"), await ctx.receive("placed")]

    async with await perkey.aopen(f"sqlite:///{tmp_path}/e.db") as store:
        one, two = AsyncEngine(store, limits=LONG), AsyncEngine(store, limits=LONG)
        for engine in (one, two):
            await engine.register_process(define("order", body, [message("placed", key="id")]))
            await engine.run()
        first = await one.publish("placed", {"id": 1})
        again = await two.publish("placed", {"id": 1, "n": 2}, message_id="m")
        assert (again.outcome, again.instance) == ("delivered", first.instance)
        assert (await one.publish("placed", {"id": 1}, message_id="m")).outcome == "duplicate"
        await two.publish("paid", 5, key="1", ttl=600)
        handle = one.instance(first.instance)
        assert await handle.wait(60) is InstanceState.COMPLETED
        assert handle.result() == [5, {"id": 1, "n": 2}]
        for engine in (one, two):
            await engine.shutdown()


async def test_a_tick_fires_in_one_engine(tmp_path: Path) -> None:
    async def body(ctx: Context) -> Any:
        return ctx.message.payload if ctx.message else None

    async with await perkey.aopen(f"sqlite:///{tmp_path}/e.db") as store:
        engines = [AsyncEngine(store, limits=LONG) for _ in range(3)]
        for engine in engines:
            await engine.register_process(define("tick", body, [every("100ms")]))
            await engine.run()
        await until(lambda: sum(len(engine.instances()) for engine in engines) >= 4)
        for engine in engines:
            await engine.drain(60)
        dues = [each.result() for engine in engines for each in engine.instances()]
        assert len(dues) == len(set(dues)) >= 4
