"""The table of paths, and finding a request in it.

A key is any text, so a path is cut at its slashes *before* it is percent-decoded: ``%2F`` and
``..`` inside a segment are part of the key and never of the path.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.responses import Response

from perkey.server.calls import Call, decoded
from perkey.server.refusals import MethodNotAllowed, NoSuchPath

Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path."""

    method: str
    path: str
    """``/v1/documents/{key}/history``; a name in braces takes one segment."""
    handler: Handler
    role: str | None = "read"
    """What the caller must be; None: anybody, without a token too."""
    query: tuple[str, ...] = ()
    """The query parameters it knows; any other is refused."""
    takes: type[msgspec.Struct] | None = None
    """What its JSON body is decoded as."""
    media: Mapping[str, Any] = field(default_factory=dict)
    """Where its body is something else: media types, each with a JSON schema."""
    conditional: bool = False
    """Whether it looks at ``If-Match`` and ``If-None-Match``."""
    keyed: bool = False
    """Whether it needs an ``Idempotency-Key``, and keeps it with what it does."""
    keeps_key: bool = False
    """Whether an ``Idempotency-Key``, where one is sent, is kept with what it does."""
    replayable: bool = False
    """Whether an ``Idempotency-Key`` makes its whole answer be kept and replayed."""
    page: bool = False
    """Whether it is for people: a cookie tells who they are, and refusals are pages too."""

    @property
    def segments(self) -> list[str]:
        """The path cut at its slashes."""
        return self.path[1:].split("/")


class Table:
    """All routes, found by their number of segments and the first two of them."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)
        self._by_shape: dict[tuple[int, bytes, bytes], list[Route]] = {}
        self._names: dict[str, list[tuple[int, str]]] = {}
        """Path -> which of its segments are variable, and what they are called."""
        self._fixed: dict[str, list[tuple[int, bytes]]] = {}
        """Path -> which of its segments must be what."""
        for route in routes:
            first, second = (*route.segments, "")[:2]
            shape = (len(route.segments), first.encode(), b"" if "{" in second else second.encode())
            self._by_shape.setdefault(shape, []).append(route)
            numbered = [*enumerate(route.segments)]
            named = [(n, text[1:-1]) for n, text in numbered if text.startswith("{")]
            fixed = [(n, text.encode()) for n, text in numbered if not text.startswith("{")]
            self._names[route.path], self._fixed[route.path] = named, fixed

    def find(self, method: str, raw_path: bytes) -> tuple[Route, dict[str, str]]:
        """The route and its variable segments, decoded; ``HEAD`` is served by ``GET``."""
        segments = raw_path[1:].split(b"/")
        first, second = (*segments, b"")[:2]
        near = self._by_shape.get((len(segments), first, second), [])
        if len(segments) == 2:
            near = [*near, *self._by_shape.get((2, first, b""), [])]
        matches = [route for route in near if self._fits(route, segments)]
        if not matches:
            raise NoSuchPath(f"there is no path {raw_path.decode('latin-1')!r:.200} on this server")
        # A literal path wins over one with a name in braces.
        if len({route.path for route in matches}) > 1:
            fewest = min(len(self._names[route.path]) for route in matches)
            matches = [route for route in matches if len(self._names[route.path]) == fewest]
        wanted = "GET" if method == "HEAD" else method
        for route in matches:
            if route.method == wanted:
                return route, {name: decoded(segments[n]) for n, name in self._names[route.path]}
        methods = sorted({route.method for route in matches} | {"OPTIONS"})
        allow = ", ".join([*methods, "HEAD"] if "GET" in methods else methods)
        raise MethodNotAllowed(f"this path knows {allow}, found {method:.20}", allow=allow)

    def _fits(self, route: Route, segments: Sequence[bytes]) -> bool:
        return all(segments[n] == text for n, text in self._fixed[route.path])
