"""A schedule as a sequence: one column a caller, one for what they share, one row a step."""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from perkey.testing.exploring import Quiet
from perkey.testing.moves import CANCEL, CRASH, FAIL, STEP, Move
from perkey.testing.runner import Program, Run

Mark = Literal["", "strikes", "waits", "hangs"]


@dataclass(frozen=True)
class Row:
    """One step: in whose column it stands, what is told there, what is shared afterwards."""

    who: int
    text: str
    shared: str
    mark: Mark = ""
    """``strikes``: a failure, cancellation or crash; ``hangs``: waits for ever."""


@dataclass(frozen=True)
class Drawing:
    """The sequence, and what is wrong at its end."""

    names: tuple[str, ...]
    shared: str
    rows: tuple[Row, ...]
    verdict: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def draw(program: Program, moves: Sequence[Move], names: Sequence[str], shared: str) -> Drawing:
    """Run ``moves`` once more and write down what the callers tell."""
    with Quiet():
        return contextvars.Context().run(_draw, program, moves, names, shared)


def _draw(program: Program, moves: Sequence[Move], names: Sequence[str], shared: str) -> Drawing:
    run = Run(program)
    rows: list[Row] = []
    try:
        run.state.diary.read()  # what the setup told
        before = str(run.state)
        for move in moves:
            rows += _rows(run, move)
        violation = run.violation() or run.verdict()
        hanging = _hanging(run)
        rows += hanging
        verdict = "nothing is wrong" if violation is None else violation.message
        if hanging:
            who = " and ".join(names[row.who] for row in hanging)
            verdict = f"{who} {'waits' if len(hanging) == 1 else 'wait'} for ever"
        first = Row(-1, "", before)
        return Drawing(tuple(names), shared, (first, *rows), verdict)
    finally:
        run.close()


def _rows(run: Run, move: Move) -> list[Row]:
    """The rows of one move; none when nothing was told that a reader needs."""
    kind, number = move
    struck = ""
    if kind == FAIL:
        struck = f"{run.loop.points[number].name} fails"
    elif kind == CANCEL:
        struck = "is cancelled"
    elif kind == CRASH:
        dead = [n for n, p in enumerate(run.program.processes) if p == number and run.runs(n)]
        run.make(move)
        return [Row(n, "crashes: no finally runs", str(run.state), "strikes") for n in dead]
    run.make(move)
    told = run.state.diary.read()
    if struck:
        told.insert(0, struck)
    waits = kind == STEP and _waits(run, number)
    if waits:
        told.append("waits")
    if not told:
        return []
    mark: Mark = "strikes" if struck else "waits" if waits else ""
    return [Row(number, "; ".join(told), str(run.state), mark)]


def _waits(run: Run, number: int) -> bool:
    loop = run.loop
    return run.runs(number) and number not in loop.ready and number < len(run.flags)


def _hanging(run: Run) -> list[Row]:
    """At a deadlock: who waits for ever."""
    if run.moves():
        return []
    waiting = [number for number in range(len(run.flags)) if run.runs(number)]
    return [Row(number, "waits for ever", str(run.state), "hangs") for number in waiting]


# ------------------------------------------------------------ as text


def heads(drawing: Drawing) -> list[str]:
    """The headings: nothing over the numbers, the callers, what they share."""
    return ["", *drawing.names, drawing.shared]


def cells(drawing: Drawing) -> list[list[str]]:
    """The rows as cells under ``heads``; the state stands only where it changed."""
    table = []
    before = ""
    for number, row in enumerate(drawing.rows):
        mine = ["" if column != row.who else row.text for column in range(len(drawing.names))]
        changed = "" if row.shared == before else row.shared
        table.append(["" if row.who < 0 else str(number), *mine, changed])
        before = row.shared
    return table


def markdown(drawing: Drawing) -> str:
    """A table for a page."""
    lines = [_line(heads(drawing)), _line(["---"] * len(heads(drawing)))]
    lines += [_line(each) for each in cells(drawing)]
    return "\n".join(lines) + "\n"


def _line(row: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def mermaid(drawing: Drawing) -> str:
    """A Mermaid sequence diagram; what strikes and what hangs stands in a note."""
    lines = ["sequenceDiagram"]
    lines += [f"    participant C{n} as {_label(name)}" for n, name in enumerate(drawing.names)]
    lines.append(f"    participant S as {_label(drawing.shared)}")
    before = ""
    for row in drawing.rows:
        if row.who < 0:
            lines.append(f"    Note over S: {_label(row.shared)}")
        elif row.mark in ("strikes", "hangs"):
            lines.append(f"    Note over C{row.who}: {_label(row.text)}")
        else:
            arrow = "-x" if row.mark == "waits" else "->>"
            lines.append(f"    C{row.who}{arrow}S: {_label(row.text)}")
        if before and row.shared != before:
            lines.append(f"    Note over S: {_label(row.shared)}")
        before = row.shared
    last = f"C{len(drawing.names) - 1}"
    lines.append(f"    Note over C0,{last}: {_label(drawing.verdict)}")
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    """Text that Mermaid takes as it is: ``;`` and ``#`` mean something to it."""
    return text.replace("#", "no. ").replace(";", ",")
