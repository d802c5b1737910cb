"""Showing an engine while it runs: a live table at a terminal, a line for each fact elsewhere."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from perkey.cli import output
from perkey.engine import AsyncEngine, Fact, Handle, InstanceState
from perkey.engine.definitions import spoken

STYLES = {
    "running": "cyan",
    "pending": "dim",
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
}
COUNTED = ("running", "completed", "failed")
SHOWN = 16
"""How many instances the table shows."""
ENDED_EACH = 2
"""How many of a process's ended instances it shows: one that a timer starts every second would
push out all others."""
FAILURES = 8
"""How many failures are told below the tables, the last ones."""


class Lines:
    """A line for each fact."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def fact(self, fact: Fact) -> None:
        """Show what happened."""
        output.say(told(fact))

    def failed(self, report: Callable[[], None]) -> None:
        """Report a failure, when it does not disturb what is shown."""
        report()

    def refresh(self) -> None:
        """Show how things stand."""

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *exc: object) -> None:
        return None


class JsonLines(Lines):
    """A JSON object for each fact, one a line."""

    async def fact(self, fact: Fact) -> None:
        output.as_json(
            {
                "fact": fact.kind,
                "key": fact.key,
                "version": fact.version,
                "instance": fact.instance,
                "detail": fact.detail,
            },
            pretty=False,
        )


class Redrawn(Lines):
    """Two tables that are redrawn in place."""

    def __init__(self, engine: AsyncEngine) -> None:
        super().__init__(engine)
        self._out = output.console()
        self._live = Live(console=self._out, auto_refresh=False, transient=False)
        self._failures: deque[Callable[[], None]] = deque(maxlen=FAILURES)

    async def fact(self, fact: Fact) -> None:
        """The next redrawing shows it."""

    def failed(self, report: Callable[[], None]) -> None:
        """It comes below the tables, when they are not redrawn any more."""
        self._failures.append(report)

    def refresh(self) -> None:
        self._live.update(output.trimmed(drawn(self._engine), self._out), refresh=True)

    def __enter__(self) -> Redrawn:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.refresh()
        self._live.stop()
        for report in self._failures:
            report()


def told(fact: Fact) -> str:
    """A fact as a line for people."""
    what = f"{fact.key} v{fact.version}" if fact.version else fact.key
    return " ".join(each for each in (fact.kind, what, fact.instance[-8:], fact.detail) if each)


def totals(engine: AsyncEngine) -> dict[str, int]:
    """How many known instances are in each state."""
    counted = Counter(each.state for each in engine.instances())
    return {state.value: counted[state] for state in InstanceState}


def drawn(engine: AsyncEngine) -> RenderableType:
    """The engine as a headline, a table of its processes and one of its instances."""
    known = engine.instances()
    running = [each for each in known if not each.state.ended]
    head = Text(f"engine {engine.state}", style="bold")
    head.append(f"   {len(running)} running, {len(known) - len(running)} ended", style="")
    return Group(head, Text(), _processes(engine, known), Text(), _instances(listed(known)))


def listed(known: list[Handle]) -> list[Handle]:
    """The instances that are shown: those that run, then the newest ended ones of each process."""
    newest = known[::-1]
    shown = [each for each in newest if not each.state.ended]
    of: Counter[str] = Counter()
    for each in newest:
        if each.state.ended:
            of[each.key] += 1
            if of[each.key] <= ENDED_EACH:
                shown.append(each)
    return shown[:SHOWN]


def _table(*headings: str) -> Table:
    grid = Table(box=None, pad_edge=False)
    for heading in headings:
        number = heading in (*COUNTED, "steps")
        grid.add_column(heading, justify="right" if number else "left", no_wrap=True)
    return grid


def _processes(engine: AsyncEngine, known: list[Handle]) -> Table:
    """A row for each version that is registered or still runs."""
    grid = _table("process", "version", "starts by", "running", "completed", "failed")
    counted: Counter[tuple[str, int, str]] = Counter(
        (each.key, each.version, each.state.value) for each in known
    )
    latest = engine.starters()
    keys = sorted({*engine.keys(), *(each.key for each in known)})
    for key in keys:
        registered = [each.version for each in engine.registrations(key)]
        busy = [each.version for each in known if each.key == key]
        for version in sorted({*registered, *busy}):
            opened = [spoken(e.trigger) for e in latest if (e.key, e.version) == (key, version)]
            newest = max(registered, default=0)
            by_hand = "by hand" if version == newest else "-"
            grid.add_row(
                output.safe(key),
                f"v{version}",
                output.safe(", ".join(opened) or by_hand),
                *(
                    str(counted[key, version, state])
                    for state in ("running", "completed", "failed")
                ),
            )
    return grid


def _instances(shown: list[Handle]) -> Table:
    grid = _table("instance", "process", "of", "state", "steps", "waits for")
    for each in shown:
        grid.add_row(
            each.id[-8:],
            output.safe(f"{each.key} v{each.version}"),
            output.safe(_of(each)),
            Text(each.state.value, style=STYLES.get(each.state.value, "")),
            str(len(each.steps())),
            output.safe(each.error or each.waiting_for),
        )
    return grid


def _of(handle: Handle) -> str:
    address = handle.address
    return "" if address == handle.id else address


def chosen(engine: AsyncEngine, as_json: bool) -> Lines:
    """The view that fits where the output goes."""
    if as_json:
        return JsonLines(engine)
    return Redrawn(engine) if output.console().is_terminal else Lines(engine)


def summary(engine: AsyncEngine, dropped: int) -> dict[str, Any]:
    """What the last line says."""
    return {"state": str(engine.state), "instances": totals(engine), "facts_dropped": dropped}
