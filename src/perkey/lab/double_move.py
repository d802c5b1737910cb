"""Done twice: three callers pay under one key; a per-key lock from a map is to keep them apart."""

from __future__ import annotations

from typing import Any

from perkey import AsyncOnce, KeyedLocks, Tx
from perkey.lab.costs import kept_locks
from perkey.lab.scenario import Diary, Kind, Scenario, Variant, must
from perkey.lab.stepped import SteppedStore
from perkey.lab.worlds import Entered, io, new_lock
from perkey.testing import InjectedFailure, VirtualClock

KEY = "payment-1"


class SaveFailed(InjectedFailure):
    """The bank did not save: nothing has moved."""


class Bank:
    """A payment under one key, its receipt, and a map with a lock for each key."""

    def __init__(self) -> None:
        self.diary = Diary()
        self.locks: dict[str, Any] = {}
        self.users: dict[str, int] = {}
        self.receipts: set[str] = set()
        self.moved = 0

    def lock_of(self, key: str) -> Any:
        """The lock of ``key``, from the map or new."""
        found = key in self.locks
        lock = self.locks.setdefault(key, new_lock())
        self.diary.say(f"{'finds' if found else 'makes'} {self._name(lock)}")
        return lock

    async def pay(self) -> None:
        """Look for a receipt; where there is none, move the money and write it."""
        if KEY in self.receipts:
            self.diary.say("holds it, finds the receipt")
            return
        self.diary.say("holds it, finds no receipt")
        await io("save", SaveFailed)
        self.moved += 1
        self.receipts.add(KEY)
        self.diary.say("moves the money")

    def money(self) -> int:
        """How many times the money moved."""
        return self.moved

    def _name(self, lock: Any) -> str:
        return f"lock {self.diary.number(lock)}"

    def _map(self) -> str:
        lock = self.locks.get(KEY)
        return "no lock" if lock is None else self._name(lock)

    def __str__(self) -> str:
        return f"{self._map()}, moved {self.money()}×"


def judge(bank: Bank) -> None:
    """One key moves money once, at most."""
    must(bank.money() <= 1, f"one payment moved the money {bank.money()} times")


def judge_empty(bank: Bank) -> None:
    """The same, and nobody's lock is left behind."""
    judge(bank)
    must(not bank.locks, "everybody has left, and a lock is still in the map")


async def delete(bank: Bank) -> None:
    lock = bank.lock_of(KEY)
    try:
        async with lock:
            await bank.pay()
    finally:
        bank.locks.pop(KEY, None)
        bank.diary.say("leaves, deletes the map's lock")


async def delete_if_mine(bank: Bank) -> None:
    lock = bank.lock_of(KEY)
    try:
        async with lock:
            await bank.pay()
    finally:
        if bank.locks.get(KEY) is lock:
            del bank.locks[KEY]
            bank.diary.say("leaves, deletes its own lock")


async def keep(bank: Bank) -> None:
    async with bank.lock_of(KEY):
        await bank.pay()


async def counted(bank: Bank) -> None:
    bank.users[KEY] = bank.users.get(KEY, 0) + 1
    lock = bank.lock_of(KEY)
    try:
        async with lock:
            await bank.pay()
    finally:
        bank.users[KEY] -= 1
        if not bank.users[KEY]:
            del bank.users[KEY], bank.locks[KEY]


class PerkeyLocks(Bank):
    """The map is perkey's."""

    def __init__(self) -> None:
        super().__init__()
        self.keyed = KeyedLocks(clock=VirtualClock())


async def perkey_locks(bank: PerkeyLocks) -> None:
    async with Entered(bank.keyed(KEY)):
        await bank.pay()


class PerkeyOnce(Bank):
    """No lock at all: the receipt is written in the commit that moves the money."""

    def __init__(self) -> None:
        super().__init__()
        self.store = SteppedStore(SaveFailed)
        self.once = AsyncOnce(self.store)

    def money(self) -> int:
        return self.store.value("money") or 0


async def perkey_once(bank: PerkeyOnce) -> None:
    def move(tx: Tx) -> None:
        tx["money"] = (tx.get("money") or 0) + 1

    receipt = await bank.once.transact(KEY, ["money"], move)
    bank.diary.say("finds the receipt" if receipt.replayed else "moves the money")


def _variant(name: str, title: str, kind: Kind, pay: Any, **more: Any) -> Variant:
    more = {"setup": Bank, "judge": judge, **more}
    return Variant(
        name, title, kind, callers=(pay,) * 3, names=("A", "B", "C"), failures=1,
        cancellations=int(kind != "wrong"), **more,
    )  # fmt: skip


SCENARIO = Scenario(
    "double-move",
    "Done twice",
    "A fails and deletes the lock from the map while B waits on that very lock. C finds no lock, "
    "makes another one, and two callers are inside.",
    "the map, the money",
    [
        _variant(
            "delete", "delete the lock on leave", "wrong", delete,
            why="a waiter holds a lock that is in the map no more; a late caller makes another",
        ),
        _variant(
            "delete-if-mine", "delete it if it is mine", "wrong", delete_if_mine,
            why="it is mine, and the waiter's too: both hold the same pointer",
        ),
        _variant(
            "keep", "keep every lock for ever", "costly", keep, cost=kept_locks,
            why="nothing is deleted, so nobody can hold what others do not find",
        ),
        _variant(
            "counted", "count the users, waiters too", "right", counted, judge=judge_empty,
            why="the last one to leave deletes it, and who waits has not left",
        ),
        _variant(
            "perkey-locks", "perkey: KeyedLocks", "right", perkey_locks, setup=PerkeyLocks,
            why="counted users; an entry lives while somebody holds or waits, and no longer",
        ),
        _variant(
            "perkey-once", "perkey: Once.transact", "right", perkey_once, setup=PerkeyOnce,
            why="no lock to lose: receipt and money are one commit, looked up inside it",
        ),
    ],
)  # fmt: skip
"""The second failure and its variants."""
