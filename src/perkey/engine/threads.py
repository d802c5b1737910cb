"""The engine for threads: an ``AsyncEngine`` on a loop thread of its own.

Any number of threads may call it.  Async bodies run on the loop thread, sync bodies on worker
threads; both may use the engine, the former through ``ctx.engine``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from perkey.clock import SYSTEM, Clock
from perkey.engine.definitions import Definition
from perkey.engine.dispatch import Published
from perkey.engine.engine import AsyncEngine
from perkey.engine.facts import Observer, Subscription
from perkey.engine.handles import Handle, Seen
from perkey.engine.hub import Broker
from perkey.engine.instances import Delivered, InstanceState
from perkey.engine.lifecycle import State
from perkey.engine.limits import EngineLimits
from perkey.engine.registry import Registration, Starter
from perkey.errors import InvalidState, WrongColour
from perkey.stores import AsyncStore, Store

T = TypeVar("T")


class Engine:
    """Runs versioned processes, for threads."""

    def __init__(
        self,
        store: Store | None = None,
        *,
        name: str = "",
        limits: EngineLimits | None = None,
        broker: Broker | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        shared = None if store is None else AsyncStore.sharing(store)
        self._loop = asyncio.new_event_loop()
        self._mutex = threading.Lock()
        self._calls = 0
        """How many threads wait for the loop, which must not stop under them."""
        self._ended = False
        self._thread = threading.Thread(target=self._serve, name="perkey-engine", daemon=True)
        self._thread.start()
        self.aio = AsyncEngine(shared, name=name, limits=limits, broker=broker, clock=clock)
        """The same engine, for code on its loop."""

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, T], ended: str = "the engine is stopped") -> T:
        """Run ``work`` on the engine's loop and wait for it; ``ended`` says that it has gone."""
        if threading.current_thread() is self._thread:
            work.close()
            raise WrongColour(
                "this call would wait for the loop it runs on; in an async body use ctx.engine"
            )
        with self._mutex:
            if self._ended:
                work.close()
                raise InvalidState(ended, state=str(self.state))
            self._calls += 1
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        finally:
            # The loop cannot have ended: this call still counts.
            if self.state is State.STOPPED:
                self._loop.call_soon_threadsafe(self._end_when_idle)
            with self._mutex:
                self._calls -= 1

    def _end_when_idle(self) -> None:
        """Stop the loop when nothing runs on it and no thread waits for it."""
        with self._mutex:
            if self._ended:
                return
            self._ended = not self._calls and not asyncio.all_tasks(self._loop)
            if self._ended:
                self._loop.stop()
                return
        self._loop.call_later(0.05, self._end_when_idle)

    @property
    def id(self) -> str:
        """Names this engine in receipts and in the store."""
        return self.aio.id

    @property
    def state(self) -> State:
        """What the engine is doing.  Never waits, whatever anyone holds."""
        return self.aio.state

    @property
    def durable(self) -> bool:
        """Whether instances survive this process."""
        return self.aio.durable

    def update_state(self, new: State) -> None:
        """Like ``AsyncEngine.update_state``."""
        self._wait(_later(self.aio.update_state, new))

    def run(self) -> None:
        """Like ``AsyncEngine.run``."""
        self._wait(self.aio.run(), "Run: engine already stopped")

    def pause(self) -> None:
        """Like ``AsyncEngine.pause``."""
        self._wait(self.aio.pause())

    def resume(self) -> None:
        """Like ``AsyncEngine.resume``."""
        self._wait(self.aio.resume())

    def drain(self, timeout: float = 60.0) -> None:
        """Like ``AsyncEngine.drain``."""
        self._wait(self.aio.drain(timeout))

    def shutdown(self, timeout: float = 10.0) -> None:
        """Like ``AsyncEngine.shutdown``; the loop's thread ends with the last instance."""
        try:
            self._wait(self.aio.shutdown(timeout))
        except InvalidState:
            if not self._ended:  # else another caller shut it down, which is all that was asked
                raise

    def register_process(
        self, definition: Definition, *, manual: bool = False, dedupe: bool = False
    ) -> Registration:
        """Like ``AsyncEngine.register_process``."""
        return self._wait(self.aio.register_process(definition, manual=manual, dedupe=dedupe))

    def unregister_version(self, receipt: Registration) -> None:
        """Like ``AsyncEngine.unregister_version``."""
        self._wait(self.aio.unregister_version(receipt))

    def unregister_process(self, key: str) -> None:
        """Like ``AsyncEngine.unregister_process``."""
        self._wait(self.aio.unregister_process(key))

    def registrations(self, key: str) -> list[Registration]:
        """The receipts of ``key``, ascending."""
        return self.aio.registrations(key)

    def keys(self) -> list[str]:
        """The keys that have a version, in order."""
        return self.aio.keys()

    def starters(self) -> list[Starter]:
        """Every trigger of every key's latest version."""
        return self.aio.starters()

    def start_process(
        self,
        receipt: Registration,
        *,
        variables: dict[str, Any] | None = None,
        business_key: str = "",
        idempotency_key: str | None = None,
    ) -> ThreadHandle:
        """Like ``AsyncEngine.start_process``."""
        started = self.aio.start_process(
            receipt,
            variables=variables,
            business_key=business_key,
            idempotency_key=idempotency_key,
        )
        return ThreadHandle(self, self._wait(started))

    def start_latest(
        self,
        key: str,
        *,
        variables: dict[str, Any] | None = None,
        business_key: str = "",
        idempotency_key: str | None = None,
    ) -> ThreadHandle:
        """Like ``AsyncEngine.start_latest``."""
        started = self.aio.start_latest(
            key, variables=variables, business_key=business_key, idempotency_key=idempotency_key
        )
        return ThreadHandle(self, self._wait(started))

    def start_version(
        self,
        key: str,
        number: int,
        *,
        variables: dict[str, Any] | None = None,
        business_key: str = "",
        idempotency_key: str | None = None,
    ) -> ThreadHandle:
        """Like ``AsyncEngine.start_version``."""
        started = self.aio.start_version(
            key,
            number,
            variables=variables,
            business_key=business_key,
            idempotency_key=idempotency_key,
        )
        return ThreadHandle(self, self._wait(started))

    def publish(
        self,
        name: str,
        payload: Any = None,
        *,
        key: str | None = None,
        message_id: str | None = None,
        ttl: float = 0.0,
    ) -> Published:
        """Like ``AsyncEngine.publish``."""
        sent = self.aio.publish(name, payload, key=key, message_id=message_id, ttl=ttl)
        return self._wait(sent)

    def signal(self, name: str, payload: Any = None) -> list[ThreadHandle]:
        """Like ``AsyncEngine.signal``."""
        return [ThreadHandle(self, each) for each in self._wait(self.aio.signal(name, payload))]

    def dead_letters(self) -> list[tuple[Delivered, str]]:
        """Like ``AsyncEngine.dead_letters``."""
        return self.aio.dead_letters()

    def instance(self, instance_id: str) -> ThreadHandle:
        """Like ``AsyncEngine.instance``."""
        return ThreadHandle(self, self.aio.instance(instance_id))

    def look_up(self, instance_id: str) -> ThreadHandle:
        """Like ``AsyncEngine.look_up``."""
        return ThreadHandle(self, self._wait(self.aio.look_up(instance_id)))

    def look_through(self, *, after: str = "", limit: int = 100) -> list[ThreadHandle]:
        """Like ``AsyncEngine.look_through``."""
        found = self._wait(self.aio.look_through(after=after, limit=limit))
        return [ThreadHandle(self, each) for each in found]

    def instances(self, key: str = "") -> list[ThreadHandle]:
        """Like ``AsyncEngine.instances``."""
        found = self._wait(_later(self.aio.instances, key))
        return [ThreadHandle(self, each) for each in found]

    def forget(self, ids: list[str]) -> None:
        """Like ``AsyncEngine.forget``."""
        self._wait(_later(self.aio.forget, ids))

    def observe(self, observer: Observer, *, limit: int = 256) -> Subscription:
        """Like ``AsyncEngine.observe``."""
        return self.aio.observe(observer, limit=limit)

    def __enter__(self) -> Engine:
        self.run()
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()


class ThreadHandle(Seen):
    """A view of one instance, for threads; equal to every other handle on it."""

    __slots__ = ("_engine", "_handle")

    def __init__(self, engine: Engine, handle: Handle) -> None:
        super().__init__(handle._instance, handle.replayed)
        self._engine = engine
        self._handle = handle

    def wait(self, timeout: float | None = None) -> InstanceState:
        """Like ``Handle.wait``, blocking this thread."""
        if self.state.ended:
            return self.state
        return self._engine._wait(self._handle.wait(timeout))

    def cancel(self, timeout: float | None = 10.0) -> InstanceState:
        """Like ``Handle.cancel``, blocking this thread."""
        if self.state.ended:
            return self.state
        return self._engine._wait(self._handle.cancel(timeout))

    def observe(self, observer: Observer, *, limit: int = 256) -> Subscription:
        """Like ``Handle.observe``."""
        return self._handle.observe(observer, limit=limit)


async def _later(call: Any, *args: Any) -> Any:
    return call(*args)
