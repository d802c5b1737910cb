"""Finding instances: those of every engine on a store, and what a start says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

import perkey
from perkey.engine import AsyncEngine, Context, Engine, InstanceState, process
from perkey.errors import NotFound, UsageError


@process("echo")
async def echo(ctx: Context) -> object:
    return ctx.variables.get("say")


@process("waits")
async def waits(ctx: Context) -> object:
    return await ctx.receive("go")


async def test_instances_of_all_engines_on_a_store() -> None:
    async with (
        await perkey.aopen("memory://") as store,
        AsyncEngine(store) as one,
        AsyncEngine(store) as two,
    ):
        for engine in (one, two):
            await engine.register_process(echo)
            await engine.register_process(waits)
        done = await one.start_latest("echo", variables={"say": 7})
        await done.wait(60)
        held = await one.start_latest("waits")
        seen = await two.look_up(done.id)
        assert (seen.state, seen.result(), seen.variables) == (
            InstanceState.COMPLETED,
            7,
            {"say": 7},
        )
        assert (await two.look_up(held.id)).state is InstanceState.RUNNING
        with pytest.raises(NotFound):
            two.instance(held.id)
        ids = [each.id for each in await two.look_through()]
        assert sorted(ids) == sorted([done.id, held.id])
        assert [each.id for each in await two.look_through(after=ids[0])] == ids[1:]
        assert [each.id for each in await two.look_through(limit=1)] == ids[:1]


@pytest.mark.parametrize("stored", [True, False])
async def test_what_there_is_not(stored: bool) -> None:
    async with (
        await perkey.aopen("memory://") as store,
        AsyncEngine(store if stored else None) as engine,
    ):
        for name in ("nothing", "", "../x", "a\0b", "é" * 30, "x" * 100):
            with pytest.raises(NotFound):
                await engine.look_up(name)
        for limit in (0, 1001):
            with pytest.raises(UsageError, match="from 1 to 1000"):
                await engine.look_through(limit=limit)
        with pytest.raises(UsageError, match="id behind after="):
            await engine.look_through(after="../x")
        assert await engine.look_through(after="nothing") == []


def test_for_threads_and_in_memory() -> None:
    with Engine() as engine:
        engine.register_process(echo)
        made = [engine.start_latest("echo", variables={"say": n}) for n in range(3)]
        found = engine.look_through(limit=2)
        found += engine.look_through(after=found[-1].id)
        assert sorted(each.id for each in found) == sorted(each.id for each in made)
        assert engine.look_up(made[1].id).variables == {"say": 1}


def test_a_start_says_whether_it_began_anything(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with perkey.open(url) as store, Engine(store) as one, Engine(store) as two:
        for engine in (one, two):
            engine.register_process(echo)
        first = one.start_latest("echo", variables={"say": 1}, idempotency_key="k")
        assert not first.replayed
        for engine in (one, two):
            again = engine.start_latest("echo", variables={"say": 2}, idempotency_key="k")
            assert (again.id, again.replayed, again.variables) == (first.id, True, {"say": 1})
        again.variables["say"] = 3
        assert first.variables == {"say": 1}, "a copy"
