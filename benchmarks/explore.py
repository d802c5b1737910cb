"""How long exhaustive exploration takes: ``python -m benchmarks.explore``.

The scenario is a transfer under a keyed lock with counted users: the lock's entry is made on
first use and removed by whoever leaves last; two steps (load, save) inside.  ``detangle`` and
``frontrun`` explore the same code where they are installed (both are for development only;
detangle needs Python 3.12).  They have no failures, cancellations or crashes to add.
"""

from __future__ import annotations

import asyncio
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks import explore_peers
from benchmarks.records import record, rounds
from perkey.testing import explore, step

REPEATS = rounds(3)
CUT = 60.0
"""Seconds after which the other tools are cut off."""


class Bank:
    """An account per key; all callers use the same one."""

    def __init__(self) -> None:
        self.locks: dict[str, tuple[asyncio.Lock, list[int]]] = {}
        self.balance = 0

    async def transfer(self) -> None:
        lock, users = self.locks.setdefault("k", (asyncio.Lock(), [0]))
        users[0] += 1
        try:
            async with lock:
                await step("load")
                seen = self.balance
                await step("save")
                self.balance = seen + 1
        finally:
            users[0] -= 1
            if users[0] == 0:
                del self.locks["k"]


def ours(callers: int, symmetric: bool, **budgets: int) -> str:
    result = explore(
        Bank, [Bank.transfer] * callers, symmetric=symmetric, seconds=300,
        check=lambda bank: not bank.locks and (any(budgets.values()) or bank.balance == callers),
        **budgets,
    )  # fmt: skip
    result.assert_holds()
    return f"{result.states:>7,} states {result.schedules:>8,} runs"


def crashed(callers: int) -> str:
    """A crash leaves the lock behind, and whoever waits for it waits for ever: only searched."""
    result = explore(
        Bank, [Bank.transfer] * callers, failures=2, cancellations=2, crashes=1,
        processes=[0] * callers, seconds=300,
    )  # fmt: skip
    result.assert_holds()
    return f"{result.states:>7,} states {result.schedules:>8,} runs"


def show(name: str, run: Callable[[], str], repeats: int = REPEATS, target: str = "") -> None:
    """One line: the median of the wall-clock seconds, and of the processor's."""
    wall, cpu, note = [], [], ""
    for _ in range(repeats):
        start, busy = time.perf_counter(), time.process_time()
        note = run()
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - busy)
    record(name, statistics.median(wall), "s", goal=target)
    times = f"{statistics.median(wall):>8.2f} s {statistics.median(cpu):>8.2f} s cpu"
    print(f"{name:<44}{times}  {note}  {target}".rstrip(), flush=True)


async def scenario(callers: int) -> None:
    bank = Bank()
    await asyncio.gather(*(bank.transfer() for _ in range(callers)))
    assert bank.balance == callers


def by_detangle(callers: int) -> str:
    detangle: Any = importlib.import_module("detangle")

    async def fn() -> None:
        await scenario(callers)

    stats = detangle.explore(
        fn, strategy=detangle.DFS(max_delays=10_000), runs=10_000_000, max_duration=CUT,
        database=False,
    )  # fmt: skip
    return f"{stats.runs:>23,} runs  {'exhausted' if stats.exhausted else 'cut off'}"


def by_frontrun(callers: int) -> str:
    frontrun: Any = importlib.import_module("frontrun")

    async def find() -> Any:
        return await frontrun.explore(
            Bank, Bank.transfer, lambda bank: bank.balance == callers, count=callers,
            preemption_bound=None, total_timeout=CUT, detect_io=False,
        )  # fmt: skip

    start = time.perf_counter()
    result = asyncio.run(find())
    over = "cut off" if time.perf_counter() - start > CUT else "its search ended"
    return f"{result.num_explored:>23,} runs  {over}"


def peers() -> None:
    for name, run in (("detangle", by_detangle), ("frontrun", by_frontrun)):
        if importlib.util.find_spec(name) is None:
            print(f"{name}: not installed")
            continue
        for callers in (3, 4):
            try:
                show(f"{name}, {callers} callers", lambda run=run, n=callers: run(n), 1)
            except Exception as error:
                print(f"{name}, {callers} callers: {type(error).__name__}: {error}"[:200])


def main() -> None:
    """Print one line a search."""
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"Python {version}; medians of {REPEATS}; interchangeable callers explored once, or not")
    for symmetric in (True, False):
        how = "" if symmetric else ", each caller apart"
        show(f"3 callers{how}", lambda s=symmetric: ours(3, s), target="target 0.3 s")
        show(f"4 callers{how}", lambda s=symmetric: ours(4, s), target="target 1 s")
    show("5 callers", lambda: ours(5, True))
    two = {"failures": 2, "cancellations": 2}
    show("3 callers, 2 failures, 2 cancellations", lambda: ours(3, True, **two))
    show("4 callers, 2 failures, 2 cancellations", lambda: ours(4, True, **two), 1, "target 15 s")
    show("the same, and one crash", lambda: crashed(4), 1, "aim 5 s")
    show("4 callers, each apart, 2 f., 2 c.", lambda: ours(4, False, **two), 1)
    peers()
    explore_peers.main()


if __name__ == "__main__":
    main()
