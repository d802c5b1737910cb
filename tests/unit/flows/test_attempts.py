"""Which transactions count their attempts, and which go on until their time is up."""

from __future__ import annotations

import pytest

from perkey.flows import records, steps
from perkey.flows.documents import Book, Write
from perkey.store.limits import Limits
from perkey.store.transaction import Tx


def add(tx: Tx) -> None:
    tx["n"] = tx.get("n", 0) + 1


@pytest.mark.parametrize("attempts", [1, 6])
def test_an_update_counts(attempts: int) -> None:
    flow = Book(Limits(attempts=attempts)).update("n", lambda n: n + 1, Write("me"))
    step = next(flow)
    assert isinstance(step, steps.Transact)
    assert step.attempts == attempts


def test_a_plain_transaction_does_not() -> None:
    step = next(records.transact("n", add))
    assert isinstance(step, steps.Transact)
    assert step.attempts is None
