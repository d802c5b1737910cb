"""Publishers with one bug each."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Hashable, Iterable, Iterator
from typing import Any

from perkey import AsyncPublisher
from perkey.flows.publishing import Outcome, Sweep, Tally


class NoSections:
    """Every section is always free."""

    @contextlib.asynccontextmanager
    async def __call__(self, key: Hashable) -> AsyncIterator[None]:
        yield

    def try_acquire(self, key: Hashable) -> Any:
        return self._guard()

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        yield


class PublishWithoutASection(AsyncPublisher):
    """The sweep loads the old state, the event path sends the new one, the sweep sends the old."""

    def __init__(self, *args: Any, **options: Any) -> None:
        options["sections"] = NoSections()
        super().__init__(*args, **options)


class SweepThatQueues(AsyncPublisher):
    """The sweep waits for held sections: one slow send stops the sweep of all other keys."""

    async def sweep(self, keys: Iterable[Any]) -> Sweep:
        tally = Tally()
        for key in keys:
            tally.add(await self.publish(key))
        return self._swept(tally)


class RecordBeforeSend(AsyncPublisher):
    """What was not sent yet counts as sent: if the send fails, no later pass repairs it."""

    async def _run(self, key: Hashable) -> Outcome:
        plan = self._plan
        snapshot = await plan.load(key)
        if plan.sent.get(key) == snapshot:
            return "unchanged"
        plan.sent.set(key, snapshot)
        await plan.send(key, snapshot)
        return "sent"
