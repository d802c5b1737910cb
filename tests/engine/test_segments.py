"""One record for many instances of an engine: who looks after a dead engine finds what ran."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import perkey
from perkey import LeaseLost, OutcomeUnknown, StoreUnavailable
from perkey.engine import (
    AsyncEngine,
    EngineLimits,
    Handle,
    InstanceState,
    message,
    neighbours,
    segments,
)
from perkey.engine.contexts import Context
from perkey.engine.journal import Journal
from perkey.engine.neighbours import Neighbours
from perkey.engine.records import encode, freeze, instance_key, parts_of, place
from perkey.engine.segments import SIZE, Segments, instances_of
from perkey.flows.steps import Read, Transact
from perkey.store.fencing import LeaseState, lease_body
from perkey.store.keys import ENGINE
from perkey.stores import AsyncStore
from perkey.testing import VirtualClock
from tests.engine.processes import order, quick, until, waits

LONG = EngineLimits(lease_s=1e6)


def parts(engine: AsyncEngine) -> tuple[Journal, Neighbours]:
    journal, looks = engine._journal, engine._runner.neighbours
    assert journal is not None
    assert looks is not None
    return journal, looks


async def started(store: AsyncStore, body: Any = quick, *starts: Any) -> AsyncEngine:
    engine = AsyncEngine(store, limits=LONG)
    await engine.register_process(order(body, *starts))
    await engine.run()
    parts(engine)[1].stop()  # it looks round when the test says so
    return engine


async def noted(engine: AsyncEngine) -> list[str]:
    """The keys below ``r``, without that of what they are of."""
    found = await parts(engine)[0].scan(f"{ENGINE}r/", 500)
    return [parts_of(each.key)[1] for each in found]


async def many(engine: AsyncEngine, count: int) -> list[Handle]:
    handles = [await engine.start_latest("order") for _ in range(count)]
    for handle in handles:
        assert await handle.wait(60) is InstanceState.COMPLETED
    return handles


def segment_of(handle: Handle) -> str:
    return handle.id.rpartition("-")[0]


# ------------------------------------------------------------------------- what is written


def test_ids_of_a_segment_lie_side_by_side() -> None:
    given = Segments(VirtualClock(), place("r", "engine"))
    ids = [given.give()[0] for _ in range(3 * SIZE)]
    assert len(set(ids)) == 3 * SIZE
    for first in range(0, 3 * SIZE, SIZE):
        name = ids[first].rpartition("-")[0]
        prefix = instances_of(name)
        under = [each for each in ids if instance_key(each).startswith(prefix)]
        assert under == ids[first : first + SIZE] == sorted(under)


def test_a_segment_is_over_when_all_that_it_gave_have_ended() -> None:
    given = Segments(VirtualClock(), place("r", "engine"))
    segments = [given.give()[1] for _ in range(SIZE)]
    assert len(set(map(id, segments))) == 1
    segments[0].noted = True
    for each in segments[1:]:
        given.ended(each)
    assert given.spent == []
    given.ended(segments[0])
    assert given.spent == [segments[0].record]
    given.close()
    assert given.spent == [segments[0].record]


def test_a_segment_without_a_record_needs_no_end() -> None:
    given = Segments(VirtualClock(), place("r", "engine"))
    for _ in range(SIZE):
        given.ended(given.give()[1])
    assert given.spent == []


def test_a_closed_segment_gives_nothing_more() -> None:
    given = Segments(VirtualClock(), place("r", "engine"))
    first = given.give()[1]
    first.noted = True
    given.close()
    assert given.spent == []
    given.ended(first)
    assert given.spent == [first.record]
    assert given.give()[1] is not first


async def test_a_segment_costs_one_record_which_goes_when_it_is_over() -> None:
    async with await perkey.aopen("memory://") as store:
        engine = await started(store)
        handles = await many(engine, 2 * SIZE + 1)
        names = list(dict.fromkeys(map(segment_of, handles)))
        assert len(names) == 3
        assert sorted(await noted(engine)) == sorted(names)
        await parts(engine)[0].drop_spent()
        assert await noted(engine) == names[2:]
        await engine.shutdown(60)
        engine = await started(store)
        assert await noted(engine) == []  # a shutdown leaves no segment that is over
        await engine.shutdown(60)


async def test_one_that_runs_keeps_its_segment() -> None:
    gate = asyncio.Event()

    async def body(ctx: Context) -> None:
        if ctx.variables:
            await gate.wait()

    async with await perkey.aopen("memory://") as store:
        engine = await started(store, body)
        running = await engine.start_latest("order", variables={"wait": 1})
        await many(engine, SIZE)
        await parts(engine)[0].drop_spent()
        assert segment_of(running) in await noted(engine)
        gate.set()
        await running.wait(60)
        await parts(engine)[0].drop_spent()
        assert segment_of(running) not in await noted(engine)
        await engine.shutdown(60)


async def test_a_start_that_came_to_nothing_keeps_no_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segments, "SIZE", 4)
    async with await perkey.aopen("memory://") as store:
        engine = await started(store, quick, message("placed"))
        journal = parts(engine)[0]
        sent = [await engine.publish("placed", 1, message_id="m") for _ in range(3)]
        assert [each.outcome for each in sent] == ["started", "duplicate", "duplicate"]
        await engine.instance(sent[0].instance).wait(60)

        async def fails(*args: Any) -> Any:
            raise StoreUnavailable("not now")

        with monkeypatch.context() as broken:
            broken.setattr(journal, "start", fails)
            with pytest.raises(StoreUnavailable):
                await engine.start_latest("order")
        assert len(journal.segments.spent) == 1
        await journal.drop_spent()
        assert await noted(engine) == []
        await engine.shutdown(60)


async def test_segments_are_dropped_in_passing() -> None:
    async with await perkey.aopen("memory://") as store:
        engine = AsyncEngine(store, limits=LONG)
        await engine.register_process(order(quick))
        await engine.run()
        await many(engine, SIZE)
        journal = parts(engine)[0]
        await until(lambda: not journal.segments.spent)
        assert await noted(engine) == []
        await engine.shutdown(60)


async def test_a_drop_that_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with await perkey.aopen("memory://") as store:
        engine = await started(store)
        await many(engine, SIZE)
        journal = parts(engine)[0]

        async def fails(*args: Any) -> Any:
            raise OutcomeUnknown("who knows")

        with monkeypatch.context() as broken:
            broken.setattr(journal, "commit", fails)
            with pytest.raises(OutcomeUnknown):
                await journal.drop_spent()
        assert len(await noted(engine)) == 1
        await journal.drop_spent()
        assert await noted(engine) == []
        await engine.shutdown(60)


# ----------------------------------------------------------------------- after an engine died


async def die(engine: AsyncEngine) -> None:
    """It is not heard of again, and its tasks write nothing."""
    journal = parts(engine)[0]
    await engine._hub.stop()
    journal._fence = None
    for instance in list(engine._runner._running.values()):
        if instance.task is not None:
            instance.task.cancel()
    await asyncio.sleep(0)


async def test_of_a_dead_engines_segments_what_runs_is_taken_over_and_the_rest_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segments, "SIZE", 3)
    gate = asyncio.Event()

    async def body(ctx: Context) -> Any:
        if ctx.variables.get("n", 0) % 2:
            await gate.wait()
        return ctx.variables

    clock = VirtualClock()
    async with await perkey.aopen("memory://", clock=clock) as store:
        one = await started(store, body)
        handles = [await one.start_latest("order", variables={"n": n}) for n in range(8)]
        for handle in handles[::2]:
            await handle.wait(60)
        running = {each.id for each in handles[1::2]}
        await die(one)
        clock.advance(LONG.lease_s + 1)
        two = await started(store, body)
        looks = parts(two)[1]
        await looks.recover()
        assert {each.id for each in two.instances()} == running
        assert len(await noted(two)) == 3 + len(running)
        for _ in range(2):  # what is over, then the engine itself
            await looks.recover()
        assert sorted(await noted(two)) == sorted(running)
        (lease,) = await parts(two)[0].scan(f"{ENGINE}e/", 9)
        assert parts_of(lease.key) == [two.id]
        gate.set()
        for handle in two.instances():
            assert await handle.wait(60) is InstanceState.COMPLETED
        assert await noted(two) == []
        await two.shutdown(60)


async def test_a_long_segment_is_looked_through_to_its_end(tmp_path: Path) -> None:
    """The one that runs is the last of so many, and each page is shorter than that."""
    clock = VirtualClock()
    async with await perkey.aopen("memory://", clock=clock) as store:
        one = await started(store, quick)
        await many(one, SIZE - 1)
        await one.register_process(order(waits))
        last = await one.start_latest("order")
        await die(one)
        clock.advance(LONG.lease_s + 1)
        two = await started(store, waits)
        await parts(two)[1].recover()
        assert [each.id for each in two.instances()] == [last.id]
        await two.shutdown(60)


async def test_only_so_many_orphans_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SIZE", 3)
    clock = VirtualClock()
    async with await perkey.aopen("memory://", clock=clock) as store:
        one = await started(store, waits)
        ids = [(await one.start_latest("order")).id for _ in range(7)]
        await die(one)
        clock.advance(LONG.lease_s + 1)
        two = await started(store, waits)
        journal = parts(two)[0]
        assert await journal.orphans(4) == [(one.id, each) for each in ids[:4]]
        assert await journal.orphans(99) == [(one.id, each) for each in ids]
        await two.shutdown(60)


async def test_more_orphans_than_one_look_takes_do_not_wait_for_the_next_term(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(neighbours, "RECOVER", 2)
    clock = VirtualClock()
    async with await perkey.aopen("memory://", clock=clock) as store:
        one = await started(store, waits)
        ids = {(await one.start_latest("order")).id for _ in range(7)}
        await die(one)
        clock.advance(LONG.lease_s + 1)
        two = AsyncEngine(store, limits=LONG)  # its looks are days apart
        await two.register_process(order(waits))
        await two.run()
        await until(lambda: {each.id for each in two.instances()} == ids)
        await two.shutdown(60)


async def test_an_engine_that_lives_after_all_keeps_its_segments() -> None:
    clock = VirtualClock()
    async with await perkey.aopen("memory://", clock=clock) as store:
        one = await started(store)
        await many(one, 1)
        two = await started(store)
        journal = parts(two)[0]
        (name,) = await noted(one)
        await journal._bury(one.id, [place("r", one.id, name)])
        assert await noted(one) == [name]
        clock.advance(LONG.lease_s + 1)
        with pytest.raises(LeaseLost):
            await journal._bury(one.id, [place("r", one.id, name)])
        await journal.take_lease()
        await journal._bury(one.id, [place("r", one.id, name)])
        assert await noted(two) == []
        await two.shutdown(60)
        await one.shutdown(60)


async def test_a_start_that_lands_later_is_found_after_its_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its reply was lost, a look did not find it, and then it landed all the same."""
    monkeypatch.setattr(segments, "SIZE", 2)
    clock = VirtualClock()
    async with await perkey.aopen("memory://", clock=clock) as store:
        one = await started(store)
        journal = parts(one)[0]
        original, late = journal.start, []

        async def lost(*args: Any) -> Any:
            late.append(args)
            raise OutcomeUnknown("its reply was lost")

        with monkeypatch.context() as broken:
            broken.setattr(journal, "start", lost)
            with pytest.raises(OutcomeUnknown):
                await one.start_latest("order")
        await until(lambda: not one._starts._asides)
        await many(one, 1)
        await journal.drop_spent()
        await original(*late[0])
        await die(one)
        clock.advance(LONG.lease_s + 1)
        two = await started(store)
        await parts(two)[1].recover()
        (handle,) = two.instances()
        assert handle.id == late[0][0].id
        assert await handle.wait(60) is InstanceState.COMPLETED
        await two.shutdown(60)


