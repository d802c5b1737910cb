"""``Documents`` and ``AsyncDocuments``: versioned JSON that many workers write, losing nothing.

docs = Documents(store)
docs.update("report", lambda report: {**report, "links": found}, by="worker-3")
"""

from __future__ import annotations

from typing import Any

from perkey.flows import documents, records
from perkey.flows.documents import Book, Mutate, Write
from perkey.flows.records import MISSING
from perkey.store.transaction import Fence
from perkey.store.views import Document
from perkey.store.watch import AsyncWatch, Watch
from perkey.stores import AsyncStore, Store


class Documents:
    """The documents of one store, for threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._book = Book()

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
        by: str = "",
        fence: Fence | None = None,
        timeout: float | None = None,
    ) -> Document:
        """Write a whole value: at exactly version ``if_match``, only ``create``, or
        ``overwrite`` whatever is there (``base``: the version you had read, for the record).

        Raises ``Conflict`` when the condition does not hold, ``Rejected`` by a rule.
        """
        flow = self._book.put(
            key,
            value,
            Write(by, fence, timeout),
            if_match=if_match,
            create=create,
            overwrite=overwrite,
            base=base,
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
        found: Document = self._store.run(documents.at(key, version))
        return found

    def watch(self, prefix: str = "", *, after: str | None = None) -> Watch:
        """Every version under ``prefix`` in order, then live; see ``Store.watch``."""
        return self._store.watch(prefix, after=after)


class AsyncDocuments:
    """The documents of one store, for asyncio."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._book = Book()

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
        found: Document = await self._store.run(documents.at(key, version))
        return found

    def watch(self, prefix: str = "", *, after: str | None = None) -> AsyncWatch:
        """Like ``Documents.watch``."""
        return self._store.watch(prefix, after=after)
