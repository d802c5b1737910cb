"""Lifecycle and registry, in memory and on stores."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import perkey
from perkey import (
    InvalidState,
    NotFound,
    QueueFull,
    StillRunning,
    UsageError,
)
from perkey.engine.contexts import Context
from perkey.engine.definitions import define, every, message
from perkey.engine.engine import AsyncEngine
from perkey.engine.facts import Fact
from perkey.engine.instances import InstanceState
from perkey.engine.lifecycle import State
from perkey.engine.limits import EngineLimits
from perkey.store.keys import ENGINE
from tests.engine.processes import order, quick, until, waits

# -------------------------------------------------------------------------- lifecycle


async def test_a_whole_life_is_readable_at_every_moment() -> None:
    """From wherever the engine calls out: brokers, bodies and observers; nothing is waited for."""
    seen: list[tuple[str, State]] = []

    class Reads:
        async def open(self, key: str, start: Any) -> None:
            seen.append(("open", engine.state))

        async def close(self, key: str, start: Any) -> None:
            seen.append(("close", engine.state))

    async def body(ctx: Context) -> None:
        seen.append(("body", ctx.engine.state))
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(("cancelled", ctx.engine.state))

    engine = AsyncEngine(broker=Reads())
    await engine.register_process(order(body, message("m")))
    seen.append(("before", engine.state))
    await engine.run()
    await engine.publish("m")
    await until(lambda: seen[-1][0] == "body")
    await engine.pause()
    seen.append(("paused", engine.state))
    await engine.resume()
    seen.append(("resumed", engine.state))
    await engine.shutdown()
    seen.append(("after", engine.state))
    assert sorted(seen[-3:-1]) == [("cancelled", State.STOPPING), ("close", State.STOPPING)]
    assert seen[:-3] + seen[-1:] == [
        ("before", State.NOT_STARTED),
        ("open", State.STARTING),
        ("body", State.STARTED),
        ("paused", State.PAUSED),
        ("resumed", State.STARTED),
        ("after", State.STOPPED),
    ]


async def test_of_many_runs_exactly_one_wins(engine: AsyncEngine) -> None:
    answers = await asyncio.gather(*[engine.run() for _ in range(16)], return_exceptions=True)
    assert answers.count(None) == 1
    refused = [str(each) for each in answers if each is not None]
    assert all(text.startswith("Run: engine already start") for text in refused)


async def test_a_stopped_engine_does_not_run_again(engine: AsyncEngine) -> None:
    await engine.shutdown()
    await engine.shutdown()
    with pytest.raises(InvalidState, match="Run: engine already stopped"):
        await engine.run()


async def test_shutdown_while_starting_is_refused() -> None:
    gate = asyncio.Event()

    class Slow:
        async def open(self, key: str, start: Any) -> None:
            await gate.wait()

        async def close(self, key: str, start: Any) -> None:
            pass

    engine = AsyncEngine(broker=Slow())
    await engine.register_process(order(quick, message("m")))
    running = asyncio.create_task(engine.run())
    await asyncio.sleep(0)
    assert engine.state is State.STARTING
    with pytest.raises(InvalidState, match="engine is starting"):
        await engine.shutdown()
    gate.set()
    await running
    await engine.shutdown()


class Failing:
    """A broker whose ``nth`` open fails."""

    def __init__(self, nth: int) -> None:
        self.left = nth
        self.open_now: list[tuple[str, str]] = []

    async def open(self, key: str, start: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise ConnectionError("the broker is down")
        self.open_now.append((key, start.trigger))

    async def close(self, key: str, start: Any) -> None:
        self.open_now.remove((key, start.trigger))


@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_a_run_that_fails_on_the_way_leaves_nothing_and_can_be_repeated(nth: int) -> None:
    broker = Failing(nth)
    engine = AsyncEngine(broker=broker)
    await engine.register_process(order(quick, message("a"), message("b")))
    await engine.register_process(define("other", quick, [message("c")]))
    with pytest.raises(ConnectionError):
        await engine.run()
    assert (engine.state, broker.open_now) == (State.NOT_STARTED, [])
    await engine.run()
    assert sorted(broker.open_now) == [
        ("order", "message:a"),
        ("order", "message:b"),
        ("other", "message:c"),
    ]
    await engine.shutdown()
    assert broker.open_now == []


async def test_a_hub_that_fails_to_start_rolls_back_and_can_be_run_again(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails() -> None:
        raise ConnectionError("no hub")

    await engine.register_process(order(quick, message("m")))
    with monkeypatch.context() as patched:
        patched.setattr(engine._hub, "start", fails)
        with pytest.raises(ConnectionError):
            await engine.run()
    assert (engine.state, engine._hub.open_triggers()) == (State.NOT_STARTED, [])
    await engine.run()
    assert (await engine.publish("m", 1)).outcome == "started"


@pytest.mark.parametrize("nth", [2, 3])
async def test_a_redeploy_that_fails_leaves_the_old_version_wired(nth: int) -> None:
    broker = Failing(99)
    engine = AsyncEngine(broker=broker)
    await engine.register_process(order(quick, message("a")))
    await engine.run()
    broker.left = nth - 1
    with pytest.raises(ConnectionError):
        await engine.register_process(order(quick, message("a"), message("b"), message("c")))
    assert broker.open_now == [("order", "message:a")]
    assert [each.version for each in engine.registrations("order")] == [1]
    assert (await engine.publish("a")).outcome == "started"
    broker.left = 99
    assert (await engine.register_process(order(quick, message("b")))).version == 3
    await engine.shutdown()


async def test_update_state_moves_only_between_started_and_paused(engine: AsyncEngine) -> None:
    for new in State:
        with pytest.raises(InvalidState):
            engine.update_state(new)
    await engine.run()
    engine.update_state(State.PAUSED)
    engine.update_state(State.STARTED)
    await engine.shutdown()
    with pytest.raises(InvalidState):
        engine.update_state(State.STARTED)


async def test_a_shutdown_names_what_does_not_stop_and_returns_in_time() -> None:
    engine = AsyncEngine()
    done = asyncio.Event()

    async def stubborn(ctx: Context) -> None:
        while not done.is_set():
            try:
                await done.wait()
            except asyncio.CancelledError:
                continue

    await engine.register_process(order(stubborn))
    await engine.run()
    handle = await engine.start_latest("order")
    await asyncio.sleep(0)
    with pytest.raises(StillRunning) as left:
        await engine.shutdown(0.05)
    assert (left.value.ids, engine.state) == ([handle.id], State.STOPPED)
    done.set()


async def test_concurrent_shutdowns_tear_down_once(engine: AsyncEngine) -> None:
    facts: list[Fact] = []
    await engine.register_process(order(waits))
    await engine.run()

    async def note(fact: Fact) -> None:
        facts.append(fact)

    noting = engine.observe(note)
    handles = [await engine.start_latest("order") for _ in range(5)]
    await asyncio.gather(*[engine.shutdown(60) for _ in range(8)])
    assert {handle.state for handle in handles} == {InstanceState.CANCELLED}
    await noting.flush()
    assert [fact.detail for fact in facts if fact.kind == "engine"] == ["stopped"]


async def test_a_process_may_shut_its_engine_down(engine: AsyncEngine) -> None:
    async def last(ctx: Context) -> str:
        await ctx.engine.shutdown(60)
        return "the last word"

    await engine.register_process(order(last))
    await engine.run()
    handle = await engine.start_latest("order")
    await until(lambda: engine.state is State.STOPPED)
    assert handle.state in (InstanceState.COMPLETED, InstanceState.CANCELLED, InstanceState.RUNNING)


async def test_drain_lets_the_running_ones_finish_and_starts_nothing(engine: AsyncEngine) -> None:
    go = asyncio.Event()

    async def body(ctx: Context) -> str:
        await go.wait()
        return "finished"

    await engine.register_process(order(body))
    await engine.run()
    handle = await engine.start_latest("order")
    draining = asyncio.create_task(engine.drain(60))
    await asyncio.sleep(0)
    with pytest.raises(InvalidState, match="draining"):
        await engine.start_latest("order")
    go.set()
    await draining
    assert (engine.state, handle.result()) == (State.STOPPED, "finished")


async def test_pause_holds_back_starts_messages_and_registrations(engine: AsyncEngine) -> None:
    await engine.register_process(order(quick, message("m")))
    await engine.run()
    await engine.pause()
    assert (await engine.publish("m", 1)).outcome == "buffered"
    handle = await engine.start_latest("order", variables={"n": 2})
    await engine.register_process(order(quick, message("m"), message("n")))
    assert (await engine.publish("n", 3)).outcome == "buffered"
    await asyncio.sleep(0.01)
    assert handle.state is InstanceState.PENDING
    await engine.resume()
    results = [await each.wait(60) for each in engine.instances("order")]
    assert results == [InstanceState.COMPLETED] * 3
    found = sorted((each.version, str(each.result())) for each in engine.instances("order"))
    assert found == [(1, "{'n': 2}"), (2, "1"), (2, "3")]


@pytest.mark.parametrize("policy", ["refuse", "drop_oldest"])
async def test_what_a_paused_engine_holds_back_is_bounded(policy: str) -> None:
    engine = AsyncEngine(limits=EngineLimits(buffered=2, when_full=policy))
    await engine.register_process(order(quick, message("m")))
    await engine.run()
    await engine.pause()
    for n in range(2):
        await engine.publish("m", n)
    if policy == "refuse":
        with pytest.raises(QueueFull):
            await engine.publish("m", 2)
    else:
        await engine.publish("m", 2)
    await engine.resume()
    for each in engine.instances():
        await each.wait(60)
    expected = [0, 1] if policy == "refuse" else [1, 2]
    assert [each.result() for each in engine.instances()] == expected
    await engine.shutdown()


# --------------------------------------------------------------------------- registry


async def test_versions_count_and_are_never_given_again(engine: AsyncEngine) -> None:
    first = await engine.register_process(order())
    second = await engine.register_process(order())
    await engine.unregister_version(second)
    third = await engine.register_process(order())
    await engine.unregister_process("order")
    fourth = await engine.register_process(order())
    assert [each.version for each in (first, second, third, fourth)] == [1, 2, 3, 4]
    assert [each.version for each in engine.registrations("order")] == [4]


async def test_the_newest_remaining_version_is_promoted(engine: AsyncEngine) -> None:
    await engine.register_process(order(quick, message("a")))
    second = await engine.register_process(order(quick, message("b")))
    await engine.run()
    assert [each.trigger for each in engine.starters()] == ["message:b"]
    await engine.unregister_version(second)
    assert [each.trigger for each in engine.starters()] == ["message:a"]
    assert (await engine.publish("a")).outcome == "started"
    assert (await engine.publish("b")).outcome == "dropped"


async def test_the_same_content_may_be_deduplicated(engine: AsyncEngine) -> None:
    first = await engine.register_process(order(quick, message("m")))
    assert await engine.register_process(order(quick, message("m")), dedupe=True) == first
    assert (await engine.register_process(order(quick), dedupe=True)).version == 2


async def test_what_is_registered_and_unregistered_is_told(engine: AsyncEngine) -> None:
    facts: list[Fact] = []

    async def note(fact: Fact) -> None:
        facts.append(fact)

    engine.observe(note)
    first = await engine.register_process(order(quick))
    await engine.unregister_version(first)
    await until(lambda: len(facts) == 2)
    assert [(fact.kind, fact.key, fact.version) for fact in facts] == [
        ("registered", "order", 1),
        ("unregistered", "order", 1),
    ]


async def test_a_receipt_is_refused_once_unregistered_or_by_another_engine(
    engine: AsyncEngine,
) -> None:
    receipt = await engine.register_process(order())
    await engine.run()
    await engine.start_process(receipt)
    await engine.unregister_version(receipt)
    with pytest.raises(NotFound):
        await engine.start_process(receipt)
    with pytest.raises(NotFound):
        await engine.unregister_version(receipt)
    other = AsyncEngine()
    with pytest.raises(InvalidState, match="another engine"):
        await other.unregister_version(receipt)


async def test_running_instances_keep_the_version_they_started_with(engine: AsyncEngine) -> None:
    await engine.register_process(order(waits))
    await engine.run()
    old = await engine.start_latest("order")
    await engine.register_process(order(quick))
    new = await engine.start_latest("order")
    assert (old.version, new.version) == (1, 2)
    assert await new.wait(60) is InstanceState.COMPLETED
    assert (await engine.start_version("order", 1)).version == 1
    with pytest.raises(NotFound):
        await engine.start_version("order", 3)
    for number in (0, -1, True, "1"):
        with pytest.raises(UsageError):
            await engine.start_version("order", number)  # type: ignore[arg-type]


async def test_manual_versions_open_no_triggers(engine: AsyncEngine) -> None:
    await engine.run()
    receipt = await engine.register_process(order(quick, message("m")), manual=True)
    assert engine.starters() == []
    assert (await engine.publish("m")).outcome == "dropped"
    assert await (await engine.start_process(receipt)).wait(60) is InstanceState.COMPLETED


@pytest.mark.parametrize("bad", [None, "order", quick, 5])
async def test_a_bad_definition_changes_nothing(engine: AsyncEngine, bad: Any) -> None:
    with pytest.raises(UsageError):
        await engine.register_process(bad)
    assert engine.registrations("order") == []


def test_a_definition_is_checked_where_it_is_made() -> None:
    for call in (
        lambda: define("", quick),
        lambda: define("order", 5),  # type: ignore[arg-type]
        lambda: define("order", quick, ["m"]),  # type: ignore[list-item]
        lambda: define("order", quick, [message("m"), message("m")]),
        lambda: message(""),
        lambda: every("often"),
    ):
        with pytest.raises(UsageError):
            call()


class Stubborn(Failing):
    """A broker that cannot close one trigger."""

    async def close(self, key: str, start: Any) -> None:
        await super().close(key, start)
        if start.trigger == "message:a":
            raise ConnectionError("the broker is down")


async def test_a_trigger_that_cannot_be_closed_keeps_no_other_open() -> None:
    broker = Stubborn(99)
    engine = AsyncEngine(broker=broker)
    await engine.register_process(order(quick, message("a"), every("20ms"), message("b")))
    await engine.run()
    second = await engine.register_process(order(quick, message("c")))
    assert broker.open_now == [("order", "message:c")]
    assert [each.version for each in engine.registrations("order")] == [1, 2]
    assert engine._hub._timers == {}
    await engine.unregister_version(second)
    assert sorted(trigger for _, trigger in broker.open_now) == [
        "every:20",
        "message:a",
        "message:b",
    ]
    await engine.shutdown()
    assert broker.open_now == []
    assert engine.state is State.STOPPED


async def test_a_version_stays_if_what_is_promoted_cannot_be_opened() -> None:
    broker = Failing(99)
    engine = AsyncEngine(broker=broker)
    await engine.register_process(order(quick, message("a")))
    second = await engine.register_process(order(quick, message("b")))
    await engine.run()
    broker.left = 1
    with pytest.raises(ConnectionError):
        await engine.unregister_version(second)
    assert engine.registrations("order")[-1] == second
    assert broker.open_now == [("order", "message:b")]
    await engine.unregister_version(second)
    assert broker.open_now == [("order", "message:a")]
    await engine.shutdown()


async def test_a_publish_that_comes_after_the_shutdown_starts_nothing() -> None:
    """It had passed the door before, and waited for its key's turn."""
    engine = AsyncEngine()
    await engine.register_process(order(quick, message("m", key="id")))
    await engine.run()
    async with engine._dispatch._keys("order\x001"):
        late = asyncio.create_task(engine.publish("m", {"id": 1}))
        await asyncio.sleep(0)
        await engine.shutdown()
    with pytest.raises(InvalidState, match="the engine is stopped"):
        await late
    assert engine.instances() == []


