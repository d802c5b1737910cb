"""OpenTelemetry spans for requests, by the route's template; a path would hold keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.types import Scope

from perkey.drivers.spans import SCOPE, api

PARENTS = (b"traceparent", b"tracestate")
"""The headers that say which span a request belongs to (W3C Trace Context)."""


class RequestSpans:
    """One server's; ``provider``: None takes the program's own."""

    def __init__(self, provider: Any = None) -> None:
        self._trace = api()
        self._tracer = self._trace.get_tracer(SCOPE, tracer_provider=provider)

    @contextmanager
    def request(self, scope: Scope) -> Iterator[None]:
        """The current span while a request is worked on, a child of its caller's."""
        from opentelemetry import propagate

        headers: list[tuple[bytes, bytes]] = scope["headers"]
        carrier = {n.decode(): v.decode("latin-1") for n, v in headers if n in PARENTS}
        with self._tracer.start_as_current_span(
            "HTTP",
            context=propagate.extract(carrier) if carrier else None,
            kind=self._trace.SpanKind.SERVER,
            record_exception=False,  # its message may hold a key
        ):
            yield

    def answered(self, method: str, path: str, status: int) -> None:
        """Say in the current span what was asked for, and what became of it."""
        span = self._trace.get_current_span()
        span.update_name(f"{method} {path}" if path != "(none)" else "HTTP")
        span.set_attribute("http.request.method", method)
        span.set_attribute("http.route", path)
        span.set_attribute("http.response.status_code", status)
        if status >= 500:
            span.set_status(self._trace.StatusCode.ERROR)
