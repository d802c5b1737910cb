"""The engine over HTTP: start, publish, signal, and how its instances stand.

To register is code: the definitions come from the file that the server was started with.  A
process's key is a key like any other, and so is the name of a message or a signal: a caller
whose token is limited to prefixes reaches those that begin with one of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from starlette.responses import Response

from perkey.engine import AsyncEngine, Handle, InstanceState
from perkey.errors import Forbidden, KeyReused, NotFound, StillRunning, Timeout, UsageError
from perkey.server.calls import Call
from perkey.server.hosting import Hosted
from perkey.server.refusals import BadRequest
from perkey.server.replaying import require_key
from perkey.server.replies import json_reply
from perkey.server.routes import Route
from perkey.store.keys import check_name

LOOKS = 20
"""How many times as many instances as one page has are looked at for those that it is to have."""
MAX_WAIT_S = 20
"""How long one request may wait, in seconds; ask again for longer."""
MAX_TTL_S = 30 * 86_400.0
"""How long a message may wait for somebody who wants it, in seconds."""
DEFAULT, MOST = 100, 1000
"""How many instances one request looks at."""
STATES = [each.value for each in InstanceState]


class Launch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an instance is started with."""

    version: int | None = None
    """Null: the latest."""
    variables: dict[str, Any] = {}
    business_key: str = ""
    """What messages find it by, where it has no correlation key."""