async def landed_and_found(monkeypatch: pytest.MonkeyPatch) -> tuple[bool, bool]:
    """A start that was decided under its engine's lease arrives when another engine has just
    looked through its segment: whether it lands, and whether it is found then."""
    clock = VirtualClock()
    async with await perkey.aopen("memory://", clock=clock) as store:
        one = await started(store)
        await many(one, 1)
        late: list[Any] = []

        async def lost(*args: Any) -> Any:
            late.extend(args)
            raise OutcomeUnknown("it is on its way")

        with monkeypatch.context() as broken:
            broken.setattr(parts(one)[0], "start", lost)
            with pytest.raises(OutcomeUnknown):
                await one.start_latest("order")
        await until(lambda: not one._starts._asides)
        instance, receipt = late[:2]
        record, lease = instance_key(instance.id), place("e", one.id)
        decided = (await store.run_step(Read([lease])))[0]
        stored = encode(freeze(instance, receipt.digest, one.id))

        def arrive(tx: Any) -> bool:
            if tx.record(lease) != decided:
                return False
            tx.put_body(record, stored)
            return True

        await die(one)
        clock.advance(LONG.lease_s + 1)
        two = await started(store)
        journal, looks = parts(two)
        look, arrived = journal._unended, []

        async def looked(segment: str, holder: str) -> list[str]:
            found = await look(segment, holder)
            if not arrived:
                outcome = await store.run_step(Transact(tuple(sorted((record, lease))), arrive))
                arrived.append(outcome.result)
            return found

        monkeypatch.setattr(journal, "_unended", looked)
        for _ in range(3):
            await looks.recover()
        found = [each.id for each in two.instances()]
        await two.shutdown(60)
        return arrived == [True], instance.id in found


