"""A store for explorations: every step of a flow that meets the store is a step point.

The flows, the core, the committer and the memory backend are the real ones; only the places
where another caller may come in between are made visible.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

from perkey.flows import steps
from perkey.store import codec
from perkey.store.keys import Key
from perkey.testing import register_fingerprint, step
from perkey.testing.stepped import SteppedStore as Visible
from perkey.testing.stepped import of_records
from tests.unit.manual_clock import ManualClock


class SteppedStore(Visible):
    """An ``AsyncStore`` in memory whose time only ``pass_time`` moves."""

    clock: Any

    def __init__(self, replies_may_be_lost: bool = False) -> None:
        self.lossy = replies_may_be_lost
        self.notes: list[Any] = []
        """What a scenario wants to remember; part of the state."""
        clock: Any = ManualClock()
        super().__init__(clock=clock)

    async def meet(self, asked: steps.Step, perform: Callable[[], Any]) -> Any:
        if isinstance(asked, steps.Transact) and self.lossy:
            return await step("transact", perform, error=None)
        if not isinstance(asked, steps.Scan):
            await step(type(asked).__name__.lower(), error=None)
        return perform()

    async def pass_time(self, seconds: float) -> None:
        """Let time go by, at any moment that the exploration likes."""
        await step("time passes", error=None)
        self.clock.elapsed += seconds

    def versions(self, key: str) -> list[Any]:
        """All values that ``key`` ever had, without a step."""
        kept = self.backend.history(Key(f"d/{key}"), 0, 1000)
        return [None if each.body is None else codec.decode(each.body) for each in kept]


def _of_store(store: SteppedStore) -> list[Any]:
    """What the store's future depends on: its time, its records and their history."""
    return [store.clock.elapsed, store.notes, *of_records(store)]


register_fingerprint(SteppedStore, _of_store)
register_fingerprint(decimal.Context, lambda context: [])  # pytest leaves one in every task
