"""Transfers that tasks of one loop ask for at the same time: as one after the other."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import perkey
from perkey import (
    AsyncLedger,
    AsyncStore,
    InsufficientFunds,
    Ledger,
    Limits,
    PerkeyError,
    QueueFull,
    StoreClosed,
    StoreUnavailable,
    Timeout,
)
from perkey.flows.ledger import bulk
from perkey.ledger import Balance, Transfer
from perkey.observe import events
from perkey.testing import AsyncFaultyStore

ACCOUNTS = ("a", "b", "c", "d")
FUNDS = 200

Use = Callable[[AsyncLedger, AsyncStore], Coroutine[Any, Any, Any]]


def used(path: Path, use: Use, **options: Any) -> Any:
    """Run ``use`` on a ledger in an SQLite file, with four accounts."""

    async def main() -> Any:
        store = await perkey.aopen(f"sqlite:///{path}/together.db", **options)
        try:
            ledger = AsyncLedger(store)
            await opened(ledger)
            return await use(ledger, store)
        finally:
            await store.close()

    return asyncio.run(main())


async def opened(ledger: AsyncLedger) -> None:
    await ledger.open_account("world", "EUR", floor=None)
    for name in ACCOUNTS:
        await ledger.open_account(name, "EUR")
        await ledger.transfer("world", name, FUNDS, key=f"funding/{name}")


class Sizes:
    """How many transfers shared each transaction that was gathered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[int] = []
        real = bulk.together

        def noted(asked: Any) -> Any:
            self.seen.append(len(asked))
            return real(asked)

        monkeypatch.setattr(bulk, "together", noted)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> Sizes:
    return Sizes(monkeypatch)


def told(answer: Any) -> tuple[Any, ...]:
    """What a caller was told, without the time."""
    if isinstance(answer, BaseException):
        return (type(answer), str(answer))
    return (answer.key, answer.kind, answer.legs, answer.by, answer.memo, answer.replayed)


# ----------------------------------------------------------- the same as one after the other


Call = tuple[str, tuple[Any, ...], dict[str, Any]]


def drawn(chance: random.Random) -> Call:
    """One operation: mostly a transfer, often under a key that somebody else uses as well."""
    key = f"k{chance.randrange(25)}"
    source, target, third = chance.sample(ACCOUNTS, 3)
    amount = chance.choice([1, 5, 40, 150, 0])
    by = chance.choice(["", "", "", "ann"])
    what = chance.random()
    if what < 0.7:
        options = {"timeout": 600.0} if what < 0.05 else {}
        return "transfer", (source, target, amount), {"key": key, "by": by, **options}
    if what < 0.85:
        legs = [(source, -2 * amount), (target, amount), (third, amount)]
        return "post", (legs,), {"key": key, "by": by}
    if what < 0.95:
        return "hold", (source, target, amount), {"key": key, "by": by}
    return chance.choice(["freeze", "thaw"]), (source,), {}


def one_by_one(calls: list[Call]) -> tuple[list[Any], list[Any]]:
    """What becomes of these calls one after the other: the model."""
    with perkey.open("memory://") as store:
        ledger = Ledger(store)
        ledger.open_account("world", "EUR", floor=None)
        for name in ACCOUNTS:
            ledger.open_account(name, "EUR")
            ledger.transfer("world", name, FUNDS, key=f"funding/{name}")
        answers = []
        for name, arguments, options in calls:
            try:
                found = getattr(ledger, name)(*arguments, **options)
            except PerkeyError as error:
                found = error
            answers.append(told(found) if not isinstance(found, Balance) else name)
        return answers, [figures(each) for each in ledger.accounts()]


def figures(each: Any) -> tuple[Any, ...]:
    return (each.account, each.posted, each.held, each.entries)


@pytest.mark.parametrize("seed", range(12))
def test_many_at_once_end_as_one_after_the_other(tmp_path: Path, seed: int, sizes: Sizes) -> None:
    """The order is that in which they came, whoever goes alone and whoever shares."""
    chance = random.Random(seed)
    calls = [drawn(chance) for _ in range(60)]

    async def use(ledger: AsyncLedger, store: AsyncStore) -> tuple[list[Any], list[Any]]:
        asked = [getattr(ledger, name)(*args, **options) for name, args, options in calls]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert await ledger.verify() is None
        answers = [
            name if isinstance(each, Balance) else told(each)
            for each, (name, _, _) in zip(found, calls, strict=True)
        ]
        return answers, [figures(each) for each in await ledger.accounts()]

    assert used(tmp_path, use) == one_by_one(calls)
    assert max(sizes.seen) > 2


# --------------------------------------------------------------------- one of them, or all


