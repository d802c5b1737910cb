"""The engine of this server: definitions, instances, and its state with buttons that ask first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from perkey.engine import AsyncEngine, Handle, InstanceState
from perkey.engine.definitions import spoken
from perkey.errors import Forbidden, NotFound, StillRunning
from perkey.server.calls import Call
from perkey.server.pages import commands, render, session
from perkey.server.pages.tree import printed, quoted
from perkey.server.processes import look_through
from perkey.server.refusals import BadRequest
from perkey.server.routes import Route

PAGE = 50
LATEST = 20
"""How many are shown before a list that has further pages."""
CANCEL_S = 1.0
TEXT_CHARS = 300


def _engine(call: Call) -> AsyncEngine | None:
    hosted = call.services.hosted
    return None if hosted is None else hosted.engine


def _needed(call: Call) -> AsyncEngine:
    engine = _engine(call)
    if engine is None:
        raise NotFound("this server runs no engine; start it with perkey serve --engine FILE")
    return engine


async def show(call: Call) -> Response:
    """The engine's state, its definitions, and its instances: what runs and the newest first.

    The store has no such order: of many, it is that of the instances this server knows.
    """
    engine = _engine(call)
    shell = [
        commands.curl(call, "How the engine stands", "/v1/engine"),
        commands.curl(call, "Its instances", "/v1/engine/instances"),
    ]
    if engine is None:
        return render.page(call, "engine.html", here="engine", engine=None, commands=shell)
    after, known = call.text("after"), list(filter(_covered(call), engine.instances()))[::-1]
    mine, following = await look_through(engine, _covered(call), after, PAGE)
    latest: list[Handle] = []
    if following and not after:
        latest = known[:LATEST]
    elif not after:
        place = {each.id: at for at, each in enumerate(known)}
        mine.sort(key=lambda each: place.get(each.id, len(place)))
    return render.page(
        call,
        "engine.html",
        here="engine",
        engine=engine,
        actions=_actions(call, engine),
        counts=Counter(each.state.value for each in known),
        definitions=_definitions(call, engine),
        latest=latest,
        instances=mine,
        next=following or "",
        after=after,
        commands=shell,
    )


def _covered(call: Call) -> Callable[[Handle], bool]:
    return lambda each: call.caller.covers(each.key)


ABOUT = {
    "pause": "Starts, messages and registrations are held back until it is resumed. "
    "Running instances go on.",
    "resume": "What was held back happens now, in order.",
    "drain": "Nothing more is started. When the running instances have ended, the engine stops, "
    "and only a restart of the server begins another.",
}


def _actions(call: Call, engine: AsyncEngine) -> dict[str, str]:
    """What may be asked of the engine now, by this caller, and what each does."""
    if call.caller.role != "admin" or not call.caller.everywhere or engine.draining:
        return {}
    names = {"started": ("pause", "drain"), "paused": ("resume", "drain")}
    return {name: ABOUT[name] for name in names.get(engine.state.value, ())}


def _definitions(call: Call, engine: AsyncEngine) -> list[dict[str, Any]]:
    starts: dict[str, list[str]] = {}
    for each in engine.starters():
        starts.setdefault(each.key, []).append(spoken(str(each.trigger)))
    return [
        {"key": key, "versions": engine.registrations(key)[::-1], "starts": starts.get(key, [])}
        for key in filter(call.caller.covers, engine.keys())
    ]


async def act(call: Call) -> Response:
    """Pause, resume or drain the engine."""
    engine, name = _needed(call), session.form(call).get("action", "")
    if not call.caller.everywhere:
        raise Forbidden("this concerns every process, and the token is limited to prefixes")
    hosted = call.services.hosted
    assert hosted is not None
    if name == "pause":
        await engine.pause()
    elif name == "resume":
        await engine.resume()
    elif name == "drain":
        await hosted.drain(0)
    else:
        raise BadRequest(f"expected pause, resume or drain, found {name!r:.40}")
    return render.redirect(render.link(call, "/engine"))


# ----------------------------------------------------------------------------- an instance


async def _instance(call: Call, given: str) -> Handle:
    found = await _needed(call).look_up(given)
    call.caller.need_key(found.key)
    return found


async def instance(call: Call) -> Response:
    """One instance: its steps, what it waits for, its variables."""
    handle = await _instance(call, call.text("id"))
    path = f"/v1/engine/instances/{commands.segment(handle.id)}"
    may_cancel = not handle.state.ended and call.caller.role != "read"
    cancel = [commands.curl(call, "Cancel it", f"{path}/cancel", "-X POST")] if may_cancel else []
    return render.page(
        call,
        "instance.html",
        here="engine",
        handle=handle,
        steps=[_step(name, value) for name, value in handle.steps().items()],
        now=await call.services.store.now_ms(),
        variables=list(printed(handle.variables)),
        result=_short(handle.result()) if handle.state is InstanceState.COMPLETED else "",
        may_cancel=may_cancel,
        commands=[
            commands.curl(call, "How it stands", path),
            commands.curl(call, "Its finished steps", f"{path}/steps"),
            *cancel,
        ],
    )


def _step(name: str, value: Any) -> tuple[str, str, int | None]:
    """(name, what it returned, when it is due): a sleep keeps the moment of its end."""
    if name.startswith("sleep:") and isinstance(value, int):
        return f"timer {name.removeprefix('sleep:')}", "", value
    return name, _short(value), None


def _short(value: Any) -> str:
    text = quoted(value)
    return text if len(text) <= TEXT_CHARS else text[:TEXT_CHARS] + "…"


async def cancel(call: Call) -> Response:
    """Ask an instance to stop."""
    handle = await _instance(call, session.form(call).get("id", ""))
    try:
        if not handle.state.ended:
            await handle.cancel(CANCEL_S)
    except StillRunning:
        pass  # the page says how it stands
    return render.redirect(render.link(call, "/instance", id=handle.id))


ROUTES = [
    Route("GET", "/ui/engine", show, query=("after",), page=True),
    Route("POST", "/ui/engine", act, "admin", page=True),
    Route("GET", "/ui/instance", instance, query=("id",), page=True),
    Route("POST", "/ui/instance", cancel, "write", page=True),
]
