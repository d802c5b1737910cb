"""Who had which task of a run when, read from the versions of its record.  Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from perkey.flows import tasklist
from perkey.flows.tasklist import DONE, FAILED, RUNNING, Run
from perkey.store.record import Record


@dataclass(frozen=True, slots=True)
class Span:
    """One claim of one task, from when until when."""

    task: str
    worker: str
    token: int
    begin: int
    """Milliseconds of store time."""
    end: int | None = None
    """None: it goes on."""
    how: str = RUNNING
    """running | done | failed | given back | taken over"""


def spans(name: str, records: Iterable[Record]) -> list[Span]:
    """The claims in the order in which they began; history may start late."""
    found: dict[tuple[str, int], Span] = {}
    for record in records:
        if record.body is None:
            continue
        for task, entry in tasklist.decode(name, record).tasks.items():
            mark = (task, entry.token)
            if entry.token and mark not in found:
                _end_earlier(found, task, record.at)
                found[mark] = Span(task, entry.worker, entry.token, record.at)
            if entry.token and entry.state != RUNNING and found[mark].end is None:
                how = entry.state if entry.state in (DONE, FAILED) else "given back"
                found[mark] = replace(found[mark], end=record.at, how=how)
    return list(found.values())


def _end_earlier(found: dict[tuple[str, int], Span], task: str, at: int) -> None:
    for mark, span in found.items():
        if span.task == task and span.end is None:
            found[mark] = replace(span, end=at, how="taken over")


@dataclass(frozen=True, slots=True)
class Bar:
    """A span on a line from 0 to ``WIDTH``."""

    span: Span
    x: float
    width: float


WIDTH = 1000
THIN = 6
"""A claim is at least so wide, to be seen."""


def bars(found: Iterable[Span], begin: int, end: int) -> dict[str, list[Bar]]:
    """Each task's claims between two moments."""
    scale = WIDTH / max(1, end - begin)
    lines: dict[str, list[Bar]] = {}
    for span in found:
        x = min(max(0.0, (span.begin - begin) * scale), WIDTH - THIN)
        width = max(THIN, ((end if span.end is None else span.end) - span.begin) * scale)
        bar = Bar(span, round(x, 1), round(min(width, WIDTH - x), 1))
        lines.setdefault(span.task, []).append(bar)
    return lines


def lacking(run: Run) -> list[str]:
    """The tasks that are not done: a run is not complete while there are any."""
    return [name for name, task in run.tasks.items() if task.state != DONE]
