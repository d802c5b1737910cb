"""``SteppedStore``: an ``AsyncStore`` whose meetings with the store an exploration can see."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import msgspec

from perkey.drivers import threads
from perkey.errors import OutcomeUnknown, StoreUnavailable
from perkey.flows import steps
from perkey.store import codec
from perkey.store.backends.memory import MemoryBackend
from perkey.store.keys import Key
from perkey.store.record import Record
from perkey.store.transaction import Outcome
from perkey.stores import AsyncStore
from perkey.testing.parts import register_fingerprint
from perkey.testing.points import step
from perkey.testing.virtual_clock import VirtualClock


class SteppedStore(AsyncStore):
    """An ``AsyncStore`` in memory for ``explore``; code that takes a store runs on it unmodified.

    Every read is a step ``"read"`` and every commit a step ``"commit"``, where other callers may
    come in between.  With ``failures=1`` a commit may fail: ``StoreUnavailable`` is raised, and
    nothing was written.  Time is ``store.clock``, a ``VirtualClock``.

    With ``replies=True`` a commit's reply is a step of its own, so callers may be cancelled or
    crash between the two, and ``lost_replies=1`` may lose one: ``OutcomeUnknown`` is raised, and
    the write is there.  It makes a search larger.
    """

    def __init__(self, *, clock: VirtualClock | None = None, replies: bool = False) -> None:
        self._replies = replies
        self.clock = VirtualClock() if clock is None else clock
        super().__init__(MemoryBackend(None, self.clock), clock=self.clock)

    async def run(self, flow: steps.Flow[Any]) -> Any:
        """Drive a flow of ``perkey.flows``, one ``run_step`` after another."""
        send: Any = flow.send
        answer: Any = None
        while True:
            try:
                asked = send(answer)
            except StopIteration as stop:
                return stop.value
            try:
                answer = await self.run_step(asked)
                send = flow.send
            except BaseException as error:
                answer, send = error, flow.throw

    async def run_step(self, step: steps.Step) -> Any:
        """Answer one step, after the exploration let it happen."""
        if isinstance(step, steps.Sleep):
            return await asyncio.sleep(step.seconds)
        if isinstance(step, steps.Call | steps.Attend):
            result = step.fn(*step.args)
            return await result if inspect.isawaitable(result) else result

        def perform() -> Any:
            return threads._PERFORM[type(step)](self.core, step)

        if isinstance(step, steps.Transact | steps.Read | steps.Scan | steps.History):
            return await self.meet(step, perform)
        return perform()

    async def meet(self, asked: steps.Step, perform: Callable[[], Any]) -> Any:
        """One meeting with the store; ``perform`` does it.  A kind of store of its own may
        override this to fail in other ways."""
        if isinstance(asked, steps.Transact):
            if self._replies:
                return await step("commit", perform, error=StoreUnavailable, lost=OutcomeUnknown)
            await step("commit", error=StoreUnavailable)
        else:
            await step("read", error=None)
        return perform()

    def value(self, key: str) -> Any:
        """The document at ``key`` now, without a step; None where there is none."""
        record = self._record(key)
        return None if record is None or record.body is None else codec.decode(record.body)

    def version(self, key: str) -> int:
        """Its version, without a step; 0 where there never was one."""
        record = self._record(key)
        return 0 if record is None else record.version

    def _record(self, key: str) -> Record | None:
        (record,) = self.backend.read([Key(f"d/{key}")])
        return record


def of_records(store: SteppedStore) -> list[Any]:
    """What the store's future depends on, but for its time: its records and their history."""
    backend = store.backend
    assert isinstance(backend, MemoryBackend)
    heads = [of_record(backend._heads[key]) for key in sorted(backend._heads)]
    kept = [of_record(each) for key in sorted(backend._history) for each in backend._history[key]]
    return [*heads, "history", *kept]


def of_record(record: Record) -> list[Any]:
    """What a record adds to the state of a store in memory."""
    # Not its op: no reply is lost inside this store, so no flow ever looks for one.
    return [record.key, record.version, record.body, record.by, record.fence, record.at]


def _of_store(store: SteppedStore) -> list[Any]:
    clock = store.clock
    return [clock.now_ms(), clock.monotonic(), hash(clock._chance.getstate()), *of_records(store)]


register_fingerprint(SteppedStore, _of_store)
register_fingerprint(Record, of_record)
register_fingerprint(msgspec.Raw, lambda raw: [bytes(raw)])
register_fingerprint(Key, lambda key: [str(key)])
register_fingerprint(Outcome, lambda outcome: [outcome.result, *outcome.writes])
register_fingerprint(steps.Transact, lambda asked: [asked.keys, asked.fn, asked.by, asked.fence])
