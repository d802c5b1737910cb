"""The engine that a server runs on its store: how it begins, drains and ends with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from perkey.engine import AsyncEngine, Definition, State
from perkey.errors import PerkeyError, StillRunning

NAME = "serve"
"""What the engine's name in the store begins with."""
ROUND_S = 60.0
"""How long one round of a drain waits before it looks again, in seconds."""

_log = logging.getLogger("perkey.server")


@dataclass(frozen=True, slots=True)
class Processes:
    """What an engine is to do, as a Python file says it."""

    definitions: Sequence[Definition]
    main: Callable[[AsyncEngine], Awaitable[object]] | None = None
    """Runs beside the engine: it may start, publish and deploy."""


class Hosted:
    """One engine for the life of a server.  Belongs to the server's loop."""

    def __init__(self, engine: AsyncEngine, processes: Processes) -> None:
        self.engine = engine
        self._processes = processes
        self._main: asyncio.Task[None] | None = None
        self._draining: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Register every definition, run the engine, and ``main`` beside it."""
        for definition in self._processes.definitions:
            await self.engine.register_process(definition)
        await self.engine.run()
        self._main = asyncio.create_task(self._beside())

    async def _beside(self) -> None:
        if self._processes.main is None:
            return
        try:
            await self._processes.main(self.engine)
        except Exception:
            _log.exception("main() of the engine's file failed; the engine goes on without it")

    @property
    def lost(self) -> bool:
        """Whether the engine ended though nobody asked it to: it lost its lease."""
        return self.engine.state is State.STOPPED and self._draining is None

    async def drain(self, wait: float) -> None:
        """Start nothing more, and stop the engine when what runs has ended, however long that
        takes; returns after ``wait`` seconds at the latest.  The same again is harmless."""
        if self._draining is None:
            if self.engine.state is State.STOPPED:
                return
            self._draining = asyncio.create_task(self._drained())
        await asyncio.wait({self._draining}, timeout=wait)

    async def _drained(self) -> None:
        while self.engine.state in (State.STARTED, State.PAUSED):
            try:
                await self.engine.drain(ROUND_S)
            except StillRunning:
                continue

    async def stop(self, timeout: float) -> None:
        """Cancel what runs and stop; whoever is not done in time is named in the log.

        On a durable store, what is cut off goes on with the next engine.
        """
        beside = [each for each in (self._main, self._draining) if each is not None]
        for task in beside:
            task.cancel()
        try:
            await self.engine.shutdown(timeout)
        except StillRunning as left:
            _log.warning("%s: %s", left.message, ", ".join(left.details.get("ids", [])[:8]))
        except PerkeyError as error:
            _log.warning("the engine did not stop in good order: %s", error)
        if beside:
            await asyncio.wait(beside, timeout=timeout)
