"""Locks and feeds: the leases of the store, and the queues and counters of this very process."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from starlette.responses import Response

from perkey.errors import NotSupported
from perkey.flows import steps
from perkey.server import listing
from perkey.server.calls import Call
from perkey.server.metrics import BUCKETS, Meters
from perkey.server.pages import commands, render
from perkey.server.routes import Route
from perkey.store.fencing import lease_state
from perkey.store.keys import LEASES
from perkey.store.record import Record

LEASES_LOOKED_AT = 500
SHOWN = 50


@dataclass(frozen=True, slots=True)
class Held:
    """A lease that somebody has."""

    key: str
    holder: str
    token: int
    left_ms: int
    since: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """One route's requests."""

    path: str
    count: int
    refused: int
    failed: int
    mean_ms: float
    slow_ms: float | None
    """99 of 100 took at most that long; None: longer than the last bound."""


async def process(call: Call) -> Response:
    """Leases that are held, in-process locks, the event feed, the committer, and the routes."""
    services = call.services
    held, now, more = await services.store.run(_leases())
    mine = [each for each in _held(held, now) if call.caller.covers(each.key)]
    feed = services.feed
    await feed.catch_up()
    return render.page(
        call,
        "process.html",
        here="process",
        leases=mine[:SHOWN],
        more=more or len(mine) > SHOWN,
        locks=_locks(call),
        feed={
            "streams": feed.streams - services.watching,
            "pages": services.watching,
            "limit": services.settings.event_clients,
            "seen": feed.seen,
            "kept": len(feed.latest()),
        },
        store=services.store.statistics(),
        traffic=traffic(services.meters)[:SHOWN],
        commands=[
            commands.curl(call, "All counters, for Prometheus", "/metrics"),
            commands.curl(call, "The event feed", "/v1/events", "-N"),
        ],
    )


def _leases() -> steps.Flow[tuple[list[Record], int, bool]]:
    now: int = yield steps.Now()
    found, more = yield from listing.scan("", "", LEASES_LOOKED_AT, LEASES)
    return found, now, more


def _held(records: list[Record], now: int) -> list[Held]:
    found = []
    for record in records:
        state = lease_state(record)
        if state is not None and now < state.expires:
            left = state.expires - now
            found.append(Held(record.key[2:], state.holder, state.token, left, record.at))
    return found


def _locks(call: Call) -> list[tuple[str, str, dict[str, Any]]]:
    """(name, kind, counters) of the locks that the application named to its server."""
    found = []
    for name, lock in sorted(call.services.locks.items()):
        try:
            counters = asdict(lock.statistics())
        except NotSupported:
            counters = {}
        found.append((name, type(lock).__name__, counters))
    return found


def traffic(meters: Meters) -> list[Traffic]:
    """The requests by route, the busiest first."""
    found = []
    for path, row in meters.buckets.items():
        total = sum(row)
        statuses = {s: n for (_, each, s), n in meters.requests.items() if each == path}
        refused = sum(n for status, n in statuses.items() if 400 <= status < 500)
        failed = sum(n for status, n in statuses.items() if status >= 500)
        mean = meters.seconds[path] / total * 1000
        found.append(Traffic(path, total, refused, failed, mean, _slow(row, total)))
    return sorted(found, key=lambda each: (-each.count, each.path))


def _slow(row: list[int], total: int) -> float | None:
    passed = 0
    for bound, number in zip(BUCKETS, row, strict=False):
        passed += number
        if passed * 100 >= total * 99:
            return bound * 1000
    return None


ROUTES = [Route("GET", "/ui/process", process, page=True)]
