"""The engine on asyncio.

Where things are decided: the state in ``lifecycle.Cell``; which versions exist in
``registry``; which triggers are open in ``hub``; what a message does in ``dispatch``; what is
kept in ``journal``.  This module is the control flow between them.

Lock order: a process key's lock (held over a whole register or unregister, hub included),
then the registry's lock (inside its helpers only), released, then the hub.
"""

from __future__ import annotations

import asyncio
from typing import Any

from perkey.clock import SYSTEM, Clock
from perkey.engine.arguments import check_id, check_ids, check_key, check_receipt
from perkey.engine.definitions import Definition, Timer
from perkey.engine.deployments import Deployments
from perkey.engine.dispatch import Dispatcher, Published
from perkey.engine.facts import Facts, Observer, Subscription
from perkey.engine.handles import Handle
from perkey.engine.hub import Broker, Hub, LocalBroker
from perkey.engine.instances import Delivered
from perkey.engine.journal import Journal
from perkey.engine.lifecycle import Cell, State, move_by_hand
from perkey.engine.limits import EngineLimits
from perkey.engine.registry import Registration, Registry, Starter
from perkey.engine.runner import Runner
from perkey.engine.starts import Starts
from perkey.errors import InvalidState, NotFound, NotSupported, StillRunning, UsageError
from perkey.store.core import MULTI_KEY_STORES
from perkey.stores import AsyncStore

LEAST_S = 0.1
"""How long each part of a shutdown may take at the least, in seconds."""


