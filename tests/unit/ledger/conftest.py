"""A ledger with a few accounts, on each store that needs no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import perkey
from perkey import Ledger, Store


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    url = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/ledger.db"}[request.param]
    with perkey.open(url, strict=True) as opened:
        yield opened


@pytest.fixture
def ledger(store: Store) -> Ledger:
    """``world`` has no floor; ``a`` and ``b`` hold euros, ``a`` has 1000; ``usd`` dollars."""
    ledger = Ledger(store)
    ledger.open_account("world", "EUR", floor=None)
    for name in ("a", "b", "c"):
        ledger.open_account(name, "EUR")
    ledger.open_account("usd", "USD")
    ledger.transfer("world", "a", 1000, key="funding")
    return ledger
