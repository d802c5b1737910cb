"""The atomic mode: the operation is one transaction, and so is its receipt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perkey.flows import records, steps
from perkey.flows.once.model import Receipt
from perkey.store.transaction import Fence, Fn


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
    claim = records.atomic_claim(scope, operation, key, keys, payload, keep)
    outcome = yield from records.commit(keys, fn, claim, by, fence, timeout)
    return Receipt(outcome.result, outcome.replayed)
