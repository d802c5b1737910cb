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
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import perkey
from benchmarks.pairs import compare, show
from benchmarks.records import record
from perkey.clock import SYSTEM
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


@dataclass(slots=True)
class Entry:
    """What anyone would keep of a piece of work."""

    id: str
    key: str
    version: int
    variables: dict[str, Any]
    state: str = "running"
    result: Any = None
    error: str = ""


class Bare:
    """The same bookkeeping by hand: an id, the version that runs, a map of what runs, and a
    bounded one of what has ended."""

    def __init__(self) -> None:
        self.running: dict[str, Entry] = {}
        self.finished: OrderedDict[str, Entry] = OrderedDict()
        self.latest = {"p": (1, bare_body)}

    async def _body(self, entry: Entry, body: Callable[[], Awaitable[int]]) -> None:
        try:
            entry.result = await body()
            entry.state = "completed"
        except Exception as error:
            entry.state, entry.error = "failed", str(error)
        finally:
            del self.running[entry.id]
            self.finished[entry.id] = entry
            if len(self.finished) > CROWD:
                self.finished.popitem(last=False)

    def start(self, key: str) -> asyncio.Task[None]:
        """Track one, then let it run."""
        version, body = self.latest[key]
        entry = Entry(SYSTEM.token(), key, version, {})
        self.running[entry.id] = entry
        return asyncio.get_running_loop().create_task(self._body(entry, body))


async def bare_body() -> int:
    return 1


async def bare_many(count: int) -> None:
    """Start and finish ``count`` tasks, a crowd at a time."""
    bare = Bare()
    for _ in range(0, count, CROWD):
        await asyncio.gather(*[bare.start("p") for _ in range(CROWD)])


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
        began = time.process_time()
        runner.run(crowd(engine, CROWD * 8))
        cpu = CROWD * 8 / (time.process_time() - began)
        runner.run(engine.shutdown())
        runner.run(store.close())
    show(f"durable on SQLite FULL, {CROWD} at once (by hand: one at a time)", pair, "goal 5,000/s")
    print(f"{'    the same, instances a CPU second of both threads':<58}{cpu:>10,.0f}/s")


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

    async def measure() -> tuple[float, float, float, int]:
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
        began, cpu = time.perf_counter(), time.process_time()
        await engine.shutdown(120)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        left = sum(1 for each in engine.instances() if not each.state.ended)
        return each, seconds, cpu, left

    each, seconds, cpu, left = asyncio.run(measure())
    record(f"{WAITING:,} waiting instances, each", each / 1024, "KB")
    print(f"{f'{WAITING:,} instances that wait for a message':<58}{each / 1024:>10.1f} KB each")
    what = f"shutdown of {WAITING:,} waiting instances"
    print(f"{what:<58}{seconds:>10.2f} s, {cpu:.2f} s CPU, {left} left")


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
