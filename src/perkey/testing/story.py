"""A schedule told as a story: one column a caller, one row a move, in source lines."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from perkey.testing import where
from perkey.testing.loop import Diverged
from perkey.testing.moves import (
    CALLBACK,
    CANCEL,
    CRASH,
    EARLY,
    FAIL,
    LOSE,
    STEP,
    TIMER,
    Move,
    describe,
)
from perkey.testing.runner import Program, Run, Violation

LINES_A_CELL = 6
WIDEST = 60

Row = tuple[int | None, list[str]]
"""The task in whose column the row stands (None: the loop's), and its lines."""


def tell(program: Program, moves: list[Move]) -> tuple[str, Violation | None]:
    """Run ``moves`` once more, watching; the story and what went wrong at its end."""
    run = Run(program)
    rows: list[Row] = []
    try:
        rows.extend(_row(run, move) for move in moves)
        violation = run.violation() or (None if run.moves() else run.verdict())
        names = [task.get_name() if task else "?" for task in run.loop.tasks]
        text = table(rows, names)
        if violation is not None and violation.kind == "deadlock":
            text += "\n\n" + "\n".join(waiting(run))
    finally:
        run.close()
    return text, violation


def waiting(run: Run) -> list[str]:
    """Who waits where, for what."""
    return [
        f"{task.get_name()} waits at {where.stands(task)}\n    for {where.waits_for(task)}"
        for number, task in enumerate(run.loop.tasks)
        if task is not None and not task.done() and not run.loop.is_dead(number)
    ]


def _row(run: Run, move: Move) -> Row:
    kind, number = move
    loop = run.loop
    if kind in (STEP, FAIL, LOSE, CANCEL) and number >= len(loop.tasks):
        raise Diverged(describe(move))
    if kind == CANCEL:
        run.make(move)
        return number, [f"! cancelled, at {where.stands(loop.tasks[number])}"]
    if kind == CRASH:
        victims = [n for n, p in enumerate(loop.processes) if p == number and loop.tasks[n]]
        run.make(move)
        if not victims:
            return None, ["! crash"]
        return victims[0], [f"! crash, at {where.stands(loop.tasks[victims[0]])}"]
    if kind in (TIMER, EARLY):
        with Watch() as watch:
            run.make(move)
        early = ", before the others ran" if kind == EARLY else ""
        return None, [f"a timer fires at {loop.now:g} s{early}", *watch.lines()]
    if kind == CALLBACK:
        with Watch() as watch:
            run.make(move)
        return None, ["a callback runs", *watch.lines()]
    return number, _step(run, move)


def _step(run: Run, move: Move) -> list[str]:
    kind, number = move
    lines = []
    point = run.loop.points.get(number)
    if kind == FAIL and point is not None:
        lines.append(f"! {point.name} fails")
    elif kind == LOSE and point is not None:
        lines.append(f"! the reply of {point.name} is lost")
    task = run.loop.tasks[number]
    before = where.stands(task) if task else ""
    only_users = task is not None and where.in_users_code(task)
    with Watch() as watch:
        run.make(move)
    ran = watch.lines(only_users)
    if ran or point is None or lines:
        lines += ran or [before]
    else:  # the user's line goes on within a library: say with what
        lines += [before, f"  ({point.name})"]
    task = run.loop.tasks[number]
    if task.done():
        lines.append(_ending(task))
    elif number not in run.loop.ready:
        lines.append("  (waits)")
    return lines


def _ending(task: Any) -> str:
    if task.cancelled():
        return "= cancelled"
    if task.exception() is not None:
        return f"= raises {task.exception()!r}"
    return f"= returns {task.result()!r}"


class Watch:
    """Notes the lines of the user's own code that run meanwhile, and of perkey's."""

    def __init__(self) -> None:
        self._lines: dict[int, list[str]] = {where.USERS: [], where.PERKEYS: []}

    def __enter__(self) -> Watch:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        lines = self._lines.get(where.whose(frame.f_code.co_filename))
        if lines is None:
            return None
        if event == "line":
            text = where.line(frame.f_code.co_filename, frame.f_lineno)
            if not lines or lines[-1] != text:
                lines.append(text)
        return self._trace

    def lines(self, only_users: bool = False) -> list[str]:
        """The user's lines; where there are none, perkey's, unless ``only_users``."""
        lines = self._lines[where.USERS]
        if not lines and not only_users:
            lines = self._lines[where.PERKEYS]
        if len(lines) <= LINES_A_CELL:
            return lines
        half = LINES_A_CELL // 2
        return [*lines[:half], f"  ... {len(lines) - 2 * half} lines", *lines[-half:]]


def table(rows: list[Row], names: list[str]) -> str:
    """Rows under one column a task; the loop's own column comes last, if it is used."""
    columns: list[int | None] = [n for n in range(len(names)) if any(r[0] == n for r in rows)]
    if any(row[0] is None for row in rows):
        columns.append(None)
    heads = ["the loop" if column is None else names[column] for column in columns]
    widths = []
    for column, head in zip(columns, heads, strict=True):
        longest = max((len(x) for who, cell in rows if who == column for x in cell), default=0)
        widths.append(min(WIDEST, max(longest, len(head))))
    lines = ["    " + "  ".join(h.ljust(w) for h, w in zip(heads, widths, strict=True)).rstrip()]
    lines.append("    " + "  ".join("-" * width for width in widths))
    for index, (who, cell) in enumerate(rows, 1):
        before = sum(width + 2 for width in widths[: columns.index(who)])
        width = widths[columns.index(who)]
        for position, text in enumerate(cell):
            shown = text if len(text) <= width else text[: width - 1] + "…"
            lead = f"{index:>3} " if position == 0 else "    "
            lines.append(f"{lead}{' ' * before}{shown}".rstrip())
    return "\n".join(lines)
