"""Every interleaving of those who start, stop, deploy to and send to one engine."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from perkey import InvalidState, NotFound
from perkey.engine import AsyncEngine, Registration, State, define, message
from perkey.engine.contexts import Context
from perkey.engine.definitions import Start
from perkey.engine.deployments import Deployments
from perkey.engine.hub import Hub
from perkey.engine.instances import Instance
from perkey.engine.lifecycle import Cell
from perkey.engine.runner import Runner
from perkey.engine.starts import Begun, Starts
from perkey.testing import explore, step
from tests.unit.manual_clock import ManualClock


class Broker:
    """Every open and close is a step of its own; a message comes only through what is open."""

    def __init__(self) -> None:
        self.open_now: list[str] = []

    async def open(self, key: str, start: Start) -> None:
        await step("open")
        self.open_now.append(f"{key} {start.trigger}")

    async def close(self, key: str, start: Start) -> None:
        await step("close", error=None)
        self.open_now.remove(f"{key} {start.trigger}")


class World:
    def __init__(self) -> None:
        self.broker = Broker()
        self.engine = AsyncEngine(broker=self.broker, clock=ManualClock())
        self.bodies: list[Any] = []
        self.refused = 0

    def order(self, *names: str) -> Any:
        async def body(ctx: Context) -> None:
            self.bodies.append(ctx.message and ctx.message.payload)

        return define("order", body, [message(name) for name in names])


async def fresh() -> World:
    world = World()
    await world.engine.register_process(world.order("m"))
    return world


async def running() -> World:
    world = await fresh()
    await world.engine.run()
    return world


async def run(world: World) -> str:
    try:
        await world.engine.run()
    except InvalidState:
        return "refused"
    return "ran"


async def shutdown(world: World) -> str:
    try:
        await world.engine.shutdown()
    except InvalidState:
        return "starting"
    return "stopped"


async def publish(world: World) -> str:
    try:
        return (await world.engine.publish("m", 1)).outcome
    except InvalidState:
        return "refused"


async def redeploy(world: World) -> Registration:
    return await world.engine.register_process(world.order("m", "n"))


async def unregister(world: World) -> str:
    try:
        await world.engine.unregister_version(world.engine.registrations("order")[-1])
    except (NotFound, IndexError):
        return "unknown"
    return "gone"


async def pause_and_resume(world: World) -> str:
    try:
        await world.engine.pause()
        await step("paused", error=None)
        await world.engine.resume()
    except InvalidState:
        return "refused"
    return "resumed"


def triggers_are_those_of_the_latest(world: World) -> None:
    """What is open is what the latest version declares, while the engine is started."""
    expected = []
    if world.engine.state is State.STARTED:
        expected = [f"{each.key} {each.trigger}" for each in world.engine.starters()]
    assert world.broker.open_now == expected, (world.broker.open_now, world.engine.state)


def exactly_one_run(world: World, ended: Any) -> None:
    triggers_are_those_of_the_latest(world)
    assert [each for each in ended.results if each == "ran"] in ([], ["ran"])
    if "stopped" in ended.results:
        assert world.engine.state is State.STOPPED


def check(setup: Any, callers: list[Any], check: Any, **budgets: int) -> Any:
    return explore(setup, callers, check=check, prune="none", seconds=120, **budgets)


def test_run_run_and_shutdown() -> None:
    check(fresh, [run, run, shutdown], exactly_one_run).assert_holds()


def test_a_run_whose_subscription_fails_can_be_repeated() -> None:
    def nothing_left(world: World, ended: Any) -> None:
        triggers_are_those_of_the_latest(world)
        assert world.engine.state in (State.STARTED, State.NOT_STARTED)

    check(fresh, [run, run], nothing_left, failures=1).assert_holds()


async def three_triggers() -> World:
    world = World()
    await world.engine.register_process(world.order("m", "n"))
    await world.engine.register_process(define("other", world.order().body, [message("o")]))
    return world


def test_a_run_whose_kth_subscription_fails_leaves_nothing_for_each_k() -> None:
    def nothing_or_all(world: World, ended: Any) -> None:
        triggers_are_those_of_the_latest(world)
        assert len(world.broker.open_now) in (0, 3)

    held = check(three_triggers, [run], nothing_or_all, failures=1)
    held.assert_holds()
    assert held.schedules == 4  # none fails, or the first, or the second, or the third


def every_message_once(world: World, ended: Any) -> None:
    triggers_are_those_of_the_latest(world)
    started = [each for each in ended.results if each in ("started", "buffered")]
    assert len(world.bodies) == len(started), (world.bodies, ended.results)


def test_a_redeploy_loses_no_message() -> None:
    check(running, [publish, redeploy, publish], every_message_once).assert_holds()


async def two_versions() -> World:
    world = await running()
    await redeploy(world)
    return world


def test_a_redeploy_a_promotion_and_a_publish() -> None:
    check(two_versions, [redeploy, publish, unregister], every_message_once).assert_holds()


def test_register_unregister_and_publish() -> None:
    check(running, [redeploy, unregister, publish], every_message_once).assert_holds()


def test_pause_register_publish_and_resume() -> None:
    check(running, [pause_and_resume, redeploy, publish], every_message_once).assert_holds()


def test_publish_and_shutdown() -> None:
    def nothing_runs(world: World, ended: Any) -> None:
        assert world.engine.state is State.STOPPED
        assert not [each for each in world.engine.instances() if not each.state.ended]

    check(running, [publish, shutdown], nothing_runs).assert_holds()


async def claim_message(world: World, key: str) -> str:
    async def body(ctx: Context) -> None:
        world.bodies.append(key)

    try:
        await world.engine.register_process(define(key, body, [message("shared")]))
    except InvalidState:
        return "refused"
    return "registered"


def test_two_processes_cannot_both_take_one_message() -> None:
    def one_owner(world: World, ended: Any) -> None:
        assert sorted(ended.results) == ["refused", "registered"]
        assert len([each for each in world.broker.open_now if "shared" in each]) == 1
        triggers_are_those_of_the_latest(world)

    async def empty() -> World:
        world = World()
        await world.engine.run()
        return world

    callers = [partial(claim_message, key="a"), partial(claim_message, key="b")]
    check(empty, callers, one_owner).assert_holds()


# ---------------------------------------------------------------------------- mutants


def test_check_then_set_run_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check_then_set(engine: AsyncEngine) -> None:
        if engine.state is not State.NOT_STARTED:
            raise InvalidState
        await step("checked", error=None)
        engine._cell._state = State.STARTING
        await engine._hub.start()
        await engine._deployments.wire_all()
        engine._cell._state = State.STARTED

    monkeypatch.setattr(AsyncEngine, "run", check_then_set)
    check(fresh, [run, run], exactly_one_run).assert_fails()


def test_a_roll_back_by_plain_store_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed run that only stores NOT_STARTED leaves its subscriptions behind."""

    async def roll_back(engine: AsyncEngine) -> None:
        if not engine._cell.swap(State.NOT_STARTED, State.STARTING):
            raise InvalidState
        try:
            await engine._hub.start()
            await engine._deployments.wire_all()
            await step("open")
        except BaseException:
            engine._cell._state = State.NOT_STARTED
            raise
        engine._cell.swap(State.STARTING, State.STARTED)

    monkeypatch.setattr(AsyncEngine, "run", roll_back)
    check(fresh, [run], lambda w, e: triggers_are_those_of_the_latest(w), failures=1).assert_fails()


