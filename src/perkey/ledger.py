"""``Ledger``: double entry on a store that commits several keys at once.

Amounts are positive integers in minor units.  A transfer is one transaction: both accounts,
both entries and its idempotency key commit together or not at all, so there is no step that
would have to be undone.  Entries are never changed or deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from perkey.clock import SYSTEM
from perkey.drivers.rounds import Rounds
from perkey.errors import NotSupported
from perkey.flows import steps
from perkey.flows.ledger import bulk, csvfiles, operations, posting, queries
from perkey.flows.ledger.bulk import Asked, Item
from perkey.flows.ledger.csvfiles import Imported, Path, Progress, RowError
from perkey.flows.ledger.operations import Plan
from perkey.flows.ledger.posting import Order, Transfer
from perkey.flows.ledger.queries import Balance, Difference, Line, TrialBalance
from perkey.flows.records import check_by
from perkey.store.backends.port import swaps
from perkey.store.core import MULTI_KEY_STORES
from perkey.stores import AsyncStore, Store

__all__ = [
    "AsyncLedger",
    "Balance",
    "Difference",
    "Imported",
    "Item",
    "Ledger",
    "Line",
    "Plan",
    "RowError",
    "Transfer",
    "TrialBalance",
]


class _Base:
    def __init__(self, store: Any) -> None:
        atomic = store.backend.atomic_keys
        if atomic is not None and atomic < 5:
            raise NotSupported(
                f"a ledger moves money over several keys in one commit, and this store "
                f"({store.backend.name}) commits at most {atomic}; use {MULTI_KEY_STORES}"
            )
        self._store = store
        self._room = bulk.Room(store.limits.transaction_keys, atomic)

    @staticmethod
    def new_key() -> str:
        """A key that nobody else ever gets; keys made in a row lie side by side in the store,
        which makes them faster than random ones.  Keep it for your retries."""
        return SYSTEM.token()

    @staticmethod
    def plan(source: str, target: str, amount: int, *, key: str, memo: str = "") -> Plan:
        """A transfer as ``keys`` and ``fn`` for a transaction of your own, so that money moves
        in the very commit that writes a document or finishes a task."""
        return operations.plan(source, target, amount, key, memo)


class Ledger(_Base):
    """A ledger, for threads."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)

    def open_account(
        self, name: str, unit: str, *, scale: int = 2, floor: int | None = 0, by: str = ""
    ) -> Balance:
        """Open an account in ``unit`` with ``scale`` decimal places.

        ``floor`` is the lowest available balance, in minor units (0: never negative; None:
        no floor).  The same call again is harmless; other terms raise ``InvalidState``.
        """
        self._store.run(operations.open_account(name, unit, scale, floor, by))
        return self.balance(name)

    def close_account(self, name: str, *, by: str = "") -> Balance:
        """Close an account for ever; its balance must be 0 and nothing may be held."""
        self._store.run(operations.set_state(name, "closed", by))
        return self.balance(name)

    def freeze(self, name: str, *, by: str = "") -> Balance:
        """Refuse every movement on an account until ``thaw``."""
        self._store.run(operations.set_state(name, "frozen", by))
        return self.balance(name)

    def thaw(self, name: str, *, by: str = "") -> Balance:
        """Allow movements on a frozen account again."""
        self._store.run(operations.set_state(name, "open", by))
        return self.balance(name)

    def transfer(
        self,
        source: str,
        target: str,
        amount: int,
        *,
        key: str,
        memo: str = "",
        by: str = "",
        timeout: float | None = None,
    ) -> Transfer:
        """Move ``amount`` minor units; one commit of both accounts, both entries and the key.

        A repeat with the same key and the same transfer returns it with ``replayed=True``; any
        other transfer under that key raises ``KeyReused``.  A refusal (``InsufficientFunds``,
        ``AccountFrozen``, ``UnitMismatch``, ...) leaves no trace and the key free.
        """
        result: Transfer = self._store.run(
            operations.transfer(source, target, amount, key, memo, by, timeout)
        )
        return result

    def transfers(self, rows: Sequence[Sequence[Any]], *, by: str = "") -> list[Item]:
        """Many transfers, each ``(source, target, amount, key[, memo])`` with a result of its own.

        Up to two thousand share a commit; a refused one leaves nothing and the others go on.
        """
        result: list[Item] = self._store.run(bulk.transfers(rows, by, self._room))
        return result

    def post(
        self, entries: Sequence[tuple[str, int]], *, key: str, memo: str = "", by: str = ""
    ) -> Transfer:
        """Post many legs ``(account, signed amount)`` in one commit; zero for each unit."""
        result: Transfer = self._store.run(operations.post(entries, key, memo, by))
        return result

    def hold(
        self,
        source: str,
        target: str,
        amount: int,
        *,
        key: str,
        expires_in: float | None = None,
        memo: str = "",
        by: str = "",
    ) -> Transfer:
        """Keep ``amount`` back on ``source`` until it is settled, released, or ``expires_in``
        seconds of store time have passed.
        """
        result: Transfer = self._store.run(
            operations.hold(source, target, amount, key, expires_in, memo, by)
        )
        return result

    def settle(
        self, hold: str, *, key: str, amount: int | None = None, memo: str = "", by: str = ""
    ) -> Transfer:
        """Post the hold with the key ``hold``, or a part of it; the rest becomes available."""
        result: Transfer = self._store.run(operations.settle(hold, amount, key, memo, by))
        return result

    def release(self, hold: str, *, by: str = "") -> Transfer:
        """End a hold without moving anything; of settle and release exactly one wins."""
        result: Transfer = self._store.run(operations.release(hold, by))
        return result

    def reverse(self, transfer: str, *, memo: str = "", by: str = "") -> Transfer:
        """Post the opposite of the transfer with that key, once; a repeat is a replay."""
        result: Transfer = self._store.run(operations.reverse(transfer, memo, by))
        return result

    def balance(self, account: str) -> Balance:
        """An account's posted, held and available balance."""
        result: Balance = self._store.run(queries.balance(account))
        return result

    def accounts(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[Balance]:
        """Up to ``limit`` accounts whose name has ``prefix`` and is above ``after``."""
        result: list[Balance] = self._store.run(queries.accounts(prefix, after, limit))
        return result

    def find(self, key: str) -> Transfer:
        """The transfer, posting or hold with this key; ``NotFound`` if there is none."""
        result: Transfer = self._store.run(queries.find(key))
        return result

    def statement(self, account: str, *, after: int = 0, limit: int = 100) -> list[Line]:
        """Up to ``limit`` entries above number ``after``, ascending, with running balances."""
        result: list[Line] = self._store.run(queries.statement(account, after, limit))
        return result

    def trial_balance(self) -> TrialBalance:
        """The sums of debits and credits of all accounts, by unit."""
        result: TrialBalance = self._store.run(queries.trial_balance())
        return result

    def verify(self) -> Difference | None:
        """Recompute every balance from its entries: the first difference, or None."""
        result: Difference | None = self._store.run(queries.verify())
        return result

    def import_csv(
        self, path: Path, *, batch: str = "", progress: Progress | None = None, by: str = ""
    ) -> Imported:
        """Transfer what each row of a CSV file says: ``source``, ``target``, ``amount`` (like
        12.50) or ``minor`` (like 1250), and perhaps ``key`` and ``memo``.

        A row without a key has ``batch/line``, ``batch`` being the file's name unless given, so
        importing a file again moves nothing twice.  ``progress(line, lines)`` is called now and
        then.
        """
        result: Imported = self._store.run(
            csvfiles.import_csv(path, batch, progress, by, self._room)
        )
        return result

    def export_csv(self, path: Path, *, progress: Progress | None = None) -> int:
        """Write a row for each leg of each posting; returns the number of postings."""
        result: int = self._store.run(csvfiles.export_csv(path, progress))
        return result


class AsyncLedger(_Base):
    """A ledger, for asyncio."""

    def __init__(self, store: AsyncStore) -> None:
        super().__init__(store)
        self._rounds: Rounds[Asked, Item] | None = None
        self._gathers = self._room.records is None and not swaps(store.backend)
        self._first_too = store.backend.blocking
        """Whether who comes first waits for those of its round, too: where a commit takes long,
        they would have to wait for its own."""

    # What many tasks ask for in one round of their loop shares a transaction.  On threads the
    # price is the hand-over from one to the other, which the committer pays once a commit.

    async def _move(self, order: Order, by: str, timeout: float | None) -> Transfer:
        rounds = self._round()
        rounds.callers += 1
        try:
            several = rounds.callers > 1 or self._first_too
            gathers = several and timeout is None and self._may_gather()
            if gathers or rounds.waiting:
                item = await rounds.ask(Asked(order, by) if gathers else None)
                if item is not None:
                    return item.answer()
            moved: Transfer = await self._store.run(operations.move(order, by, timeout))
            return moved
        finally:
            rounds.callers -= 1

    async def _alone(self, flow: steps.Flow[Any]) -> Any:
        """Drive a flow that writes, after what was asked for before."""
        rounds = self._round()
        rounds.callers += 1
        try:
            if rounds.waiting:
                await rounds.ask(None)
            return await self._store.run(flow)
        finally:
            rounds.callers -= 1

    def _round(self) -> Rounds[Asked, Item]:
        loop, rounds = asyncio.get_running_loop(), self._rounds
        if rounds is None or rounds.loop is not loop:
            rounds = self._rounds = Rounds(loop, self._cut, self._together)
        return rounds

    def _may_gather(self) -> bool:
        """Not where each transfer is to have a span or an event of its own."""
        core = self._store.core
        return self._gathers and core.spans is None and not core.observers.listening

    def _cut(self, asked: Sequence[Asked]) -> list[list[Asked]]:
        return bulk.shares(asked, self._store.limits.batch, self._room)

    async def _together(self, asked: Sequence[Asked]) -> list[Item | None]:
        items: list[Item | None] = await self._store.run(bulk.together(asked))
        return items

    async def open_account(
        self, name: str, unit: str, *, scale: int = 2, floor: int | None = 0, by: str = ""
    ) -> Balance:
        """Like ``Ledger.open_account``."""
        await self._alone(operations.open_account(name, unit, scale, floor, by))
        return await self.balance(name)

    async def close_account(self, name: str, *, by: str = "") -> Balance:
        """Like ``Ledger.close_account``."""
        await self._alone(operations.set_state(name, "closed", by))
        return await self.balance(name)

    async def freeze(self, name: str, *, by: str = "") -> Balance:
        """Like ``Ledger.freeze``."""
        await self._alone(operations.set_state(name, "frozen", by))
        return await self.balance(name)

    async def thaw(self, name: str, *, by: str = "") -> Balance:
        """Like ``Ledger.thaw``."""
        await self._alone(operations.set_state(name, "open", by))
        return await self.balance(name)

    async def transfer(
        self,
        source: str,
        target: str,
        amount: int,
        *,
        key: str,
        memo: str = "",
        by: str = "",
        timeout: float | None = None,
    ) -> Transfer:
        """Like ``Ledger.transfer``."""
        check_by(by)
        order = posting.transfer_order(source, target, amount, key, memo)
        return await self._move(order, by, timeout)

    async def transfers(self, rows: Sequence[Sequence[Any]], *, by: str = "") -> list[Item]:
        """Like ``Ledger.transfers``."""
        result: list[Item] = await self._alone(bulk.transfers(rows, by, self._room))
        return result

    async def post(
        self, entries: Sequence[tuple[str, int]], *, key: str, memo: str = "", by: str = ""
    ) -> Transfer:
        """Like ``Ledger.post``."""
        check_by(by)
        return await self._move(posting.posting_order(entries, key, memo), by, None)

    async def hold(
        self,
        source: str,
        target: str,
        amount: int,
        *,
        key: str,
        expires_in: float | None = None,
        memo: str = "",
        by: str = "",
    ) -> Transfer:
        """Like ``Ledger.hold``."""
        result: Transfer = await self._alone(
            operations.hold(source, target, amount, key, expires_in, memo, by)
        )
        return result

    async def settle(
        self, hold: str, *, key: str, amount: int | None = None, memo: str = "", by: str = ""
    ) -> Transfer:
        """Like ``Ledger.settle``."""
        result: Transfer = await self._alone(operations.settle(hold, amount, key, memo, by))
        return result

    async def release(self, hold: str, *, by: str = "") -> Transfer:
        """Like ``Ledger.release``."""
        result: Transfer = await self._alone(operations.release(hold, by))
        return result

    async def reverse(self, transfer: str, *, memo: str = "", by: str = "") -> Transfer:
        """Like ``Ledger.reverse``."""
        result: Transfer = await self._alone(operations.reverse(transfer, memo, by))
        return result

    async def balance(self, account: str) -> Balance:
        """Like ``Ledger.balance``."""
        result: Balance = await self._store.run(queries.balance(account))
        return result

    async def accounts(
        self, prefix: str = "", *, after: str = "", limit: int = 1000
    ) -> list[Balance]:
        """Like ``Ledger.accounts``."""
        result: list[Balance] = await self._store.run(queries.accounts(prefix, after, limit))
        return result

    async def find(self, key: str) -> Transfer:
        """Like ``Ledger.find``."""
        result: Transfer = await self._store.run(queries.find(key))
        return result

    async def statement(self, account: str, *, after: int = 0, limit: int = 100) -> list[Line]:
        """Like ``Ledger.statement``."""
        result: list[Line] = await self._store.run(queries.statement(account, after, limit))
        return result

    async def trial_balance(self) -> TrialBalance:
        """Like ``Ledger.trial_balance``."""
        result: TrialBalance = await self._store.run(queries.trial_balance())
        return result

    async def verify(self) -> Difference | None:
        """Like ``Ledger.verify``."""
        result: Difference | None = await self._store.run(queries.verify())
        return result

    async def import_csv(
        self, path: Path, *, batch: str = "", progress: Progress | None = None, by: str = ""
    ) -> Imported:
        """Like ``Ledger.import_csv``.  Files are read on the loop, a thousand rows at a time."""
        result: Imported = await self._alone(
            csvfiles.import_csv(path, batch, progress, by, self._room)
        )
        return result

    async def export_csv(self, path: Path, *, progress: Progress | None = None) -> int:
        """Like ``Ledger.export_csv``."""
        result: int = await self._store.run(csvfiles.export_csv(path, progress))
        return result
