"""The engine against a bare asyncio task with the same bookkeeping, and against its peers.

``python -m benchmarks.engine`` or ``make bench NAME=engine``.  The peers run where they are
installed (``pip install dbos SpiffWorkflow``), in a process of their own.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import perkey
from benchmarks.pairs import compare, show
from perkey.engine import AsyncEngine, Context, EngineLimits, define, message

CROWD = 512
WAITING = 100_000
QUIET = EngineLimits(finished=1, lease_s=60)


async def body(ctx: Context) -> int:
    """The shortest process there is."""
    return 1


async def waits(ctx: Context) -> Any:
    """Waits for a message that never comes."""
    return await ctx.receive("never")


class Bare:
    """What anyone would write: a task, an id, a state, and a map of what runs."""

    def __init__(self) -> None:
        self.running: dict[int, asyncio.Task[None]] = {}
        self.state: dict[int, str] = {}
        self.results: dict[int, int] = {}
        self.next = 0

    async def _body(self, number: int) -> None:
        try:
            result = await bare_body()
        except Exception:
            self.state[number] = "failed"
        else:
            self.results[number] = result
            self.state[number] = "completed"
        finally:
            del self.running[number]

    def start(self) -> asyncio.Task[None]:
        """Track one, then let it run."""
        self.next += 1
        self.state[self.next] = "running"
        task = asyncio.get_running_loop().create_task(self._body(self.next))
        self.running[self.next] = task
        return task


async def bare_body() -> int:
    return 1


async def bare_many(count: int) -> None:
    """Start and finish ``count`` tasks, a crowd at a time."""
    bare = Bare()
    for _ in range(0, count, CROWD):
        await asyncio.gather(*[bare.start() for _ in range(CROWD)])


async def engine_many(engine: AsyncEngine, count: int) -> None:
    """Start and finish ``count`` instances, a crowd at a time."""
    for _ in range(0, count, CROWD):
        handles = [await engine.start_latest("p") for _ in range(CROWD)]
        for each in handles:
            await each.wait()


async def crowd(engine: AsyncEngine, count: int) -> None:
    """Callers that each start an instance and wait for its end, over and over."""
    left = [count]

    async def caller() -> None:
        while left[0] > 0:
            left[0] -= 1
            await (await engine.start_latest("p")).wait()

    await asyncio.gather(*[caller() for _ in range(CROWD)])


async def messages(engine: AsyncEngine, count: int) -> None:
    """``count`` messages, each of which starts an instance."""
    for _ in range(0, count, CROWD):
        sent = [await engine.publish("m", 1) for _ in range(CROWD)]
        for each in sent:
            await engine.instance(each.instance).wait()


async def prepared(engine: AsyncEngine) -> AsyncEngine:
    await engine.register_process(define("p", body, [message("m")]))
    await engine.run()
    return engine


def in_memory(what: str, use: Callable[[AsyncEngine, int], Awaitable[None]], goal: str) -> None:
    with asyncio.Runner() as runner:
        engine = runner.run(prepared(AsyncEngine(limits=EngineLimits(finished=CROWD))))
        pair = compare(
            lambda count: runner.run(use(engine, count)),  # type: ignore[arg-type]
            lambda count: runner.run(bare_many(count)),
            (CROWD * 20, CROWD * 40),
        )
        runner.run(engine.shutdown())
    show(what, pair, goal)


def durable(folder: Path) -> None:
    """Two commits an instance; by hand: the same two commits, alone, with sqlite3."""

    async def opened() -> tuple[perkey.AsyncStore, AsyncEngine]:
        store = await perkey.aopen(f"sqlite:///{folder}/engine.db")
        return store, await prepared(AsyncEngine(store, limits=EngineLimits(finished=CROWD)))

    with asyncio.Runner() as runner:
        store, engine = runner.run(opened())
        pair = compare(
            lambda count: runner.run(crowd(engine, count)),
            lambda count: by_hand(folder / "hand.db", count),
            (CROWD * 8, 200),
        )
        runner.run(engine.shutdown())
        runner.run(store.close())
    show(f"durable on SQLite FULL, {CROWD} at once (by hand: one at a time)", pair, "goal 5,000/s")


def by_hand(path: Path, count: int) -> None:
    """An instance as two rows written in two commits, at the same durability."""
    import sqlite3

    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE IF NOT EXISTS i (id INTEGER PRIMARY KEY, state TEXT, result TEXT)")
    for _ in range(count):
        number = db.execute("INSERT INTO i (state) VALUES ('running')").lastrowid
        db.execute("UPDATE i SET state = 'completed', result = '1' WHERE id = ?", (number,))
    db.close()


def resident() -> int:
    """Bytes that this process holds."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


def waiting() -> None:
    """Memory of an instance that waits for a message, and the end of very many of them."""

    async def measure() -> tuple[float, float, int]:
        engine = AsyncEngine(limits=EngineLimits(finished=WAITING))
        await engine.register_process(define("w", waits))
        await engine.run()
        gc.collect()
        before = resident()
        for number in range(WAITING):
            await engine.start_latest("w")
            if number % 1000 == 0:
                await asyncio.sleep(0)
        while sum(1 for each in engine.instances() if not each.waiting_for):  # noqa: ASYNC110
            await asyncio.sleep(0)
        gc.collect()
        each = (resident() - before) / WAITING
        began = time.perf_counter()
        await engine.shutdown(120)
        seconds = time.perf_counter() - began
        left = sum(1 for each in engine.instances() if not each.state.ended)
        return each, seconds, left

    each, seconds, left = asyncio.run(measure())
    print(f"{f'{WAITING:,} instances that wait for a message':<58}{each / 1024:>10.1f} KB each")
    print(f"{f'shutdown of {WAITING:,} waiting instances':<58}{seconds:>10.2f} s, {left} left")


PEERS = {"dbos": "DBOS on SQLite", "SpiffWorkflow": "SpiffWorkflow, in memory"}


def peers() -> None:
    """Each where it is installed, in a process of its own."""
    for module, name in PEERS.items():
        if importlib.util.find_spec(module) is None:
            print(f"{name:<58}{'not installed':>24}")
            continue
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.engine_peers", module],
            capture_output=True,
            text=True,
            timeout=600,
        )
        said = done.stdout.strip().splitlines()
        print(said[-1] if done.returncode == 0 and said else f"{name}: {done.stderr[-500:]}")


def main() -> int:
    """Run all comparisons and print them."""
    print(f"{'':<58}{'perkey':>12} {'bare task':>12}")
    goal = "goal 25,000/s or 0.40x"
    in_memory("in memory, start_latest to the end", engine_many, goal)
    in_memory("in memory, publish to the end", messages, goal)
    with tempfile.TemporaryDirectory(prefix="perkey-bench-") as folder:
        durable(Path(folder))
    waiting()
    peers()
    return 0


if __name__ == "__main__":
    sys.exit(main())
