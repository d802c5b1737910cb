"""Running instances: tracked before their first step, owned while they run, bounded after.

Lives on the engine's loop.  In memory each change is a plain assignment between two awaits;
on a store it is one commit of the journal.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any

from perkey.engine.boxes import Boxes
from perkey.engine.facts import Facts
from perkey.engine.guarded import outside
from perkey.engine.instances import (
    Context,
    Delivered,
    Instance,
    InstanceState,
    ThreadContext,
)
from perkey.engine.journal import Journal, Stored, thaw
from perkey.engine.lifecycle import State
from perkey.engine.registry import Registry, Version
from perkey.errors import InvalidState, LeaseLost, LimitExceeded, NotFound, NotSupported
from perkey.store import codec
from perkey.stores import AsyncStore

if TYPE_CHECKING:
    from perkey.engine.engine import AsyncEngine

POLL_S = 0.25
"""How often a durable instance looks into its record for messages from other engines."""

RECOVER = 100
"""How many orphans one look takes over."""


class Runner:
    """Every instance that this engine knows."""

    def __init__(
        self, engine: AsyncEngine, registry: Registry, journal: Journal | None, facts: Facts
    ) -> None:
        self.engine = engine
        self._registry = registry
        self._journal = journal
        self.facts = facts
        self.boxes = Boxes()
        self._running: dict[str, Instance] = {}
        self._finished: OrderedDict[str, Instance] = OrderedDict()
        self._live: dict[tuple[str, str], Instance] = {}
        self._idempotent: dict[tuple[str, str], Instance] = {}

    @property
    def durable(self) -> bool:
        """Whether instances survive this process."""
        return self._journal is not None

    async def now_ms(self) -> int:
        """The engine's time: its store's, else the clock's."""
        store = self.engine.store
        return self.engine.clock.now_ms() if store is None else await store.now_ms()

    def need_store(self, what: str) -> AsyncStore:
        """The engine's store, or a clear error."""
        if self.engine.store is None:
            raise NotSupported(f"{what} needs a store: AsyncEngine(store)")
        return self.engine.store

    # --------------------------------------------------------------------------- starting

    async def start(
        self,
        version: Version,
        variables: dict[str, Any],
        business_key: str,
        *,
        idempotency_key: str | None = None,
        correlation: str | None = None,
        trigger: Delivered | None = None,
        message_id: tuple[str, ...] | None = None,
    ) -> Instance:
        """Track a new instance and let it run; an earlier one where a unique key names it."""
        receipt = version.registration
        unique = None if idempotency_key is None else (receipt.key, idempotency_key)
        if unique in self._idempotent:
            return self._idempotent[unique]
        codec.encode(variables)
        instance = Instance(
            self.engine.clock.token(),
            receipt.key,
            receipt.version,
            variables,
            business_key,
            correlation,
            trigger,
            await self.now_ms(),
        )
        if self._journal is not None:
            uniques = _uniques(receipt.key, idempotency_key, correlation, message_id)
            started = await self._journal.start(instance, receipt, uniques)
            if started != instance.id:
                return await self._other(started)
        if unique is not None:
            instance.unique = unique
            self._idempotent[unique] = instance
        self._track(instance)
        self.facts.tell("started", receipt.key, receipt.version, instance.id)
        if self.engine.state is not State.PAUSED:
            self.launch(instance, version)
        return instance

    async def _other(self, instance_id: str) -> Instance:
        """An instance that exists already, here or at another engine."""
        found = self.find(instance_id)
        if found is not None:
            return found
        assert self._journal is not None
        stored = await self._journal.load(instance_id)
        if stored is None:
            raise NotFound(f"instance {instance_id!r} has gone", key=instance_id)
        return self.find(instance_id) or thaw(stored)

    def _track(self, instance: Instance) -> None:
        self._running[instance.id] = instance
        if instance.correlation is not None:
            self._live[instance.key, instance.correlation] = instance

    def launch(self, instance: Instance, version: Version) -> None:
        """Let a tracked instance run."""
        outside("an instance was launched")
        instance.state = InstanceState.RUNNING
        instance.task = asyncio.get_running_loop().create_task(self._run(instance, version))
        instance.task.add_done_callback(partial(self._never_ran, instance))

    def _never_ran(self, instance: Instance, task: asyncio.Task[None]) -> None:
        """A task that is cancelled before its first step runs none of its own code."""
        if instance.state.ended:
            return
        if self._journal is None or self.engine.state in (State.STOPPING, State.STOPPED):
            self._end(instance, InstanceState.CANCELLED)
        else:
            closing = self._close(instance, InstanceState.CANCELLED)
            instance.task = asyncio.get_running_loop().create_task(closing)

    def launch_pending(self) -> None:
        """Let run what was started while the engine was paused."""
        for instance in list(self._running.values()):
            if instance.state is InstanceState.PENDING:
                version = self._registry.version_locked(instance.key, instance.version)
                if version is None:
                    self._end(instance, InstanceState.FAILED, error=_missing(instance))
                else:
                    self.launch(instance, version)

    # ---------------------------------------------------------------------------- running

    async def _run(self, instance: Instance, version: Version) -> None:
        try:
            result = await self._call(instance, version)
            if self._journal is not None:
                result = codec.decode(codec.encode(result))
        except asyncio.CancelledError:
            # A durable instance of an engine that stops goes on elsewhere: its record says so.
            stopping = self.engine.state in (State.STOPPING, State.STOPPED)
            if stopping and self._journal is not None:
                self._end(instance, InstanceState.CANCELLED)
            else:
                await self._close(instance, InstanceState.CANCELLED)
        except LeaseLost as lost:
            self._end(instance, InstanceState.CANCELLED, error=str(lost))
        except Exception as error:
            await self._close(
                instance, InstanceState.FAILED, error=f"{type(error).__name__}: {error}"
            )
        else:
            await self._close(instance, InstanceState.COMPLETED, result)

    async def _call(self, instance: Instance, version: Version) -> Any:
        context = Context(self, instance, version)
        body = version.definition.body
        if inspect.iscoroutinefunction(body):
            return await body(context)
        loop = asyncio.get_running_loop()
        return await asyncio.to_thread(body, ThreadContext(context, loop))

    async def _close(
        self,
        instance: Instance,
        state: InstanceState,
        result: Any = None,
        error: str = "",
    ) -> None:
        if self._journal is not None:
            instance.state, instance.result, instance.error = state, result, error
            try:
                await self._journal.finish(instance)
            except LeaseLost as lost:
                state, result, error = InstanceState.CANCELLED, None, str(lost)
        self._end(instance, state, result, error)

    def _end(
        self, instance: Instance, state: InstanceState, result: Any = None, error: str = ""
    ) -> None:
        self._running.pop(instance.id, None)
        if instance.correlation is not None:
            self._live.pop((instance.key, instance.correlation), None)
        self._finished[instance.id] = instance
        while len(self._finished) > self.engine.limits.finished:
            self._forget(next(iter(self._finished)))
        instance.finish(state, result, error)
        self.facts.tell("ended", instance.key, instance.version, instance.id, state.value)

    async def keep_step(self, instance: Instance, name: str, value: Any) -> None:
        """Store a step's result; on a store, in a commit that only the owner can make."""
        if self._journal is not None:
            value = await self._journal.keep_step(instance, name, value)
        instance.results[name] = value
        self.facts.tell("step", instance.key, instance.version, instance.id, name)

    # --------------------------------------------------------------------------- messages

    def live(self, key: str, correlation: str) -> Instance | None:
        """The live instance of a correlation key, where it runs here."""
        return self._live.get((key, correlation))

    async def deliver(
        self, instance: Instance, message: Delivered, message_id: tuple[str, ...] | None
    ) -> bool:
        """Put a message into an instance's inbox; False if it has ended meanwhile."""
        if instance.state.ended:
            return False
        if len(instance.inbox) >= self.engine.limits.inbox:
            raise LimitExceeded(
                f"instance {instance.id} has {len(instance.inbox)} unread messages, and the "
                f"limit is {self.engine.limits.inbox}"
            )
        if self._journal is not None:
            if not await self._journal.deliver(instance.id, message, message_id):
                return False
        else:
            instance.inbox.append(message)
        instance.wake()
        self.facts.tell("delivered", instance.key, instance.version, instance.id, message.name)
        return True

    async def take_message(self, instance: Instance, name: str, step: str) -> Any:
        """Wait for message ``name`` and make it the result of ``step``."""
        if instance.arrived is None:
            instance.arrived = asyncio.Event()
        while True:
            instance.arrived.clear()
            found = await self._take(instance, name, step)
            if found is None and await self._open_box(instance, name):
                found = await self._take(instance, name, step)
            if found is not None:
                instance.results[step] = found.payload
                return found.payload
            await self._await_arrival(instance)

    async def _take(self, instance: Instance, name: str, step: str) -> Delivered | None:
        if self._journal is not None:
            return await self._journal.take_message(instance, name, step)
        for message in instance.inbox:
            if message.name == name:
                instance.inbox.remove(message)
                return message
        return None

    async def _open_box(self, instance: Instance, name: str) -> bool:
        """Fetch a letter that came before anyone waited; else wait for one from now on."""
        if self._journal is not None:
            return await self._journal.open_box(instance, name)
        letter = self.boxes.open(name, instance, self.engine.clock.monotonic())
        if letter is not None:
            instance.inbox.append(letter)
        return letter is not None

    async def _await_arrival(self, instance: Instance) -> None:
        assert instance.arrived is not None
        if self._journal is None:
            await instance.arrived.wait()
            return
        try:  # another engine on this store may deliver without our hearing of it
            async with asyncio.timeout(POLL_S):
                await instance.arrived.wait()
        except TimeoutError:
            return

    # --------------------------------------------------------------------------- stopping

    def cancel(self, instance: Instance) -> None:
        """Ask an instance to stop."""
        if instance.task is not None:
            instance.task.cancel()
        elif not instance.state.ended:
            self._end(instance, InstanceState.CANCELLED)

    async def wait_all(self, timeout: float, *, cancel: bool) -> list[str]:
        """Wait until nothing runs, cancelling it first or not; the ids of what is left.

        Looks again after each wait, since an instance may have started meanwhile.  Never waits
        for the task that calls it.
        """
        me = asyncio.current_task()
        end = self.engine.clock.monotonic() + timeout
        asked: set[str] = set()
        while others := [each for each in self._running.values() if each.task is not me]:
            for instance in others:
                if cancel and instance.id not in asked:
                    asked.add(instance.id)
                    self.cancel(instance)
            tasks = [each.task for each in others if each.task and not each.task.done()]
            left = end - self.engine.clock.monotonic()
            if left <= 0:
                return sorted(each.id for each in others if not each.state.ended)
            if tasks:
                await asyncio.wait(tasks, timeout=left)
            else:
                await asyncio.sleep(0)
        return []

    # --------------------------------------------------------------------------- recovery

    async def recover(self) -> None:
        """Take over instances whose engine is gone, and go on with them."""
        assert self._journal is not None
        if self.engine.state is not State.STARTED:
            return
        for owner, instance_id in await self._journal.orphans(RECOVER):
            stored = await self._journal.take_over(owner, instance_id)
            if stored is not None:
                await self._go_on(stored)

    async def _go_on(self, stored: Stored) -> None:
        instance = thaw(stored)
        self._track(instance)
        version = self._registry.version_locked(stored.key, stored.version)
        if version is None or version.registration.digest != stored.digest:
            await self._close(instance, InstanceState.FAILED, error=_missing(instance))
            return
        self.facts.tell("started", instance.key, instance.version, instance.id, "recovered")
        self.launch(instance, version)

    # --------------------------------------------------------------------------- looking

    def find(self, instance_id: str) -> Instance | None:
        """An instance by its id."""
        return self._running.get(instance_id) or self._finished.get(instance_id)

    def all(self) -> list[Instance]:
        """Every known instance, finished ones first."""
        return [*self._finished.values(), *self._running.values()]

    def forget(self, ids: list[str]) -> None:
        """Drop finished instances from memory; all or none."""
        for instance_id in ids:
            found = self.find(instance_id)
            if found is None:
                raise NotFound(f"this engine knows no instance {instance_id!r}", key=instance_id)
            if not found.state.ended:
                raise InvalidState(
                    f"instance {instance_id} is still {found.state}", key=instance_id
                )
        for instance_id in ids:
            self._forget(instance_id)

    def _forget(self, instance_id: str) -> None:
        gone = self._finished.pop(instance_id)
        if gone.unique is not None:
            del self._idempotent[gone.unique]


def _uniques(
    process: str,
    idempotency_key: str | None,
    correlation: str | None,
    message_id: tuple[str, ...] | None,
) -> dict[str, tuple[str, ...]]:
    uniques: dict[str, tuple[str, ...]] = {}
    if message_id is not None:
        uniques["m"] = message_id
    if idempotency_key is not None:
        uniques["s"] = (process, idempotency_key)
    if correlation is not None:
        uniques["k"] = (process, correlation)
    return uniques


def _missing(instance: Instance) -> str:
    return (
        f"version {instance.version} of {instance.key!r}, which this instance is pinned to, is "
        "not registered in this engine with the same content"
    )
