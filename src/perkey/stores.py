"""``Store`` and ``AsyncStore``: one open store, in the two colours.

Both are thin: what happens is in ``flows.records``, how it waits is in ``drivers``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from typing import Any, Self

from perkey.clock import SYSTEM, Clock
from perkey.drivers import tasks, threads
from perkey.errors import UsageError
from perkey.flows import arguments, records, steps
from perkey.observe.hooks import Hook
from perkey.store.abc import Backend
from perkey.store.core import Core
from perkey.store.keys import DOCUMENTS
from perkey.store.limits import Limits, checked
from perkey.store.transaction import Fence, Fn, runs_later
from perkey.store.url import open_backend, parse
from perkey.store.views import Document
from perkey.store.watch import AsyncWatch, Watch

MISSING = records.MISSING
PAGE = 500


class _Base:
    """What needs no waiting, the same in both colours."""

    def __init__(
        self,
        backend: Backend,
        *,
        clock: Clock = SYSTEM,
        observers: Sequence[Hook] = (),
        strict: bool = False,
        lane: threading.Lock | None = None,
    ) -> None:
        self.core = Core(backend, clock=clock, observers=tuple(observers), strict=strict, lane=lane)

    @classmethod
    def sharing(cls, other: _Base) -> Self:
        """The same open store in this colour; closing either closes both."""
        store = cls.__new__(cls)
        store.core = other.core
        return store

    @property
    def limits(self) -> Limits:
        """The limits this store was opened with."""
        return self.core.limits

    @property
    def backend(self) -> Backend:
        """The backend below; call it only through this store."""
        return self.core.backend

    def statistics(self) -> dict[str, Any]:
        """Counters since opening: commits, batches, events, attempts, conflict rates."""
        return self.core.statistics()

    def observe(self, hook: Hook) -> None:
        """Call ``hook`` with every event from now on."""
        check_hook(hook)
        self.core.observers.add(hook)

    def trace(self, provider: Any = None, *, keys: bool = False) -> None:
        """From now on, an OpenTelemetry span for each transaction; needs ``perkey[otel]``.

        ``provider``: a tracer provider; None takes the program's own.  With ``keys`` the spans
        say which keys; without, they never do.  Again replaces what was set before.
        """
        from perkey.drivers.spans import Spans

        if self.core.spans is not None:
            self.core.observers.remove(self.core.spans.hook)
        self.core.spans = spans = Spans(self.core.backend.name, provider, keys)
        self.core.observers.add(spans.hook)

    def _watched(self, flow: steps.Flow[Any]) -> steps.Flow[Any]:
        spans = self.core.spans
        return flow if spans is None else spans.flow(flow)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.core.backend.name}>"


class Store(_Base):
    """One open store, for threads.  Safe to share between threads; not across ``fork()``."""

    def run(self, flow: steps.Flow[Any]) -> Any:
        """Drive a flow of ``perkey.flows`` on this store."""
        return threads.run(self._watched(flow), self.core)

    def run_step(self, step: steps.Step) -> Any:
        """Like ``run`` with the flow of this one step: its answer, or what it raises."""
        return self.run(steps.alone(step))

    def transact(
        self,
        keys: str | Sequence[str],
        fn: Fn,
        *,
        by: str = "",
        idempotency_key: str | None = None,
        payload: Any = None,
        fence: Fence | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Run the pure ``fn(tx)`` over exactly ``keys`` and commit what it assigned.

        All or nothing.  ``fn`` may run again, so it must do no I/O.  Its exception rolls back
        this transaction alone and is raised here.  With ``idempotency_key`` the result is
        stored in the same commit: a repeat returns it without running ``fn``, and another
        ``payload`` (default: the keys) raises ``KeyReused``.  ``fence`` must still be held,
        or ``LeaseLost``.  ``timeout`` bounds the wait for the transaction's turn, in seconds;
        ``Timeout`` says that nothing was done, ``OutcomeUnknown`` that nobody knows.
        """
        flow = records.transact(
            keys,
            fn,
            by=by,
            idempotency_key=idempotency_key,
            payload=payload,
            fence=fence,
            timeout=timeout,
        )
        return self.run(flow).result

    def get(self, key: str, default: Any = MISSING) -> Any:
        """The ``Document`` at ``key``; ``NotFound`` where there is none, unless ``default``."""
        return self.run(records.get(key, default))

    def get_many(self, keys: Sequence[str]) -> dict[str, Document]:
        """Those documents that exist among ``keys``, all of one moment."""
        found: dict[str, Document] = self.run(records.get_many(keys))
        return found

    def put(
        self,
        key: str,
        value: Any,
        *,
        if_match: int | None = None,
        create: bool = False,
        overwrite: bool = False,
        base: int | None = None,
        by: str = "",
        fence: Fence | None = None,
        timeout: float | None = None,
    ) -> Document:
        """Write a whole value: at exactly version ``if_match``, only ``create``, or
        ``overwrite`` whatever is there (``base``: the version you had read, for the record).

        Raises ``Conflict`` when the condition does not hold.
        """
        flow = records.put(
            key,
            value,
            if_match=if_match,
            create=create,
            overwrite=overwrite,
            base=base,
            by=by,
            fence=fence,
            timeout=timeout,
        )
        written: Document = self.run(flow)
        return written

    def delete(
        self,
        key: str,
        *,
        if_match: int | None = None,
        by: str = "",
        fence: Fence | None = None,
        timeout: float | None = None,
    ) -> Document:
        """Delete: leaves a tombstone whose version goes on counting."""
        flow = records.delete(key, if_match=if_match, by=by, fence=fence, timeout=timeout)
        erased: Document = self.run(flow)
        return erased

    def scan(self, prefix: str = "", *, after: str = "") -> Iterator[Document]:
        """All live documents under ``prefix`` above ``after``, in key order, page by page."""
        while page := self.run(records.scan(prefix, after, PAGE)):
            yield from page
            after = page[-1].key

    def history(self, key: str, *, after: int = 0, limit: int = 1000) -> list[Document]:
        """Up to ``limit`` kept versions above ``after``, ascending, deletes included."""
        versions: list[Document] = self.run(records.history(key, after, limit))
        return versions

    def watch(self, prefix: str = "", *, after: str | None = None) -> Watch:
        """Every version under ``prefix`` in order, then live.

        ``after=None`` begins now, ``""`` with the oldest kept version, a cursor right behind
        it.  Yields ``Change``, ``Synced`` and ``Gap``.  Threads may share it: each item goes to
        one of them.
        """
        check_watch(prefix, after)
        self.core.check_open()
        return Watch(self.core, DOCUMENTS + prefix, after)

    def now_ms(self) -> int:
        """The store's time, in milliseconds since the epoch."""
        now: int = self.core.read(lambda backend: backend.now_ms())
        return now

    def close(self) -> None:
        """Finish what was handed over and close.  More than once is harmless."""
        self.core.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AsyncStore(_Base):
    """One open store, for asyncio.  Several loops and threads may share it."""

    async def run(self, flow: steps.Flow[Any]) -> Any:
        """Drive a flow of ``perkey.flows`` on this store."""
        return await tasks.run(self._watched(flow), self.core)

    def run_step(self, step: steps.Step) -> Coroutine[Any, Any, Any]:
        """Like ``Store.run_step``; to be awaited."""
        if self.core.spans is None:
            return tasks.run_step(step, self.core)
        return self.run(steps.alone(step))

    async def transact(
        self,
        keys: str | Sequence[str],
        fn: Fn,
        *,
        by: str = "",
        idempotency_key: str | None = None,
        payload: Any = None,
        fence: Fence | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Like ``Store.transact``.  Cancelled while queued it is withdrawn; once handed over
        it commits, and its ``op`` in the record tells."""
        flow = records.transact(
            keys,
            fn,
            by=by,
            idempotency_key=idempotency_key,
            payload=payload,
            fence=fence,
            timeout=timeout,
        )
        return (await tasks.run(self._watched(flow), self.core)).result

    async def get(self, key: str, default: Any = MISSING) -> Any:
        """Like ``Store.get``."""
        return await self.run(records.get(key, default))

    async def get_many(self, keys: Sequence[str]) -> dict[str, Document]:
        """Like ``Store.get_many``."""
        found: dict[str, Document] = await self.run(records.get_many(keys))
        return found

    async def put(
        self,
        key: str,
        value: Any,
        *,
        if_match: int | None = None,
        create: bool = False,
        overwrite: bool = False,
        base: int | None = None,
        by: str = "",
        fence: Fence | None = None,
        timeout: float | None = None,
    ) -> Document:
        """Like ``Store.put``."""
        flow = records.put(
            key,
            value,
            if_match=if_match,
            create=create,
            overwrite=overwrite,
            base=base,
            by=by,
            fence=fence,
            timeout=timeout,
        )
        written: Document = await self.run(flow)
        return written

    async def delete(
        self,
        key: str,
        *,
        if_match: int | None = None,
        by: str = "",
        fence: Fence | None = None,
        timeout: float | None = None,
    ) -> Document:
        """Like ``Store.delete``."""
        flow = records.delete(key, if_match=if_match, by=by, fence=fence, timeout=timeout)
        erased: Document = await self.run(flow)
        return erased

    async def scan(self, prefix: str = "", *, after: str = "") -> AsyncIterator[Document]:
        """Like ``Store.scan``."""
        while page := await self.run(records.scan(prefix, after, PAGE)):
            for found in page:
                yield found
            after = page[-1].key

    async def history(self, key: str, *, after: int = 0, limit: int = 1000) -> list[Document]:
        """Like ``Store.history``."""
        versions: list[Document] = await self.run(records.history(key, after, limit))
        return versions

    def watch(self, prefix: str = "", *, after: str | None = None) -> AsyncWatch:
        """Like ``Store.watch``.  "Now" is when it is entered (``async with``), awaited or asked
        for its first item, and at the latest before the next commit of this process.  The tasks
        of one loop may share it."""
        check_watch(prefix, after)
        self.core.check_open()
        return AsyncWatch(self.core, DOCUMENTS + prefix, after)

    async def now_ms(self) -> int:
        """Like ``Store.now_ms``."""
        now: int = await self.core.read_async(lambda backend: backend.now_ms())
        return now

    async def close(self) -> None:
        """Like ``Store.close``, off the loop where it may block."""
        if self.core.backend.blocking:
            await asyncio.to_thread(self.core.close)
        else:
            self.core.close()

    async def __aenter__(self) -> AsyncStore:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def check_watch(prefix: object, after: object) -> None:
    """What a watcher begins with is text."""
    arguments.text("the prefix", prefix)
    if after is not None:
        arguments.text("after=", after)


def check_hook(hook: object) -> None:
    """A hook is a plain function of one event."""
    if not callable(hook):
        raise UsageError(f"expected a function of one event, found {type(hook).__name__}")
    if runs_later(hook):
        raise UsageError(
            "expected a plain function of one event, found an async function or a generator, "
            "whose body would never run; let it put the event into a queue"
        )


def check_opening(limits: object, observers: Any, strict: object) -> Limits:
    """What a store is opened with; returns its limits."""
    arguments.flag("strict=", strict)
    arguments.several("observers=", observers, "functions of one event")
    for hook in observers:
        check_hook(hook)
    return checked(limits)


def open_store(
    url: str,
    *,
    limits: Limits | None = None,
    observers: Sequence[Hook] = (),
    strict: bool = False,
    clock: Clock = SYSTEM,
) -> Store:
    """Open the store at ``url`` for threads: ``sqlite:///work.db``, ``memory://``, ...

    With ``strict`` every transaction's function runs twice and differing answers raise
    ``ImpureMutation``.
    """
    wanted = check_opening(limits, observers, strict)
    backend = open_backend(url, wanted, clock)
    return Store(backend, clock=clock, observers=observers, strict=strict)


async def aopen_store(
    url: str,
    *,
    limits: Limits | None = None,
    observers: Sequence[Hook] = (),
    strict: bool = False,
    clock: Clock = SYSTEM,
) -> AsyncStore:
    """Like ``open_store``, for asyncio; connects off the loop."""
    wanted = check_opening(limits, observers, strict)
    if parse(url).scheme == "memory":
        backend = open_backend(url, wanted, clock)
    else:
        backend = await asyncio.to_thread(open_backend, url, wanted, clock)
    return AsyncStore(backend, clock=clock, observers=observers, strict=strict)
