"""``Leases`` and ``AsyncLeases``: ownership for a while, with a fencing token.

    with Leases(store).acquire("report", ttl=30, holder="worker-1") as lease:
        store.put("report", value, overwrite=True, fence=lease.fence)

A lease alone stops nobody who was paused and wakes up late; its ``fence`` in the transaction
does.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from perkey.errors import LeaseLost
from perkey.flows import leases, steps
from perkey.flows.leases import Grant, LeaseInfo
from perkey.store.transaction import Fence
from perkey.stores import AsyncStore, Store

S = TypeVar("S", Store, AsyncStore)


class _Lease(Generic[S]):
    """What a lease knows, the same in both colours."""

    def __init__(self, store: S, grant: Grant, ttl: float) -> None:
        self._store: S = store
        self._released = False
        self.key = grant.key
        self.holder = grant.holder
        self.token = grant.token
        """The fencing token: larger than that of every earlier acquisition of this key."""
        self.ttl = ttl
        """The length of an extension that names none, in seconds."""
        self.expires = grant.expires
        """When it ends, in milliseconds of *store* time; for people, never to decide by."""

    @property
    def fence(self) -> Fence:
        """Give it to any transaction: committed only while this very lease is held."""
        return leases.fence(self.key, self.token)

    def _renewal(self, ttl: float | None) -> steps.Flow[int]:
        length = self.ttl if ttl is None else ttl
        self.expires = yield from leases.renew(self.key, self.token, length, self.holder)
        return self.expires

    def _keeping(self) -> steps.Flow[int]:
        self.expires = yield from leases.keep(self.key, self.token, self.ttl, self.expires)
        return self.expires

    def _releasing(self) -> steps.Flow[bool]:
        self._released = True
        return leases.release(self.key, self.token, self.holder)

    def _leaving(self, failed: bool) -> steps.Flow[None]:
        if self._released:
            return
        held = yield from self._releasing()
        if not held and not failed:
            raise LeaseLost(
                f"lease {self.key!r} (token {self.token}) was lost before its block ended; "
                "writes that carried its fence are safe, others may have met another holder",
                key=self.key,
                token=self.token,
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r} token {self.token} of {self.holder!r}>"


class Lease(_Lease[Store]):
    """A lease for threads.  Leaving its ``with`` block releases it, and says if it was lost."""

    def renew(self, ttl: float | None = None) -> int:
        """Extend to ``ttl`` seconds from now (default: as acquired); ``LeaseLost`` if late."""
        expires: int = self._store.run(self._renewal(ttl))
        return expires

    def keep(self) -> int:
        """``renew`` if a third of the time is over, else nothing; call it in a work loop."""
        expires: int = self._store.run(self._keeping())
        return expires

    def release(self) -> bool:
        """Give it back; False when it had been lost already."""
        held: bool = self._store.run(self._releasing())
        return held

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        self._store.run(self._leaving(kind is not None))


class AsyncLease(_Lease[AsyncStore]):
    """A lease for asyncio."""

    async def renew(self, ttl: float | None = None) -> int:
        """Like ``Lease.renew``."""
        expires: int = await self._store.run(self._renewal(ttl))
        return expires

    async def keep(self) -> int:
        """Like ``Lease.keep``."""
        expires: int = await self._store.run(self._keeping())
        return expires

    async def release(self) -> bool:
        """Like ``Lease.release``."""
        held: bool = await self._store.run(self._releasing())
        return held

    async def __aenter__(self) -> AsyncLease:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        await self._store.run(self._leaving(kind is not None))


class Leases:
    """The leases of one store, for threads and processes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def acquire(self, key: str, *, ttl: float, holder: str = "", wait: float = 0.0) -> Lease:
        """Take the lease on ``key`` for ``ttl`` seconds.

        ``holder`` is a name for people: the same name does not enter twice.  While another
        has the lease, polls for up to ``wait`` seconds, then raises ``LeaseHeld`` with
        ``retry_after_ms``.
        """
        grant: Grant = self._store.run(leases.acquire(key, ttl, holder, wait))
        return Lease(self._store, grant, ttl)

    def info(self, key: str) -> LeaseInfo:
        """Who has the lease on ``key``, and for how long; a look, not a promise."""
        found: LeaseInfo = self._store.run(leases.info(key))
        return found


class AsyncLeases:
    """The leases of one store, for asyncio."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store

    async def acquire(
        self, key: str, *, ttl: float, holder: str = "", wait: float = 0.0
    ) -> AsyncLease:
        """Like ``Leases.acquire``.  Cancelled in mid-commit, it may leave the lease taken
        until its ``ttl`` ends."""
        grant: Grant = await self._store.run(leases.acquire(key, ttl, holder, wait))
        return AsyncLease(self._store, grant, ttl)

    async def info(self, key: str) -> LeaseInfo:
        """Like ``Leases.info``."""
        found: LeaseInfo = await self._store.run(leases.info(key))
        return found
