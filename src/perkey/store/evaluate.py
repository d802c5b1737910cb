"""From heads and transactions to writes and outcomes: pure, and shared by every backend.

A backend reads the heads of a batch's keys under its own lock (or notes their versions, to
compare them on writing), calls ``Batch.evaluate``, and writes the unit's records; whether
that is all or nothing is the backend's part, everything else is decided here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import msgspec

from perkey.clock import SYSTEM, Clock
from perkey.errors import ImpureMutation, LeaseLost, LimitExceeded, OutcomeUnknown, UsageError
from perkey.store import codec, receipts
from perkey.store.fencing import check_fence
from perkey.store.keys import Key
from perkey.store.record import Record, following, op_at
from perkey.store.transaction import Outcome, Transaction, Tx, check_result

Heads = dict[Key, Record | None]
Puts = dict[Key, tuple[bytes | None, int | None]]
FindOp = Callable[[str, int], str | None]
"""(key, version) -> the op that made it, from history; None where the store no longer knows."""


class Unit(msgspec.Struct, eq=False):
    """What one commit would write, and what each of its callers would be told."""

    writes: list[Record] = []
    outcomes: list[Outcome] = []
    settled: bool = False
    """An earlier attempt of this batch had landed already: write nothing, answer this."""


class Batch(msgspec.Struct, eq=False):
    """Transactions that share one commit, and the attempts at it whose fate is not known."""

    transactions: Sequence[Transaction]
    doubts: list[Unit] = []
    committing: Unit | None = None
    """Set by the backend from just before a commit until its reply; what stands here when
    ``apply`` raises may or may not have landed."""
    value_bytes: int = 8 * 1024 * 1024
    clock: Clock = SYSTEM
    """Measures how long each function ran."""
    deadline: float | None = None
    """By ``Clock.monotonic``: how long the backend may wait for its turn before it raises
    ``Timeout`` with nothing done."""
    interrupt: BaseException | None = None
    """Set by a backend that was interrupted when part of the batch was in the store already;
    it is raised once every caller has been told."""

    @property
    def in_doubt(self) -> bool:
        """Whether an attempt at it may have landed, so that it must not simply be dropped."""
        return bool(self.doubts) or (self.committing is not None and bool(self.committing.writes))

    def doubt(self) -> None:
        """What was being committed when ``apply`` raised is in doubt from now on."""
        unit = self.committing
        if unit is not None and unit.writes and all(unit is not each for each in self.doubts):
            self.doubts.append(unit)
        self.committing = None

    @property
    def keys(self) -> list[Key]:
        """All declared keys, sorted, without doubles."""
        if len(self.transactions) == 1:
            return list(self.transactions[0].keys)
        return sorted(self.blank)

    @property
    def blank(self) -> Heads:
        """All declared keys, without their heads yet; in no order."""
        heads: Heads = {}
        for each in self.transactions:
            for key in each.keys:
                heads[key] = None
        return heads

    def resolve(self, heads: Heads, find_op: FindOp) -> Unit | None:
        """The attempt in doubt that has landed, as settled; None where none of them has.

        Raises ``OutcomeUnknown`` where nobody can tell any more.
        """
        for doubt in self.doubts:
            fate = landed(doubt, heads, find_op)
            if fate is None:
                raise unknown(doubt)
            if fate:
                return Unit(doubt.writes, doubt.outcomes, settled=True)
        return None

    def evaluate(self, heads: Heads, now: int, find_op: FindOp) -> Unit:
        """Decide what to write on top of ``heads`` (read under the commit's own lock).

        If an earlier attempt turns out to have landed, its answer comes back as settled and
        nothing may be written.  Raises ``OutcomeUnknown`` where nobody can tell any more.
        """
        earlier = self.resolve(heads, find_op) if self.doubts else None
        if earlier is not None:
            return earlier
        unit = Unit()
        outcomes, writes = unit.outcomes, unit.writes
        several = len(self.transactions) > 1
        overlay = dict(heads) if several else heads
        elapsed = self.clock.monotonic
        started = elapsed()
        for transaction in self.transactions:
            outcome = evaluate(transaction, overlay, now, self.value_bytes)
            ended = elapsed()
            outcome.seconds, started = ended - started, ended
            outcomes.append(outcome)
            writes += outcome.writes
            if several:
                _move_on(overlay, outcome.writes)
        return unit


def _move_on(heads: Heads, writes: Sequence[Record]) -> None:
    """Put what a transaction wrote on top of ``heads``, for those that come after it."""
    for record in writes:
        if record.key in heads:
            heads[record.key] = record  # type: ignore[index]  # its hash is its text's


def evaluate(txn: Transaction, heads: Heads, now: int, value_bytes: int) -> Outcome:
    """Run one transaction on top of ``heads``.

    An exception of ``fn`` becomes the outcome of this transaction alone.
    """
    try:
        return _attempt(txn, heads, now, value_bytes)
    except StopIteration as stop:
        # It would end the generators and coroutines between here and the caller.
        error = RuntimeError("the transaction's function raised StopIteration")
        error.__cause__ = stop
        return Outcome(error=error)
    except Exception as error:
        return Outcome(error=error)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit) and _on_main_thread():
            raise  # a signal, most likely: it is meant for the leader, whosever function this is
        return Outcome(error=error)


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _attempt(txn: Transaction, heads: Heads, now: int, value_bytes: int) -> Outcome:
    if txn.claim is not None:
        earlier = receipts.replay(txn.claim, heads[txn.claim.key], now)
        if earlier is not None:
            return earlier
    if txn.fence is not None:
        check_fence(txn.fence, heads[txn.fence.lease], now)
    # Of one transaction the heads are just its own.
    own = heads if len(heads) == len(txn.keys) else {key: heads[key] for key in txn.keys}
    by, op = txn.by, txn.op
    tx = Tx(own, by, now)
    result = txn.fn(tx)
    check_result(result)
    puts = tx.finish()
    if txn.strict:
        _check_pure(txn, own, now, result, tx, puts)
    if txn.claim is not None:
        puts[txn.claim.key] = (receipts.body(txn.claim, result, now), None)
    if tx.restored:
        return Outcome(result, None, _restored(tx, puts, value_bytes))
    if not puts and not tx.appends:
        return Outcome(result)
    writes = [_record(txn, key, put, own[key], now, value_bytes) for key, put in puts.items()]
    for key, body in tx.appends.items():
        if len(body) > value_bytes:
            raise _too_large(key, body, value_bytes)
        writes.append(Record(key, 1, body, by, now, op))
    return Outcome(result, None, tuple(writes))


def _restored(tx: Tx, puts: Puts, value_bytes: int) -> tuple[Record, ...]:
    """The records of another store, as they are."""
    if puts or tx.appends:
        raise UsageError("a transaction that restores records writes nothing else")
    for record in tx.restored:
        if record.body is not None and len(record.body) > value_bytes:
            raise _too_large(Key(record.key), record.body, value_bytes)
    return tuple(tx.restored)


def _check_pure(
    txn: Transaction, own: Heads, now: int, result: object, first: Tx, puts: Puts
) -> None:
    again = Tx(own, txn.by, now)
    second = txn.fn(again)
    check_result(second)
    if (
        not _alike(result, second)
        or again.finish() != puts
        or again.appends != first.appends
        or again.restored != first.restored
    ):
        raise ImpureMutation(
            "the transaction's function gave two different answers for the same values; it may "
            "run again at any time: draw times, ids and random numbers before transact()"
        )


def _alike(a: object, b: object) -> bool:
    """Whether two results look the same: as JSON where they are, else by their own word."""
    try:
        return codec.encode(a) == codec.encode(b)
    except UsageError:
        pass
    if type(a) is not type(b):
        return False
    # Objects that only know who they are cannot tell; no two runs share one.
    return type(a).__eq__ is object.__eq__ or repr(a) == repr(b) or bool(a == b)


def _record(
    txn: Transaction,
    key: Key,
    put: tuple[bytes | None, int | None],
    head: Record | None,
    now: int,
    value_bytes: int,
) -> Record:
    body, base = put
    if body is not None and len(body) > value_bytes:
        raise _too_large(key, body, value_bytes)
    if head is None and txn.fence is None:
        return Record(key, 1, body, txn.by, now, txn.op, "", 0, base or 0)
    version, ops, fence = following(head)
    if txn.fence is not None:
        fence = _raised(fence, txn.fence.token, key)
    seen = version - 1 if base is None else base
    return Record(key, version, body, txn.by, now, txn.op, ops, fence, seen)


def _too_large(key: Key, body: bytes, value_bytes: int) -> LimitExceeded:
    return LimitExceeded(
        f"expected a value of at most {value_bytes} bytes at {key.name!r}, found {len(body)}"
    )


def _raised(fence: int, token: int, key: Key) -> int:
    # The lease record was checked already; this second check is what stands on stores that
    # can commit only one key, where the lease may change between its read and our write.
    if token < fence:
        raise LeaseLost(
            f"{key.name!r} was already written under fencing token {fence}; "
            f"this write carries {token}: stop, another holder has taken over",
            key=key.name,
            token=token,
        )
    return token


def landed(unit: Unit, heads: Heads, find_op: FindOp) -> bool | None:
    """Whether an earlier attempt is in the store: yes, no, or None when it cannot be told.

    A unit commits as a whole, so any one of its writes answers for all of them.
    """
    if not unit.writes:
        return False
    for record in reversed(unit.writes):
        if record.key not in heads:  # appended: the record that numbers it answers for it
            continue
        head = heads[Key(record.key)]
        if head is None or head.version < record.version:
            return False
        op = op_at(head, record.version) or find_op(record.key, record.version)
        if op is not None:
            return op == record.op
    return None


def may_land(unit: Unit, heads: Mapping[Key, Record | None]) -> bool:
    """Whether an attempt that has not landed yet still could: none of its keys has moved on."""
    for record in unit.writes:
        head = heads.get(Key(record.key))
        if head is not None and head.version >= record.version:
            return False
    return True


def unknown(unit: Unit) -> OutcomeUnknown:
    """The error for a commit whose reply was lost and whose traces are gone."""
    return unknown_op(unit.writes[0].op, unit.writes[0].key)


def unknown_op(op: str, key: str) -> OutcomeUnknown:
    """The same for one transaction, which wrote ``key`` among others."""
    return OutcomeUnknown(
        f"the commit of {key[2:]!r} (op {op}) lost its reply, and the store no longer tells "
        "whether it landed; read the key before you decide to repeat it",
        key=key[2:],
        op=op,
    )
