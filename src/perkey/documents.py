"""``Documents`` and ``AsyncDocuments``: versioned JSON that many workers write, losing nothing.

docs = Documents(store)
docs.update("report", lambda report: {**report, "links": found}, by="worker-3")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perkey.flows import lookback, records
from perkey.flows.blame import Origin
from perkey.flows.diff import ABSENT, Change
from perkey.flows.documents import Book, Mutate, Write
from perkey.flows.records import MISSING
from perkey.flows.rules import (
    Proposal,
    done_equals_outputs,
    json_schema,
    no_removals_of_others,
)
from perkey.flows.transforms import (
    append,
    append_unique,
    increment,
    remove_value,
    set_max,
    set_min,
)
from perkey.store.transaction import Fence
from perkey.store.views import Document
from perkey.store.watch import AsyncWatch, Watch
from perkey.stores import AsyncStore, Store

__all__ = [
    "ABSENT",
    "AsyncDocuments",
    "Documents",
    "Proposal",
    "append",
    "append_unique",
    "done_equals_outputs",
    "increment",
    "json_schema",
    "no_removals_of_others",
    "remove_value",
    "set_max",
    "set_min",
]


class Documents:
    """The documents of one store, for threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._book = Book(store.limits)

    def get(self, key: str, default: Any = MISSING) -> Any:
        """The ``Document`` at ``key``; ``NotFound`` where there is none, unless ``default``."""
        return self._store.run(records.get(key, default))

    def put(
        self,
        key: str,
        value: Any,
        *,
        if_match: int | None = None,
        create: bool = False,
        overwrite: bool = False,
        base: int | None = None,
        merge: bool = False,
        by: str = "",
        fence: Fence | None = None,
        timeout: float | None = None,
    ) -> Document:
        """Write a whole value: at exactly version ``if_match``, only ``create``, or
        ``overwrite`` whatever is there (``base``: the version you had read, for the record).

        Raises ``Conflict`` when the condition does not hold, ``Rejected`` by a rule.  With
        ``merge`` and ``if_match`` what others changed since that version is kept, path by
        path; only changes to the same place are a ``Conflict``, with ``paths``, ``authors``
        and ``overlaps``.
        """
        flow = self._book.put(
            key,
            value,
            Write(by, fence, timeout),
            if_match=if_match,
            create=create,
            overwrite=overwrite,
            base=base,
            merge=merge,
        )
        written: Document = self._store.run(flow)
        return written

    def update(
        self,
        key: str,
        mutate: Mutate,
        *,
        by: str = "",
        default: Any = MISSING,
        fence: Fence | None = None,
        timeout: float | None = None,
    ) -> Document:
        """Replace the value by ``mutate(value)``, read and written in one commit.

        ``mutate`` gets a copy and returns the new value.  It may run again, so it must be
        pure: do the slow work first and only apply its result here.  Where there is nothing
        it gets ``default``, or ``NotFound`` is raised.  ``ConflictExhausted`` when a store
        that can only compare-and-swap met a newer version every time.
        """
        flow = self._book.update(key, mutate, Write(by, fence, timeout), default)
        written: Document = self._store.run(flow)
        return written

    def patch(
        self,
        key: str,
        *,
        json_patch: Sequence[Any] | None = None,
        merge_patch: Any = MISSING,
        transforms: Sequence[Any] | None = None,
        if_match: int | None = None,
        default: Any = MISSING,
        by: str = "",
        fence: Fence | None = None,
        timeout: float | None = None,
    ) -> Document:
        """Apply a change that is given as data, to the current value, inside the commit.

        Exactly one of ``json_patch`` (RFC 6902), ``merge_patch`` (RFC 7396) and ``transforms``
        (``increment``, ``append_unique`` and the like from ``perkey.documents``, which never
        conflict and make what is absent).  ``InvalidPatch`` where it does not apply.
        """
        flow = self._book.patch(
            key,
            Write(by, fence, timeout),
            json_patch=json_patch,
            merge_patch=merge_patch,
            transforms=transforms,
            if_match=if_match,
            default=default,
        )
        written: Document = self._store.run(flow)
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
        """Delete: leaves a tombstone, so a stale write after it is refused."""
        erased: Document = self._store.run(
            self._book.delete(key, Write(by, fence, timeout), if_match)
        )
        return erased

    def history(self, key: str, *, after: int = 0, limit: int = 1000) -> list[Document]:
        """Up to ``limit`` kept versions above ``after``, ascending, deletes included.

        A first version above ``after + 1`` says that retention dropped those before it.
        """
        versions: list[Document] = self._store.run(records.history(key, after, limit))
        return versions

    def at(self, key: str, version: int) -> Document:
        """That version; ``Gone`` when retention dropped it, ``NotFound`` when it never was."""
        found: Document = self._store.run(lookback.at(key, version))
        return found

    def diff(self, key: str, old: int, new: int) -> list[Change]:
        """What changed from version ``old`` (0: from nothing) to ``new``, in document order."""
        changes: list[Change] = self._store.run(lookback.between(key, old, new))
        return changes

    def blame(self, key: str, path: str = "") -> dict[str, Origin]:
        """Who set each leaf at or below the JSON pointer ``path``: version and author.

        Where retention dropped the history that would tell, the origin says so.
        """
        origins: dict[str, Origin] = self._store.run(lookback.blame(self._book.blames, key, path))
        return origins

    def rule(self, prefix: str, validator: Callable[..., None]) -> None:
        """Let ``validator`` judge every write under ``prefix`` through this object.

        It is called inside the commit with a ``Proposal``, or with ``(old, new, author)``
        where it takes three arguments (None: nothing there); it must be pure, and refuses by
        raising ``Rejected``.  Shipped: ``json_schema``, ``no_removals_of_others`` and
        ``done_equals_outputs``.
        """
        self._book.rule(prefix, validator)

    def watch(self, prefix: str = "", *, after: str | None = None) -> Watch:
        """Every version under ``prefix`` in order, then live; see ``Store.watch``."""
        return self._store.watch(prefix, after=after)