def test_a_digest_is_the_same_wherever_the_code_is_in_memory() -> None:
    """Code without a source, as in ``python -c``, has nested code objects."""
    text = "def body(ctx):\n    return [(lambda n: n * {})(n) for n in range(3)]"

    def digest(factor: int) -> str:
        scope: dict[str, Any] = {}
        exec(text.format(factor), scope)
        return define("order", scope["body"]).digest

    assert digest(2) == digest(2) != digest(3)


@pytest.mark.parametrize("policy", ["refuse", "drop_oldest"])
async def test_the_starts_that_a_paused_engine_holds_back_are_bounded(policy: str) -> None:
    engine = AsyncEngine(limits=EngineLimits(buffered=2, when_full=policy))
    await engine.register_process(order())
    await engine.run()
    await engine.pause()
    handles = [await engine.start_latest("order", variables={"n": n}) for n in range(2)]
    if policy == "refuse":
        with pytest.raises(QueueFull, match="holds back 2 starts"):
            await engine.start_latest("order", variables={"n": 2})
    else:
        handles.append(await engine.start_latest("order", variables={"n": 2}))
        assert handles[0].state is InstanceState.CANCELLED
    await engine.resume()
    ended = [await each.wait(60) for each in handles]
    completed = [each.result()["n"] for each in handles if each.state is InstanceState.COMPLETED]
    assert completed == ([0, 1] if policy == "refuse" else [1, 2])
    assert len(ended) == len(handles)
    assert await (await engine.start_latest("order")).wait(60) is InstanceState.COMPLETED
    await engine.shutdown()


