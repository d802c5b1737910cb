"""A store for the lab: perkey's own flows and memory backend, with every meeting visible."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec

from perkey.drivers import threads
from perkey.flows import steps
from perkey.lab.worlds import io
from perkey.store import codec
from perkey.store.backends.memory import MemoryBackend
from perkey.store.keys import Key
from perkey.store.record import Record
from perkey.store.transaction import Outcome
from perkey.stores import AsyncStore
from perkey.testing import VirtualClock, register_fingerprint


class SteppedStore(AsyncStore):
    """An ``AsyncStore`` in memory; every read and every commit of a flow goes through ``io``.

    ``fails`` is what a commit raises when it fails: then nothing was written.
    """

    def __init__(self, fails: type[Exception] | None = None) -> None:
        self.fails = fails
        clock = VirtualClock()
        super().__init__(MemoryBackend(None, clock), clock=clock)

    async def run(self, flow: steps.Flow[Any]) -> Any:
        send: Any = flow.send
        answer: Any = None
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

    async def _perform(self, asked: steps.Step) -> Any:
        if isinstance(asked, steps.Call | steps.Attend):
            result = asked.fn(*asked.args)
            return await result if inspect.isawaitable(result) else result
        if isinstance(asked, steps.Transact):
            await io("commit", self.fails)
        elif isinstance(asked, steps.Read | steps.History):
            await io("read")
        return threads._PERFORM[type(asked)](self.core, asked)

    def value(self, key: str) -> Any:
        """The document at ``key`` now; None where there is none."""
        record = self._record(key)
        return None if record is None or record.body is None else codec.decode(record.body)

    def version(self, key: str) -> int:
        """Its version; 0 where there never was one."""
        record = self._record(key)
        return 0 if record is None else record.version

    def _record(self, key: str) -> Record | None:
        (record,) = self.backend.read([Key(f"d/{key}")])
        return record


def _of_store(store: SteppedStore) -> list[Any]:
    backend = store.backend
    assert isinstance(backend, MemoryBackend)
    heads = [of_record(backend._heads[key]) for key in sorted(backend._heads)]
    kept = [of_record(each) for key in sorted(backend._history) for each in backend._history[key]]
    return [*heads, "history", *kept]


def of_record(record: Record) -> list[Any]:
    """What a record adds to the state of a store in memory."""
    # Not its op: no reply is lost inside this store, so no flow ever looks for one.
    return [record.key, record.version, record.body, record.by, record.fence, record.at]


register_fingerprint(SteppedStore, _of_store)
register_fingerprint(Record, of_record)
register_fingerprint(msgspec.Raw, lambda raw: [bytes(raw)])
register_fingerprint(Key, lambda key: [str(key)])
register_fingerprint(Outcome, lambda outcome: [outcome.result, *outcome.writes])
register_fingerprint(steps.Transact, lambda asked: [asked.keys, asked.fn, asked.by, asked.fence])
