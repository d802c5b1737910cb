"""The lab's findings for people and for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from perkey.cli import output
from perkey.lab import catalogue
from perkey.lab.drawing import Drawing, cells, heads
from perkey.lab.examine import Report

MARK_STYLES = {"strikes": "red", "hangs": "bold red", "waits": "yellow", "": ""}
WIDEST = 34
_ONE = {"failures": "failure", "cancellations": "cancellation", "crashes": "crash"}


@contextmanager
def progress(total: int, *, as_json: bool) -> Iterator[Callable[[Report], None]]:
    """A bar on standard error while the work goes on; only at a terminal."""
    console = Console(stderr=True, highlight=False, markup=False)
    if as_json or not console.is_terminal:
        yield lambda report: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("exploring", total=total)

        def done(report: Report) -> None:
            bar.update(task, advance=1, description=f"{report.scenario}/{report.variant.name}")

        yield done


def facts(reports: Sequence[Report], written: Sequence[str]) -> dict[str, Any]:
    """Everything, for ``--json``."""
    return {
        "as_expected": all(report.as_expected for report in reports),
        "variants": [report.as_dict() for report in reports],
        "files": list(written),
    }


def tell(reports: Sequence[Report], written: Sequence[str]) -> None:
    """Print each failure: its table, and the drawings of what fails."""
    for name, scenario in catalogue.SCENARIOS.items():
        mine = [report for report in reports if report.scenario == name]
        if not mine:
            continue
        output.say(f"{scenario.title} ({name})", style="bold")
        output.prose(scenario.happens)
        output.say()
        _print(_summary(mine), 0)
        output.say()
        for report in mine:
            _tell_one(report)
    _tell_end(reports, written)


def _summary(reports: Sequence[Report]) -> Table:
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column("way", overflow="fold")
    grid.add_column("verdict", no_wrap=True)
    for heading in ("schedules that fail", "asyncio", "threads", "in order"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for report in reports:
        count, seen = report.count, report.stress
        share = f" ({count.failing / count.schedules:.0%})" if count.failing else ""
        grid.add_row(
            report.variant.title,
            Text(*verdict(report)),
            f"{count.failing:,} of {count.schedules:,}{share}",
            f"{seen.jittered:,}",
            "-" if seen.threads is None else f"{seen.threads:,}",
            f"{seen.orderly:,}",
        )
    return grid


def verdict(report: Report) -> tuple[str, str]:
    """What was found, in a word or two, and its style."""
    if not report.as_expected:
        return ("NOT FOUND" if report.variant.kind == "wrong" else "FAILS"), "bold red"
    if report.variant.kind == "wrong":
        return "fails", "red"
    return ("never fails", "green") if report.variant.kind == "right" else ("costly", "yellow")


def _tell_one(report: Report) -> None:
    """The drawing of a variant that fails, or the certificate of one that does not."""
    variant = report.variant
    output.prose(f"{variant.title}: {variant.why}", style="bold" if report.drawing else "")
    if report.cost:
        output.say(f"  costs: {report.cost}", style="yellow")
    if report.drawing is not None:
        _print(drawn(report.drawing), 2)
        output.say(f"  => {report.drawing.verdict}", style="red")
    else:
        output.say(f"  {certificate(report)}", style="green" if report.as_expected else "red")
    output.say()


def certificate(report: Report) -> str:
    """What was searched, in one line."""
    result = report.result
    strikes = ", ".join(_counted(n, name) for name, n in result.budgets.items() if n)
    return (
        f"{result.verdict}: {len(result.callers)} callers, {strikes or 'nothing injected'}; "
        f"{report.count.schedules:,} schedules over {result.states:,} states, none fails"
        if result.holds
        else result.verdict
    )


def _counted(number: int, things: str) -> str:
    """``1 crash``, ``2 crashes``; the certificate knows the plurals."""
    return f"{number} {_ONE.get(things, things) if number == 1 else things}"


def drawn(drawing: Drawing) -> Table:
    """The sequence: one column a caller, one row a step."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, head in enumerate(heads(drawing)):
        grid.add_column(head, justify="right" if not number else "left", max_width=WIDEST)
    for row, line in zip(drawing.rows, cells(drawing), strict=True):
        style = MARK_STYLES[row.mark]
        shown = [Text(output.safe(cell).replace("; ", "\n"), style=style) for cell in line]
        shown[0].stylize("dim")
        grid.add_row(*shown[:-1], Text(output.safe(line[-1]), style="dim"))
    return grid


def _print(grid: Table, indent: int) -> None:
    output.show(Padding(grid, (0, 0, 0, indent), expand=False))


def _tell_end(reports: Sequence[Report], written: Sequence[str]) -> None:
    wrong = [report for report in reports if report.variant.kind == "wrong"]
    right = [report for report in reports if report.variant.kind != "wrong"]
    found = sum(report.as_expected for report in wrong)
    clean = sum(report.as_expected for report in right)
    output.prose(
        f"{found} of {len(wrong)} wrong ways found to fail; "
        f"{clean} of {len(right)} others searched through, none of their schedules fails",
        style="green" if found + clean == len(reports) else "bold red",
    )
    seen = reports[0].stress
    for line in (
        "schedules: counted over the whole unpruned tree",
        f"asyncio, threads: in how many of {seen.rounds:,} rounds of a stress test it was seen; "
        "asyncio's callers come and are served at random times",
        f"in order: of {seen.orderly_rounds} rounds on asyncio, all at once, first come, first "
        "served; saves that can fail do so in 30 %",
    ):
        output.prose(line, style="dim")
    for path in written:
        output.say(f"written: {path}")
