"""The parts of the page on the four failures that the lab makes.

``python -m tests.lab.page`` makes them anew; a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from perkey.lab import catalogue, conflicts, plot, running
from perkey.lab.catalogue import Chosen
from perkey.lab.drawing import markdown
from perkey.lab.examine import Report

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "the-four-failures.md"
PLOT = PAGE.with_name("conflicts.svg")
BLOCK = re.compile(r"(<!-- lab: (\S+) -->\n).*?(<!-- /lab -->)", re.DOTALL)

Reports = Mapping[Chosen, Report]


def made_anew(text: str, reports: Reports) -> str:
    """The page with every block as the lab makes it now."""
    return BLOCK.sub(
        lambda found: found[1] + "\n" + block(found[2], reports) + "\n" + found[3], text
    )


def block(name: str, reports: Reports) -> str:
    """A drawing (``double-move/delete``) or the table of a failure's ways (``double-move``)."""
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


def plotted() -> str:
    """The plot of what conflicts cost, as ``perkey lab conflicts --svg`` writes it."""
    return plot.picture(conflicts.table(conflicts.doublings(2, 64), 240.0))


def main() -> None:
    chosen = catalogue.choose([])
    reports = dict(zip(chosen, running.everything(chosen, 1), strict=True))
    PAGE.write_text(made_anew(PAGE.read_text(encoding="utf-8"), reports), encoding="utf-8")
    PLOT.write_text(plotted(), encoding="utf-8")


if __name__ == "__main__":
    main()
