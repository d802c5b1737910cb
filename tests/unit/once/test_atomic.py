"""The atomic mode: key, change and receipt are one commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perkey
from perkey import KeyReused, Once, Store, Tx


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    url = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/once.db"}[request.param]
    with perkey.open(url, strict=True) as opened:
        opened.put("n", 0, create=True)
        yield opened


def add(amount: int, result: Any = "done") -> Any:
    def fn(tx: Tx) -> Any:
        tx["n"] = tx["n"] + amount
        return result

    return fn


@pytest.mark.parametrize("value", [0, False, "", [], None, {"a": 1}])
def test_a_repeat_changes_nothing_and_gets_the_same_answer(store: Store, value: Any) -> None:
    runner = Once(store)
    first = runner.transact("k", "n", add(5, value))
    again = runner.transact("k", "n", add(5, value))
    assert (first.replayed, again.replayed, store.get("n").value) == (False, True, 5)
    assert again.value == value
    assert type(again.value) is type(value)


def test_an_exception_leaves_the_key_free(store: Store) -> None:
    def fails(tx: Tx) -> None:
        tx["n"] = 99
        raise ValueError("no")

    runner = Once(store)
    with pytest.raises(ValueError, match="no"):
        runner.transact("k", "n", fails)
    assert (store.get("n").value, runner.unresolved()) == (0, [])
    assert not runner.transact("k", "n", add(5)).replayed


def test_another_payload_is_refused(store: Store) -> None:
    runner = Once(store)
    runner.transact("k", "n", add(5), payload={"amount": 5})
    with pytest.raises(KeyReused) as refused:
        runner.transact("k", "n", add(6), payload={"amount": 6})
    assert refused.value.fields == ["amount"]
    assert store.get("n").value == 5


def test_scopes_do_not_share_keys(store: Store) -> None:
    for scope in ("ann", "bob"):
        Once(store, scope).transact("k", "n", add(5))
    assert store.get("n").value == 10


def test_a_result_that_cannot_be_stored_rolls_everything_back(store: Store) -> None:
    with pytest.raises(perkey.InvalidValue, match="is stored"):
        Once(store).transact("k", "n", add(5, (1, 2)))
    assert store.get("n").value == 0
