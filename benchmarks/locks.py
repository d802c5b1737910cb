"""Keyed locks against a bare lock, in one run: ``python -m benchmarks.locks``.

Each row takes turns with the bare lock of its world (``with threading.Lock():``, ``async with
asyncio.Lock():``): both walk the same list of keys, entering and leaving for each.  A ratio is
the median of the ratios of the pairs, in CPU time of the thread.  Then eight threads
compete for keys by Zipf's law, against the same threads and one global lock; the worst wait
for a key is the median over the rounds of each round's worst.

A ratio names the cost: 2.0x is twice the time of the bare lock.  Budgets stand beside it.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks import lock_peers
from benchmarks.records import record, rounds
from perkey import KeyedLocks, Sections

KEYS = [f"order-{number:05}" for number in range(16)] * 32
ROUNDS = rounds(151)
CROWD = 8
CROWD_KEYS = 1000
CROWD_ROUNDS = rounds(15)
CROWD_ENTRIES = 2000
"""Entries of one thread in one round."""
WAIT = 5.0
"""The timeout, in seconds, that is never needed."""

DOES_NOTHING = "an object that does nothing"

clock = time.thread_time  # what other processes take of a busy machine does not count

Timed = Callable[[], Any]
"""Enters each of ``KEYS`` once; the seconds it took, or a coroutine of them."""


@dataclass(frozen=True)
class Row:
    """A way to lock, and what it may cost."""

    name: str
    timed: Timed | None
    budget: float | None = None
    plain: str = ""
    """The row without the timeout, to which this one may add ``budget``."""


# ------------------------------------------------------------------------- one at a time


def bare_thread(lock: Any) -> Timed:
    def timed() -> float:
        began = clock()
        for _ in KEYS:
            with lock:
                pass
        return clock() - began

    return timed


def thread(enter: Any) -> Timed:
    def timed() -> float:
        began = clock()
        for key in KEYS:
            with enter(key):
                pass
        return clock() - began

    return timed


def thread_timeout(enter: Any) -> Timed:
    def timed() -> float:
        began = clock()
        for key in KEYS:
            with enter(key, timeout=WAIT):
                pass
        return clock() - began

    return timed


def thread_positional(enter: Any) -> Timed:
    def timed() -> float:
        began = clock()
        for key in KEYS:
            with enter(key, WAIT):
                pass
        return clock() - began

    return timed


def bare_task(lock: Any) -> Timed:
    async def timed() -> float:
        began = clock()
        for _ in KEYS:
            async with lock:
                pass
        return clock() - began

    return timed


def task(enter: Any) -> Timed:
    async def timed() -> float:
        began = clock()
        for key in KEYS:
            async with enter(key):
                pass
        return clock() - began

    return timed


def task_timeout(enter: Any) -> Timed:
    async def timed() -> float:
        began = clock()
        for key in KEYS:
            async with enter(key, timeout=WAIT):
                pass
        return clock() - began

    return timed


def task_positional(enter: Any) -> Timed:
    async def timed() -> float:
        began = clock()
        for key in KEYS:
            async with enter(key, WAIT):
                pass
        return clock() - began

    return timed


def task_wait_for(lock: asyncio.Lock) -> Timed:
    """What one writes without a native timeout."""

    async def timed() -> float:
        began = clock()
        for _ in KEYS:
            async with asyncio.timeout(WAIT):
                await lock.acquire()
            lock.release()
        return clock() - began

    return timed


def ours(plain: Any, keyword: Any, positional: Any, budgets: tuple[float, ...]) -> list[Row]:
    """Both profiles of both kinds, each with the three ways to say a timeout."""
    made = [
        ("Sections, lean", lambda: Sections(profile="lean")),
        ("Sections, checked", Sections),
        ("KeyedLocks, lean", lambda: KeyedLocks(profile="lean")),
        ("KeyedLocks, checked", KeyedLocks),
    ]
    rows = []
    for (name, make), budget in zip(made, budgets, strict=True):
        rows.append(Row(name, plain(make()), budget))
        limit = 0.2 if name.startswith("Keyed") else None
        rows.append(Row("    locks(key, 5)", positional(make()), limit, name))
        rows.append(Row("    locks.hold(key, timeout=5)", keyword(make().hold), limit, name))
        rows.append(Row("    locks(key, timeout=5)", keyword(make()), limit, name))
    rows.append(Row("Sections, shared", plain(Sections(shared=True))))
    rows.append(Row("KeyedLocks, shared", plain(KeyedLocks(shared=True))))
    rows.append(Row("KeyedLocks, reentrant", plain(KeyedLocks(reentrant=True))))
    return rows


def peers(plain: Any, listed: list[tuple[str, Callable[[], Any]]]) -> list[Row]:
    """The others; a row without a function where the package is missing."""
    rows = []
    for name, make in listed:
        try:
            rows.append(Row(name, plain(make())))
        except ImportError:
            rows.append(Row(name, None))
    return rows


def measure(
    bare: Timed, rows: list[Row], call: Callable[[Timed], float]
) -> dict[str, tuple[float, float]]:
    """Nanoseconds of one entry and the ratio to the bare lock, medians over the rounds."""
    pairs: dict[int, list[tuple[float, float]]] = {number: [] for number in range(len(rows))}
    for turn in range(ROUNDS):
        for number, row in enumerate(rows):
            if row.timed is None:
                continue
            if turn % 2:
                first = call(row.timed)
                pairs[number].append((first, call(bare)))
            else:
                second = call(bare)
                pairs[number].append((call(row.timed), second))
    found: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        if row.timed is None:
            print(f"{row.name:<40}{'not installed':>18}")
            continue
        cost = statistics.median(a for a, _ in pairs[number]) / len(KEYS) * 1e9
        ratios = [a / b for a, b in pairs[number]]
        ratio = statistics.median(ratios)
        found[row.name] = (cost, ratio)
        goal = "" if row.budget is None else f"at most {row.budget:.1f}x"
        bare_cost = statistics.median(b for _, b in pairs[number]) / len(KEYS) * 1e9
        record(f"{row.name} (cost)", cost, "ns", theirs=bare_cost, ratios=ratios, goal=goal)
        print(line(row, cost, ratio, found))
    return found


def line(row: Row, cost: float, ratio: float, found: dict[str, tuple[float, float]]) -> str:
    """A row as it is printed, its budget beside it."""
    text = f"{row.name:<40}{cost:>8,.0f} ns {ratio:>6.2f}x"
    if row.plain:
        text += f"  adds {ratio - found[row.plain][1]:+5.2f}x"
    if row.budget is not None:
        text += f"   budget {row.budget:.1f}x" if not row.plain else f"   budget +{row.budget:.1f}x"
    return text


class Nothing:
    """A context manager that does nothing: what Python itself takes for a call and a keyword."""

    __slots__ = ()

    def __call__(self, key: str, timeout: float | None = None) -> Nothing:
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


def threads() -> None:
    print(f"{'threads: with threading.Lock()':<40}{'one entry':>11} {'ratio':>7}")
    rows = [
        *ours(thread, thread_timeout, thread_positional, (1.6, 2.5, 2.5, 4.0)),
        Row(DOES_NOTHING, thread(Nothing())),
        Row("    nothing(key, timeout=5)", thread_timeout(Nothing()), None, DOES_NOTHING),
        *peers(thread, lock_peers.THREADS),
    ]
    measure(bare_thread(threading.Lock()), rows, lambda timed: timed())


def tasks() -> None:
    print(f"\n{'tasks: async with asyncio.Lock()':<40}{'one entry':>11} {'ratio':>7}")
    with asyncio.Runner() as runner:
        rows = [
            *ours(task, task_timeout, task_positional, (1.2, 2.0, 1.5, 2.5)),
            Row("asyncio.Lock in asyncio.timeout(5)", task_wait_for(asyncio.Lock())),
            *peers(task, lock_peers.TASKS),
        ]
        measure(bare_task(asyncio.Lock()), rows, lambda timed: runner.run(timed()))


# ------------------------------------------------------------------------------- a crowd


class Crowd:
    """Eight threads that add to counters, each under the lock of its key."""

    def __init__(self, enter: Any, hold: float = 0.0, entries: int = CROWD_ENTRIES) -> None:
        self.enter = enter
        self.hold = hold
        names = [f"order-{number:05}" for number in range(CROWD_KEYS)]
        weights = [1 / (rank + 1) ** 1.1 for rank in range(CROWD_KEYS)]
        chance = random.Random(7)
        self.plans = [chance.choices(names, weights, k=entries) for _ in range(CROWD)]
        self.counts = dict.fromkeys(names, 0)
        self.worst = [0.0] * CROWD

    def work(self, plan: list[str], start: threading.Barrier) -> None:
        counts, enter = self.counts, self.enter
        start.wait()
        for key in plan:
            with enter(key):
                counts[key] += 1

    def timed_work(self, number: int, start: threading.Barrier) -> None:
        """The same, and how long the longest wait was."""
        counts, enter, hold, worst = self.counts, self.enter, self.hold, 0.0
        now, rest = time.perf_counter, time.sleep
        start.wait()
        for key in self.plans[number]:
            asked = now()
            with enter(key):
                waited = now() - asked
                if waited > worst:
                    worst = waited
                counts[key] += 1
                if hold:
                    rest(hold)
        self.worst[number] = worst

    def run(self, watched: bool = False) -> float:
        """Seconds for all entries of all threads; no count may be lost."""
        before = sum(self.counts.values())
        start = threading.Barrier(CROWD + 1)
        if watched:
            crew = [threading.Thread(target=self.timed_work, args=(i, start)) for i in range(CROWD)]
        else:
            crew = [threading.Thread(target=self.work, args=(plan, start)) for plan in self.plans]
        for one in crew:
            one.start()
        start.wait()
        began = time.perf_counter()
        for one in crew:
            one.join()
        took = time.perf_counter() - began
        entries = sum(map(len, self.plans))
        assert sum(self.counts.values()) - before == entries, "an update was lost"
        return took / entries


def crowd() -> None:
    """Eight threads on a thousand keys by Zipf's law, against one global lock."""
    print(
        f"\n{'8 threads, 1000 Zipf keys, against':<36}{'nothing but a count':>22}"
        f"{'100 us of waiting inside':>30}"
    )
    head = f"{'one entry':>12} {'ratio':>7}{'one entry':>14} {'ratio':>7}{'worst wait':>13}"
    print(f"{'one global threading.Lock()':<38}{head}")
    globe = threading.Lock()
    listed: list[tuple[str, Any, str]] = [
        ("one global lock", lambda: lambda key: globe, ""),
        ("Sections, lean", lambda: Sections(profile="lean"), "budget 2.5x, 5 ms"),
        ("Sections, checked", Sections, "budget 2.5x, 5 ms"),
        ("KeyedLocks, lean", lambda: KeyedLocks(profile="lean"), "budget 2.5x, 5 ms"),
        ("KeyedLocks, checked", KeyedLocks, "budget 2.5x, 5 ms"),
        *((name, make, "") for name, make in lock_peers.THREADS),
    ]
    for name, make, budget in listed:
        try:
            enter = make()
        except ImportError:
            print(f"{name:<38}{'not installed':>20}")
            continue
        print(f"{name:<38}{against_global(name, enter, globe)}   {budget}")


