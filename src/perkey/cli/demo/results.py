"""Judging a run and telling how it went: the version log, the conflicts, the completion check."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from perkey import Board, Document, Documents, IncompleteRun, Store
from perkey.cli import output
from perkey.cli.demo import outcome
from perkey.cli.demo.plan import Plan
from perkey.cli.demo.supervise import SUPERVISOR, Ended


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that is known about a run when it is over."""

    plan: Plan
    ended: Ended
    report: dict[str, Any]
    history: list[Document]
    states: dict[str, str]
    """The state of each task on the board."""
    reason: str
    """Why the run is not complete; empty when it is."""


def judge(store: Store, plan: Plan, ended: Ended) -> Result:
    """Read the report, its history and the board, and let the completion check decide.

    The board alone would believe its workers, for each of them did finish; so it is told
    where in the report each task's section has to be.
    """
    docs, board = Documents(store), Board(store, plan.key("board"))
    states = {task.name: task.state for task in board.status().tasks}
    reason = ""
    try:
        places = {task: (plan.key("report"), f"/sections/{task}") for task in states}
        board.complete(outputs=places, by=SUPERVISOR)
    except IncompleteRun as incomplete:
        reason = incomplete.message
    head: Document = docs.get(plan.key("report"))
    return Result(plan, ended, head.value, docs.history(head.key), states, reason)


def facts(result: Result) -> dict[str, Any]:
    """The result as JSON."""
    return {
        "run": result.plan.run,
        "mode": "blind" if result.plan.blind else "careful",
        "workers": result.plan.workers,
        "seconds": round(result.ended.seconds, 2),
        "complete": not result.reason,
        "reason": result.reason,
        "tasks": result.states,
        "sections": sorted(outcome.sections_of(result.history[-1])),
        "vanished": [asdict(each) for each in outcome.vanished(result.history)],
        "conflicts": asdict(outcome.figures(result.history)),
        "versions": [
            {"version": v.version, "by": v.by, "read": v.base, "added": added, "dropped": dropped}
            for v, added, dropped in outcome.brought_by(result.history)
        ],
        "killed": result.ended.killed,
        "failed": result.ended.failed,
        "timed_out": result.ended.timed_out,
        "report_key": result.plan.key("report"),
    }


def tell(result: Result, path: str, url: str) -> None:
    """Print the result for a person."""
    output.say()
    if result.ended.killed is not None:
        worker, task = result.ended.killed
        output.say(f"{worker} was killed (SIGKILL) while it held {task}")
    _log(result)
    output.say()
    _conflicts(result)
    for lost in outcome.vanished(result.history):
        output.say(
            f"vanished: {lost.section}, written by {lost.by} in version {lost.version}, "
            f"overwritten by {lost.gone_by} in version {lost.gone_version}",
            style="red",
        )
    for worker, said in result.ended.failed.items():
        output.say(f"{worker} failed: {said.splitlines()[-1]}", style="red")
    if result.ended.timed_out:
        output.say(f"given up after {result.plan.deadline_s:g} s", style="red")
    output.say()
    _verdict(result)
    output.say(f"report: {path}")
    if url:
        key = result.plan.key("report")
        output.say(f"history: {output.program()} doc history {key} --store '{url}'")


def _log(result: Result) -> None:
    rows = [
        (v.version, v.by, v.base, " ".join([*added, *(f"-{name}" for name in dropped)]))
        for v, added, dropped in outcome.brought_by(result.history)
    ]
    output.table(("version", "by", "read", "sections (- lost)"), rows)


def _conflicts(result: Result) -> None:
    found = outcome.figures(result.history)
    output.say(
        f"{result.plan.workers} workers, {found.writes} writes, "
        f"{len(result.history)} versions, {result.ended.seconds:.1f} s"
    )
    output.prose(
        f"{found.from_older} writers had begun from a version that was no longer the newest: "
        f"{found.reapplied} changes were applied to the newest instead, "
        f"{found.overwrote_unseen} overwrote what they had never read"
    )


def _verdict(result: Result) -> None:
    if result.reason:
        output.prose(f"completion check: refused: {result.reason}", style="bold red")
    else:
        count = len(result.states)
        said = f"completion check: {count} dispatched, {count} done, {count} sections present"
        output.say(said, style="bold green")
