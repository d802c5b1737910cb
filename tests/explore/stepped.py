"""A store for explorations: every step of a flow that meets the store is a step point.

The flows, the core, the committer and the memory backend are the real ones; only the places
where another caller may come in between are made visible.
"""

from __future__ import annotations

import asyncio
import decimal
import inspect
from typing import Any

from perkey.drivers import threads
from perkey.flows import steps
from perkey.lab.stepped import of_record
from perkey.store import codec
from perkey.store.backends.memory import MemoryBackend
from perkey.store.keys import Key
from perkey.stores import AsyncStore
from perkey.testing import register_fingerprint, step
from tests.unit.manual_clock import ManualClock


class SteppedStore(AsyncStore):
    """An ``AsyncStore`` in memory whose time only ``pass_time`` moves."""

    def __init__(self, replies_may_be_lost: bool = False) -> None:
        self.lossy = replies_may_be_lost
        self.clock = ManualClock()
        self.notes: list[Any] = []
        """What a scenario wants to remember; part of the state."""
        super().__init__(MemoryBackend(None, self.clock), clock=self.clock)

    async def run(self, flow: steps.Flow[Any]) -> Any:
        send, answer = flow.send, None
        while True:
            try:
                asked = send(answer)
            except StopIteration as stop:
                return stop.value
            try:
                answer = await self._perform(asked)
                send = flow.send
            except BaseException as error:
                answer, send = error, flow.throw

    async def run_step(self, step: steps.Step) -> Any:
        return await self._perform(step)

    async def _perform(self, asked: steps.Step) -> Any:
        if isinstance(asked, steps.Sleep):
            return await asyncio.sleep(asked.seconds)
        if isinstance(asked, steps.Call | steps.Attend):
            result = asked.fn(*asked.args)
            return await result if inspect.isawaitable(result) else result
        perform = threads._PERFORM[type(asked)]
        if isinstance(asked, steps.Transact) and self.lossy:
            return await step("transact", lambda: perform(self.core, asked), error=None)
        if isinstance(asked, steps.Transact | steps.Read | steps.History):
            await step(type(asked).__name__.lower(), error=None)
        return perform(self.core, asked)

    async def pass_time(self, seconds: float) -> None:
        """Let time go by, at any moment that the exploration likes."""
        await step("time passes", error=None)
        self.clock.elapsed += seconds

    def value(self, key: str) -> Any:
        """The document at ``key``, without a step; None where there is none."""
        (record,) = self.backend.read([Key(f"d/{key}")])
        return None if record is None or record.body is None else codec.decode(record.body)

    def versions(self, key: str) -> list[Any]:
        """All values that ``key`` ever had, without a step."""
        kept = self.backend.history(Key(f"d/{key}"), 0, 1000)
        return [None if each.body is None else codec.decode(each.body) for each in kept]


def _of_store(store: SteppedStore) -> list[Any]:
    """What the store's future depends on: its time, its records and their history."""
    backend = store.backend
    assert isinstance(backend, MemoryBackend)
    heads = [of_record(backend._heads[key]) for key in sorted(backend._heads)]
    kept = [of_record(each) for key in sorted(backend._history) for each in backend._history[key]]
    return [store.clock.elapsed, store.notes, *heads, "history", *kept]


register_fingerprint(SteppedStore, _of_store)
register_fingerprint(decimal.Context, lambda context: [])  # pytest leaves one in every task
