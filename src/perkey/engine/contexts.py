"""Contexts: what the body of an instance gets, to wait and to remember by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perkey.engine.cron import interval_ms
from perkey.engine.guarded import outside
from perkey.engine.handles import Look
from perkey.engine.hub import sleep_until
from perkey.engine.instances import Delivered, Instance, timeout_of
from perkey.errors import InvalidValue, Timeout
from perkey.store import codec

if TYPE_CHECKING:
    from perkey.board import AsyncBoard
    from perkey.engine.engine import AsyncEngine
    from perkey.engine.registry import Version
    from perkey.engine.runner import Runner
    from perkey.ledger import AsyncLedger


class Context(Look):
    """What an async body gets."""

    __slots__ = ("_receives", "_runner", "_sleeps", "definition")

    def __init__(self, runner: Runner, instance: Instance, version: Version) -> None:
        super().__init__(instance)
        self._runner = runner
        self._sleeps = 0
        self._receives: dict[str, int] | None = None
        self.definition = version.definition

    @property
    def variables(self) -> dict[str, Any]:
        """What it was started with."""
        return self._instance.variables

    @property
    def correlation(self) -> str | None:
        """The correlation key of the message that started it."""
        return self._instance.correlation

    @property
    def message(self) -> Delivered | None:
        """The message, signal or tick that started it, or None."""
        return self._instance.trigger

    @property
    def engine(self) -> AsyncEngine:
        """The engine that runs this instance."""
        return self._runner.engine

    async def step(self, name: str, fn: Callable[..., Any], *args: Any) -> Any:
        """Run ``fn(*args)`` once for this instance and name; later calls get its result.

        On a durable store the result is committed before it is returned, and a crash before
        that runs the step again: make it idempotent, or use ``Once`` inside it with
        ``f"{ctx.id}:{name}"`` as its key.  An exception ends nothing by itself.
        """
        found = self._instance.results.get(name, _MISSING)
        if found is not _MISSING:
            return found
        outside("a step was run")
        self._instance.waiting_for = f"step {name}"
        value = fn(*args)
        if hasattr(value, "__await__"):
            value = await value
        return await self._keep(name, value)

    async def _keep(self, name: str, value: Any) -> Any:
        try:
            kept = codec.decode(codec.encode(value)) if self._runner.durable else value
        except InvalidValue as error:
            raise InvalidValue(f"step {name!r} returned what cannot be stored: {error}") from error
        await self._runner.keep_step(self._instance, name, kept)
        self._instance.waiting_for = ""
        return kept

    async def sleep(self, duration: str | float) -> None:
        """Sleep; on a durable store a restart goes on with what is left."""
        self._sleeps += 1
        name = f"sleep:{self._sleeps}"
        until = self._instance.results.get(name)
        if until is None:
            until = await self._keep(name, await self._runner.now_ms() + interval_ms(duration))
        self._instance.waiting_for = "timer"
        await sleep_until(until, self._runner.now_ms)
        self._instance.waiting_for = ""

    async def receive(self, name: str, timeout: str | float | None = None) -> Any:
        """The payload of the next message ``name`` for this instance.

        Published with ``key=`` the instance's correlation key, else its business key, else its
        id.  ``Timeout`` when none came in time; on a durable store the deadline and that it
        passed are kept, so a restart does not decide anew.
        """
        if self._receives is None:
            self._receives = {}
        number = self._receives[name] = self._receives.get(name, 0) + 1
        step = f"receive:{name}:{number}"
        results = self._instance.results
        if step in results:
            return results[step]
        wait_ms = None if timeout is None else interval_ms(timeout)
        if timeout_of(step) not in results:
            self._instance.waiting_for = f"message {name}"
            try:
                message = await self._runner.receive(self._instance, name, step, wait_ms)
            finally:
                self._instance.waiting_for = ""
            if message is not None:
                results[step] = message.payload
                return message.payload
        raise Timeout(f"no message {name!r} came within {timeout}")

    def board(self, run: str) -> AsyncBoard:
        """A board on the engine's store."""
        from perkey.board import AsyncBoard

        return AsyncBoard(self._runner.need_store("a board"), run)

    @property
    def ledger(self) -> AsyncLedger:
        """The ledger on the engine's store."""
        from perkey.ledger import AsyncLedger

        return AsyncLedger(self._runner.need_store("a ledger"))


class ThreadContext:
    """What a sync body gets: the same, blocking its thread."""

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def _wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def step(self, name: str, fn: Callable[..., Any], *args: Any) -> Any:
        """Like ``Context.step``; ``fn`` runs on this thread."""
        results = self._context._instance.results
        if name in results:
            return results[name]
        return self._wait(self._context._keep(name, fn(*args)))

    def sleep(self, duration: str | float) -> None:
        """Like ``Context.sleep``."""
        self._wait(self._context.sleep(duration))

    def receive(self, name: str, timeout: str | float | None = None) -> Any:
        """Like ``Context.receive``."""
        return self._wait(self._context.receive(name, timeout))


_MISSING = object()
