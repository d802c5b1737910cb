"""A store for the lab: perkey's own flows and memory backend, with every meeting visible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perkey.flows import steps
from perkey.lab.worlds import io
from perkey.testing import register_fingerprint
from perkey.testing.stepped import SteppedStore as Visible
from perkey.testing.stepped import of_records


class SteppedStore(Visible):
    """An ``AsyncStore`` in memory; every read and every commit of a flow goes through ``io``.

    ``fails`` is what a commit raises when it fails: then nothing was written.
    """

    def __init__(self, fails: type[Exception] | None = None) -> None:
        self.fails = fails
        super().__init__()

    async def meet(self, asked: steps.Step, perform: Callable[[], Any]) -> Any:
        if isinstance(asked, steps.Transact):
            await io("commit", self.fails)
        else:
            await io("read")
        return perform()


register_fingerprint(SteppedStore, of_records)  # nothing in the lab lets its time pass
