"""The parts of the page on the four failures that the lab makes.

``python -m tests.lab.page`` makes them anew; a test compares.  What a stress test sees is chance,
so those figures are of one run, which lies beside the page:
``perkey lab --json | python -m tests.lab.page --record`` keeps another.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perkey.lab import catalogue, conflicts, plot, running
from perkey.lab.catalogue import Chosen
from perkey.lab.drawing import markdown
from perkey.lab.examine import Report

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "the-four-failures.md"
PLOT = PAGE.with_name("conflicts.svg")
RECORD = PAGE.with_name("lab-run.json")
BLOCK = re.compile(r"(<!-- lab: (\S+) -->\n).*?(<!-- /lab -->)", re.DOTALL)

Reports = Mapping[Chosen, Report]


def made_anew(text: str, reports: Reports) -> str:
    """The page with every block as the lab makes it now."""
    return BLOCK.sub(
        lambda found: found[1] + "\n" + block(found[2], reports) + "\n" + found[3], text
    )


def block(name: str, reports: Reports) -> str:
    """A drawing (``double-move/delete``), the table of a failure's ways (``double-move``), or
    what the stress tests of the recorded run saw (``stress``)."""
    if name == "stress":
        return stressed(recorded())
    scenario, _, variant = name.partition("/")
    if not variant:
        return ways([report for chosen, report in reports.items() if chosen[0] == scenario])
    drawing = reports[scenario, variant].drawing
    assert drawing is not None
    return f"{markdown(drawing)}\n**{drawing.verdict[0].upper()}{drawing.verdict[1:]}.**\n"


def ways(reports: list[Report]) -> str:
    """A row for each way."""
    lines = ["| way | schedules that fail | why |", "| --- | --- | --- |"]
    for report in reports:
        count, kind = report.count, report.variant.kind
        share = f", {count.failing / count.schedules:.0%}" if count.failing else ""
        tried = f"{count.failing:,} of {count.schedules:,}{share}"
        price = f" Costs: {report.cost}." if kind == "costly" and "KiB" not in report.cost else ""
        lines.append(f"| {report.variant.title} | {tried} | {report.variant.why}.{price} |")
    return "\n".join(lines) + "\n"


def kept(facts: Any) -> list[dict[str, Any]]:
    """Of what ``perkey lab --json`` prints, what the page needs."""
    wanted = ("scenario", "variant", "title", "kind", "schedules", "stress")
    return [{name: each[name] for name in wanted} for each in facts["variants"]]


def recorded() -> list[dict[str, Any]]:
    """The run whose stress tests the page shows."""
    found: list[dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def stressed(variants: Sequence[Mapping[str, Any]]) -> str:
    """A row for each wrong way: how often each kind of stress test saw it."""
    lines = [
        "| way | of all schedules | asyncio | threads | in order |",
        "| --- | --- | --- | --- | --- |",
    ]
    for each in variants:
        if each["kind"] == "wrong":
            seen = each["stress"]
            threads = "-" if seen["threads"] is None else f"{seen['threads']:,}"
            share = f"{each['schedules']['failing'] / each['schedules']['all']:.0%}"
            row = (each["title"], share, f"{seen['jittered']:,}", threads, f"{seen['orderly']:,}")
            lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def plotted() -> str:
    """The plot of what conflicts cost, as ``perkey lab conflicts --svg`` writes it."""
    return plot.picture(conflicts.table(conflicts.doublings(2, 64), 240.0))


def main() -> None:
    if sys.argv[1:] == ["--record"]:
        rows = ",\n".join(json.dumps(each) for each in kept(json.load(sys.stdin)))
        RECORD.write_text(f"[\n{rows}\n]\n", encoding="utf-8")
    chosen = catalogue.choose([])
    reports = dict(zip(chosen, running.everything(chosen, 1), strict=True))
    PAGE.write_text(made_anew(PAGE.read_text(encoding="utf-8"), reports), encoding="utf-8")
    PLOT.write_text(plotted(), encoding="utf-8")


if __name__ == "__main__":
    main()
