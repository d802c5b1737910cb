"""Wrong arguments are refused by name, before anything is written or anybody else is harmed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perkey
from perkey import Board, Conflict, Documents, Leases, UsageError
from perkey.observe import events
from perkey.store.transaction import Tx
from perkey.stores import Store


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/arguments.db"
    with perkey.open(url) as store:
        store.put("k", 1, create=True)
        Board(store, "run").create(["a"])
        yield store


CALLS: dict[str, Callable[[Store, Any], Any]] = {
    "base": lambda store, bad: store.put("k", 2, overwrite=True, base=bad),
    "documents base": lambda store, bad: Documents(store).put("k", 2, overwrite=True, base=bad),
    "if_match": lambda store, bad: Documents(store).delete("k", if_match=bad),
    "patch if_match": lambda store, bad: Documents(store).patch("k", merge_patch={}, if_match=bad),
    "after": lambda store, bad: store.history("k", after=bad),
    "limit": lambda store, bad: store.history("k", limit=bad),
    "version": lambda store, bad: Documents(store).at("k", bad),
    "diff": lambda store, bad: Documents(store).diff("k", bad, 1),
    "wait": lambda store, bad: Leases(store).acquire("l", ttl=1, wait=bad),
    "overwrite": lambda store, bad: store.put("k", 2, overwrite=bad),
    "fence": lambda store, bad: store.put("k", 2, overwrite=True, fence=bad),
    "finish": lambda store, bad: Board(store, "run").finish(bad, 1),
    "outputs": lambda store, bad: Board(store, "run").complete(outputs=bad),
    "tasks": lambda store, bad: Board(store, "other").create(bad),
    "keys": lambda store, bad: store.transact(bad, lambda tx: None),
    "prefix": lambda store, bad: list(store.scan(bad)),
    "watch": lambda store, bad: store.watch("", after=bad),
    "hook": lambda store, bad: store.observe(bad),
}


@pytest.mark.parametrize("bad", [b"x", True, -1, 1.5, "\ud800"], ids=repr)
@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_is_refused_and_writes_nothing(store: Store, name: str, bad: Any) -> None:
    if (name, bad) in [("overwrite", True), ("wait", 1.5), ("hook", print)]:
        return  # these are right
    with pytest.raises(UsageError):
        CALLS[name](store, bad)
    assert store.get("k").version == 1


@pytest.mark.parametrize("name", ["base", "if_match", "after", "limit", "version", "diff"])
def test_a_number_that_no_store_can_keep_is_refused_by_every_store(store: Store, name: str) -> None:
    with pytest.raises(UsageError, match="whole number"):
        CALLS[name](store, 10**30)


def test_a_limit_of_nothing_is_an_error_and_not_everything(store: Store) -> None:
    for limit in (0, -1):
        with pytest.raises(UsageError, match="limit= as a whole number from 1 up"):
            store.history("k", limit=limit)


def test_one_text_is_not_many_keys(store: Store) -> None:
    with pytest.raises(UsageError, match="a list of keys, found one text"):
        store.get_many("k")


def test_cursors_are_plain_numbers(store: Store) -> None:
    for bad in ("-5", " 1", "1_0", "9" * 30):
        with pytest.raises(UsageError, match="a cursor of this store"):
            store.watch("", after=bad).next(0)


def test_both_colours_refuse_what_is_no_url() -> None:
    for bad in (Path("work.db"), None, b"memory://"):
        with pytest.raises(UsageError, match="expected a store URL"):
            perkey.open(bad)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="expected a store URL"):
            asyncio.run(perkey.aopen(bad))  # type: ignore[arg-type]


def test_a_repeated_finish_tells_nobody_again(store: Store) -> None:
    board = Board(store, "run")
    claim = board.claim("w", lease=60)
    assert claim is not None
    heard: list[Any] = []
    store.observe(heard.append)
    board.finish(claim, 1)
    board.finish(claim, 1)
    assert [each.change for each in heard if isinstance(each, events.TaskChanged)] == ["finished"]


def test_only_documents_count_for_the_conflict_rate(store: Store) -> None:
    Leases(store).acquire("unit/1", ttl=60)
    store.transact("unit/1", put_one, idempotency_key="unit/2")
    with pytest.raises(Conflict):
        store.put("unit/1", 2, if_match=7)
    assert store.statistics()["conflict_rate"]["unit"] == 0.5


def put_one(tx: Tx) -> None:
    tx["unit/1"] = 1
