"""The ledger against hand-written sqlite3, in one run: ``python -m benchmarks.ledger``.

By hand: a key row, a transfer row, two entries and two balances, one transaction a transfer,
``synchronous=FULL``.  Both sides write to files in the same folder and take turns; the median
ratio of the pairs is what counts.  ``--transfers N`` sets how long the decay run is.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import importlib.util
import itertools
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import perkey
from benchmarks import ledger_peers
from benchmarks.pairs import ROUNDS, compare, show
from perkey import AsyncLedger, Ledger

ACCOUNTS, FUNDS = 1000, 10**9
HAND, SINGLE, CROWD, BULK, TASKS = 400, 400, 4000, 5000, 8000
"""How many transfers a round has: by hand, one caller, 64 threads, bulk, 512 tasks."""
Row = tuple[str, str, int, str]
NAMES = [f"acct/{n:04d}" for n in range(ACCOUNTS)]


class ByHand:
    """What one would write for a ledger that never moves a key's money twice."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        run = self.connection.execute
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run("CREATE TABLE accounts (name TEXT PRIMARY KEY, balance INTEGER) WITHOUT ROWID")
        run("CREATE TABLE keys (key TEXT PRIMARY KEY, fp TEXT, transfer INTEGER) WITHOUT ROWID")
        run(
            "CREATE TABLE transfers (id INTEGER PRIMARY KEY, source TEXT, target TEXT, "
            "amount INTEGER, at REAL)"
        )
        run(
            "CREATE TABLE entries (id INTEGER PRIMARY KEY, account TEXT, transfer INTEGER, "
            "amount INTEGER, balance INTEGER)"
        )
        run("CREATE INDEX by_account ON entries (account, id)")
        for name in NAMES:
            run("INSERT INTO accounts VALUES (?, ?)", (name, FUNDS))

    def transfer(self, source: str, target: str, amount: int, key: str) -> None:
        run = self.connection.execute
        digest = hashlib.sha256(f"{source}|{target}|{amount}".encode()).hexdigest()
        run("BEGIN IMMEDIATE")
        found = run("SELECT fp FROM keys WHERE key = ?", (key,)).fetchone()
        if found is None:
            have = dict(
                run("SELECT name, balance FROM accounts WHERE name IN (?, ?)", (source, target))
            )
            assert have[source] >= amount
            number = run(
                "INSERT INTO transfers (source, target, amount, at) VALUES (?, ?, ?, ?)",
                (source, target, amount, time.time()),
            ).lastrowid
            run("INSERT INTO keys VALUES (?, ?, ?)", (key, digest, number))
            for name, change in ((source, -amount), (target, amount)):
                run("UPDATE accounts SET balance = balance + ? WHERE name = ?", (change, name))
                run(
                    "INSERT INTO entries (account, transfer, amount, balance) VALUES (?, ?, ?, ?)",
                    (name, number, change, have[name] + change),
                )
        run("COMMIT")

    def loop(self, rows: Iterator[Row], count: int) -> None:
        for row in itertools.islice(rows, count):
            self.transfer(*row)


def uniform(seed: int) -> Iterator[Row]:
    """Transfers between random accounts, each under a new key."""
    chance = random.Random(seed)
    while True:
        source, target = chance.sample(NAMES, 2)
        yield source, target, chance.randint(1, 100), Ledger.new_key()


def hot(seed: int) -> Iterator[Row]:
    """Transfers that all go into one account."""
    for source, target, amount, key in uniform(seed):
        if NAMES[0] not in (source, target):
            yield source, NAMES[0], amount, key


def drawn(rows: Iterator[Row], count: int) -> Iterator[Row]:
    """``count`` rows, made up before anything is timed."""
    return iter([*itertools.islice(rows, count)])


def opened(store: perkey.Store) -> Ledger:
    ledger = Ledger(store)
    ledger.open_account("world", "EUR", floor=None)
    for name in NAMES:
        ledger.open_account(name, "EUR")
    rows = [("world", name, FUNDS, f"funding/{name}") for name in NAMES]
    assert all(item.error is None for item in ledger.transfers(rows))
    return ledger


