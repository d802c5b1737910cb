"""Sixteen callers, one key, a store that fails 30 % of its saves: the money moves once.

The same probe over four lock maps shows the bug: a failed attempt forgets the lock while another
caller waits on it, a third makes a new one, and both move the money.  ``pytest -s`` prints the
table; ``PERKEY_MOVE_ROUNDS=5000`` makes it long.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import perkey
from perkey import AsyncLedger, AsyncOnce, Ledger, Once, StoreUnavailable
from perkey.testing import AsyncFaultyStore, FaultyStore
from tests.races.lock_maps import RIGHT, WRONG, LockMap

CALLERS, FAIL, TRIES = 16, 0.3, 3
ROUNDS = int(os.environ.get("PERKEY_MOVE_ROUNDS", "300"))


class SaveFailed(Exception):
    """The bank's store did not save."""


class Bank:
    """Somebody's own service: it looks for a receipt, then saves; in between others may run."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.moves: Counter[str] = Counter()
        self.receipts: set[str] = set()

    async def pay(self, locks: LockMap, key: str) -> str:
        async with locks.holding(key):
            if key in self.receipts:
                return "replayed"
            await self.save(key)
            return "ran"

    async def save(self, key: str) -> None:
        await asyncio.sleep(0)
        if self.chance.random() < FAIL:
            raise SaveFailed
        self.moves[key] += 1
        self.receipts.add(key)


async def persistent(
    chance: random.Random, call: Callable[[], Any], failure: type[Exception]
) -> None:
    """A caller that comes at some time and, after a failure, comes again."""
    for _ in range(TRIES):
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        try:
            await call()
        except failure:
            continue
        return


async def crowd(chance: random.Random, call: Callable[[], Any], failure: type[Exception]) -> None:
    await asyncio.gather(*(persistent(chance, call, failure) for _ in range(CALLERS)))


def in_rounds(moves: Counter[str], keys: list[str]) -> dict[str, int]:
    """In how many rounds the money moved more than once, and in how many it never did."""
    return {
        "twice": sum(moves[key] > 1 for key in keys),
        "never": sum(moves[key] == 0 for key in keys),
    }


async def probed(make: type[LockMap], rounds: int) -> dict[str, int]:
    chance = random.Random(1)
    bank, locks = Bank(chance), make()
    keys = [f"k{n}" for n in range(rounds)]
    for key in keys:
        await crowd(chance, lambda key=key: bank.pay(locks, key), SaveFailed)
    return in_rounds(bank.moves, keys) | {"entries left": len(locks.locks)}


async def test_the_table_of_lock_maps() -> None:
    table = {make.__name__: await probed(make, ROUNDS) for make in (*WRONG, *RIGHT)}
    print(f"\n{'lock map':<16}{'moved twice in':>16}{'entries left':>14}")
    for name, found in table.items():
        print(f"{name:<16}{found['twice'] / ROUNDS:>15.1%} {found['entries left']:>13}")
    for make in WRONG:
        assert table[make.__name__]["twice"] > ROUNDS * 0.01, "the probe sees nothing"
    for make in RIGHT:
        assert table[make.__name__]["twice"] == 0
    assert table["KeepForEver"]["entries left"] == ROUNDS
    assert table["CountedUsers"]["entries left"] == 0


# -------------------------------------------------------------------------------- perkey


def opened(store: perkey.Store) -> Ledger:
    ledger = Ledger(store)
    ledger.open_account("world", "EUR", floor=None)
    for name in ("a", "b"):
        ledger.open_account(name, "EUR")
    ledger.transfer("world", "a", 2 * ROUNDS, key="funding")
    return ledger


def settled(ledger: Ledger, keys: list[str]) -> None:
    """Each key moved at most once, none is dead, and no money is lost."""
    moved = len(ledger.statement("b", limit=2 * ROUNDS + 1))
    assert moved > ROUNDS * 0.8
    for key in keys:
        assert ledger.transfer("a", "b", 1, key=key).key == key
    lines = ledger.statement("b", limit=2 * ROUNDS + 1)
    assert Counter(line.transfer for line in lines) == Counter(keys)
    assert ledger.balance("a").posted == ledger.balance("b").posted == ROUNDS
    assert ledger.verify() is None


async def test_transfers_on_asyncio() -> None:
    with perkey.open("memory://") as sound:
        ledger = opened(sound)
        faulty = AsyncFaultyStore(sound, fail=FAIL, seed=2)
        under_test, chance = AsyncLedger(faulty), random.Random(3)
        keys = [f"k{n}" for n in range(ROUNDS)]
        for key in keys:
            move = lambda key=key: under_test.transfer("a", "b", 1, key=key)  # noqa: E731
            await crowd(chance, move, StoreUnavailable)
        assert faulty.counts["failed"] > ROUNDS * 0.2
        await faulty.close()
        settled(ledger, keys)


def threads(rounds: int, call: Callable[[str], object], failure: type[Exception]) -> list[str]:
    """Sixteen threads that try each key, one key after another; the keys."""

    def caller(key: str) -> None:
        for _ in range(TRIES):
            try:
                call(key)
            except failure:
                continue
            return

    keys = [f"k{n}" for n in range(rounds)]
    with ThreadPoolExecutor(CALLERS) as pool:
        for key in keys:
            list(pool.map(caller, [key] * CALLERS))
    return keys


def test_transfers_in_threads() -> None:
    with perkey.open("memory://") as sound:
        ledger = opened(sound)
        with FaultyStore(sound, fail=FAIL, seed=4) as faulty:
            under_test = Ledger(faulty)
            move = lambda key: under_test.transfer("a", "b", 1, key=key)  # noqa: E731
            keys = threads(ROUNDS, move, StoreUnavailable)
            assert faulty.counts["failed"] > ROUNDS * 0.2
        settled(ledger, keys)


class Outside:
    """The outside world: an effect that fails 30 % of the time before it moves anything."""

    def __init__(self) -> None:
        self.chance = random.Random(5)
        self.moves: Counter[str] = Counter()

    def move(self, context: perkey.Context) -> int:
        if self.chance.random() < FAIL:
            raise SaveFailed
        self.moves[context.key] += 1
        return 1

    async def move_later(self, context: perkey.Context) -> int:
        await asyncio.sleep(0)
        return self.move(context)


def test_effects_in_threads() -> None:
    outside = Outside()
    with perkey.open("memory://") as store:
        once = Once(store)
        keys = threads(ROUNDS, lambda key: once.run(key, 1, outside.move), SaveFailed)
        for key in keys:
            assert once.run(key, 1, lambda _: 1).value == 1
        assert once.unresolved() == []
    assert in_rounds(outside.moves, keys)["twice"] == 0


async def test_effects_on_asyncio() -> None:
    outside, chance = Outside(), random.Random(6)
    keys = [f"k{n}" for n in range(ROUNDS)]
    async with await perkey.aopen("memory://") as store:
        once = AsyncOnce(store)
        for key in keys:
            run = lambda key=key: once.run(key, 1, outside.move_later)  # noqa: E731
            await crowd(chance, run, SaveFailed)
        assert await once.unresolved() == []
    assert in_rounds(outside.moves, keys) == {"twice": 0, "never": 0}


# ------------------------------------------------------- the late arrival, by construction


class Scene:
    """A fails, B waits on the key, C arrives after A's clean-up, while B is at work."""

    def __init__(self) -> None:
        self.moves = 0
        self.attempts = 0
        self.a_holds, self.a_may_fail = asyncio.Event(), asyncio.Event()
        self.b_holds, self.b_may_end = asyncio.Event(), asyncio.Event()

    async def effect(self, *context: object) -> int:
        self.attempts += 1
        if self.attempts == 1:
            self.a_holds.set()
            await self.a_may_fail.wait()
            raise SaveFailed
        if self.attempts == 2:
            self.b_holds.set()
            await self.b_may_end.wait()
        self.moves += 1
        return self.moves

    async def play(self, call: Callable[[], Any]) -> int:
        first = asyncio.ensure_future(call())
        await self.a_holds.wait()
        waiter = asyncio.ensure_future(call())
        await settle()
        self.a_may_fail.set()
        await self.b_holds.wait()
        late = asyncio.ensure_future(call())
        await settle()
        self.b_may_end.set()
        ends = await asyncio.gather(first, waiter, late, return_exceptions=True)
        assert isinstance(ends[0], SaveFailed)
        assert not any(isinstance(end, Exception) for end in ends[1:])
        return self.moves