class Publication(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message."""

    name: str
    payload: Any = None
    key: str | None = None
    """Whose it is, by the instance's address; null: as the process reads it from the payload."""
    message_id: str | None = None
    """Makes a redelivery harmless, over all engines of the store."""
    ttl: float = 0.0
    """How long it waits for somebody who wants it, in seconds."""


class Broadcast(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A signal."""

    name: str
    payload: Any = None


def _hosted(call: Call) -> Hosted:
    hosted = call.services.hosted
    if hosted is None:
        raise NotFound("this server runs no engine; start it with perkey serve --engine FILE")
    return hosted


def _engine(call: Call) -> AsyncEngine:
    return _hosted(call).engine


def _process(call: Call) -> str:
    key = call.params["process"]
    call.caller.need_key(key)
    return key


async def _instance(call: Call) -> Handle:
    """The instance in the path, once the caller may touch its process."""
    found = await _engine(call).look_up(call.params["instance"])
    call.caller.need_key(found.key)
    return found


def _facts(handle: Handle) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "id": handle.id,
        "process": handle.key,
        "version": handle.version,
        "state": handle.state.value,
        "address": handle.address,
        "business_key": handle.business_key,
        "variables": handle.variables,
        "waiting_for": handle.waiting_for,
    }
    if handle.state is InstanceState.COMPLETED:
        facts["result"] = handle.result()
    if handle.error:
        facts["error"] = handle.error
    return facts


# --------------------------------------------------------------------------- the engine


def _standing(call: Call) -> Response:
    engine = _engine(call)
    counted = Counter(each.state.value for each in engine.instances())
    return json_reply(
        {
            "id": engine.id,
            "state": engine.state.value,
            "draining": engine.draining,
            "durable": engine.durable,
            "processes": len(engine.keys()),
            "instances": {state: counted[state] for state in STATES},
            "dead_letters": len(engine.dead_letters()),
        }
    )


async def show(call: Call) -> Response:
    """What this server's engine is doing, and how many instances it knows in each state."""
    return _standing(call)


def _whole_engine(call: Call) -> None:
    if not call.caller.everywhere:
        raise Forbidden("this concerns every process, and the token is limited to prefixes")


async def pause(call: Call) -> Response:
    """Hold back starts and messages until it is resumed; running instances go on."""
    _whole_engine(call)
    await _engine(call).pause()
    return _standing(call)


async def resume(call: Call) -> Response:
    """Let what was held back happen, in order."""
    _whole_engine(call)
    await _engine(call).resume()
    return _standing(call)


async def drain(call: Call) -> Response:
    """Start nothing more, and stop the engine once its instances have ended; 202 until then."""
    _whole_engine(call)
    hosted = _hosted(call)
    await _in_time(call, hosted.drain(call.whole("wait", 0, 0, MAX_WAIT_S)))
    answer = _standing(call)
    answer.status_code = 202 if hosted.engine.state.value != "stopped" else 200
    return answer


# -------------------------------------------------------------------------- definitions


def _definition(engine: AsyncEngine, key: str) -> dict[str, Any]:
    versions = engine.registrations(key)
    return {
        "process": key,
        "latest": versions[-1].version,
        "versions": [{"version": each.version, "digest": each.digest} for each in versions],
        "starts": [each.trigger for each in engine.starters() if each.key == key],
    }


async def list_processes(call: Call) -> Response:
    """The processes that are registered, with their versions and what starts the latest."""
    engine = _engine(call)
    keys = filter(call.caller.covers, engine.keys())
    return json_reply({"processes": [_definition(engine, key) for key in keys]})


async def show_process(call: Call) -> Response:
    """One process, with its versions and what starts the latest."""
    engine, key = _engine(call), _process(call)
    if not engine.registrations(key):
        raise NotFound(f"no process is registered as {key!r:.80}", key=key)
    return json_reply(_definition(engine, key))


# ------------------------------------------------------------------ starts and messages


async def start(call: Call) -> Response:
    """Start an instance; with an Idempotency-Key once, over all engines of the store."""
    engine, key = _engine(call), _process(call)
    asked = call.decode(Launch)
    if asked.business_key:
        check_name(asked.business_key)
    once = None
    if call.headers("idempotency-key"):
        given = require_key(call)
        once = f"{call.caller.name}/{given}" if call.caller.name else given
    variables, business = asked.variables, asked.business_key
    if asked.version is None:
        handle = await engine.start_latest(
            key, variables=variables, business_key=business, idempotency_key=once
        )
    else:
        handle = await engine.start_version(
            key, asked.version, variables=variables, business_key=business, idempotency_key=once
        )
    return _started(handle, asked)


def _started(handle: Handle, asked: Launch) -> Response:
    """The same answer to the first request and to every repetition of it."""
    headers = {"location": "/v1/engine/instances/" + quote(handle.id, safe="")}
    if handle.replayed:
        same = (asked.variables, asked.business_key, asked.version or handle.version)
        if same != (handle.variables, handle.business_key, handle.version):
            raise KeyReused("this Idempotency-Key started an instance with something else")
        headers["idempotent-replayed"] = "true"
    facts = {"id": handle.id, "process": handle.key, "version": handle.version}
    return json_reply(facts, 201, headers)


async def publish(call: Call) -> Response:
    """Send a message: to the live instance of its key, else it starts one, or waits."""
    sent = call.decode(Publication)
    call.caller.need_key(sent.name)
    if not 0 <= sent.ttl <= MAX_TTL_S:
        raise UsageError(f"expected a ttl from 0 to {MAX_TTL_S:g} seconds, found {sent.ttl!r:.40}")
    if sent.message_id is not None:
        check_name(sent.message_id)
    done = await _engine(call).publish(
        sent.name, sent.payload, key=sent.key, message_id=sent.message_id, ttl=sent.ttl
    )
    return json_reply({"outcome": done.outcome, "instance": done.instance})


async def signal(call: Call) -> Response:
    """Start one instance in every process that declares this signal."""
    sent = call.decode(Broadcast)
    call.caller.need_key(sent.name)
    started = await _engine(call).signal(sent.name, sent.payload)
    return json_reply({"started": [each.id for each in started]})


# ---------------------------------------------------------------------------- instances


async def list_instances(call: Call) -> Response:
    """Instances of all engines on this store, in the order of their records."""
    engine = _engine(call)
    process, state = call.text("process"), call.text("state")
    if state and state not in STATES:
        raise BadRequest(f"expected ?state= of {', '.join(STATES)}, found {state!r:.40}")
    limit = call.whole("limit", DEFAULT, 1, MOST)

    def wanted(each: Handle) -> bool:
        return (
            call.caller.covers(each.key)
            and process in ("", each.key)
            and state in ("", each.state.value)
        )

    found, after = await look_through(engine, wanted, call.text("after"), limit)
    listed = {"instances": [_facts(each) for each in found]}
    if after is None:
        return json_reply(listed)
    link = f"?{urlencode({**call.query, 'after': after}, quote_via=quote)}"
    return json_reply(listed | {"next": after}, headers={"link": f'<{link}>; rel="next"'})


async def look_through(
    engine: AsyncEngine, wanted: Callable[[Handle], bool], after: str, limit: int
) -> tuple[list[Handle], str | None]:
    """Up to ``limit`` of those wanted, and where to go on; None where there are no more.

    Short of ``limit`` where few are wanted, after looking at ``LOOKS`` times as many.
    """
    found: list[Handle] = []
    for _ in range(LOOKS):
        seen = await engine.look_through(after=after, limit=limit)
        for each in seen:
            after = each.id
            if wanted(each):
                found.append(each)
                if len(found) == limit:
                    return found, after
        if len(seen) < limit:
            return found, None
    return found, after


async def show_instance(call: Call) -> Response:
    """How an instance stands, and its result; with wait, once it has ended or time is up."""
    handle = await _instance(call)
    wait = call.whole("wait", 0, 0, MAX_WAIT_S)
    if wait and not handle.state.ended:
        await _in_time(call, _until_ended(handle, wait))
    return json_reply(_facts(handle))


async def _until_ended(handle: Handle, wait: float) -> None:
    try:
        await handle.wait(wait)
    except Timeout:
        pass  # the answer says how it stands


async def _in_time(call: Call, waiting: Any) -> None:
    """Wait, but not for longer than the server runs: its end waits for nobody."""
    task = asyncio.ensure_future(waiting)
    stopping = asyncio.ensure_future(call.services.stopping.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        task.cancel()
        stopping.cancel()


async def steps(call: Call) -> Response:
    """The finished steps of an instance and what they returned."""
    return json_reply({"steps": (await _instance(call)).steps()})


async def cancel(call: Call) -> Response:
    """Ask an instance to stop; 202 where it has not yet."""
    handle = await _instance(call)
    wait = call.whole("wait", 1, 0, MAX_WAIT_S)
    if not handle.state.ended:
        with suppress(StillRunning):
            await _in_time(call, handle.cancel(wait))
    return json_reply(_facts(handle), 200 if handle.state.ended else 202)


_ENGINE = "/v1/engine"
_ONE = f"{_ENGINE}/instances/{{instance}}"
_LISTED = ("process", "state", "after", "limit")

ROUTES = [
    Route("GET", _ENGINE, show),
    Route("GET", f"{_ENGINE}/processes", list_processes),
    Route("GET", f"{_ENGINE}/processes/{{process}}", show_process),
    Route("POST", f"{_ENGINE}/processes/{{process}}/start", start, "write", takes=Launch,
          keeps_key=True),
    Route("POST", f"{_ENGINE}/publish", publish, "write", takes=Publication, replayable=True),
    Route("POST", f"{_ENGINE}/signal", signal, "write", takes=Broadcast, replayable=True),
    Route("GET", f"{_ENGINE}/instances", list_instances, query=_LISTED),
    Route("GET", _ONE, show_instance, query=("wait",)),
    Route("GET", f"{_ONE}/steps", steps),
    Route("POST", f"{_ONE}/cancel", cancel, "write", query=("wait",)),
    Route("POST", f"{_ENGINE}/pause", pause, "admin"),
    Route("POST", f"{_ENGINE}/resume", resume, "admin"),
    Route("POST", f"{_ENGINE}/drain", drain, "admin", query=("wait",)),
]  # fmt: skip
