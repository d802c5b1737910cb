"""Whether the server lives and is ready, who the caller is, and what each problem means."""

from __future__ import annotations

from starlette.responses import PlainTextResponse, Response

from perkey.errors import StoreUnavailable
from perkey.server.calls import Call
from perkey.server.pages import kinds
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


ROUTES = [
    Route("GET", "/healthz", healthz, None),
    Route("GET", "/readyz", readyz, None),
    Route("GET", "/problems", kinds.listed, None),
    Route("GET", "/problems/{code}", kinds.shown, None),
    Route("GET", "/v1/whoami", whoami),
]