class Latencies:
    """How long calls took, in ms."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    def __str__(self) -> str:
        cuts = statistics.quantiles(self.taken, n=100)
        return f"    p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms"


class Bench:
    """Both sides, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/ours.db"
        self.hand = ByHand(folder / "hand.db")
        self.rows = drawn(uniform(1), ROUNDS * (SINGLE + CROWD + BULK + TASKS))
        self.hand_rows = drawn(uniform(2), ROUNDS * 5 * HAND)

    def by_hand(self, count: int) -> None:
        self.hand.loop(self.hand_rows, count)

    def show(self, what: str, ours: Callable[[int], object], count: int, goal: str) -> float:
        pair = compare(ours, self.by_hand, (count, HAND))
        show(what, pair, goal)
        return pair.ours

    def threads(self, store: perkey.Store) -> None:
        ledger = opened(store)
        times = Latencies()

        def one(row: Row) -> None:
            source, target, amount, key = row
            began = time.perf_counter()
            ledger.transfer(source, target, amount, key=key)
            times.taken.append((time.perf_counter() - began) * 1000)

        def alone(count: int) -> None:
            for row in itertools.islice(self.rows, count):
                one(row)

        self.show("one caller", alone, SINGLE, "goal 0.6x")
        print(times)
        with ThreadPoolExecutor(64) as pool:
            times.taken.clear()

            def crowd(count: int) -> None:
                share = list(itertools.islice(self.rows, count))
                parts = [share[n::64] for n in range(64)]
                list(pool.map(lambda part: [one(row) for row in part], parts))

            self.show("64 threads", crowd, CROWD, "goal 2x")
            print(times)

        def bulk(count: int) -> None:
            ledger.transfers(list(itertools.islice(self.rows, count)))

        self.show(f"bulk of {BULK:,}", bulk, BULK, "goal 8x")

    def asyncio(self) -> None:
        with asyncio.Runner() as runner:
            store = runner.run(perkey.aopen(self.url))
            ledger, times = AsyncLedger(store), Latencies()

            async def caller(rows: Iterator[Row]) -> None:
                for source, target, amount, key in rows:
                    began = time.perf_counter()
                    await ledger.transfer(source, target, amount, key=key)
                    times.taken.append((time.perf_counter() - began) * 1000)

            async def crowd(rows: Iterator[Row], count: int) -> None:
                shared = itertools.islice(rows, count)
                await asyncio.gather(*(caller(shared) for _ in range(512)))

            def use(rows: Iterator[Row]) -> Callable[[int], object]:
                return lambda count: runner.run(crowd(rows, count))

            even = self.show("512 asyncio callers", use(self.rows), TASKS, "goal 6x")
            print(times)
            rows = drawn(hot(3), ROUNDS * TASKS)
            warm = self.show("512 asyncio callers, one hot account", use(rows), TASKS, "")
            print(f"    {warm / even:.2f}x of the uniform case (goal 0.7x)")
            runner.run(store.close())


def decay(folder: Path, transfers: int) -> None:
    """The rate of each tenth of a long run; the last against the first."""
    with perkey.open(f"sqlite:///{folder}/long.db") as store:
        ledger, rows, rates = opened(store), uniform(4), []
        for _ in range(10):
            part = list(itertools.islice(rows, transfers // 10))
            began = time.perf_counter()
            ledger.transfers(part)
            rates.append(len(part) / (time.perf_counter() - began))
    print(f"{transfers:,} transfers, tenths: {' '.join(f'{rate:,.0f}' for rate in rates)} /s")
    print(f"    last tenth {rates[-1] / rates[0]:.2f}x of the first (goal 0.8x)")


TIGERBEETLE = "TigerBeetle"
"""Its Python package is the client alone: the server is nowhere on the package index."""


def peers() -> None:
    """Each where it is installed, in a process of its own."""
    print("one caller, an operation that runs once under its key:")
    for name, module, what in ledger_peers.names():
        if module and importlib.util.find_spec(module) is None:
            print(f"{what:<58}{'not installed':>12}")
            continue
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "benchmarks.ledger_peers", name],
            capture_output=True,
            text=True,
            timeout=120,
        )
        said = done.stdout.strip().splitlines()
        print(said[-1] if done.returncode == 0 and said else f"{what}: {done.stderr[-500:]}")
    print(f"{TIGERBEETLE:<58}{'no server on the package index':>32}")


def main() -> int:
    """Run all comparisons and print them."""
    options = argparse.ArgumentParser(prog="benchmarks.ledger")
    options.add_argument("--transfers", type=int, default=50_000)
    given = options.parse_args()
    print(f"{'':<58}{'perkey':>12} {'by hand':>12}")
    with tempfile.TemporaryDirectory(prefix="perkey-bench-") as name:
        bench = Bench(Path(name))
        with perkey.open(bench.url) as store:
            bench.threads(store)
        bench.asyncio()
        decay(Path(name), given.transfers)
    peers()
    return 0


if __name__ == "__main__":
    sys.exit(main())
