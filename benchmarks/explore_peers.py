"""perkey's explorer and the other Python tools of its kind on the same scenarios, in one run.

    python -m benchmarks.explore_peers

``frontrun`` (0.7.0) and ``detangle`` (0.1.0, Python 3.12 or newer, asyncio only) are compared at
their defaults, and where they have a mode without a bound, in that.  A tool *finds* a bug when it
reports a failing schedule of the wrong variant, and raises a *false alarm* when it reports one of
the mended variant.  *Exhausted* counts the mended variants of which a tool itself says that every
schedule, within the bound it names, was covered.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.explore_scenarios import Scenario, of_tasks, of_threads
from perkey.testing import explore, explore_threads

UNDER_FRONTRUN = "--under-frontrun"

CUT = 20.0
"""Seconds after which a tool is cut off on one scenario."""

MISSING = "{}: not installed (detangle needs Python 3.12)"


@dataclass(frozen=True)
class Said:
    """What a tool said of one scenario."""

    failing: bool
    schedules: int
    exhausted: bool = False
    replayed: bool = False
    """Whether the failing schedule, run again, failed again; asked of the tool itself."""
    error: str = ""


Tool = Callable[[Scenario], Said]


def ours(scenario: Scenario) -> Said:
    def search(**more: Any) -> Any:
        return explore(scenario.setup, scenario.callers, check=scenario.holds, seconds=CUT, **more)

    return _ours(search)


def our_threads(scenario: Scenario) -> Said:
    def search(**more: Any) -> Any:
        return explore_threads(
            scenario.setup, scenario.callers, check=scenario.holds, seconds=CUT,
            lines=scenario.lines, **more,
        )  # fmt: skip

    return _ours(search)


def _ours(search: Callable[..., Any]) -> Said:
    result = search()
    if result.failure is None:
        return Said(False, result.schedules, result.exhausted)
    again = search(replay=result.failure.replay)
    return Said(True, result.schedules, replayed=again.failure is not None)


def by_detangle(**how: Any) -> Tool:
    detangle: Any = importlib.import_module("detangle")

    def run(scenario: Scenario) -> Said:
        async def fn() -> None:
            state = scenario.setup()
            await asyncio.gather(*(caller(state) for caller in scenario.callers))
            assert scenario.holds(state)

        options = dict(how)
        if "delays" in options:
            options["strategy"] = detangle.DFS(max_delays=options.pop("delays"))
        try:
            stats = detangle.explore(fn, max_duration=CUT, database=False, seed=1, **options)
        except detangle.BugFound as bug:
            found = bug.report
            try:
                detangle.replay(fn, found.token)
            except detangle.BugFound:
                return Said(True, found.runs, replayed=True)
            return Said(True, found.runs)
        return Said(False, stats.runs, stats.exhausted)

    return run


def by_frontrun(**how: Any) -> Tool:
    frontrun: Any = importlib.import_module("frontrun")

    def run(scenario: Scenario) -> Said:
        def search() -> Any:
            return frontrun.explore(
                scenario.setup, list(scenario.callers), scenario.holds, total_timeout=CUT,
                detect_io=False, **how,
            )  # fmt: skip

        async def awaited() -> Any:
            return await search()

        tasks = asyncio.iscoroutinefunction(scenario.callers[0])
        result = asyncio.run(awaited()) if tasks else search()
        failing = result.property_holds is False
        return Said(
            failing, result.num_explored, result.exhausted is True,
            result.reproduction_successes > 0,
            "" if failing or result.property_holds else "inconclusive",
        )  # fmt: skip

    return run


@dataclass
class Score:
    """One tool over all scenarios of a kind."""

    said: list[tuple[Scenario, Said, float]]

    def row(self) -> list[str]:
        wrong = [(each, took) for scenario, each, took in self.said if scenario.bug]
        right = [(each, took) for scenario, each, took in self.said if not scenario.bug]
        found = [(each, took) for each, took in wrong if each.failing]
        return [
            f"{len(found)} of {len(wrong)}",
            f"{max((each.schedules for each, _ in found), default=0):,}",
            f"{statistics.median([took for _, took in found] or [0]):.3f}",
            f"{max((took for _, took in found), default=0):.2f}",
            f"{sum(each.failing for each, _ in right)} of {len(right)}",
            f"{sum(each.exhausted for each, _ in right)} of {len(right)}",
            f"{sum(took for _, took in right):.2f}",
            f"{sum(each.replayed for each, _ in found)} of {len(found)}",
        ]


HEADS = [
    "tool", "found", "schedules, worst", "s, median", "s, worst", "false alarms", "exhausted",
    "s for the mended", "replayed", "shrunk",
]  # fmt: skip


def judge(tool: Tool, scenarios: list[Scenario]) -> Score:
    """What ``tool`` says of each scenario; what it raises is shown and counts as nothing found."""
    said = []
    for scenario in scenarios:
        start = time.perf_counter()
        try:
            each = tool(scenario)
        except Exception as error:
            each = Said(False, 0, error=f"{type(error).__name__}: {error}")
        took = time.perf_counter() - start
        said.append((scenario, each, took))
        if each.error or each.failing != scenario.bug:
            kind = "bug" if scenario.bug else "mended"
            print(f"    {scenario.name} ({kind}): failing={each.failing} {each.error[:100]}")
    return Score(said)


def tools() -> dict[str, list[tuple[str, Tool, str]]]:
    """What is installed: (name and mode, how it is run, whether it shrinks), by kind."""
    found: dict[str, list[tuple[str, Tool, str]]] = {
        "asyncio": [("perkey explore", ours, "yes")],
        "threads": [("perkey explore_threads, 2 preemptions", our_threads, "fewest switches")],
    }
    if importlib.util.find_spec("detangle") is not None:
        found["asyncio"] += [
            ("detangle, 2,000 runs", by_detangle(runs=2000), "yes"),
            ("detangle DFS, 2 delays", by_detangle(delays=2, runs=10_000_000), "yes"),
            ("detangle DFS, no bound", by_detangle(delays=10_000, runs=10_000_000), "yes"),
        ]
    if importlib.util.find_spec("frontrun") is not None:
        found["asyncio"] += frontruns()
    return found


def frontruns() -> list[tuple[str, Tool, str]]:
    """frontrun at its default bound and without one."""
    return [
        ("frontrun DPOR, 2 preemptions", by_frontrun(), "no"),
        ("frontrun DPOR, no bound", by_frontrun(preemption_bound=None), "no"),
    ]


def by_frontruns_command() -> list[list[str]]:
    """frontrun's rows for threads: it explores threads only in a process that it starts itself."""
    command = Path(sys.executable).with_name("frontrun")
    if importlib.util.find_spec("frontrun") is None or not command.exists():
        return []
    done = subprocess.run(
        [command, sys.executable, "-m", "benchmarks.explore_peers", UNDER_FRONTRUN],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    rows: list[list[str]] = json.loads(done.stdout.splitlines()[-1])
    print("\n".join(done.stdout.splitlines()[:-1]))
    return rows


def under_frontrun() -> None:
    """What ``by_frontruns_command`` starts; its last line is the rows."""
    traced = by_frontrun(trace_packages=["weakref"])
    each = [*frontruns(), ("frontrun DPOR, 2 preemptions, weakref traced", traced, "no")]
    print(json.dumps(rows_of("threads", each, of_threads())))


def rows_of(kind: str, each: list[tuple[str, Tool, str]], scenarios: list[Scenario]) -> list[Any]:
    """One row of the table for each tool."""
    rows = []
    for name, tool, shrinks in each:
        print(f"  {kind}: {name}", flush=True)
        rows.append([name, *judge(tool, scenarios).row(), shrinks])
    return rows


def main() -> None:
    """Print one table a kind."""
    if UNDER_FRONTRUN in sys.argv:
        under_frontrun()
        return
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"Python {version}; each tool cut off after {CUT:g} s a scenario")
    for name in ("detangle", "frontrun"):
        if importlib.util.find_spec(name) is None:
            print(MISSING.format(name))
    found = tools()
    tables = {
        "asyncio": rows_of("asyncio", found["asyncio"], of_tasks()),
        "threads": rows_of("threads", found["threads"], of_threads()) + by_frontruns_command(),
    }
    for kind, rows in tables.items():
        widths = [max(map(len, column)) for column in zip(HEADS, *rows, strict=True)]
        print(f"\n{kind}")
        for row in [HEADS, *rows]:
            print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
