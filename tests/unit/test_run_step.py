"""One step by itself: what a flow of that step would do, without the flow."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import perkey
from perkey import Conflict
from perkey.flows import steps
from perkey.store.keys import Key
from perkey.stores import AsyncStore, Store
from tests.unit.manual_clock import ManualClock, async_memory_store, memory_store

KEY = Key("d/a")
BOTH = pytest.mark.parametrize("traced", [False, True], ids=["plain", "traced"])


def adds(tx: Any) -> int:
    tx["a"] = count = tx.get("a", 0) + 1
    return int(count)


def refuses(tx: Any) -> None:
    tx["a"] = 5
    raise Conflict("not now")


class Colour:
    """Either colour of store, called the same way."""

    def __init__(self, store: Store | AsyncStore, traced: bool) -> None:
        self.store = store
        self.spans = InMemorySpanExporter()
        if traced:
            provider = TracerProvider()
            provider.add_span_processor(SimpleSpanProcessor(self.spans))
            store.trace(provider)

    async def step(self, step: steps.Step) -> Any:
        answer = self.store.run_step(step)
        return await answer if isinstance(self.store, AsyncStore) else answer

    async def close(self) -> None:
        closing = self.store.close()
        if closing is not None:
            await closing


@pytest.fixture(params=["blocking", "asyncio"])
def store(request: pytest.FixtureRequest) -> Store | AsyncStore:
    clock = ManualClock()
    return memory_store(clock) if request.param == "blocking" else async_memory_store(clock)


@BOTH
async def test_a_transaction_answers_with_its_outcome(
    store: Store | AsyncStore, traced: bool
) -> None:
    colour = Colour(store, traced)
    for count in (1, 2):
        outcome = await colour.step(steps.Transact((KEY,), adds, "me"))
        assert (outcome.result, outcome.error) == (count, None)
        (record,) = outcome.writes
        assert (record.key, record.version, record.by) == ("d/a", count, "me")
        assert record.op
    assert len(colour.spans.get_finished_spans()) == (2 if traced else 0)
    await colour.close()


@BOTH
async def test_what_its_function_raises_is_raised(store: Store | AsyncStore, traced: bool) -> None:
    colour = Colour(store, traced)
    with pytest.raises(Conflict, match="not now"):
        await colour.step(steps.Transact((KEY,), refuses))
    assert await colour.step(steps.Read([KEY])) == [None]
    await colour.close()


@BOTH
async def test_every_other_step_answers_as_in_a_flow(
    store: Store | AsyncStore, traced: bool
) -> None:
    colour = Colour(store, traced)
    await colour.step(steps.Transact((KEY,), adds))
    (record,) = await colour.step(steps.Read([KEY]))
    assert record.body == b"1"
    assert await colour.step(steps.Scan("d/", "", 9)) == [record]
    assert await colour.step(steps.History(KEY)) == [record]
    assert await colour.step(steps.Call(max, (1, 2))) == 2
    assert await colour.step(steps.Random()) == 0.5
    assert await colour.step(steps.Token()) != await colour.step(steps.Token())
    await colour.close()


@BOTH
async def test_a_closed_store_refuses_it(store: Store | AsyncStore, traced: bool) -> None:
    colour = Colour(store, traced)
    await colour.close()
    with pytest.raises(perkey.StoreClosed):
        await colour.step(steps.Transact((KEY,), adds))


def test_a_step_alone_is_a_flow_of_one() -> None:
    flow = steps.alone(steps.Now())
    assert next(flow) == steps.Now()
    with pytest.raises(StopIteration) as ended:
        flow.send(5)
    assert ended.value.value == 5
