"""``Once``: operations that run once, in two modes that are never blurred.

*Atomic*: the operation is a perkey transaction.  Key, change and receipt are one commit, so
there is nothing in progress, nothing to get stuck, and no unknown outcome.

*External*: the operation acts on the outside world.  A claim is committed, then the effect
runs, then its receipt is committed.  Between the two nobody can promise anything, so a crash
there ends as *unknown* and never runs again by itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from perkey.errors import InProgress, Timeout
from perkey.flows.once import atomic, external, unresolved
from perkey.flows.once.listed import Slots
from perkey.flows.once.model import (
    NOT_DONE,
    UNKNOWN,
    Context,
    Operation,
    Options,
    Receipt,
    Unresolved,
    prepare,
)
from perkey.locks import KeyedLocks
from perkey.store.transaction import Fence, Fn
from perkey.stores import AsyncStore, Store

__all__ = [
    "NOT_DONE",
    "UNKNOWN",
    "AsyncOnce",
    "Context",
    "Once",
    "Receipt",
    "Unresolved",
    "once",
]

F = TypeVar("F", bound=Callable[..., Any])


class _Base:
    def __init__(self, store: Any, scope: str = "") -> None:
        self._store = store
        self._scope = scope
        self._locks = KeyedLocks()
        self._slots = Slots(store.core.clock.random())

    def statistics(self) -> dict[str, int]:
        """Calls by what became of them: ran, replayed, refused, in-progress, unknown, ..."""
        counts = self._store.core.observers.counts
        prefix = "Operated."
        return {
            name.removeprefix(prefix): count
            for name, count in dict(counts).items()
            if name.startswith(prefix)
        }

    def _prepare(self, operation: str, key: str, payload: Any, options: Options) -> Operation:
        op = prepare(self._scope, operation, key, payload, options)
        op.apart = self._apart
        return op

    @property
    def _apart(self) -> bool:
        """Whether the store commits one key at a time."""
        return bool(self._store.backend.atomic_keys == 1)


def _busy() -> InProgress:
    return InProgress(
        "an operation with this idempotency key is running in this process; ask again later",
        retry_after=1.0,
    )


class Once(_Base):
    """Operations that run once, for threads.  ``scope`` keeps tenants or users apart."""

    def __init__(self, store: Store, scope: str = "") -> None:
        super().__init__(store, scope)

    def transact(
        self,
        key: str,
        keys: str | Sequence[str],
        fn: Fn,
        *,
        payload: Any = None,
        operation: str = "transact",
        keep: float | None = None,
        by: str = "",
        fence: Fence | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Atomic mode: ``fn`` over ``keys`` and its receipt in one commit.

        Any exception rolls everything back and leaves ``key`` free.
        """
        flow = atomic.transact(
            self._scope,
            operation,
            key,
            keys,
            fn,
            payload=payload,
            keep=keep,
            by=by,
            fence=fence,
            timeout=timeout,
        )
        receipt: Receipt = self._store.run(flow)
        return receipt

    def run(
        self,
        key: str,
        payload: Any,
        effect: Callable[[Context], Any],
        *,
        operation: str = "run",
        lease: float = 30.0,
        keep: float | None = None,
        wait: float = 30.0,
        on_error: str = "free",
        remember: tuple[type[Exception], ...] = (),
        on_unknown: str = "raise",
        verify: Callable[[Context], Any] | None = None,
        by: str = "",
    ) -> Receipt:
        """External mode: run ``effect(context)`` once for ``key``, or replay its answer.

        Raises ``KeyReused`` for another ``payload``, ``InProgress`` when a running attempt
        does not end within ``wait`` seconds, ``OutcomeUnknown`` when an earlier attempt ended
        without an answer (unless ``verify(context)`` settles it with the effect's value,
        ``NOT_DONE`` or ``UNKNOWN``, or ``on_unknown="rerun"``), ``LeaseLost`` when this
        attempt outlived its lease, ``Expired`` after ``keep`` seconds.  An effect that raises
        leaves nothing (``on_error="unknown"`` where its failure is ambiguous).
        """
        options = Options(lease, keep, wait, on_error, remember, on_unknown, verify, by)
        op = self._prepare(operation, key, payload, options)
        ours = False
        try:
            with self._locks(op.record, timeout=wait), self._slots.lent(op):
                ours = True
                receipt: Receipt = self._store.run(external.run(op, effect))
                return receipt
        except Timeout as late:
            if ours:
                raise
            raise _busy() from late

    def unresolved(
        self, older_than: float = 0.0, limit: int = 1000, *, thorough: bool = False
    ) -> list[Unresolved]:
        """Up to ``limit`` operations, of all scopes, whose outcome nobody knows, claimed at least
        ``older_than`` seconds ago.

        Reads the index of open operations and what it names.  The first call on a store, and
        any ``thorough`` one, reads every receipt as well and enters what is missing: that is
        for claims of a perkey that kept no index, once the last such process is gone.
        """
        flow = unresolved.unresolved(older_than, limit, apart=self._apart, thorough=thorough)
        found: list[Unresolved] = self._store.run(flow)
        return found

    def resolve(
        self,
        key: str,
        *,
        operation: str = "run",
        value: Any = None,
        done: bool = True,
        by: str = "",
    ) -> None:
        """End an unknown operation: it happened and answered ``value``, or (``done=False``)
        it did not happen and may run again."""
        name = unresolved.Name(self._scope, operation, key)
        self._store.run(unresolved.resolve(name, value, done=done, by=by, apart=self._apart))


