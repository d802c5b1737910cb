"""``/metrics`` in the text format of Prometheus; a key is never a label."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Any

from starlette.responses import Response

from perkey.server.calls import Call
from perkey.server.routes import Route

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds of a request's duration, in seconds."""
MEDIA = "text/plain; version=0.0.4; charset=utf-8"


class Meters:
    """Counts of one server's requests, by the route's template."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        """By method, path template and status."""
        self.buckets: dict[str, list[int]] = {}
        self.seconds: Counter[str] = Counter()

    def count(self, method: str, path: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self.requests[method, path, status] += 1
        row = self.buckets.get(path)
        if row is None:
            row = self.buckets[path] = [0] * (len(BUCKETS) + 1)
        row[bisect_left(BUCKETS, seconds)] += 1
        self.seconds[path] += seconds  # type: ignore[assignment]  # a Counter of floats


async def metrics(call: Call) -> Response:
    """Counters of the store and of this server."""
    lines = [*_store(call), *_requests(call.services.meters)]
    text = "\n".join(lines) + "\n"
    return Response(text, headers={"cache-control": "no-store"}, media_type=MEDIA)


def _store(call: Call) -> Iterator[str]:
    found = call.services.store.statistics()
    yield from _metric("perkey_commits_total", "counter", "Commits of the store.")
    yield f"perkey_commits_total {found['commits']}"
    yield from _metric("perkey_waiting", "gauge", "Transactions that wait for a commit.")
    yield f"perkey_waiting {found['waiting']}"
    yield from _metric("perkey_events_total", "counter", "What happened, by kind of event.")
    for name, count in sorted(found["events"].items()):
        yield f"perkey_events_total{_labels(event=name)} {count}"
    yield from _metric("perkey_event_streams", "gauge", "Event streams that are open.")
    yield f"perkey_event_streams {call.services.feed.streams}"
    yield from _metric("perkey_waiting_claims", "gauge", "Claims that wait for a task.")
    yield f"perkey_waiting_claims {call.services.claiming}"


def _requests(meters: Meters) -> Iterator[str]:
    name = "perkey_http_requests_total"
    yield from _metric(name, "counter", "Requests answered, by route and status.")
    for (method, path, status), count in sorted(meters.requests.items()):
        yield f"{name}{_labels(method=method, path=path, status=status)} {count}"
    name = "perkey_http_request_seconds"
    yield from _metric(name, "histogram", "How long requests took, by route.")
    for path, row in sorted(meters.buckets.items()):
        total = 0
        for bound, count in zip((*BUCKETS, "+Inf"), row, strict=True):
            total += count
            yield f"{name}_bucket{_labels(path=path, le=bound)} {total}"
        yield f"{name}_sum{_labels(path=path)} {meters.seconds[path]:.6f}"
        yield f"{name}_count{_labels(path=path)} {total}"


def _metric(name: str, kind: str, about: str) -> tuple[str, str]:
    return f"# HELP {name} {about}", f"# TYPE {name} {kind}"


def _labels(**labels: Any) -> str:
    inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return "{" + inside + "}"


ROUTES = [Route("GET", "/metrics", metrics)]
