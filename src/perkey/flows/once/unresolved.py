"""Looking after operations whose outcome nobody knows."""

from __future__ import annotations

from typing import Any

import msgspec

from perkey.errors import InProgress, NotFound, UsageError
from perkey.flows import arguments, steps
from perkey.flows.once.model import Held, Unresolved
from perkey.store import codec, receipts
from perkey.store.keys import RECEIPTS
from perkey.store.receipts import Receipt as Stored
from perkey.store.transaction import Tx


def unresolved(older_than: float, limit: int) -> steps.Flow[list[Unresolved]]:
    """Operations that ended as unknown, or whose lease ran out, that many seconds ago or more."""
    arguments.seconds("older_than=", older_than, zero=True)
    arguments.whole("limit=", limit, 1)
    older_than_ms = int(older_than * 1000)
    now = yield steps.Now()
    found: list[Unresolved] = []
    after = ""
    while len(found) < limit:
        records = yield steps.Scan(RECEIPTS, after)
        if not records:
            break
        after = records[-1].key
        for record in records:
            stored = receipts.read(record)
            if stored is not None and stored.state in ("claimed", "unknown"):
                held = msgspec.convert(stored.extra, Held)
                over = stored.state == "unknown" or now >= held.until
                if over and now - held.since >= older_than_ms:
                    found.append(_listed(held))
    return found[:limit]


def _listed(held: Held) -> Unresolved:
    reason = held.reason or "its lease ran out; the holder may have crashed"
    return Unresolved(held.scope, held.operation, held.key, held.attempt, held.since, reason)


def resolve(
    scope: str, operation: str, key: str, value: Any, *, done: bool, by: str
) -> steps.Flow[None]:
    """End an unknown operation: it happened and answered ``value``, or it did not happen."""
    record = receipts.receipt_key(scope, operation, key)
    raw = msgspec.Raw(codec.encode(value))

    def end(tx: Tx) -> None:
        found = receipts.read(tx.record(record))
        if found is None:
            raise NotFound(f"there is no operation with the key {key!r}", key=key)
        if found.state == "claimed" and tx.now < found.extra["until"]:
            raise InProgress("this operation is still running; only an unknown one can be ended")
        if found.state not in ("claimed", "unknown"):
            raise UsageError(f"this operation is {found.state}; only an unknown one can be ended")
        if done:
            stored = Stored("done", found.fingerprint, found.fields, raw)
            tx.put_body(record, receipts.encoded(stored))
        else:
            tx.put_body(record, None)

    yield steps.Transact((record,), end, by)
