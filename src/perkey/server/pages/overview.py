"""The first page: what happens in the store now, which keys are hot, and whether all is well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response

from perkey.server.calls import Call
from perkey.server.pages import commands, render
from perkey.server.replies import json_reply
from perkey.server.routes import Route
from perkey.store.keys import DOCUMENTS
from perkey.store.record import Record

HOT = 8
RECENT = 12
WINDOW_MS = 5 * 60 * 1000
"""How far back a key counts as hot."""


@dataclass(slots=True)
class Heat:
    """One key of late."""

    key: str
    document: bool
    versions: int = 0
    stale: int = 0
    authors: set[str] = field(default_factory=set)


def hot(records: Iterable[Record], since: int) -> list[Heat]:
    """The keys with the most versions since a moment, hottest first."""
    found: dict[str, Heat] = {}
    for record in records:
        if record.at < since:
            continue
        heat = found.setdefault(record.key, Heat(record.key[2:], record.key.startswith(DOCUMENTS)))
        heat.versions += 1
        heat.stale += is_stale(record)
        heat.authors.add(record.by)
    return sorted(found.values(), key=lambda each: (-each.versions, each.key))[:HOT]


def is_stale(record: Record) -> bool:
    """Whether this version was put over others that its author had not read."""
    return record.base < record.version - 1


async def front(call: Call) -> Response:
    """From the bare address, or one with a slash too many, to the first page."""
    return render.redirect(render.link(call))


async def overview(call: Call) -> Response:
    """Commits, conflicts, retries and merges live; hot keys; the latest changes; health."""
    services = call.services
    await services.feed.catch_up()
    mine = [each for each in services.feed.latest() if call.caller.covers(each.key[2:])]
    now = services.clock.now_ms()
    return render.page(
        call,
        "overview.html",
        here="overview",
        totals=services.pulse.now(),
        hot=hot(mine, now - WINDOW_MS),
        recent=mine[:RECENT],
        is_stale=is_stale,
        rates=_rates(call),
        health=await _health(call),
        export=commands.export(call),
        commands=[
            commands.curl(call, "The same figures for Prometheus", "/metrics"),
            commands.curl(call, "Every change as it comes", "/v1/events", "-N"),
        ],
    )


def _rates(call: Call) -> list[tuple[str, float]]:
    """Conflict rates by first part of the key; only for who may see every key."""
    if not call.caller.everywhere:
        return []
    found: dict[str, float] = call.services.store.statistics()["conflict_rate"]
    ranked = sorted(found.items(), key=lambda each: (-each[1], each[0]))
    return [each for each in ranked if each[1] > 0][:HOT]


async def _health(call: Call) -> dict[str, Any]:
    """Whether the server is ready, how fast its store answers, and what went wrong so far."""
    services = call.services
    began = services.clock.monotonic()
    await services.store.now_ms()
    found = services.store.statistics()
    statuses: Counter[int] = Counter()
    for (_, _, status), number in services.meters.requests.items():
        statuses[status // 100] += number
    return {
        "ready": services.ready,
        "backend": found["backend"],
        "durability": services.store.core.backend.durability,
        "answer_ms": (services.clock.monotonic() - began) * 1000,
        "waiting": found["waiting"],
        "largest_batch": found["largest_batch"],
        "streams": services.feed.streams - services.watching,
        "requests": sum(statuses.values()),
        "failed": statuses[5],
        "refused": statuses[4],
        "since": services.pulse.began,
    }


async def live(call: Call) -> Response:
    """The samples behind ``?after=``, a moment in milliseconds, for the charts."""
    return json_reply(call.services.pulse.after(call.whole("after", 0)))


ROUTES = [
    Route("GET", "/", front, None, page=True),
    Route("GET", "/ui/", front, None, page=True),
    Route("GET", "/ui", overview, page=True),
    Route("GET", "/ui/live", live, query=("after",), page=True),
]
