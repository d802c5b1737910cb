"""Runs: who holds which task and for how long, and what is missing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from perkey.flows import board as flows
from perkey.flows import steps, tasklist
from perkey.flows.tasklist import OPEN, RUNNING, Run
from perkey.server import listing
from perkey.server.calls import Call
from perkey.server.pages import commands, render
from perkey.server.pages.spans import bars, lacking, spans
from perkey.server.pages.tree import quoted
from perkey.server.routes import Route
from perkey.store import codec
from perkey.store.keys import BOARDS, Key
from perkey.store.record import Record

PAGE = 50
ENTRIES = 100_000
"""How much the line of claims looks at: tasks of a run times versions of it."""
VERSIONS = 10, 2000
"""At least and at most so many of them."""
TASKS = 500
"""How many tasks a page shows."""
OUTPUT_CHARS = 120


async def list_runs(call: Call) -> Response:
    """The runs whose name begins with a prefix."""
    prefix, after = call.text("prefix"), call.text("after")
    allowed = call.caller.covers(prefix)
    found: list[Record] = []
    more = False
    if allowed:
        found, more = await call.services.store.run(listing.scan(prefix, after, PAGE, BOARDS))
    now = await call.services.store.now_ms()
    rows = [(each, _counts(tasklist.decode(each.key[2:], each), now)) for each in found]
    return render.page(
        call,
        "runs.html",
        here="runs",
        prefix=prefix,
        after=after,
        allowed=allowed,
        rows=rows,
        next=found[-1].key[2:] if more else "",
        commands=[commands.curl(call, "The same list", "/v1/boards")],
    )


def _counts(run: Run, now: int) -> dict[str, Any]:
    states = Counter(state_of(task, now) for task in run.tasks.values())
    return {"total": len(run.tasks), "states": states, "completed": run.completed}


def state_of(task: tasklist.Task, now: int) -> str:
    """A task's state; a running one whose time is over is ``late``: anybody may claim it."""
    return "late" if task.state == RUNNING and now >= task.expires else task.state


async def show(call: Call) -> Response:
    """One run, task by task."""
    name = call.text("run")
    call.caller.need_key(name)
    key = flows.board_key(name)
    head, now = await call.services.store.run(_read(key))
    run = tasklist.decode(name, head)
    records = await call.services.store.run(_history(key, head, len(run.tasks)))
    claims = await asyncio.to_thread(spans, name, records)
    begin = records[0].at if records else now
    busy = any(task.state == RUNNING for task in run.tasks.values())
    end = now if busy else max((each.end or now for each in claims), default=now)
    lines = bars(claims, begin, end)
    since = {each.task: each.begin for each in claims if each.end is None}
    return render.page(
        call,
        "run.html",
        here="runs",
        name=name,
        head=head,
        run=run,
        counts=_counts(run, now),
        lacking=lacking(run),
        tasks=_rows(run, lines, since, now),
        hidden=max(0, len(run.tasks) - TASKS),
        span_ms=end - begin,
        commands=_commands(call, name),
    )


def _rows(
    run: Run, lines: Mapping[str, Any], since: Mapping[str, int], now: int
) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "state": state_of(task, now),
            "worker": task.worker,
            "attempts": task.attempts,
            "left": max(0, task.expires - now) if task.state == RUNNING else None,
            "since": since.get(name),
            "said": task.reason or _output(task),
            "bars": lines.get(name, []),
        }
        for name, task in list(run.tasks.items())[:TASKS]
    ]


def _output(task: tasklist.Task) -> str:
    if task.state == OPEN or bytes(task.output) == b"null":
        return ""
    text = quoted(codec.decode(bytes(task.output)))
    return text if len(text) <= OUTPUT_CHARS else text[:OUTPUT_CHARS] + "…"


def _read(key: Key) -> steps.Flow[tuple[Record | None, int]]:
    now: int = yield steps.Now()
    heads: list[Record | None] = yield steps.Read([key])
    return heads[0], now


def _history(key: Key, head: Record, tasks: int) -> steps.Flow[list[Record]]:
    least, most = VERSIONS
    count = max(least, min(most, ENTRIES // tasks))
    found: list[Record] = yield steps.History(key, max(0, head.version - count), count)
    return found


def _commands(call: Call, name: str) -> list[commands.Command]:
    path = f"/v1/boards/{commands.segment(name)}"
    return [
        commands.curl(call, "How the run stands", path),
        commands.curl(
            call, "Claim a task", f"{path}/claim", """--json '{"lease": 60, "worker": "me"}'"""
        ),
        commands.curl(call, "Declare it complete", f"{path}/complete", "-X POST"),
    ]


ROUTES = [
    Route("GET", "/ui/runs", list_runs, query=("prefix", "after"), page=True),
    Route("GET", "/ui/run", show, query=("run",), page=True),
]