class AsyncOnce(_Base):
    """Operations that run once, for asyncio; effects may be sync or async."""

    def __init__(self, store: AsyncStore, scope: str = "") -> None:
        super().__init__(store, scope)

    async def transact(
        self,
        key: str,
        keys: str | Sequence[str],
        fn: Fn,
        *,
        payload: Any = None,
        operation: str = "transact",
        keep: float | None = None,
        by: str = "",
        fence: Fence | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Like ``Once.transact``."""
        flow = atomic.transact(
            self._scope,
            operation,
            key,
            keys,
            fn,
            payload=payload,
            keep=keep,
            by=by,
            fence=fence,
            timeout=timeout,
        )
        receipt: Receipt = await self._store.run(flow)
        return receipt

    async def run(
        self,
        key: str,
        payload: Any,
        effect: Callable[[Context], Any],
        *,
        operation: str = "run",
        lease: float = 30.0,
        keep: float | None = None,
        wait: float = 30.0,
        on_error: str = "free",
        remember: tuple[type[Exception], ...] = (),
        on_unknown: str = "raise",
        verify: Callable[[Context], Any] | None = None,
        by: str = "",
    ) -> Receipt:
        """Like ``Once.run``.  Cancelled while the effect runs, it ends as unknown."""
        options = Options(lease, keep, wait, on_error, remember, on_unknown, verify, by)
        op = self._prepare(operation, key, payload, options)
        ours = False
        try:
            async with self._locks(op.record, timeout=wait):
                with self._slots.lent(op):
                    ours = True
                    receipt: Receipt = await self._store.run(external.run(op, effect))
                    return receipt
        except Timeout as late:
            if ours:
                raise
            raise _busy() from late

    async def unresolved(
        self, older_than: float = 0.0, limit: int = 1000, *, thorough: bool = False
    ) -> list[Unresolved]:
        """Like ``Once.unresolved``."""
        flow = unresolved.unresolved(older_than, limit, apart=self._apart, thorough=thorough)
        found: list[Unresolved] = await self._store.run(flow)
        return found

    async def resolve(
        self,
        key: str,
        *,
        operation: str = "run",
        value: Any = None,
        done: bool = True,
        by: str = "",
    ) -> None:
        """Like ``Once.resolve``."""
        name = unresolved.Name(self._scope, operation, key)
        await self._store.run(unresolved.resolve(name, value, done=done, by=by, apart=self._apart))


def once(
    runner: Once | AsyncOnce,
    *,
    key: Callable[..., str],
    payload: Callable[..., Any] | None = None,
    **options: Any,
) -> Callable[[F], Callable[..., Any]]:
    """Decorate an effect so that each distinct ``key(*args, **kwargs)`` runs it once.

    The payload that must stay the same is, unless ``payload=`` picks it, all arguments.  The
    decorated function returns the value; with an ``AsyncOnce`` it must be awaited.
    """

    def decorate(fn: F) -> Callable[..., Any]:
        operation = options.pop("operation", f"{fn.__module__}.{fn.__qualname__}")

        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            what = payload(*args, **kwargs) if payload else {"args": list(args), **kwargs}
            effect = functools.wraps(fn)(lambda context: fn(*args, **kwargs))
            started = runner.run(key(*args, **kwargs), what, effect, operation=operation, **options)
            return started.value if isinstance(started, Receipt) else _value(started)

        return call

    return decorate


async def _value(running: Any) -> Any:
    return (await running).value