def against_global(name: str, enter: Any, globe: Any) -> str:
    """One row of the crowd: short sections, then sections that wait for I/O."""
    short = [(Crowd(enter).run(), Crowd(lambda key: globe).run()) for _ in range(CROWD_ROUNDS)]
    waits, worst = [], []
    for _ in range(CROWD_ROUNDS // 3):
        watched = Crowd(enter, 100e-6, 100)
        waits.append((watched.run(True), Crowd(lambda key: globe, 100e-6, 100).run(True)))
        worst.append(max(watched.worst))
    text = ""
    for what, pairs in (("short", short), ("waiting inside", waits)):
        cost = statistics.median(a for a, _ in pairs) * 1e9
        ratios = [a / b for a, b in pairs]
        ratio = statistics.median(ratios)
        globally = statistics.median(b for _, b in pairs) * 1e9
        record(f"crowd, {what}: {name} (cost)", cost, "ns", theirs=globally, ratios=ratios)
        text += f"{cost:>9,.0f} ns {ratio:>6.2f}x  "
    return f"{text}{statistics.median(worst) * 1e3:>9.1f} ms"


def main() -> int:
    """Run all comparisons and print them."""
    threads()
    tasks()
    crowd()
    return 0


if __name__ == "__main__":
    sys.exit(main())
