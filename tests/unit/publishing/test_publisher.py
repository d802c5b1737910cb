"""``Publisher`` and ``AsyncPublisher``: what is sent, recorded, shared and skipped."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from perkey import AsyncPublisher, NestedSection, Publisher, Sections, Timeout, UsageError
from tests.unit.locks.helpers import Crew, eventually


class World:
    """States that change, and what was sent and recorded, in order."""

    def __init__(self) -> None:
        self.states: dict[str, Any] = {"a": 1, "b": 1}
        self.sent: list[tuple[str, Any]] = []
        self.recorded: list[tuple[str, Any]] = []
        self.loads = 0
        self.fail: set[str] = set()

    def load(self, key: str) -> Any:
        self.loads += 1
        return self.states[key]

    def send(self, key: str, value: Any) -> None:
        if key in self.fail:
            raise ConnectionError(key)
        self.sent.append((key, value))

    def record(self, key: str, value: Any) -> None:
        self.recorded.append((key, value))


@pytest.fixture
def world() -> World:
    return World()


class AsWell:
    """The asyncio publisher, called as if it were the other."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.publisher = AsyncPublisher(*args, **options)
        self.forget = self.publisher.forget
        self.statistics = self.publisher.statistics

    def publish(self, key: Any) -> Any:
        return asyncio.run(self.publisher.publish(key))

    def sweep(self, keys: Any) -> Any:
        return asyncio.run(self.publisher.sweep(keys))


both = pytest.mark.parametrize("make", [Publisher, AsWell])


@both
def test_it_sends_what_changed_and_records_after_the_send(make: Any, world: World) -> None:
    publisher = make(world.load, world.send, record=world.record)
    assert publisher.publish("a") == "sent"
    assert publisher.publish("a") == "unchanged"
    world.states["a"] = 2
    assert publisher.publish("a") == "sent"
    assert world.sent == [("a", 1), ("a", 2)] == world.recorded
    counts = publisher.statistics()
    assert (counts["sent"], counts["unchanged"], counts["remembered"]) == (2, 1, 1)


@both
def test_changed_decides(make: Any, world: World) -> None:
    publisher = make(world.load, world.send, changed=lambda last, new: new >= last + 10)
    for state in [1, 5, 11, 20, 21]:
        world.states["a"] = state
        publisher.publish("a")
    assert [value for _, value in world.sent] == [1, 11, 21]


@both
def test_a_failed_send_is_not_recorded_and_the_next_pass_sends_again(
    make: Any, world: World
) -> None:
    publisher = make(world.load, world.send, record=world.record)
    world.fail.add("a")
    with pytest.raises(ConnectionError):
        publisher.publish("a")
    assert world.recorded == []
    world.fail.clear()
    assert publisher.sweep(["a"]).sent == 1
    assert world.sent == [("a", 1)]


@both
def test_a_send_of_unknown_fate_is_repaired_even_when_the_state_goes_back(
    make: Any, world: World
) -> None:
    """1 was sent; 2 went out and failed late; the state is 1 again.  Listeners may show 2."""
    publisher = make(world.load, lambda key, value: late(world, key, value))
    publisher.publish("a")
    world.states["a"] = 2
    with pytest.raises(ConnectionError):
        publisher.publish("a")
    world.states["a"] = 1
    assert publisher.publish("a") == "sent"
    assert [value for _, value in world.sent] == [1, 2, 1]


def late(world: World, key: str, value: Any) -> None:
    world.send(key, value)
    if value == 2:
        raise ConnectionError("delivered, but the reply was lost")


@both
def test_one_failing_key_does_not_stop_a_sweep(make: Any, world: World) -> None:
    publisher = make(world.load, world.send)
    world.fail.add("a")
    swept = publisher.sweep(["a", "missing", "b"])
    assert (swept.sent, swept.unchanged, swept.skipped) == (1, 0, 0)
    assert {key: type(error) for key, error in swept.failed.items()} == {
        "a": ConnectionError,
        "missing": KeyError,
    }
    assert world.sent == [("b", 1)]
    assert publisher.statistics()["failed"] == 2
    assert publisher.sweep(["b"]).unchanged == 1


@both
def test_forget_sends_again(make: Any, world: World) -> None:
    publisher = make(world.load, world.send)
    publisher.publish("a")
    publisher.forget("a")
    assert publisher.publish("a") == "sent"


