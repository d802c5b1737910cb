"""Whether the server lives and is ready, who the caller is, and what each problem means."""

from __future__ import annotations

from starlette.responses import PlainTextResponse, Response

from perkey.errors import NotFound, StoreUnavailable, by_code
from perkey.server import problems
from perkey.server.calls import Call
from perkey.server.replies import json_reply
from perkey.server.routes import Route


async def healthz(call: Call) -> Response:
    """The process lives and its loop turns; says nothing of the store."""
    return PlainTextResponse("ok\n", headers={"cache-control": "no-store"})


async def readyz(call: Call) -> Response:
    """The store answers and the server is not stopping: send requests here."""
    if not call.services.ready:
        raise StoreUnavailable("the server is starting or stopping; use another one")
    hosted = call.services.hosted
    if hosted is not None and hosted.lost:
        raise StoreUnavailable("the engine lost its lease and stopped; start the server again")
    await call.services.store.now_ms()
    return PlainTextResponse("ready\n", headers={"cache-control": "no-store"})


async def whoami(call: Call) -> Response:
    """Who the caller is to this server."""
    caller = call.caller
    facts = {"name": caller.name, "role": caller.role, "prefixes": list(caller.prefixes)}
    return json_reply(facts)


async def list_problems(call: Call) -> Response:
    """Every kind of problem."""
    return problems.index()


async def show_problem(call: Call) -> Response:
    """What one kind of problem means."""
    kind = by_code().get(call.params["code"])
    if kind is None:
        raise NotFound(f"no problem has the code {call.params['code']!r:.60}")
    return problems.page(kind)


ROUTES = [
    Route("GET", "/healthz", healthz, None),
    Route("GET", "/readyz", readyz, None),
    Route("GET", "/problems", list_problems, None),
    Route("GET", "/problems/{code}", show_problem, None),
    Route("GET", "/v1/whoami", whoami),
]
