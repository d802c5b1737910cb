"""A store with something of everything in it, for tests that move stores."""

from __future__ import annotations

from perkey import Board, Documents, Leases, Ledger, Once, Store
from perkey.store.transaction import Tx


def fill(store: Store, documents: int = 12) -> None:
    """Documents with history, deleted and re-created ones, and records of every kind."""
    docs = Documents(store)
    for n in range(documents):
        key = f"doc/{n} é\0{n % 3}"
        for value in range(n % 5 + 1):
            docs.put(key, {"n": value, "text": "x" * n}, overwrite=True, by=f"w{value}")
        if n % 4 == 0:
            docs.delete(key, by="cleaner")
        if n % 8 == 0:
            docs.put(key, "again", create=True)
    store.put("overwritten", 1, create=True)
    store.put("overwritten", 2, overwrite=True, base=0)
    leases = Leases(store)
    for n in range(3):
        lease = leases.acquire(f"lease/{n}", ttl=60)
        store.put(f"fenced/{n}", n, overwrite=True, fence=lease.fence)
        if n:
            lease.release()
    board = Board(store, "run")
    board.create(["a", "b", "c"])
    board.work("worker", lambda claim: claim.task, lease=30)
    ledger = Ledger(store)
    for name in ("one", "two"):
        ledger.open_account(name, "EUR", floor=-10_000)
    for n in range(5):
        ledger.transfer("one", "two", 10 + n, key=f"move{n}")
    once = Once(store)
    for n in range(4):
        once.transact(f"receipt{n}", "counted", count, payload={"n": n})


def count(tx: Tx) -> int:
    tx["counted"] = tx.get("counted", 0) + 1
    return int(tx["counted"])