@both
def test_what_is_remembered_is_bounded(make: Any, world: World) -> None:
    publisher = make(lambda key: 0, world.send, remember=10)
    for key in range(100):
        publisher.publish(key)
    assert publisher.statistics()["remembered"] == 10
    assert publisher.publish(99) == "unchanged"
    assert publisher.publish(0) == "sent"
    with pytest.raises(UsageError):
        make(world.load, world.send, remember=0)


@both
def test_publishing_from_within_a_send_is_refused(make: Any, world: World) -> None:
    """A callback that publishes another key would wait inside a section for a section."""
    publisher: Any = None

    def send(key: str, value: Any) -> Any:
        if key == "a":
            return publisher.publisher.publish("b") if make is AsWell else publisher.publish("b")
        return None

    publisher = make(world.load, send)
    with pytest.raises(NestedSection, match="'b'"):
        publisher.publish("a")


def test_a_sweep_skips_a_held_section_and_publish_waits(world: World) -> None:
    sections = Sections()
    publisher = Publisher(world.load, world.send, sections=sections)
    with Crew() as crew, crew.holding(sections, "a"):
        swept = publisher.sweep(["a", "b"]) if apart(sections) else publisher.sweep(["a"])
        assert swept.skipped == 1
        assert publisher.statistics()["skipped"] == 1
        crew.start(publisher.publish, "a")
        eventually(lambda: sections.statistics().skipped == 1 and bool(sections._table.queues))
        assert ("a", 1) not in world.sent
    assert ("a", 1) in world.sent


def apart(sections: Sections) -> bool:
    return sections.index("a") != sections.index("b")


def test_calls_that_wait_for_one_key_share_a_pass(world: World) -> None:
    sections = Sections()
    publisher = Publisher(world.load, world.send, sections=sections)
    results: list[str] = []
    with Crew() as crew, crew.holding(sections, "a"):
        for _ in range(5):
            crew.start(lambda: results.append(publisher.publish("a")))
        eventually(lambda: sum(map(len, sections._table.queues.values())) == 5)
        world.states["a"] = 7
    assert results == ["sent"] * 5
    assert world.sent == [("a", 7)]
    assert world.loads == 1
    assert publisher.statistics()["shared"] == 4
    assert len(publisher._groups) == 0


async def test_a_call_that_comes_during_a_load_is_not_served_by_it(world: World) -> None:
    gate, loading = asyncio.Event(), asyncio.Event()

    async def load(key: str) -> Any:
        value = world.load(key)
        loading.set()
        await gate.wait()
        return value

    publisher = AsyncPublisher(load, world.send)
    first = asyncio.create_task(publisher.publish("a"))
    await loading.wait()
    world.states["a"] = 2
    second = asyncio.create_task(publisher.publish("a"))
    await asyncio.sleep(0)
    gate.set()
    assert await first == await second == "sent"
    assert world.sent == [("a", 1), ("a", 2)]


async def test_when_the_first_fails_the_others_run_themselves(world: World) -> None:
    attempts = 0

    async def send(key: str, value: Any) -> None:
        nonlocal attempts
        attempts += 1
        await asyncio.sleep(0)
        if attempts == 1:
            raise ConnectionError
        world.send(key, value)

    sections = Sections()
    publisher = AsyncPublisher(world.load, send, sections=sections)
    async with sections("a"):
        tasks = [asyncio.create_task(publisher.publish("a")) for _ in range(3)]
        await asyncio.sleep(0)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [ConnectionError, str, str]
    assert attempts == 2
    assert world.sent == [("a", 1)]


