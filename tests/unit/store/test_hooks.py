"""Observers: what they hear, and that nothing they raise harms a caller."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perkey
from perkey import Conflict, Leases, Ledger, Once, Store
from perkey.observe import events
from perkey.store.transaction import Tx

PATIENCE = 60.0
BASE = [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError]


@pytest.fixture(params=["memory://", "sqlite:///"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    path = request.param
    url = path if path == "memory://" else f"sqlite:///{tmp_path}/s.db?synchronous=OFF"
    with perkey.open(url) as store:
        yield store


class Raising:
    """A hook that raises at every event, and what the hook after it heard all the same."""

    def __init__(self, store: Store, error: BaseException) -> None:
        self.error = error
        self.heard: list[Any] = []
        store.observe(self)
        store.observe(self.heard.append)

    def __call__(self, event: Any) -> None:
        raise self.error


def on_thread(use: Any) -> list[BaseException | None]:
    """How ``use`` ended on a thread that is not the main one."""
    ended: list[BaseException | None] = []

    def run() -> None:
        try:
            use()
        except BaseException as error:
            ended.append(error)
        else:
            ended.append(None)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    return ended


@pytest.mark.parametrize("kind", [*BASE, RuntimeError])
def test_what_a_hook_raises_on_a_thread_reaches_nobody(
    store: Store, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    raising = Raising(store, kind("of the hook"))
    assert on_thread(lambda: store.put("a", 1, create=True)) == [None]
    (refused,) = on_thread(lambda: store.put("a", 1, create=True))
    assert isinstance(refused, Conflict)
    assert [type(each).__name__ for each in raising.heard] == ["Committed", "Conflicted"]
    assert store.statistics()["observer_errors"] == 2
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [kind] * 2


@pytest.mark.parametrize("kind", [GeneratorExit, asyncio.CancelledError, RuntimeError])
def test_what_is_no_interrupt_reaches_nobody_on_the_main_thread_either(
    store: Store, kind: type[BaseException]
) -> None:
    raising = Raising(store, kind("of the hook"))
    assert store.put("a", 1, create=True).version == 1
    with pytest.raises(Conflict):
        store.put("a", 1, create=True)
    assert len(raising.heard) == 2


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_reaches_the_main_thread_when_everybody_has_been_told(
    store: Store, kind: type[BaseException]
) -> None:
    """The leader is interrupted in a hook while two others wait for the same commit."""
    ended: list[list[BaseException | None]] = []
    followers: list[threading.Thread] = []

    def follow(name: str) -> None:
        ended.append(on_thread(lambda: store.put(name, 1, create=True)))

    def fn(tx: Tx) -> None:
        tx["main"] = 1
        if followers:
            return
        for name in ("one", "two"):
            followers.append(threading.Thread(target=follow, args=(name,)))
            followers[-1].start()
        pause = threading.Event()
        while store.statistics()["waiting"] < 2:
            pause.wait(0.001)

    raising = Raising(store, kind("of a signal"))
    with pytest.raises(kind, match="of a signal") as caught:
        store.transact("main", fn)
    for follower in followers:
        follower.join(PATIENCE)
    assert ended == [[None], [None]]
    assert any("handed over already" in note for note in caught.value.__notes__)
    assert [store.get(key).version for key in ("main", "one", "two")] == [1, 1, 1]
    assert sorted(each.keys[0] for each in raising.heard) == ["main", "one", "two"]
    # It is raised once: the next call does not meet it again.
    store.core.observers.remove(raising)
    assert store.put("main", 2, if_match=1).version == 2


def test_an_interrupt_on_the_way_to_a_refusal_keeps_the_refusal_as_its_context(
    store: Store,
) -> None:
    store.put("a", 1, create=True)
    Raising(store, KeyboardInterrupt("of a signal"))
    with pytest.raises(KeyboardInterrupt, match="of a signal") as caught:
        store.put("a", 1, create=True)
    assert isinstance(caught.value.__context__, Conflict)


@pytest.mark.parametrize("kind", [*BASE, RuntimeError])
async def test_tasks_are_answered_whatever_a_hook_raises_on_the_committers_thread(
    tmp_path: Path, kind: type[BaseException]
) -> None:
    async with await perkey.aopen(f"sqlite:///{tmp_path}/s.db?synchronous=OFF") as store:
        raising = Raising(Store.sharing(store), kind("of the hook"))
        puts = [store.put(f"a/{n}", n, create=True) for n in range(10)]
        written = await asyncio.wait_for(asyncio.gather(*puts), PATIENCE)
        assert [each.version for each in written] == [1] * 10
        assert sorted(each.keys[0] for each in raising.heard) == [f"a/{n}" for n in range(10)]
        assert (await store.put("a/0", 2, if_match=1)).version == 2


def test_a_log_that_fails_harms_nobody_either(store: Store) -> None:
    class Broken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise RuntimeError("of the log")

    log = logging.getLogger("perkey")
    broken = Broken()
    log.addFilter(broken)
    try:
        Raising(store, RuntimeError("of the hook"))
        assert store.put("a", 1, create=True).version == 1
    finally:
        log.removeFilter(broken)


async def later(event: Any) -> None: ...


@pytest.mark.parametrize(("bad", "what"), [(later, "an async function"), (7, "found int")])
def test_a_hook_must_be_a_plain_function(store: Store, bad: Any, what: str) -> None:
    with pytest.raises(perkey.UsageError, match=what):
        store.observe(bad)
    with pytest.raises(perkey.UsageError, match=what):
        perkey.open("memory://", observers=[bad])


# ------------------------------------------------------------------- what is told of a commit


def committed(heard: list[Any]) -> list[tuple[str, ...]]:
    return [each.keys for each in heard if isinstance(each, events.Committed)]


def test_a_commit_tells_the_keys_of_its_caller_and_no_receipt(store: Store) -> None:
    heard: list[Any] = []
    store.observe(heard.append)

    def both(tx: Tx) -> None:
        tx["a"], tx["b"] = 1, 2

    store.transact(["a", "b"], both, idempotency_key="k1")
    store.transact(["a", "b"], both, idempotency_key="k1")
    assert committed(heard) == [("a", "b")]
    Leases(store).acquire("unit", ttl=60)
    assert committed(heard)[1:] == [("unit",)]
    heard.clear()
    Once(store).run("k2", None, lambda context: 7)
    assert committed(heard) == [(), ()]  # claimed, done: only its own record
    assert [each.kind for each in heard if isinstance(each, events.Operated)] == ["ran"]


def test_a_commit_of_the_ledger_tells_accounts_and_transfer(store: Store) -> None:
    ledger = Ledger(store)
    ledger.open_account("cash", "EUR", floor=None)
    ledger.open_account("sales", "EUR")
    heard: list[Any] = []
    store.observe(heard.append)
    ledger.transfer("cash", "sales", 100, key="t1")
    assert [{*keys} for keys in committed(heard)] == [{"cash", "sales", "t1"}]


def test_a_slow_function_is_told_with_the_keys_of_its_caller() -> None:
    with perkey.open("memory://", limits=perkey.Limits(slow_fn_s=1e-9)) as store:
        heard: list[Any] = []
        store.observe(heard.append)
        store.transact("a", lambda tx: None, idempotency_key="k")
        assert [each.keys for each in heard if isinstance(each, events.SlowFunction)] == [("a",)]
