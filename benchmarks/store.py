"""The store against hand-written sqlite3, in one run: ``python -m benchmarks.store``.

Both sides write to files in the same folder at ``synchronous=FULL`` and take turns, so a busy
machine slows both; the ratio of each pair is what counts, and its median is shown.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import tempfile
from pathlib import Path

import perkey
from benchmarks.pairs import compare, rate, show
from benchmarks.records import record
from perkey.store.transaction import Tx

CALLERS = 64


class ByHand:
    """What one would write: one transaction a commit, a version compared on writing."""

    def __init__(self, path: Path, history: bool) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.history = history
        run = self.connection.execute
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run("CREATE TABLE docs (key TEXT PRIMARY KEY, version INTEGER, body TEXT)")
        run(
            "CREATE TABLE history (key TEXT, version INTEGER, body TEXT, author TEXT, "
            "PRIMARY KEY (key, version)) WITHOUT ROWID"
            if not history
            else "CREATE TABLE history (id INTEGER PRIMARY KEY, key TEXT, version INTEGER, "
            "body TEXT, author TEXT, UNIQUE (key, version))"
        )

    def put(self, value: object, keys: int = 1) -> None:
        self.keys = keys
        for n in range(keys):
            self.connection.execute(
                "INSERT INTO docs VALUES (?, 1, ?)", (f"k{n}", json.dumps(value))
            )

    def increment(self, key: str) -> None:
        run = self.connection.execute
        run("BEGIN IMMEDIATE")
        version, body = run("SELECT version, body FROM docs WHERE key = ?", (key,)).fetchone()
        value = json.loads(body)
        value["n"] += 1
        body = json.dumps(value)
        changed = run(
            "UPDATE docs SET version = version + 1, body = ? WHERE key = ? AND version = ?",
            (body, key, version),
        ).rowcount
        assert changed == 1
        if self.history:
            run(
                "INSERT INTO history (key, version, body, author) VALUES (?, ?, ?, ?)",
                (key, version + 1, body, "me"),
            )
        run("COMMIT")

    def loop(self, count: int) -> None:
        for n in range(count):
            self.increment(f"k{n % self.keys}")


def incremented(tx: Tx, key: str = "k") -> None:
    value = tx[key]
    value["n"] += 1
    tx[key] = value


def four_kilobytes() -> dict[str, object]:
    """A document of 4 KB: a report of 24 sections."""
    sections = [
        {"title": f"section {i}", "state": "done", "words": i * 37, "text": "lorem ipsum " * 8}
        for i in range(24)
    ]
    return {"n": 0, "sections": sections}


def sequential(folder: Path) -> None:
    hand = ByHand(folder / "hand-a.db", history=False)
    hand.put({"n": 0})
    with perkey.open(f"sqlite:///{folder}/ours-a.db") as store:
        store.put("k", {"n": 0}, create=True)

        def ours(count: int) -> None:
            for _ in range(count):
                store.transact("k", incremented)

        pair = compare(ours, hand.loop, (400, 400))
    show("one caller, a small document (by hand: no history)", pair, "goal 0.60x")


def crowd(folder: Path) -> None:
    hand = ByHand(folder / "hand-b.db", history=False)
    hand.put({"n": 0}, CALLERS)
    done = [0] * CALLERS

    async def caller(store: perkey.AsyncStore, place: int, left: list[int]) -> None:
        key = f"k{place}"
        while left[0] > 0:
            left[0] -= 1
            await store.transact(key, lambda tx: incremented(tx, key))
            done[place] += 1

    async def prepare() -> perkey.AsyncStore:
        store = await perkey.aopen(f"sqlite:///{folder}/ours-b.db")
        for place in range(CALLERS):
            await store.put(f"k{place}", {"n": 0}, create=True)
        return store

    async def all_callers(store: perkey.AsyncStore, count: int) -> None:
        left = [count]
        await asyncio.gather(*(caller(store, place, left) for place in range(CALLERS)))

    with asyncio.Runner() as runner:
        store = runner.run(prepare())
        pair = compare(lambda count: runner.run(all_callers(store, count)), hand.loop, (6000, 400))
        runner.run(store.close())
    show(f"{CALLERS} asyncio callers (by hand: one commit each)", pair, "goal 4x")
    print(f"    slowest:fastest caller {min(done)}:{max(done)}{'goal 1:2':>57}")


def update(folder: Path) -> None:
    hand = ByHand(folder / "hand-c.db", history=True)
    hand.put(four_kilobytes())
    with perkey.open(f"sqlite:///{folder}/ours-c.db") as store:
        documents = perkey.Documents(store)
        store.put("k", four_kilobytes(), create=True)

        def changed(value: dict[str, int]) -> dict[str, int]:
            value["n"] += 1
            return value

        def ours(count: int) -> None:
            for _ in range(count):
                documents.update("k", changed, by="me")

        pair = compare(ours, hand.loop, (300, 300))
    show("update of a 4 KB document with history, both sides", pair, "goal 0.67x")


def memory() -> None:
    with perkey.open("memory://") as store:
        store.put("k", {"n": 0}, create=True)

        def ours(count: int) -> None:
            for _ in range(count):
                store.transact("k", incremented)

        best = max(rate(ours, 4000) for _ in range(7))
    record("memory://, one caller, best of 7", best, "/s")
    print(f"{'memory://, one caller, best of 7':<58}{best:>10,.0f}/s {1e6 / best:>10.1f} us")


def main() -> int:
    """Run all comparisons and print them."""
    print(f"{'':<58}{'perkey':>12} {'by hand':>12}")
    with tempfile.TemporaryDirectory(prefix="perkey-bench-") as folder:
        sequential(Path(folder))
        crowd(Path(folder))
        update(Path(folder))
    memory()
    return 0


if __name__ == "__main__":
    sys.exit(main())