async def test_a_cancelled_caller_leaves_the_others_their_pass(world: World) -> None:
    sections = Sections()
    publisher = AsyncPublisher(world.load, world.send, sections=sections)
    async with sections("a"):
        tasks = [asyncio.create_task(publisher.publish("a")) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.wait([tasks[0]])
    assert await asyncio.gather(*tasks[1:]) == ["sent", "sent"]
    assert len(publisher._groups) == 0


async def test_an_async_send_is_cancelled_when_its_time_is_up(world: World) -> None:
    async def send(key: str, value: Any) -> None:
        if key == "a":
            await asyncio.sleep(60)
        world.send(key, value)

    publisher = AsyncPublisher(world.load, send, send_timeout=0.01)
    with pytest.raises(Timeout, match="'a'"):
        await publisher.publish("a")
    swept = await publisher.sweep(["a", "b"])
    assert list(swept.failed) == ["a"]
    assert world.sent == [("b", 1)]
    assert publisher.statistics()["timeouts"] == 2


async def test_a_send_that_raises_timeout_itself_is_passed_on_unchanged(world: World) -> None:
    async def send(key: str, value: Any) -> None:
        raise TimeoutError("theirs")

    publisher = AsyncPublisher(world.load, send, send_timeout=60)
    with pytest.raises(TimeoutError, match="theirs") as caught:
        await publisher.publish("a")
    assert not isinstance(caught.value, Timeout)


def test_a_blocking_send_that_is_late_is_never_overtaken_by_a_newer_one(world: World) -> None:
    release = threading.Event()

    def send(key: str, value: Any) -> None:
        if value == 1:
            assert release.wait(60)
        world.send(key, value)

    publisher = Publisher(world.load, send, send_timeout=0.02)
    with pytest.raises(Timeout, match="longer than"):
        publisher.publish("a")
    world.states["a"] = 2
    with pytest.raises(Timeout, match="earlier send"):
        publisher.publish("a")
    release.set()
    eventually(lambda: world.sent == [("a", 1)])
    publisher._timeout = 60.0
    assert publisher.publish("a") == "sent"
    assert world.sent == [("a", 1), ("a", 2)]


def test_a_blocking_send_with_a_timeout_passes_results_and_errors_on(world: World) -> None:
    publisher = Publisher(world.load, world.send, send_timeout=30)
    assert publisher.publish("a") == "sent"
    world.fail.add("b")
    with pytest.raises(ConnectionError):
        publisher.publish("b")


def test_an_async_function_is_refused_by_the_blocking_publisher(world: World) -> None:
    async def send(key: str, value: Any) -> None: ...

    for timeout in (None, 30):
        with pytest.raises(UsageError, match="AsyncPublisher"):
            Publisher(world.load, send, send_timeout=timeout).publish("a")


def test_run_sweeps_until_stopped_and_survives_failures(world: World) -> None:
    publisher = Publisher(world.load, world.send)
    asked = 0

    def keys() -> list[str]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise LookupError("no list of keys yet")
        return ["a", "missing"]

    with Crew() as crew:
        crew.start(publisher.run, 0.001, keys)
        eventually(lambda: ("a", 1) in world.sent)
        world.states["a"] = 2
        eventually(lambda: ("a", 2) in world.sent)
        publisher.stop()
    assert publisher.statistics()["failed"] > 1


async def test_run_on_a_loop_stops_at_once(world: World) -> None:
    publisher = AsyncPublisher(world.load, world.send)
    running = asyncio.create_task(publisher.run(3600, ["a", "b"]))
    while len(world.sent) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)
    publisher.stop()
    await asyncio.wait_for(running, 60)
    assert sorted(world.sent) == [("a", 1), ("b", 1)]


# ----------------------------------------------------------------------- what a send may do


class Unheard(BaseException):
    """Not an ``Exception``: what ends threads and tasks."""


@both
@pytest.mark.parametrize("timeout", [None, 30])
def test_whatever_a_send_raises_frees_the_section(make: Any, world: World, timeout: Any) -> None:
    def send(key: str, value: Any) -> None:
        if value == 1:
            raise Unheard
        world.send(key, value)

    sections = Sections()
    publisher = make(world.load, send, sections=sections, send_timeout=timeout, record=world.record)
    with pytest.raises(Unheard):
        publisher.publish("a")
    assert sections._table.claims == {}
    assert world.recorded == []
    world.states["a"] = 2
    assert publisher.sweep(["a"]).sent == 1


@both
@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "5"], ids=repr)
def test_a_send_timeout_that_is_none_is_refused_at_once(
    make: Any, world: World, timeout: Any
) -> None:
    with pytest.raises(UsageError):
        make(world.load, world.send, send_timeout=timeout)
    assert make(world.load, world.send, send_timeout=float("inf")).publish("a") == "sent"


def test_threads_of_late_sends_are_not_kept_for_ever(world: World) -> None:
    release = threading.Event()

    def send(key: str, value: Any) -> None:
        assert release.wait(60)

    publisher = Publisher(lambda key: key, send, send_timeout=0.02)
    for key in "ab":
        with pytest.raises(Timeout):
            publisher.publish(key)
    assert sorted(publisher._late) == ["a", "b"]
    late = list(publisher._late.values())
    release.set()
    for thread in late:
        thread.join(60)
    release.clear()
    with pytest.raises(Timeout):
        publisher.publish("c")
    assert list(publisher._late) == ["c"]
    release.set()