async def test_a_shutdown_returns_in_time_though_its_broker_hangs() -> None:
    class Hangs(Failing):
        async def close(self, key: str, start: Any) -> None:
            await gate.wait()

    gate = asyncio.Event()
    engine = AsyncEngine(broker=Hangs(99))
    await engine.register_process(order(waits, message("m")))
    await engine.run()
    handle = await engine.start_latest("order")
    with pytest.raises(StillRunning, match="broker"):
        await engine.shutdown(0.2)
    assert (engine.state, handle.state) == (State.STOPPED, InstanceState.CANCELLED)
    gate.set()


async def test_a_tick_that_fails_does_not_end_its_timer(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [2]
    original = engine._starts.start

    async def fails(*args: Any, **kwargs: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise ConnectionError("the store is down")
        return await original(*args, **kwargs)

    monkeypatch.setattr(engine._starts, "start", fails)
    facts: list[Fact] = []

    async def note(fact: Fact) -> None:
        facts.append(fact)

    engine.observe(note)
    await engine.register_process(order(quick, every("20ms")))
    await engine.run()
    await until(lambda: engine.instances("order"))
    assert len([each for each in facts if "started nothing" in each.detail]) == 2


async def test_a_handle_is_observed_alone(engine: AsyncEngine) -> None:
    gate = asyncio.Event()

    async def body(ctx: Context) -> None:
        await gate.wait()
        await ctx.step("one", lambda: 1)

    await engine.register_process(order(body))
    await engine.run()
    one, other = [await engine.start_latest("order") for _ in range(2)]
    facts: list[Fact] = []

    async def note(fact: Fact) -> None:
        facts.append(fact)

    seen = one.observe(note)
    gate.set()
    assert [await each.wait(60) for each in (one, other)] == [InstanceState.COMPLETED] * 2
    await seen.flush()
    assert [(each.kind, each.instance) for each in facts] == [("step", one.id), ("ended", one.id)]


async def test_a_shutdown_whose_time_is_up_stops_what_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine stood still, say: its broker is closed and its lease given all the same."""
    monkeypatch.setattr("perkey.engine.engine.LEAST_S", 60.0)
    broker = Failing(99)
    async with await perkey.aopen(f"sqlite:///{tmp_path}/e.db") as store:
        one, two = AsyncEngine(store, broker=broker), AsyncEngine(store)
        await one.register_process(order(quick, message("a")))
        await one.run()
        await one.shutdown(0)
        assert (one.state, broker.open_now) == (State.STOPPED, [])
        await two.run()
        assert two._runner.neighbours is not None
        await two._runner.neighbours.recover()
        assert two._journal is not None
        assert len(await two._journal.scan(f"{ENGINE}e/", 9)) == 1, "the other one's has ended"
        await two.shutdown(60)


async def test_in_memory_a_forgotten_instance_frees_its_idempotency_key() -> None:
    engine = AsyncEngine()
    await engine.register_process(order(quick))
    await engine.run()
    first = await engine.start_latest("order", idempotency_key="k")
    await first.wait(60)
    assert (await engine.start_latest("order", idempotency_key="k")).replayed
    engine.forget([first.id])
    again = await engine.start_latest("order", idempotency_key="k")
    assert (again.replayed, again.id != first.id) == (False, True)
    await engine.shutdown()
