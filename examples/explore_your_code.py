"""Your own asyncio code, run through every order of its callers: a bug is found, told and mended.

Two waiters seat guests at the last free table.  ``seat_blindly`` reads how many are free, and
writes one less: an ordinary test of it passes, since it runs one order only.
"""

from __future__ import annotations

from perkey import AsyncDocuments, Rejected
from perkey.stores import AsyncStore
from perkey.testing import Ended, SteppedStore, explore


async def seat_blindly(store: AsyncStore) -> bool:
    """Read, decide, write: right alone, wrong together."""
    free = (await store.get("free")).value
    if not free:
        return False
    await store.put("free", free - 1, overwrite=True)
    return True


async def seat(store: AsyncStore) -> bool:
    """The same, decided inside the commit."""

    def one_less(free: int) -> int:
        if not free:
            raise Rejected("no table is free")
        return free - 1

    try:
        await AsyncDocuments(store).update("free", one_less)
    except Rejected:
        return False
    return True


async def restaurant() -> SteppedStore:
    """What the callers share, made anew for each schedule: a store whose steps can be seen."""
    store = SteppedStore()
    await store.put("free", 1, create=True)
    return store


def as_many_as_tables(store: SteppedStore, ended: Ended) -> bool:
    """There was one free table: one of the callers has it, and none is left."""
    return store.value("free") == 0 and ended.results.count(True) == 1


def main() -> None:
    found = explore(restaurant, [seat_blindly] * 2, check=as_many_as_tables)
    found.assert_fails("check")
    print(found.failure)
    print()
    mended = explore(restaurant, [seat] * 2, check=as_many_as_tables)
    mended.assert_holds()
    print(f"seat: {mended.verdict}, {mended.schedules} schedules, none fails")


if __name__ == "__main__":
    main()
