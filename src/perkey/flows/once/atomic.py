"""The atomic mode: the operation is one transaction, and so is its receipt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perkey.flows import steps
from perkey.flows.once.model import Receipt
from perkey.flows.records import check_by
from perkey.store import receipts
from perkey.store.transaction import Claim, Fence, Fn, Outcome, check_fn, declared


def transact(
    scope: str,
    operation: str,
    key: str,
    keys: str | Sequence[str],
    fn: Fn,
    *,
    payload: Any,
    keep: float | None,
    by: str,
    fence: Fence | None,
    timeout: float | None,
) -> steps.Flow[Receipt]:
    """The operation is one transaction, and so is its receipt."""
    check_fn(fn)
    check_by(by)
    if payload is None:
        payload = [str(each) for each in declared(keys)]
    digest, fields = receipts.fingerprint(payload)
    expires = None if keep is None else int(keep * 1000)
    claim = Claim(receipts.receipt_key(scope, operation, key), digest, fields, expires)
    names = declared(keys, claim.key, *([fence.lease] if fence else []))
    outcome: Outcome = yield steps.Transact(
        names, fn, by, fence=fence, claim=claim, timeout=timeout
    )
    return Receipt(outcome.result, outcome.replayed)