class AsyncEngine:
    """Runs versioned processes.  In memory, or durable on a store that several engines share.

    All methods but ``state`` belong to the loop that first used the engine; for threads there
    is ``Engine``.  Leave it with ``async with`` or ``shutdown``, then durable instances go on
    elsewhere.  A loop that ends under a running engine cancels all tasks: to an instance that is
    no different from being cancelled by somebody, and is stored as such.
    """

    def __init__(
        self,
        store: AsyncStore | None = None,
        *,
        name: str = "",
        limits: EngineLimits | None = None,
        broker: Broker | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        atomic = None if store is None else store.backend.atomic_keys
        if atomic is not None and atomic < 6:
            raise NotSupported(
                "an engine commits an instance with its indexes at once, and this store commits "
                f"at most {atomic} keys; use {MULTI_KEY_STORES}"
            )
        self.limits = limits or EngineLimits()
        self.id = f"{name or 'engine'}-{clock.token()}"
        self.clock = clock
        self.store = store
        self._cell = Cell()
        self._registry = Registry()
        self._facts = Facts()
        self._stopped = asyncio.Event()
        self._journal = None if store is None else Journal(store, self.id, self.limits.lease_s)
        self._runner = Runner(self, self._registry, self._journal, self._facts)
        self._starts = Starts(self, self._runner, self._journal)
        self._hub = Hub(broker or LocalBroker(), self._tick, self._runner.now_ms, self._facts)
        self._dispatch = Dispatcher(self._registry, self._hub, self._runner, self._starts, self)
        self._deployments = Deployments(
            self, self._registry, self._hub, self._journal, self._dispatch, self._facts
        )
        self.draining = False
        """Nothing new is started or taken over; what runs may finish."""
        self._resuming: asyncio.Task[None] | None = None
        self._last: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------------ lifecycle

    @property
    def state(self) -> State:
        """What the engine is doing.  Never waits, whatever anyone holds."""
        return self._cell.get()

    @property
    def durable(self) -> bool:
        """Whether instances survive this process."""
        return self._journal is not None

    def update_state(self, new: State) -> None:
        """Move between ``STARTED`` and ``PAUSED`` by hand."""
        move_by_hand(self._cell, new)
        if new is State.STARTED:
            self._resuming = asyncio.get_running_loop().create_task(self._resumed())

    async def run(self) -> None:
        """Start: open the hub, wire the latest version of every key, then be ``STARTED``.

        Exactly one caller wins; the others are told ``Run: engine already <state>``.  A failure
        on the way leaves nothing behind, and ``run`` can be called again.
        """
        if not self._cell.swap(State.NOT_STARTED, State.STARTING):
            raise InvalidState(f"Run: engine already {self.state}", state=str(self.state))
        try:
            if self._journal is not None:
                await self._journal.take_lease()
            await self._hub.start()
            await self._deployments.wire_all()
        except BaseException:
            await self._hub.stop()
            if self._journal is not None:
                await self._journal.give_lease()
            self._cell.swap(State.STARTING, State.NOT_STARTED)
            raise
        self._cell.swap(State.STARTING, State.STARTED)
        if self._runner.neighbours is not None:
            self._runner.neighbours.start(self.limits.lease_s, self._lost_lease)
        self._facts.tell("engine", detail="started")

    async def pause(self) -> None:
        """Hold back starts and registry changes until ``resume``; running instances go on."""
        self.update_state(State.PAUSED)
        self._facts.tell("engine", detail="paused")

    async def resume(self) -> None:
        """Let what was held back happen, in order."""
        move_by_hand(self._cell, State.STARTED)
        await self._resumed()

    async def _resumed(self) -> None:
        await self._deployments.wire_all()
        self._facts.tell("engine", detail="resumed")
        await self._dispatch.resume()

    async def drain(self, timeout: float = 60.0) -> None:
        """No new starts; let the running ones finish; then stop.

        ``StillRunning`` names those that did not finish in ``timeout`` seconds; the engine then
        goes on draining.
        """
        if self.state not in (State.STARTED, State.PAUSED):
            raise InvalidState(f"cannot drain: the engine is {self.state}", state=str(self.state))
        self.draining = True
        left = await self._runner.wait_all(timeout, cancel=False)
        if left:
            raise StillRunning(f"{len(left)} instances are still running", ids=left)
        await self.shutdown(timeout)

    async def shutdown(self, timeout: float = 10.0) -> None:
        """Cancel what runs, close the hub, be ``STOPPED``; within ``timeout`` seconds.

        May be called any number of times, from anywhere, also from inside a process or an
        observer: one caller tears down, the others wait.  ``StillRunning`` names instances
        that did not stop; the engine is stopped all the same.
        """
        while True:
            state = self.state
            if state is State.STOPPED:
                return
            if state is State.STARTING:
                raise InvalidState("engine is starting; shut it down when run() has returned")
            if state is State.STOPPING:
                await self._wait_stopped(timeout)
                return
            if state is State.NOT_STARTED:
                if self._cell.swap(state, State.STOPPED):
                    self._stopped.set()
                    return
            elif self._cell.swap(state, State.STOPPING):
                await self._tear_down(timeout)
                return

    async def _wait_stopped(self, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._stopped.wait()
        except TimeoutError:
            raise StillRunning("another caller is still shutting this engine down") from None

    async def _tear_down(self, timeout: float) -> None:
        end = self.clock.monotonic() + timeout
        try:
            if self._runner.neighbours is not None:
                self._runner.neighbours.stop()
            closing = asyncio.get_running_loop().create_task(self._hub.stop())
            left = await self._runner.wait_all(timeout, cancel=True)
            closed = await self._in_time(closing, end)
            if self._journal is not None and not left:
                giving = asyncio.get_running_loop().create_task(self._journal.give_lease())
                await self._in_time(giving, end)
        finally:
            self._cell.swap(State.STOPPING, State.STOPPED)
            self._stopped.set()
            self._facts.tell("engine", detail="stopped")
        if left:
            raise StillRunning(f"{len(left)} instances did not stop in time", ids=left)
        if not closed:
            raise StillRunning("the broker did not close every trigger in time")

    async def _in_time(self, task: asyncio.Task[None], end: float) -> bool:
        """Wait for ``task`` until ``end``, and leave it alone after that.

        The time may be up before it had any: others used it, or the machine stood still.
        """
        self._last = task
        left_s = max(end - self.clock.monotonic(), LEAST_S)
        await asyncio.wait({task}, timeout=left_s)
        if task.done():
            task.result()
        return task.done()

    # ------------------------------------------------------------------------- registry

    async def register_process(
        self, definition: Definition, *, manual: bool = False, dedupe: bool = False
    ) -> Registration:
        """Give ``definition`` the next version of its key, and make it the latest.

        ``manual``: its triggers stay closed.  ``dedupe``: if the latest version has the same
        content, return its receipt instead.  Refused definitions change nothing.
        """
        self._check_alive()
        return await self._deployments.register(definition, manual, dedupe)

    async def unregister_version(self, receipt: Registration) -> None:
        """Forget one version; if it was the latest, the newest that remains takes its place.

        Running instances keep the version they started with.
        """
        check_receipt(receipt, self.id, by_key="unregister_process")
        await self._deployments.unregister(receipt)

    async def unregister_process(self, key: str) -> None:
        """Forget every version of ``key``; its numbers are never given again."""
        check_key(key, "unregister_process")
        await self._deployments.unregister_all(key)

    def registrations(self, key: str) -> list[Registration]:
        """The receipts of ``key``, ascending."""
        check_key(key, "registrations")
        return self._registry.registrations_locked(key)

    def keys(self) -> list[str]:
        """The keys that have a version, in order."""
        return self._registry.keys_locked()

    def starters(self) -> list[Starter]:
        """Every trigger of every key's latest version."""
        return self._registry.starters_locked()

    # --------------------------------------------------------------------------- starts

    async def start_process(
        self,
        receipt: Registration,
        *,
        variables: dict[str, Any] | None = None,
        business_key: str = "",
        idempotency_key: str | None = None,
    ) -> Handle:
        """Start the very version of ``receipt``; refused once it is unregistered."""
        check_receipt(receipt, self.id, by_key="start_latest")
        version = self._registry.holds_locked(receipt)
        self._starts.check()
        begun = await self._starts.start(version, variables or {}, business_key, idempotency_key)
        return self._starts.handle(begun)

    async def start_latest(
        self,
        key: str,
        *,
        variables: dict[str, Any] | None = None,
        business_key: str = "",
        idempotency_key: str | None = None,
    ) -> Handle:
        """Start the latest version of ``key``."""
        check_key(key, "start_latest")
        version = self._registry.latest_locked(key)
        if version is None:
            raise NotFound(f"no process is registered as {key!r}", key=key)
        self._starts.check()
        begun = await self._starts.start(version, variables or {}, business_key, idempotency_key)
        return self._starts.handle(begun)

    async def start_version(
        self,
        key: str,
        number: int,
        *,
        variables: dict[str, Any] | None = None,
        business_key: str = "",
        idempotency_key: str | None = None,
    ) -> Handle:
        """Start version ``number`` of ``key``."""
        check_key(key, "start_version")
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise UsageError(f"expected a version from 1, found {number!r}")
        version = self._registry.version_locked(key, number)
        if version is None:
            raise NotFound(f"there is no version {number} of {key!r}", key=key, version=number)
        self._starts.check()
        begun = await self._starts.start(version, variables or {}, business_key, idempotency_key)
        return self._starts.handle(begun)

    def _check_alive(self) -> None:
        if self.state in (State.STOPPING, State.STOPPED):
            raise InvalidState(f"the engine is {self.state}", state=str(self.state))

    # --------------------------------------------------------------------------- events

    async def publish(
        self,
        name: str,
        payload: Any = None,
        *,
        key: str | None = None,
        message_id: str | None = None,
        ttl: float = 0.0,
    ) -> Published:
        """Send a message: to the live instance of its key, else it starts one.

        Returns when its instance is tracked.  ``message_id`` makes a redelivery harmless.  An
        unmatched message waits ``ttl`` seconds for someone who wants it.
        """
        self._starts.check()
        if not ttl >= 0:
            raise UsageError(f"expected ttl= of 0 seconds or more, found {ttl!r:.80}")
        return await self._dispatch.publish(name, payload, key, message_id, ttl)

    async def signal(self, name: str, payload: Any = None) -> list[Handle]:
        """Start one instance in every process that declares this signal."""
        self._starts.check()
        started = await self._dispatch.signal(name, payload)
        return [Handle(self._runner, instance) for instance in started]

    async def _tick(self, key: str, timer: Timer, due: int) -> None:
        if self.state is not State.STARTED or self.draining:
            return
        version = self._registry.latest_locked(key)
        if version is not None:
            tick = (key, timer.trigger, due)
            await self._starts.start(version, {}, trigger=Delivered("timer", due), tick=tick)

    def dead_letters(self) -> list[tuple[Delivered, str]]:
        """Messages whose key could not be read, with the error; the oldest first."""
        return self._dispatch.dead_letters()

    # ------------------------------------------------------------------------ instances

    def instance(self, instance_id: str) -> Handle:
        """The handle on an instance that this engine knows."""
        check_id(instance_id)
        found = self._runner.find(instance_id)
        if found is None:
            raise NotFound(f"this engine knows no instance {instance_id!r}", key=instance_id)
        return Handle(self._runner, found)

    async def look_up(self, instance_id: str) -> Handle:
        """The handle on an instance here, or of any other engine on this store, past ones
        included; ``NotFound`` where there is none."""
        check_id(instance_id)
        return Handle(self._runner, await self._runner.known(instance_id))

    async def look_through(self, *, after: str = "", limit: int = 100) -> list[Handle]:
        """Up to ``limit`` instances of all engines on this store, running and finished, in the
        order of their records, behind the one with the id ``after``.

        Each reads its whole record.  In memory: those that this engine knows.
        """
        check_id(after, "after=, the id of an instance,")
        if not 1 <= limit <= 1000:
            raise UsageError(f"expected limit= from 1 to 1000, found {limit!r:.80}")
        return [Handle(self._runner, each) for each in await self._runner.page(after, limit)]

    def instances(self, key: str = "") -> list[Handle]:
        """All known instances, running and finished, of one process or of all."""
        check_key(key, "instances")
        return [
            Handle(self._runner, each) for each in self._runner.all() if not key or each.key == key
        ]

    def forget(self, ids: list[str]) -> None:
        """Drop finished instances from memory; all or none, ``InvalidState`` if one runs."""
        check_ids(ids)
        self._runner.forget(ids)

    def observe(self, observer: Observer, *, limit: int = 256) -> Subscription:
        """Send facts to ``observer`` through a queue of ``limit``; it can harm nobody."""
        return self._facts.observe(observer, limit)

    def _lost_lease(self) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(self._give_up())

    async def _give_up(self) -> None:
        try:
            await self.shutdown(self.limits.lease_s)
        except StillRunning:
            pass  # named to whoever calls shutdown(); here nobody asked

    async def __aenter__(self) -> AsyncEngine:
        await self.run()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.shutdown()