def test_what_tasks_ask_for_in_one_round_shares_a_transaction(tmp_path: Path, sizes: Sizes) -> None:
    async def use(ledger: AsyncLedger, store: AsyncStore) -> None:
        moved = await asyncio.gather(
            *(ledger.transfer("a", "b", 1, key=f"k{n}") for n in range(40))
        )
        assert [each.key for each in moved] == [f"k{n}" for n in range(40)]
        assert sizes.seen == [40]
        assert {each.at for each in moved} >= {moved[-1].at}
        assert (await ledger.balance("b")).posted == FUNDS + 40

    used(tmp_path, use)


def test_a_lone_caller_waits_for_nobody(tmp_path: Path, sizes: Sizes) -> None:
    async def use(ledger: AsyncLedger, store: AsyncStore) -> None:
        for n in range(5):
            await ledger.transfer("a", "b", 1, key=f"k{n}")
        assert sizes.seen == []

    used(tmp_path, use)


def test_each_is_counted_as_one_alone_would_be(tmp_path: Path, sizes: Sizes) -> None:
    async def use(ledger: AsyncLedger, store: AsyncStore) -> None:
        before = store.statistics()["events"]["Committed"]
        calls = [ledger.transfer("a", "b", 1, key=f"k{n % 30}") for n in range(40)]
        calls += [ledger.transfer("a", "b", 10**6, key=f"x{n}") for n in range(5)]
        await asyncio.gather(*calls, return_exceptions=True)
        after = store.statistics()
        assert after["events"]["Committed"] - before == 30  # not the replays, nor the refused
        assert sum(after["attempts"].values()) == after["events"]["Committed"]
        assert sizes.seen == [45]

    used(tmp_path, use)


def test_who_listens_hears_of_each(tmp_path: Path, sizes: Sizes) -> None:
    heard: list[Any] = []

    async def use(ledger: AsyncLedger, store: AsyncStore) -> None:
        store.observe(heard.append)
        await asyncio.gather(*(ledger.transfer("a", "b", 1, key=f"k{n}") for n in range(9)))
        assert sizes.seen == []

    used(tmp_path, use)
    committed = [each for each in heard if isinstance(each, events.Committed)]
    assert len({each.op for each in committed}) == 9
    assert all(each.keys == ("k" + each.keys[0][1:], "a", "b") for each in committed)


def begun(ledger: AsyncLedger) -> list[asyncio.Task[Any]]:
    """Twenty tasks, each with a transfer of its own."""
    calls = [ledger.transfer("a", "b", 1, key=f"k{n}") for n in range(20)]
    return [asyncio.ensure_future(call) for call in calls]


def test_a_cancelled_one_does_not_harm_the_others(tmp_path: Path, sizes: Sizes) -> None:
    async def use(ledger: AsyncLedger, store: AsyncStore) -> None:
        tasks = begun(ledger)
        await asyncio.sleep(0)  # all have asked, and the round is not over
        for task in tasks[1:4]:
            task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # what is left is on its way
        for task in tasks[4:7]:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in found[1:7])
        assert [each.key for each in found[7:]] == [f"k{n}" for n in range(7, 20)]
        assert sizes.seen == [17]
        assert await ledger.verify() is None
        posted = (await ledger.balance("b")).posted - FUNDS
        assert posted == 17  # those cancelled before the round was over never asked
        again = [await ledger.transfer("a", "b", 1, key=f"k{n}") for n in range(20)]
        assert [each.replayed for each in again] == [True] + [False] * 3 + [True] * 16

    used(tmp_path, use)


def test_all_cancelled_at_once(tmp_path: Path) -> None:
    """As ``asyncio.run`` does at its end: nothing is left behind."""

    async def use(ledger: AsyncLedger, store: AsyncStore) -> None:
        tasks = begun(ledger)
        for _ in range(3):
            await asyncio.sleep(0)
        everybody = asyncio.all_tasks() - {asyncio.current_task()}
        assert len(everybody - {*tasks}) == 1  # the one that asks for all of them
        for task in everybody:
            task.cancel()
        await asyncio.gather(*everybody, return_exceptions=True)
        assert (await ledger.transfer("a", "b", 1, key="later")).replayed is False
        assert await ledger.verify() is None

    used(tmp_path, use)


def test_if_the_asking_itself_is_cancelled_each_goes_alone(tmp_path: Path) -> None:
    async def use(ledger: AsyncLedger, store: AsyncStore) -> None:
        tasks = begun(ledger)
        for _ in range(3):
            await asyncio.sleep(0)
        (asking,) = asyncio.all_tasks() - {asyncio.current_task(), *tasks}
        asking.cancel()
        moved = await asyncio.gather(*tasks)
        assert [each.key for each in moved] == [f"k{n}" for n in range(20)]
        assert (await ledger.balance("b")).posted == FUNDS + 20

    used(tmp_path, use)


# ----------------------------------------------------------------------- when the store fails