def test_started_before_the_hub_accepts_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def too_soon(engine: AsyncEngine) -> None:
        if not engine._cell.swap(State.NOT_STARTED, State.STARTING):
            raise InvalidState
        engine._cell.swap(State.STARTING, State.STARTED)
        await step("hub", error=None)
        await engine._hub.start()
        await engine._deployments.wire_all()

    def none_dropped(world: World, ended: Any) -> None:
        assert "dropped" not in ended.results

    check(fresh, [run, publish], none_dropped).assert_holds()
    monkeypatch.setattr(AsyncEngine, "run", too_soon)
    check(fresh, [run, publish], none_dropped).assert_fails("check")


def test_a_run_and_a_redeploy_open_what_the_latest_declares() -> None:
    check(fresh, [run, redeploy], lambda w, e: triggers_are_those_of_the_latest(w)).assert_holds()


def test_a_sweep_that_skips_the_key_lock_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sweep(deployments: Deployments) -> None:
        for key in deployments._registry.keys_locked():
            await deployments._wire(key)

    monkeypatch.setattr(Deployments, "wire_all", sweep)
    check(fresh, [run, redeploy], lambda w, e: triggers_are_those_of_the_latest(w)).assert_fails()


def test_a_subscription_per_version_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing the old version's subscription before opening the new one's drops messages."""
    original = Hub.reconcile

    async def per_version(hub: Hub, key: str, starts: Any) -> bool:
        await original(hub, key, ())
        return await original(hub, key, starts)

    monkeypatch.setattr(Hub, "reconcile", per_version)

    def none_dropped(world: World, ended: Any) -> None:
        assert "dropped" not in ended.results

    check(running, [publish, redeploy], none_dropped).assert_fails("check")


def test_tracking_after_the_launch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shutdown between launch and tracking leaves an instance running."""
    original = Runner._track

    async def start(starts: Starts, version: Any, *args: Any, **kwargs: Any) -> Begun:
        instance = Instance("i", "order", 1, {}, "", None, kwargs.get("trigger"), 0)
        starts._runner.launch(instance, version)
        await step("launched", error=None)
        original(starts._runner, instance)
        return Begun(instance.id, "", instance)

    monkeypatch.setattr(Starts, "start", start)

    def nothing_runs(world: World, ended: Any) -> None:
        assert all(each.state.ended for each in world.engine.instances())

    # The shutdown never ends, and is not followed for long.
    check(running, [publish, shutdown], nothing_runs, max_moves=500).assert_fails("endless")


def test_a_cell_without_compare_and_swap_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(cell: Cell, expected: State, new: State) -> bool:
        cell._state = new
        return True

    monkeypatch.setattr(Cell, "swap", blind)
    check(fresh, [run, run], exactly_one_run).assert_fails()