async def test_what_an_engine_decided_in_time_does_not_land_where_nobody_looks_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bug: its lease had run out, its segment was empty and was dropped, and then it began."""
    assert await landed_and_found(monkeypatch) == (False, False)

    async def careless(self: Journal, holder: str) -> bool:
        return True

    monkeypatch.setattr(Journal, "_end_lease", careless)
    assert await landed_and_found(monkeypatch) == (True, False), "it is lost, and this shows it"


OLDER = {
    "id": "5xq2", "key": "order", "version": 1, "digest": "", "state": "running",
    "owner": "engine-5xq1", "variables": {"n": 1}, "business_key": "", "correlation": None,
    "trigger": None, "started_ms": 0, "results": {}, "until": {}, "inbox": [], "result": None,
    "error": "", "cancel": False,
}  # fmt: skip
"""An instance as engines wrote it that knew no segments: each had a record below its engine."""


async def test_what_an_older_engine_left_is_taken_over(tmp_path: Path) -> None:
    async with await perkey.aopen(f"sqlite:///{tmp_path}/e.db") as store:
        two = await started(store)
        journal = parts(two)[0]
        (receipt,) = two.registrations("order")
        theirs = place("e", "engine-5xq1")
        record, index = instance_key("5xq2"), place("r", "engine-5xq1", "5xq2")

        def older(tx: Any) -> None:
            tx.put_body(theirs, lease_body(LeaseState("engine-5xq1", 1, 1)))
            tx.put_body(record, encode({**OLDER, "digest": receipt.digest}))
            tx.put_body(index, encode("5xq2"))

        await journal.commit([theirs, record, index], older)
        await parts(two)[1].recover()
        handle = two.instance("5xq2")
        assert await handle.wait(60) is InstanceState.COMPLETED
        assert handle.result() == {"n": 1}
        assert await noted(two) == []
        await parts(two)[1].recover()
        assert len(await journal.scan(f"{ENGINE}e/", 9)) == 1
        await two.shutdown(60)
