"""Running instances: tracked before their first step, owned while they run, bounded after.

Lives on the engine's loop.  In memory each change is a plain assignment between two awaits;
on a store it is one commit of the journal.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from perkey.engine.contexts import Context, ThreadContext
from perkey.engine.facts import Facts
from perkey.engine.guarded import outside
from perkey.engine.instances import Delivered, Instance, InstanceState, timeout_of
from perkey.engine.journal import Journal
from perkey.engine.lifecycle import State
from perkey.engine.mail import Mail
from perkey.engine.neighbours import Neighbours, missing
from perkey.engine.post import LocalPost, Post
from perkey.engine.records import thaw
from perkey.engine.registry import Registry, Version
from perkey.engine.tidying import Tidier
from perkey.errors import (
    Busy,
    Forbidden,
    InvalidState,
    LeaseLost,
    NotFound,
    NotSupported,
    OutcomeUnknown,
    QueueFull,
    StoreClosed,
    StoreError,
    Unauthorised,
    UsageError,
)
from perkey.store import codec
from perkey.stores import AsyncStore

if TYPE_CHECKING:
    from perkey.engine.engine import AsyncEngine

STARTING_S = 0.005
"""How often to look whether the last starts have been written, in seconds."""

RETRY_S = 0.25
"""How long to wait before an end that the store did not take is written again, in seconds."""

_TROUBLE = (StoreError, Busy, OutcomeUnknown, Forbidden, Unauthorised)
"""Why a store does not take an end that it may take later."""


class Runner:
    """Every instance that this engine knows."""

    def __init__(
        self, engine: AsyncEngine, registry: Registry, journal: Journal | None, facts: Facts
    ) -> None:
        self.engine = engine
        self._registry = registry
        self._journal = journal
        self.facts = facts
        self._running: dict[str, Instance] = {}
        self._finished: OrderedDict[str, Instance] = OrderedDict()
        self.local = LocalPost(engine.clock, engine.limits, self.find)
        self.post: Post = self.local
        self.neighbours: Neighbours | None = None
        if journal is not None:
            self.post = mail = Mail(journal, engine.limits)
            tidier = Tidier(journal, engine.limits.kept_s)
            self.neighbours = Neighbours(self, registry, journal, mail, tidier)
        self.starting = 0
        """How many are being written to the store, and are not tracked yet."""
        self._pending: dict[str, Instance] = {}
        """Started while the engine was paused, oldest first."""
        self._kept = engine.limits.finished
        self.idempotent: dict[tuple[str, str], Instance] = {}
        """(process, idempotency key) -> the instance for it, as long as that is known here."""

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

    @property
    def stopping(self) -> bool:
        """Whether the engine shuts down, or has."""
        return self.engine.state in (State.STOPPING, State.STOPPED)

    def begin(self, instance: Instance, version: Version, detail: str = "") -> None:
        """Track it, then let it run, unless the engine pauses or has stopped meanwhile."""
        self._track(instance)
        if self.facts.heard:
            self.facts.tell("started", instance.key, instance.version, instance.id, detail)
        state = self.engine.state
        if state is State.STARTED:
            self.launch(instance, version)
        elif state is State.PAUSED:
            self._pending[instance.id] = instance
        else:
            self._end(instance, InstanceState.CANCELLED)  # its record goes on elsewhere

    def _track(self, instance: Instance) -> None:
        instance.elsewhere = False
        self._running[instance.id] = instance
        if instance.unique is not None:
            self.idempotent[instance.unique] = instance

    def make_room(self) -> None:
        """A paused engine holds back so many starts, and then does what ``when_full`` says."""
        if not self._pending:
            return
        limits = self.engine.limits
        if len(self._pending) < limits.buffered or self.engine.state is not State.PAUSED:
            return
        if limits.when_full == "refuse":
            raise QueueFull(
                f"the paused engine holds back {len(self._pending)} starts and its limit is "
                f"{limits.buffered}"
            )
        oldest = self._pending.pop(next(iter(self._pending)))
        self._drop(oldest, InstanceState.CANCELLED, "dropped by a paused engine")

    def launch(self, instance: Instance, version: Version) -> None:
        """Let a tracked instance run."""
        outside("an instance was launched")
        instance.state = InstanceState.RUNNING
        instance.task = asyncio.get_running_loop().create_task(self._run(instance, version))

    def _drop(self, instance: Instance, state: InstanceState, error: str = "") -> None:
        """End an instance that has no task of its own; on a store, unless another engine
        is to go on with it."""
        if self._journal is None or self.stopping:
            self._end(instance, state, error=error)
        else:
            closing = self._close(instance, state, error=error)
            instance.task = asyncio.get_running_loop().create_task(closing)

    def launch_pending(self) -> None:
        """Let run what was started while the engine was paused."""
        pending, self._pending = self._pending, {}
        for instance in pending.values():
            version = self._registry.version_locked(instance.key, instance.version)
            if instance.state.ended:
                continue
            if version is None:
                self._drop(instance, InstanceState.FAILED, missing(instance))
            else:
                self.launch(instance, version)

    # ---------------------------------------------------------------------------- running

    async def _run(self, instance: Instance, version: Version) -> None:
        instance.begun = True
        try:
            context = Context(self, instance, version)
            definition = version.definition
            if definition.on_loop:
                result = await definition.body(context)
            else:
                threaded = ThreadContext(context, asyncio.get_running_loop())
                result = await asyncio.to_thread(definition.body, threaded)
            if self._journal is not None:
                result = codec.decode(codec.encode(result))
        except asyncio.CancelledError:
            # A durable instance of an engine that stops goes on elsewhere: its record says so.
            if self._journal is not None and self.stopping:
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
            if self._journal is None and not instance.inbox:
                self._end(instance, InstanceState.COMPLETED, result)
            else:
                await self._close(instance, InstanceState.COMPLETED, result)

    async def settle(self, instance: Instance, state: InstanceState, error: str = "") -> None:
        """End an instance that does not run here at all."""
        self._track(instance)
        await self._close(instance, state, error=error)

    async def _close(
        self,
        instance: Instance,
        state: InstanceState,
        result: Any = None,
        error: str = "",
    ) -> None:
        """End it; on a store, write that first, however often it takes, unless it has passed on."""
        unread = [each.name for each in instance.inbox]
        again, refusal = False, ""
        while self._journal is not None:
            try:
                if again:
                    await asyncio.sleep(RETRY_S)
                unread = await self._journal.finish(instance, state, result, error)
                self._journal.ended(instance)
                break
            except asyncio.CancelledError:
                again = False  # it is ending: whoever cancels it now asks for what is under way
            except (LeaseLost, InvalidState) as lost:
                state, result, error = InstanceState.CANCELLED, None, str(lost)
                break
            except _TROUBLE as trouble:
                self.facts.tell("engine", instance=instance.id, detail=trouble.code)
                if self.stopping or isinstance(trouble, StoreClosed):  # which never opens again
                    state, result, error = InstanceState.CANCELLED, None, f"not stored: {trouble}"
                    break
                again = True
            except UsageError as bad:  # too large for the store, perhaps with this reason as well
                again = state is InstanceState.FAILED and refusal != "" and not error
                state, result, error = InstanceState.FAILED, None, "" if refusal else str(bad)
                refusal = refusal or error
        for name in unread:
            self.facts.tell("unread", instance.key, instance.version, instance.id, name)
        self._end(instance, state, result, error or refusal)

    def _end(
        self, instance: Instance, state: InstanceState, result: Any = None, error: str = ""
    ) -> None:
        self._running.pop(instance.id, None)
        if self._pending:
            self._pending.pop(instance.id, None)
        if instance.correlation is not None:
            self.local.ended(instance)
        self._finished[instance.id] = instance
        if len(self._finished) > self._kept:
            self._forget(next(iter(self._finished)))
        instance.finish(state, result, error)
        if self.facts.heard:
            self.facts.tell("ended", instance.key, instance.version, instance.id, state.value)

    async def keep_step(self, instance: Instance, name: str, value: Any) -> None:
        """Store a step's result; on a store, in a commit that only the owner can make."""
        if self._journal is not None:
            value = await self._journal.keep_step(instance, name, value)
        instance.results[name] = value
        self.facts.tell("step", instance.key, instance.version, instance.id, name)

    # --------------------------------------------------------------------------- messages

    def arrived(self, instance_id: str, message: Delivered) -> None:
        """A message came into an inbox; the instance is told if it runs here."""
        instance = self._running.get(instance_id)
        if instance is not None:
            instance.wake()
            self.facts.tell("delivered", instance.key, instance.version, instance.id, message.name)

    async def receive(
        self, instance: Instance, name: str, step: str, wait_ms: int | None
    ) -> Delivered | None:
        """Wait for message ``name`` and make it the result of ``step``; None if none came."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                arrived = instance.arrived = loop.create_future()
                message, left = await self.post.take(instance, name, step, wait_ms)
                if message is not None:
                    return message
                if left is None:
                    await arrived
                    continue
                try:
                    async with asyncio.timeout(left):
                        await arrived
                except TimeoutError:
                    return await self._give_up(instance, name, step)
        finally:
            instance.arrived = None
            self.local.leave(instance, name)

    async def _give_up(self, instance: Instance, name: str, step: str) -> Delivered | None:
        came = await self.post.give_up(instance, name, step)
        if came is None:
            instance.results[timeout_of(step)] = True
        return came

    # --------------------------------------------------------------------------- stopping

    def cancel(self, instance: Instance) -> None:
        """Ask an instance to stop."""
        if instance.task is not None:
            instance.task.cancel()
        if not instance.begun and not instance.state.ended:
            # A task that is cancelled before its first step runs none of its own code.
            instance.begun = True
            self._drop(instance, InstanceState.CANCELLED)

    async def wait_all(self, timeout: float, *, cancel: bool) -> list[str]:
        """Wait until nothing runs, cancelling it first or not; the ids of what is left.

        Looks again after each wait, since an instance may have started meanwhile.  Never waits
        for the task that calls it.
        """
        me = asyncio.current_task()
        end = self.engine.clock.monotonic() + timeout
        asked: set[str] = set()
        while True:
            others = [each for each in self._running.values() if each.task is not me]
            if not others and not self.starting:
                return []
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
                await asyncio.sleep(0 if others else STARTING_S)

    # --------------------------------------------------------------------------- looking

    def running(self, instance_id: str) -> Instance | None:
        """An instance that this engine runs."""
        return self._running.get(instance_id)

    def find(self, instance_id: str) -> Instance | None:
        """An instance by its id."""
        return self._running.get(instance_id) or self._finished.get(instance_id)

    async def known(self, instance_id: str) -> Instance:
        """An instance here, or by its record at another engine; ``NotFound`` without one."""
        found = self.find(instance_id)
        if found is not None:
            return found
        if self._journal is None or not _is_id(instance_id):
            raise NotFound(f"there is no instance {instance_id!r:.80}", key=instance_id)
        stored = await self._journal.load(instance_id)
        if stored is None:
            raise NotFound(f"instance {instance_id!r} has gone, or never was", key=instance_id)
        return self.find(instance_id) or thaw(stored)  # taken over meanwhile

    async def page(self, after: str, limit: int) -> list[Instance]:
        """Up to ``limit`` instances behind that id, in the order of their records."""
        if after and not _is_id(after):
            raise UsageError(f"expected an instance's id behind after=, found {after!r:.80}")
        if self._journal is None:
            ids = sorted(each.id for each in self.all() if each.id > after)
            return [each for each in map(self.find, ids[:limit]) if each is not None]
        found = await self._journal.page(after, limit)
        return [self.find(each.id) or thaw(each) for each in found]

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
            self.idempotent.pop(gone.unique, None)


def _is_id(text: str) -> bool:
    """Whether it looks like an instance's id: clocks mint letters and digits only."""
    return len(text) <= 64 and text.isascii() and text.replace("-", "").isalnum()
