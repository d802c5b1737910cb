"""Starts that were lost, doubled or too early: what other projects reported of their engines."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perkey import InvalidState
from perkey.engine import AsyncEngine, State, define, every
from perkey.engine.definitions import Every, Start
from perkey.engine.deployments import Deployments
from perkey.engine.hub import Hub
from perkey.testing import explore, step
from tests.explore.test_engine import World, check, fresh, publish, redeploy, run, running
from tests.explore.test_locks import LoopClock


class Clock(LoopClock):
    """The loop's virtual time, as a wall clock too."""

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self.monotonic() * 1000)

    def token(self) -> str:
        return "t"


async def closed_first(hub: Hub, key: str, starts: Any) -> bool:
    """A redeploy closes the old version's subscriptions and opens the new one's."""
    await reconcile(hub, key, ())
    return await reconcile(hub, key, starts)


reconcile = Hub.reconcile

# -------------------------------------------------------------- a message during a redeploy


def none_dropped(world: World, ended: Any) -> None:
    assert "dropped" not in ended.results
    assert len(world.bodies) == 1


def test_a_message_during_a_redeploy_starts_one_instance() -> None:
    """As in https://github.com/camunda/camunda/issues/5907."""
    check(running, [publish, redeploy], none_dropped).assert_holds()


def test_closing_before_opening_drops_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hub, "reconcile", closed_first)
    check(running, [publish, redeploy], none_dropped).assert_fails("check")


# ------------------------------------------------------------------ a timer and a redeploy


def ticks_in_a_minute(redeploys: int) -> int:
    """A process that is due once a minute is deployed again, unchanged, while it waits."""
    seen: list[int] = []

    async def main() -> None:
        async def body(ctx: Any) -> None:
            return

        engine = AsyncEngine(clock=Clock())
        await engine.register_process(define("tick", body, [every("60s")]))
        await engine.run()
        for _ in range(redeploys):
            await asyncio.sleep(30)
            await engine.register_process(define("tick", body, [every("60s")]))
        await asyncio.sleep(62 - 30 * redeploys)
        seen.append(len(engine.instances("tick")))
        await engine.shutdown()

    found = explore(main, seconds=20, limit=1, prune="none")
    assert found.failure is None, found
    return seen[0]


def test_deploying_the_same_again_leaves_its_timer_alone() -> None:
    """As in https://github.com/camunda/camunda/issues/6515."""
    assert ticks_in_a_minute(redeploys=0) == ticks_in_a_minute(redeploys=1) == 1


def test_a_timer_that_begins_anew_with_each_deployment_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Every, "next_ms", lambda timer, after: after + timer.ms)
    monkeypatch.setattr(Hub, "reconcile", closed_first)
    assert ticks_in_a_minute(redeploys=1) == 0


# ----------------------------------------------------------------- deleting the latest version


async def outcome_after_deleting_the_latest() -> str:
    world = await running()
    receipt = await redeploy(world)
    await world.engine.unregister_version(receipt)
    outcome = await publish(world)
    await world.engine.shutdown()
    return outcome


async def test_deleting_the_latest_version_promotes_the_one_before() -> None:
    """As in https://github.com/camunda/camunda/issues/9798."""
    assert await outcome_after_deleting_the_latest() == "started"


async def test_without_the_promotion_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unregister(deployments: Any, receipt: Any) -> None:
        deployments._registry.remove_locked(receipt)
        await deployments._hub.reconcile(receipt.key, ())

    monkeypatch.setattr(Deployments, "unregister", unregister)
    assert await outcome_after_deleting_the_latest() != "started"


# ------------------------------------------------------------- the same subscription twice


async def open_after_deploying_twice() -> list[str]:
    world = await running()
    await world.engine.register_process(world.order("m"))
    found = list(world.broker.open_now)
    await world.engine.shutdown()
    return found


async def test_deploying_the_same_again_opens_nothing() -> None:
    """As in https://github.com/camunda/camunda/issues/11308."""
    assert await open_after_deploying_twice() == ["order message:m"]


async def test_opening_without_looking_leaves_two_subscriptions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def always(hub: Hub, key: str, starts: tuple[Start, ...]) -> bool:
        if not hub.accepting:
            return False
        for start in starts:
            await hub._broker.open(key, start)
        hub._open[key] = {start.trigger: start for start in starts}
        return True

    monkeypatch.setattr(Hub, "reconcile", always)
    assert await open_after_deploying_twice() == ["order message:m"] * 2


# -------------------------------------------------------------------------- started twice


def one_ran(world: World, ended: Any) -> None:
    assert sorted(ended.results) == ["ran", "refused"]
    assert world.broker.open_now == ["order message:m"]


def test_of_two_starts_one_runs() -> None:
    """As in https://github.com/bloxbean/yaci-store/issues/862."""
    check(fresh, [run, run], one_ran).assert_holds()


def test_a_flag_that_is_checked_and_then_set_starts_both(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check_then_set(engine: AsyncEngine) -> None:
        if engine.state is not State.NOT_STARTED:
            raise InvalidState
        await step("checked", error=None)
        engine._cell._state = State.STARTING
        await engine._hub.start()
        await engine._deployments.wire_all()
        engine._cell._state = State.STARTED

    monkeypatch.setattr(AsyncEngine, "run", check_then_set)
    check(fresh, [run, run], one_ran).assert_fails("check")