async def settle() -> None:
    """Let everybody go as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("make", [*WRONG, *RIGHT])
async def test_the_late_arrival_over_lock_maps(make: type[LockMap]) -> None:
    async def once(scene: Scene, locks: LockMap, receipts: set[str]) -> None:
        async with locks.holding("k"):
            if "k" not in receipts:
                await scene.effect()
                receipts.add("k")

    moves = []
    for _ in range(20):
        scene, locks, receipts = Scene(), make(), set[str]()
        moves.append(await scene.play(lambda s=scene, m=locks, r=receipts: once(s, m, r)))
    assert moves == [2 if make in WRONG else 1] * 20


async def test_the_late_arrival_moves_it_once() -> None:
    moves = []
    async with await perkey.aopen("memory://") as store:
        once = AsyncOnce(store)
        for n in range(20):
            scene = Scene()
            moves.append(await scene.play(lambda s=scene, n=n: once.run(f"k{n}", 1, s.effect)))
    assert moves == [1] * 20


# ------------------------------------------------------------------------ no receipt for a refusal


def test_an_unfundable_key_is_refused_for_everybody_and_stays_free() -> None:
    with perkey.open("memory://") as store, ThreadPoolExecutor(32) as pool:
        ledger = opened(store)
        poor = 2 * ROUNDS + 1
        calls = [pool.submit(ledger.transfer, "a", "b", poor, key="k") for _ in range(32)]
        errors = [call.exception() for call in calls]
        assert [type(error) for error in errors] == [perkey.InsufficientFunds] * 32
        with pytest.raises(perkey.NotFound):
            ledger.find("k")
        ledger.transfer("world", "a", 1, key="more")
        assert not ledger.transfer("a", "b", poor, key="k").replayed
        assert ledger.verify() is None
