"""Showing a run while it goes: a live table at a terminal, a line for each change elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.live import Live
from rich.table import Table
from rich.text import Text

from perkey.cli import output

STYLES = {"open": "dim", "running": "cyan", "done": "green", "failed": "red"}


@dataclass(frozen=True, slots=True)
class Row:
    """One task as the board shows it."""

    task: str
    state: str
    worker: str
    attempts: int


class Quiet:
    """Shows nothing: for ``--json``."""

    def show(self, rows: Sequence[Row], note: str = "") -> None:
        """Take note of the board."""

    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *exc: object) -> None:
        return None


class Lines(Quiet):
    """Prints a line when a task's row changes."""

    def __init__(self) -> None:
        self._seen: dict[str, Row] = {}
        self._note = ""

    def show(self, rows: Sequence[Row], note: str = "") -> None:
        for row in rows:
            if self._seen.get(row.task) != row and row.worker:
                output.say(f"{row.task}: {row.state} by {row.worker}{_again(row)}")
            self._seen[row.task] = row
        if note and note != self._note:
            output.say(note)
        self._note = note


class Redrawn(Quiet):
    """A table that is redrawn in place."""

    def __init__(self) -> None:
        self._out = output.console()
        self._live = Live(console=self._out, refresh_per_second=12, transient=False)

    def show(self, rows: Sequence[Row], note: str = "") -> None:
        self._live.update(output.trimmed(drawn(rows, note), self._out))

    def __enter__(self) -> Redrawn:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()


def drawn(rows: Sequence[Row], note: str = "") -> Table:
    """The board as a table."""
    grid = Table(box=None, pad_edge=False, caption=note or None, caption_justify="left")
    for heading in ("section", "state", "worker", ""):
        grid.add_column(heading, min_width=12 if heading else 0)
    for row in rows:
        state = Text(row.state, style=STYLES.get(row.state, ""))
        grid.add_row(row.task, state, row.worker, _again(row).strip())
    return grid


def _again(row: Row) -> str:
    return f" (attempt {row.attempts})" if row.attempts > 1 else ""


def chosen(as_json: bool) -> Quiet:
    """The view that fits where the output goes."""
    if as_json:
        return Quiet()
    return Redrawn() if output.console().is_terminal else Lines()
