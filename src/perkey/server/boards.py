"""Boards over HTTP: claim a task, keep the claim, finish it, and complete the run."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response

from perkey.board import AsyncBoard
from perkey.errors import LeaseHeld
from perkey.flows import board, steps
from perkey.flows.board import Status
from perkey.flows.tasklist import Claim
from perkey.server import listing
from perkey.server.calls import Call
from perkey.server.refusals import Overloaded
from perkey.server.replies import json_reply
from perkey.server.routes import Route
from perkey.server.services import Services
from perkey.store.keys import BOARDS
from perkey.store.views import moment

T = TypeVar("T")

MAX_WAIT_S = 20.0
"""How long one request may wait for a task; ask again for longer."""


class Dispatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tasks of a run: names, or names with what their workers need to know."""

    tasks: list[str] | dict[str, Any]
    attempts: int = 5


class Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a worker wants to do."""

    lease: float
    """How long it needs before it reports again, in seconds."""
    worker: str = ""
    """Stands behind the token's name; needed where there are no tokens."""
    task: str | None = None
    wait: float = 0.0
    """How long to wait while the unfinished tasks are at work elsewhere, in seconds."""


class Held(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A claim, by its task and token."""

    task: str
    token: int
    worker: str = ""


class Beat(Held, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Extend a claim."""

    lease: float


class Done(Held, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A task's output."""

    output: Any


class Failure(Held, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Why an attempt failed, and whether another one may succeed."""

    reason: str
    retry: bool = False


def _board(call: Call) -> AsyncBoard:
    run = call.params["run"]
    call.caller.need_key(run)
    return AsyncBoard(call.services.store, run)


def _claim(call: Call, held: Held) -> Claim:
    worker = call.caller.author(held.worker)
    return Claim(call.params["run"], held.task, worker, held.token, 0, 0, None)


def _facts(claim: Claim) -> dict[str, Any]:
    return {
        "run": claim.run,
        "task": claim.task,
        "worker": claim.worker,
        "token": claim.token,
        "expires": moment(claim.expires),
        "attempt": claim.attempt,
        "spec": claim.spec,
    }


def _status(status: Status) -> Response:
    return json_reply(status)


async def list_boards(call: Call) -> Response:
    """The runs whose name has a prefix."""
    prefix, after = call.text("prefix"), call.text("after")
    call.caller.need_key(prefix)
    limit = call.whole("limit", listing.DEFAULT, 1, listing.MOST)
    found, more = await call.services.store.run(listing.scan(prefix, after, limit, BOARDS))
    runs = [{"run": each.key[2:], "version": each.version} for each in found]
    return json_reply({"boards": runs} | ({"next": runs[-1]["run"]} if more else {}))


async def create(call: Call) -> Response:
    """Dispatch a run; the same again changes nothing, another one is refused."""
    asked = call.decode(Dispatch)
    return _status(
        await _board(call).create(asked.tasks, attempts=asked.attempts, by=call.write.by)
    )


async def status(call: Call) -> Response:
    """How the run stands: each task, who has it, for how long."""
    return _status(await _board(call).status())


async def claim(call: Call) -> Response:
    """The next task; 204 when all are finished, 409 with Retry-After while others work."""
    asked = call.decode(Wish)
    worker, wait = call.caller.author(asked.worker), min(asked.wait, MAX_WAIT_S)
    call.caller.need_key(call.params["run"])
    flow = board.claim(call.params["run"], worker, asked.lease, asked.task, wait)
    call.services.claiming += wait > 0
    try:
        found: Claim | None = await call.services.store.run(_awake(flow, call.services))
    except LeaseHeld as held:
        held.details["retry_after"] = held.details.get("retry_after_ms", 0) / 1000
        held.details.pop("now", None)  # of the store's own clock
        raise
    finally:
        call.services.claiming -= wait > 0
    if found is None:
        return Response(status_code=204, headers={"cache-control": "no-store"})
    return json_reply(_facts(found))


def _awake(flow: steps.Flow[T], services: Services) -> steps.Flow[T]:
    """The same flow, whose pauses end with the server.  Whatever else it does is finished: a
    claim that was cut off could have landed, and nobody would know of it."""

    async def pause(seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await services.stopping.wait()
            services.sent_away += 1
            raise Overloaded("this server stops, and no task was free so far; ask another one")

    def perform(step: steps.Step) -> steps.Flow[Any]:
        return (yield steps.Call(pause, (step.seconds,)) if type(step) is steps.Sleep else step)

    return steps.through(flow, perform)


async def heartbeat(call: Call) -> Response:
    """Extend a claim; 409 when it is too late."""
    asked = call.decode(Beat)
    longer = await _board(call).heartbeat(_claim(call, asked), lease=asked.lease)
    return json_reply(
        {"task": longer.task, "token": longer.token, "expires": moment(longer.expires)}
    )


async def finish(call: Call) -> Response:
    """Record a task's output; the same again is harmless, 409 when the claim has passed on."""
    asked = call.decode(Done)
    run = _board(call)
    await run.finish(_claim(call, asked), asked.output)
    return _status(await run.status())


async def fail(call: Call) -> Response:
    """Give up an attempt."""
    asked = call.decode(Failure)
    again = await _board(call).fail(_claim(call, asked), asked.reason, retry=asked.retry)
    return json_reply({"again": again})


async def release(call: Call) -> Response:
    """Hand a task back; the attempt does not count."""
    await _board(call).release(_claim(call, call.decode(Held)))
    return json_reply({"again": True})


async def complete(call: Call) -> Response:
    """Declare the run a success, or be told what is missing."""
    return _status(await _board(call).complete(by=call.write.by))


_RUN = "/v1/boards/{run}"

ROUTES = [
    Route("GET", "/v1/boards", list_boards, query=("prefix", "after", "limit")),
    Route("GET", _RUN, status),
    Route("PUT", _RUN, create, "write", takes=Dispatch),
    Route("POST", f"{_RUN}/claim", claim, "write", takes=Wish, replayable=True),
    Route("POST", f"{_RUN}/heartbeat", heartbeat, "write", takes=Beat),
    Route("POST", f"{_RUN}/finish", finish, "write", takes=Done),
    Route("POST", f"{_RUN}/fail", fail, "write", takes=Failure, replayable=True),
    Route("POST", f"{_RUN}/release", release, "write", takes=Held, replayable=True),
    Route("POST", f"{_RUN}/complete", complete, "write"),
]
