"""Every interleaving of two engines on one store: one message is carried by one instance."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from perkey.engine import AsyncEngine, EngineLimits, define, message, segments
from perkey.engine.contexts import Context
from perkey.engine.dispatch import Dispatcher, Published
from perkey.engine.journal import Journal
from perkey.engine.mail import Mail
from perkey.engine.records import Stored, encode, instance_key, parts_of, place, stored_of
from perkey.engine.rounds import Alone, Asked, Together
from perkey.engine.segments import Segment, Segments
from perkey.errors import LeaseLost
from perkey.store.keys import Key
from perkey.testing import explore, step
from tests.explore.stepped import SteppedStore


class World:
    """Two engines with the same process; ``calls`` is what its steps did outside."""

    def __init__(self) -> None:
        self.store = SteppedStore()
        limits = EngineLimits(lease_s=10)
        self.engines = [
            AsyncEngine(self.store, name=name, limits=limits, clock=self.store.clock)
            for name in "ab"
        ]

    def instances(self) -> list[Stored]:
        records = self.store.backend.scan("p/i/", "", 100)
        return [stored for each in records if (stored := stored_of(each.body)) is not None]

    def marks(self) -> list[Key]:
        return [Key(each.key) for each in self.store.backend.scan("p/m/", "", 100)]


async def lives(ctx: Context) -> None:
    await asyncio.Event().wait()


async def collects(ctx: Context) -> list[Any]:
    return [ctx.message and ctx.message.payload, await ctx.receive("paid")]


async def two(body: Any = lives) -> World:
    world = World()
    for engine in world.engines:
        await engine.register_process(define("order", body, [message("placed", key="id")]))
        await engine.run()
        assert engine._runner.neighbours is not None
        engine._runner.neighbours.stop()  # its polling would never end; ``hear`` is called here
    return world


async def publish(world: World, engine: int, n: int, message_id: str | None = None) -> str:
    sent = await world.engines[engine].publish("placed", {"id": 1, "n": n}, message_id=message_id)
    return sent.outcome


async def pay(world: World, engine: int, message_id: str | None = None) -> str:
    paid = world.engines[engine].publish("paid", 5, key="1", ttl=60, message_id=message_id)
    return (await paid).outcome


def check(setup: Any, callers: list[Any], check: Any, **budgets: Any) -> Any:
    """Known states are not searched again: an engine is plain Python, so its state can be seen."""
    return explore(setup, callers, check=check, seconds=120, **budgets)


def carried(world: World) -> list[Any]:
    """Every payload that an instance has, once for each time it has it."""
    found = []
    for stored in world.instances():
        found += [stored.trigger and stored.trigger.payload["n"]]
        found += [each.payload["n"] for each in stored.inbox]
    return sorted(found)


def both_are_carried(world: World, ended: Any) -> None:
    assert sorted(ended.results) == ["delivered", "started"], ended.results
    assert len(world.instances()) == 1
    assert carried(world) == [1, 2]


BOTH = [partial(publish, engine=0, n=1), partial(publish, engine=1, n=2)]


def test_two_engines_that_start_one_key_at_once_lose_no_message() -> None:
    check(two, BOTH, both_are_carried).assert_holds()


def test_a_start_that_ignores_who_was_first_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Dispatcher._begin

    async def ignores(self: Dispatcher, letter: Any, process: str, key: Any) -> Published:
        live = await self._runner.post.live(process, key)
        return await original(self, letter, process, key) or Published("started", live or "")

    monkeypatch.setattr(Dispatcher, "_begin", ignores)
    check(two, BOTH, both_are_carried).assert_fails("check")


def test_one_message_id_at_two_engines_is_carried_once() -> None:
    def once(world: World, ended: Any) -> None:
        assert sorted(ended.results) == ["duplicate", "started"], ended.results
        assert carried(world) == [1]

    callers = [partial(publish, engine=n, n=1, message_id="m") for n in (0, 1)]
    check(two, callers, once).assert_holds()


def paid_once(world: World, ended: Any) -> None:
    """However often it is sent, and whoever was first: letter box or instance."""
    letters = [
        each for each in world.store.backend.scan("p/b/", "", 9) if b"message_id" in each.body
    ]
    kept = sum(len(each.inbox) + len(each.results) for each in world.instances())
    assert len(letters) + kept == 1, (ended.results, letters, world.instances())
    assert ended.results.count("duplicate") == 1


REDELIVERED = [
    partial(pay, engine=0, message_id="p"),
    partial(pay, engine=1, message_id="p"),
]


async def nobody_waits() -> World:
    return await two(collects)


async def one_waits() -> World:
    world = await two(collects)
    await publish(world, 0, 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert world.store.backend.scan("p/b/", "", 1)
    return world


@pytest.mark.parametrize("setup", [nobody_waits, one_waits])
def test_a_redelivery_at_another_engine_is_received_once(setup: Any) -> None:
    check(setup, REDELIVERED, paid_once).assert_holds()


def test_a_redelivery_while_its_instance_starts_is_received_once() -> None:
    callers = [partial(publish, engine=0, n=1), *REDELIVERED]
    check(nobody_waits, callers, paid_once, mode="random", runs=400).assert_nothing_found()


def test_an_offer_that_looks_for_the_mark_before_its_commit_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = Mail.offer

    async def looks_first(self: Mail, name: str, *args: Any) -> tuple[str, str]:
        (address, letter, left_s, mark) = args
        if await self._journal.read(mark_key(mark)) is not None:
            return "duplicate", ""
        return await original(self, name, address, letter, left_s, None)

    def mark_key(mark: Any) -> Key:
        return place("m", *mark)

    monkeypatch.setattr(Mail, "offer", looks_first)
    check(nobody_waits, REDELIVERED, paid_once).assert_fails("check")


async def cancelled_publish(world: World) -> str:
    try:
        return await publish(world, 0, 1)
    except asyncio.CancelledError:
        return "cancelled"


def runs_or_is_not_there(world: World, ended: Any) -> None:
    """An instance in the store that belongs to a living engine runs there."""
    for stored in world.instances():
        owner = next(each for each in world.engines if each.id == stored.owner)
        assert owner._runner.running(stored.id) is not None, ended.results


def test_a_start_whose_caller_goes_away_runs_if_it_was_committed() -> None:
    check(two, [cancelled_publish], runs_or_is_not_there, cancellations=1).assert_holds()


async def slow_replies() -> World:
    """What was committed is answered later: whoever asked may go away in between."""
    world = await two()
    journal = world.engines[0]._journal
    assert journal is not None
    original = journal._rounds.submit

    async def late(*args: Any) -> Any:
        outcome = await original(*args)
        await step("the answer is on its way", error=None)
        return outcome

    journal._rounds.submit = late
    return world


def check_left() -> Any:
    return check(slow_replies, [cancelled_publish], runs_or_is_not_there, cancellations=1)


def test_a_start_that_was_committed_runs_whoever_left_before_the_answer() -> None:
    check_left().assert_holds()


def test_a_start_that_nobody_adopts_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Alone, "leave", lambda self, told: None)
    check_left().assert_fails("check")


def test_a_search_that_knows_states_again_comes_to_all_ends() -> None:
    """With one caller a full search is short enough to compare with."""

    def ends(**options: Any) -> set[Any]:
        def outcome(world: World, ended: Any) -> Any:
            kept = world.store.backend.scan("p/", "", 1_000)
            return (*ended.results, *carried(world), *((each.key, each.version) for each in kept))

        found = check(
            slow_replies, [cancelled_publish], None, outcome=outcome, cancellations=1, **options
        )
        found.assert_holds()
        return set(found.outcomes)

    known = ends()
    assert len(known) > 1
    assert known == ends(prune="none")


async def crowded() -> World:
    """The engine has just answered several at once, so it waits for more to come."""
    world = await two()
    journal = world.engines[0]._journal
    assert journal is not None
    journal._rounds._crowd = True
    return world


async def cancelled_start(world: World) -> str:
    try:
        handle = await world.engines[0].start_latest("order", idempotency_key="k")
    except asyncio.CancelledError:
        return "cancelled"
    return handle.id


def one_runs(world: World, ended: Any) -> None:
    runs_or_is_not_there(world, ended)
    ids = {each.id for each in world.instances()}
    assert len(ids) == 1
    assert set(ended.results) <= {"cancelled", None, *ids}


def check_round(**budgets: Any) -> Any:
    callers = [cancelled_start] * 3
    return check(crowded, callers, one_runs, cancellations=1, mode="random", runs=200, **budgets)


def test_of_starts_that_share_a_transaction_none_is_left_behind() -> None:
    check_round().assert_nothing_found()


def test_starts_of_one_round_that_forget_who_left_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Asked, "leave", lambda self, told: None)
    check_round().assert_fails("check")


def test_starts_of_one_round_that_are_told_another_ones_answer_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = Together.__call__
    monkeypatch.setattr(Together, "__call__", lambda self, tx: original(self, tx)[::-1])
    check_round().assert_fails()


async def expire_and_take_over(world: World) -> str:
    """The other engine finds that the lease of the first has run out."""
    await world.store.pass_time(20)
    engine = world.engines[1]
    assert engine._journal is not None
    assert engine._runner.neighbours is not None
    await engine._journal.take_lease()  # its own ran out too, as time passed for both
    await engine._runner.neighbours.recover()
    return "recovered"


async def one_step(ctx: Context) -> Any:
    return await ctx.step("pay", lambda: ctx.engine.id)


async def about_to_pay() -> World:
    world = await two(one_step)
    await world.engines[0].start_latest("order")
    return world


def one_result_a_step(world: World, ended: Any) -> None:
    """What the step returned is stored by whoever owned the instance then, and only once."""
    (stored,) = world.instances()
    assert stored.state == "completed"
    assert stored.result == stored.results["pay"]
    last = stored.owner
    assert last == world.engines[0].id or "recovered" in ended.results


def test_a_step_has_one_stored_result_whoever_takes_over() -> None:
    check(about_to_pay, [expire_and_take_over], one_result_a_step).assert_holds()


def test_a_step_that_is_stored_whoever_owns_its_instance_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def unowned(self: Journal, instance: Any, name: str, value: Any) -> Any:
        record = instance_key(instance.id)

        def keep(tx: Any) -> Any:
            stored = stored_of(tx.body(record))
            assert stored is not None
            stored.results[name] = value
            tx.put_body(record, encode(stored))
            return value

        return await self.commit([record], keep, fenced=False)

    monkeypatch.setattr(Journal, "keep_step", unowned)
    check(about_to_pay, [expire_and_take_over], one_result_a_step).assert_fails("check")


# ------------------------------------------------------------- what is left when an engine dies


async def ends(ctx: Context) -> None:
    pass


async def ending() -> World:
    return await two(ends)


async def start(world: World) -> str:
    """Tell whether it began: an engine whose lease is over starts nothing."""
    try:
        await world.engines[0].start_latest("order")
    except LeaseLost:
        return "too late"
    return "started"


async def drops(world: World) -> None:
    """What the engine does in passing, at any moment."""
    journal = world.engines[0]._journal
    assert journal is not None
    await step("a look", error=None)
    with suppress(LeaseLost):
        await journal.drop_spent()


def found_if_its_engine_dies(world: World) -> None:
    """Whatever runs is named, alone or by its segment, below the engine that has it."""
    noted = {tuple(parts_of(each.key)) for each in world.store.backend.scan("p/r/", "", 100)}
    for stored in world.instances():
        names = {(stored.owner, each) for each in (stored.id, stored.id.rpartition("-")[0])}
        assert not stored.running or names & noted, (stored.id, noted)


def nothing_is_left_running(world: World, ended: Any) -> None:
    """Where the first engine died, the other one ended what it had begun."""
    found_if_its_engine_dies(world)
    if "recovered" in ended.results:
        lost = [each.id for each in world.instances() if each.running]
        assert lost == [], ended.results


def check_found(callers: list[Any], **budgets: Any) -> Any:
    left, always = nothing_is_left_running, found_if_its_engine_dies
    return check(ending, callers, left, always=always, **budgets)


@pytest.fixture(params=[1, 2])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many instances a segment has."""
    monkeypatch.setattr(segments, "SIZE", request.param)
    return int(request.param)


def test_what_runs_is_always_found_below_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SIZE", 1)
    check_found([start, drops]).assert_holds()


def test_what_an_engine_began_is_ended_by_the_next_one(size: int) -> None:
    callers = [start, start, drops, expire_and_take_over]
    check_found(callers, mode="random", runs=200).assert_nothing_found()


def test_a_segment_that_is_taken_for_noted_before_its_record_is_there_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = Segments.give

    def hopes(self: Segments) -> tuple[str, Segment]:
        name, segment = original(self)
        segment.noted = segment.given > 1
        return name, segment

    monkeypatch.setattr(Segments, "give", hopes)
    check_found([start, start], mode="random").assert_fails("always")


def test_a_segment_that_is_over_before_its_last_end_is_stored_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original, count = Journal.finish, Journal.ended

    def early(self: Journal, instance: Any, *args: Any) -> Any:
        count(self, instance)
        return original(self, instance, *args)

    monkeypatch.setattr(segments, "SIZE", 1)
    monkeypatch.setattr(Journal, "ended", lambda self, instance: None)
    monkeypatch.setattr(Journal, "finish", early)
    check_found([start, drops]).assert_fails("always")