async def ten(ledger: AsyncLedger) -> list[Any]:
    return await asyncio.gather(
        *(ledger.transfer("a", "b", n + 1, key=f"k{n}") for n in range(10)), return_exceptions=True
    )


@pytest.mark.parametrize("error", [StoreUnavailable, Timeout, StoreClosed, QueueFull, ValueError])
def test_a_store_that_fails_tells_each_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Where it is not known whose fault it was, each tries again alone, and is told so."""

    async def use(ledger: AsyncLedger, store: AsyncStore) -> None:
        async def failing(*arguments: Any) -> Any:
            await asyncio.sleep(0)
            raise error("broken")

        monkeypatch.setattr(store.core, "transact_async", failing)
        found = await ten(ledger)
        assert {type(each) for each in found} == {error}
        assert len({id(each) for each in found}) == 10  # an exception each, with its own trace
        monkeypatch.undo()
        assert [each.replayed for each in await ten(ledger)] == [False] * 10

    used(tmp_path, use)


def test_a_corrupt_record_fails_its_own_transfer_alone(tmp_path: Path) -> None:
    async def use(ledger: AsyncLedger, store: AsyncStore) -> None:
        from perkey.store.keys import Key

        def spoil(tx: Any) -> None:
            tx.put_body(Key("a/d"), b"[1,2]")

        await store.transact([Key("a/d")], spoil)
        calls = [ledger.transfer("a", "b", 1, key=f"k{n}") for n in range(8)]
        calls[5:5] = [ledger.transfer("a", "d", 1, key="to d")]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(each, Transfer) for each in found] == [True] * 5 + [False] + [True] * 3

    used(tmp_path, use)


def test_a_refused_one_of_many_leaves_its_key_free(tmp_path: Path, sizes: Sizes) -> None:
    async def use(ledger: AsyncLedger, store: AsyncStore) -> None:
        calls = [ledger.transfer("a", "b", 1, key=f"k{n}") for n in range(8)]
        calls += [ledger.transfer("a", "b", 10**6, key="dear") for _ in range(8)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each) for each in found] == [Transfer] * 8 + [InsufficientFunds] * 8
        assert (await ledger.transfer("a", "b", 1, key="dear")).replayed is False

    used(tmp_path, use)


@pytest.mark.parametrize("seed", range(4))
def test_saves_that_fail_or_lose_their_reply_move_nothing_twice(tmp_path: Path, seed: int) -> None:
    """Callers that try again until they are answered, over a store of which much goes wrong."""

    async def main() -> None:
        inner = await perkey.aopen(f"sqlite:///{tmp_path}/faulty.db")
        await opened(AsyncLedger(inner))
        store: Any = AsyncFaultyStore(inner, fail=0.2, lose=0.2, seed=seed)
        ledger = AsyncLedger(store)

        async def caller(number: int) -> int:
            key, done = f"k{number % 12}", 0
            for _ in range(200):
                try:
                    done += not (await ledger.transfer("a", "b", 3, key=key)).replayed
                except StoreUnavailable:
                    continue
                return done
            raise AssertionError("never answered")

        ran = await asyncio.gather(*(caller(n) for n in range(36)))
        assert sum(ran) <= 12
        sound = AsyncLedger(inner)
        assert (await sound.balance("b")).posted == FUNDS + 36
        assert await sound.verify() is None
        await store.close()
        await inner.close()

    asyncio.run(main())


def test_two_loops_share_one_ledger(tmp_path: Path) -> None:
    """Each loop gathers its own, or goes alone; nobody waits for the other's."""
    with perkey.open(f"sqlite:///{tmp_path}/loops.db") as store:
        ledger = AsyncLedger(AsyncStore.sharing(store))
        asyncio.run(opened(ledger))

        async def crowd(part: int) -> None:
            for turn in range(5):
                await asyncio.gather(
                    *(ledger.transfer("a", "b", 1, key=f"{part}/{turn}/{n}") for n in range(9))
                )

        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda part: asyncio.run(crowd(part)), range(2)))
        assert Ledger(store).balance("b").posted == FUNDS + 90
        assert Ledger(store).verify() is None


def test_the_limits_hold_for_what_is_gathered(tmp_path: Path, sizes: Sizes) -> None:
    async def use(ledger: AsyncLedger, store: AsyncStore) -> None:
        await asyncio.gather(*(ledger.transfer("a", "b", 1, key=f"k{n}") for n in range(21)))
        assert sizes.seen == [8, 8, 5]

    used(tmp_path, use, limits=Limits(batch=8))
    sizes.seen.clear()
    (tmp_path / "keys").mkdir()

    async def few(ledger: AsyncLedger, store: AsyncStore) -> None:
        await asyncio.gather(*(ledger.transfer("a", "b", 1, key=f"k{n}") for n in range(21)))
        assert sizes.seen == [4] * 5

    used(tmp_path / "keys", few, limits=Limits(transaction_keys=12))