class AsyncDocuments:
    """The documents of one store, for asyncio."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._book = Book(store.limits)

    async def get(self, key: str, default: Any = MISSING) -> Any:
        """Like ``Documents.get``."""
        return await self._store.run(records.get(key, default))

    async def put(
        self,
        key: str,
        value: Any,
        *,
        if_match: int | None = None,
        create: bool = False,
        overwrite: bool = False,
        base: int | None = None,
        merge: bool = False,
        by: str = "",
        fence: Fence | None = None,
        timeout: float | None = None,
    ) -> Document:
        """Like ``Documents.put``."""
        flow = self._book.put(
            key,
            value,
            Write(by, fence, timeout),
            if_match=if_match,
            create=create,
            overwrite=overwrite,
            base=base,
            merge=merge,
        )
        written: Document = await self._store.run(flow)
        return written

    async def update(
        self,
        key: str,
        mutate: Mutate,
        *,
        by: str = "",
        default: Any = MISSING,
        fence: Fence | None = None,
        timeout: float | None = None,
    ) -> Document:
        """Like ``Documents.update``."""
        flow = self._book.update(key, mutate, Write(by, fence, timeout), default)
        written: Document = await self._store.run(flow)
        return written

    async def patch(
        self,
        key: str,
        *,
        json_patch: Sequence[Any] | None = None,
        merge_patch: Any = MISSING,
        transforms: Sequence[Any] | None = None,
        if_match: int | None = None,
        default: Any = MISSING,
        by: str = "",
        fence: Fence | None = None,
        timeout: float | None = None,
    ) -> Document:
        """Like ``Documents.patch``."""
        flow = self._book.patch(
            key,
            Write(by, fence, timeout),
            json_patch=json_patch,
            merge_patch=merge_patch,
            transforms=transforms,
            if_match=if_match,
            default=default,
        )
        written: Document = await self._store.run(flow)
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
        """Like ``Documents.delete``."""
        erased: Document = await self._store.run(
            self._book.delete(key, Write(by, fence, timeout), if_match)
        )
        return erased

    async def history(self, key: str, *, after: int = 0, limit: int = 1000) -> list[Document]:
        """Like ``Documents.history``."""
        versions: list[Document] = await self._store.run(records.history(key, after, limit))
        return versions

    async def at(self, key: str, version: int) -> Document:
        """Like ``Documents.at``."""
        found: Document = await self._store.run(lookback.at(key, version))
        return found

    async def diff(self, key: str, old: int, new: int) -> list[Change]:
        """Like ``Documents.diff``."""
        changes: list[Change] = await self._store.run(lookback.between(key, old, new))
        return changes

    async def blame(self, key: str, path: str = "") -> dict[str, Origin]:
        """Like ``Documents.blame``."""
        origins: dict[str, Origin] = await self._store.run(
            lookback.blame(self._book.blames, key, path)
        )
        return origins

    def rule(self, prefix: str, validator: Callable[..., None]) -> None:
        """Like ``Documents.rule``."""
        self._book.rule(prefix, validator)

    def watch(self, prefix: str = "", *, after: str | None = None) -> AsyncWatch:
        """Like ``Documents.watch``."""
        return self._store.watch(prefix, after=after)
