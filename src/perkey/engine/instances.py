"""Instances: one run of one version, its context, and the handle on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from perkey.engine.cron import interval_ms
from perkey.engine.facts import Observer, Subscription
from perkey.engine.guarded import outside
from perkey.engine.hub import sleep_until
from perkey.errors import InvalidValue, StillRunning, Timeout, UsageError
from perkey.store import codec

if TYPE_CHECKING:
    from perkey.board import AsyncBoard
    from perkey.engine.engine import AsyncEngine
    from perkey.engine.registry import Version
    from perkey.engine.runner import Runner
    from perkey.ledger import AsyncLedger


class InstanceState(StrEnum):
    """What an instance is doing."""

    PENDING = "pending"
    """Tracked; runs when the engine is resumed."""
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self is not InstanceState.RUNNING and self is not InstanceState.PENDING


class Delivered(msgspec.Struct, frozen=True):
    """A message as an instance gets it."""

    name: str
    payload: Any
    message_id: str = ""

    @property
    def mark(self) -> Mark | None:
        """What tells a redelivery, if it has a message id."""
        return (self.name, self.message_id) if self.message_id else None


Mark = tuple[str, ...]
"""What tells a message from every other: its name and its message id."""


def timeout_of(step: str) -> str:
    """Where it is kept that ``step`` waited in vain."""
    return f"{step}:timeout"


@dataclass(slots=True, eq=False)
class Instance:
    """One run of one version.  Touched on the engine's loop only."""

    id: str
    key: str
    version: int
    variables: dict[str, Any]
    business_key: str
    correlation: str | None
    trigger: Delivered | None
    started_ms: int
    unique: tuple[str, str] | None = None
    """(process, idempotency key) it was started with, while it is the one for them."""
    state: InstanceState = InstanceState.PENDING
    result: Any = None
    error: str = ""
    results: dict[str, Any] = field(default_factory=dict)
    """Step name -> what it returned."""
    inbox: list[Delivered] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    begun: bool = False
    """Its task has run some of its own code, and so will see its end."""
    arrived: asyncio.Future[None] | None = None
    """Done when something came into the inbox, since it was made."""
    waiters: list[asyncio.Future[None]] | None = None
    """Whoever waits for its end: one future each, so that one who leaves disturbs no other."""
    boxes: tuple[str, ...] = ()
    """Names of messages for which a box on the store says that it waits there."""
    waiting_for: str = ""
    """What it waits for right now: ``step pay``, ``message paid``, ``timer``; else empty."""
    elsewhere: bool = False
    """Another engine on the same store runs it; here is only what its record said last."""

    @property
    def address(self) -> str:
        """Where messages for it go: its correlation key, else its business key, else its id."""
        return self.correlation or self.business_key or self.id

    def wake(self) -> None:
        """Something came into the inbox."""
        if self.arrived is not None and not self.arrived.done():
            self.arrived.set_result(None)

    def finish(self, state: InstanceState, result: Any = None, error: str = "") -> None:
        """End; whoever waits is told."""
        self.state, self.result, self.error = state, result, error
        self.waiting_for = ""
        for waiter in self.waiters or ():
            if not waiter.done():
                waiter.set_result(None)
        self.waiters = None

    async def wait_ended(self) -> None:
        """Return when the instance has ended."""
        if self.state.ended:
            return
        if self.waiters is None:
            self.waiters = []
        waiter = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        try:
            await waiter
        finally:
            if self.waiters is not None:
                self.waiters.remove(waiter)


class Handle:
    """A view of one instance, equal to every other handle on it."""

    __slots__ = ("_instance", "_runner", "replayed")

    def __init__(self, runner: Runner, instance: Instance, replayed: bool = False) -> None:
        self._runner = runner
        self._instance = instance
        self.replayed = replayed
        """The start that gave this handle began nothing: its idempotency key had an instance."""

    @property
    def id(self) -> str:
        return self._instance.id

    @property
    def key(self) -> str:
        return self._instance.key

    @property
    def version(self) -> int:
        """The version it runs, whatever was deployed since."""
        return self._instance.version

    @property
    def business_key(self) -> str:
        return self._instance.business_key

    @property
    def variables(self) -> dict[str, Any]:
        """What it was started with; a copy."""
        return dict(self._instance.variables)

    @property
    def address(self) -> str:
        """What to give ``publish`` as ``key=`` to reach it: its correlation key, else its
        business key, else its id."""
        return self._instance.address

    @property
    def state(self) -> InstanceState:
        return self._instance.state

    @property
    def error(self) -> str:
        """What a failed instance raised."""
        return self._instance.error

    @property
    def waiting_for(self) -> str:
        """What it waits for right now, or an empty text."""
        return self._instance.waiting_for

    def result(self) -> Any:
        """What a completed instance returned; ``UsageError`` while it runs or if it did not."""
        if self._instance.state is not InstanceState.COMPLETED:
            detail = f": {self._instance.error}" if self._instance.error else ""
            raise UsageError(f"instance {self.id} is {self._instance.state}{detail}")
        return self._instance.result

    def steps(self) -> dict[str, Any]:
        """The finished steps and what they returned; a copy."""
        return dict(self._instance.results)

    async def wait(self, timeout: float | None = None) -> InstanceState:
        """Wait until it has ended; ``Timeout`` after ``timeout`` seconds.

        If another engine runs it, this follows its record in the store.
        """
        instance = self._instance
        if timeout is None and not instance.elsewhere:
            await instance.wait_ended()
            return instance.state
        try:
            async with asyncio.timeout(timeout):
                if instance.elsewhere and self._runner.neighbours is not None:
                    await self._runner.neighbours.follow(instance)
                else:
                    await instance.wait_ended()
        except TimeoutError:
            raise Timeout(f"instance {self.id} is still {self.state} after {timeout} s") from None
        return self._instance.state

    async def cancel(self, timeout: float | None = 10.0) -> InstanceState:
        """Ask it to stop and wait until it has; ``StillRunning`` after ``timeout`` seconds.

        If another engine runs it, that engine is asked through the store.
        """
        if self._instance.elsewhere and self._runner.neighbours is not None:
            await self._runner.neighbours.cancel(self._instance)
        else:
            self._runner.cancel(self._instance)
        try:
            return await self.wait(timeout)
        except Timeout:
            raise StillRunning(f"instance {self.id} did not stop in time", ids=[self.id]) from None

    def observe(self, observer: Observer, *, limit: int = 256) -> Subscription:
        """Send the facts about this instance, from now on, to ``observer``."""
        return self._runner.facts.observe(observer, limit, self.id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<Handle {self.key} v{self.version} {self.id} {self.state}>"


class Context:
    """What an async body gets."""

    __slots__ = ("_instance", "_receives", "_runner", "_sleeps", "definition")

    def __init__(self, runner: Runner, instance: Instance, version: Version) -> None:
        self._runner = runner
        self._instance = instance
        self._sleeps = 0
        self._receives: dict[str, int] | None = None
        self.definition = version.definition

    @property
    def id(self) -> str:
        return self._instance.id

    @property
    def key(self) -> str:
        """The process's key."""
        return self._instance.key

    @property
    def version(self) -> int:
        return self._instance.version

    @property
    def variables(self) -> dict[str, Any]:
        """What it was started with."""
        return self._instance.variables

    @property
    def business_key(self) -> str:
        return self._instance.business_key

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
