"""``perkey lab conflicts``: what many writers of one document cost, in three ways."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.table import Table

from perkey.cli import exits, output
from perkey.cli.options import Json
from perkey.errors import UsageError
from perkey.lab import plot
from perkey.lab.conflicts import TITLES, WAYS, Cost, Way, doublings, measure, simulate

MOST_WRITERS = 256
MOST_TURN = 30 * 24 * 3600.0
REAL_WRITERS = (2, 4, 8)
REAL_TURN = 0.1
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def conflicts(
    *,
    writers: Annotated[
        str, Parameter(metavar="N", help="How many: 6, 2,4,8 or 2..64 by doublings.")
    ] = "2..64",
    turn: Annotated[
        str, Parameter(metavar="TIME", help="From reading to writing: 4m, 90s, 250ms.")
    ] = "4m",
    real: Annotated[
        bool, Parameter(help="Leave out what is measured in real time over SQLite.")
    ] = True,
    svg: Annotated[str, Parameter(metavar="FILE", help="Where the plot goes, as SVG.")] = "",
    json: Json = False,
) -> int:
    """Compare optimistic retry, a lock over the whole turn, and merging, for many writers.

    Each writer reads one report, thinks for a turn and adds its section; all begin together.
    Simulated on virtual time with perkey's own documents and leases; and measured in real time
    over a SQLite file, with turns of 100 ms, to see that the simulation is not a fairy tale.

    For example:

        perkey lab conflicts
        perkey lab conflicts --writers 6 --turn 90s --no-real
        perkey lab conflicts --svg conflicts.svg
    """
    numbers, seconds = how_many(writers), how_long(turn)
    if svg:
        output.writable(svg)
    simulated = [simulate(way, number, seconds) for number in numbers for way in WAYS]
    measured = [measure(way, n, REAL_TURN) for n in REAL_WRITERS for way in WAYS] if real else []
    if svg:
        Path(svg).write_text(plot.picture(simulated), encoding="utf-8")
    if json:
        output.as_json(facts(simulated, measured, svg))
    else:
        tell(simulated, measured, svg)
    return exits.DONE


def how_many(text: str) -> list[int]:
    """``6``, ``2,4,8`` or ``2..64`` as numbers of writers, ascending."""
    try:
        if ".." in text:
            low, high = map(int, text.split(".."))
            found = doublings(low, high) if 1 <= low <= high else []
        else:
            found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or not 1 <= found[0] <= found[-1] <= MOST_WRITERS:
        raise UsageError(
            f"expected --writers as 6, 2,4,8 or 2..64, from 1 to {MOST_WRITERS}, found {text!r}"
        )
    return found


def how_long(text: str) -> float:
    """``4m``, ``90s``, ``250ms`` or ``1.5h`` in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)", text.strip(), re.ASCII)
    seconds = float(match[1]) * UNITS[match[2]] if match else 0.0
    if not 0.001 <= seconds <= MOST_TURN:
        raise UsageError(
            f"expected --turn as a length like 4m, 90s or 250ms, up to 30 days, found {text!r}"
        )
    return seconds


def facts(simulated: Sequence[Cost], measured: Sequence[Cost], svg: str) -> dict[str, Any]:
    """Everything, for ``--json``; times in seconds."""
    return {
        "ways": TITLES,
        "simulated": [cost.as_dict() for cost in simulated],
        "measured": [cost.as_dict() for cost in measured],
        "svg": svg,
    }


def tell(simulated: Sequence[Cost], measured: Sequence[Cost], svg: str) -> None:
    """Print the table, what was measured, and what the words mean."""
    turn = plot.duration(simulated[0].turn)
    output.say(f"One report, turns of {turn}, all writers begin together (simulated)", style="bold")
    output.show(summary(simulated))
    if measured:
        output.say()
        real = plot.duration(measured[0].turn)
        output.say(f"The same in real time over SQLite, with turns of {real}", style="bold")
        output.table(["writers", "way", "turns until done: real", "simulated"], compared(measured))
    output.say()
    output.prose(
        "redone: thinking thrown away and done again; waiting: for the lock; both over all "
        "writers. A turn takes 0.5 to 1.5 times its length.",
        style="dim",
    )
    if svg:
        output.say(f"written: {svg}")


def summary(costs: Sequence[Cost]) -> Table:
    """A row for each number of writers, the three ways side by side."""
    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))  # 80 columns are enough for it
    heads = [
        "writers", "retry:\ndone", "redone", "refused", "lock:\ndone", "waiting",
        "merge:\ndone", "redone", "refused",
    ]  # fmt: skip
    for number, head in enumerate(heads):
        style = "" if not number else "red" if number < 4 else "yellow" if number < 6 else "green"
        grid.add_column(head, justify="right", style=style)
    for writers in sorted({cost.writers for cost in costs}):
        by_way: dict[Way, Cost] = {cost.way: cost for cost in costs if cost.writers == writers}
        retry, lock, merge = (by_way[way] for way in WAYS)
        grid.add_row(
            str(writers),
            span(retry.took), span(retry.repeated), f"{retry.conflict_rate:.0%}",
            span(lock.took), span(lock.waited),
            span(merge.took), span(merge.repeated), f"{merge.conflict_rate:.0%}",
        )  # fmt: skip
    return grid


def compared(measured: Sequence[Cost]) -> list[list[str]]:
    """How many turns each took, in reality and in the simulation."""
    return [
        [
            str(cost.writers),
            TITLES[cost.way],
            f"{cost.took / cost.turn:.1f}",
            f"{simulate(cost.way, cost.writers, cost.turn).took / cost.turn:.1f}",
        ]
        for cost in measured
    ]


def span(seconds: float) -> str:
    """A time for people: ``24.0 min``, ``5,610.8 min``, ``1.5 s``, ``0``."""
    if seconds == 0:
        return "0"
    for unit, size in (("min", 60.0), ("s", 1.0)):
        if seconds >= size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds * 1000:.0f} ms"
