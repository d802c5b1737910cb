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


class _Place:
    """One path of the table, and its routes by method."""

    def __init__(self, segments: Sequence[str]) -> None:
        numbered = [*enumerate(segments)]
        self.named = [(n, text[1:-1]) for n, text in numbered if text.startswith("{")]
        """Which of its segments are variable, and what they are called."""
        # The first is looked up already, as is the second where it is no variable.
        self._fixed = [(n, text.encode()) for n, text in numbered[1:] if not text.startswith("{")]
        self.routes: dict[str, Route] = {}

    def fits(self, segments: Sequence[bytes]) -> bool:
        return all(segments[n] == text for n, text in self._fixed)

    def route(self, method: str) -> Route | None:
        return self.routes.get("GET" if method == "HEAD" else method)


class Table:
    """All routes, found by their number of segments and the first two of them."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)
        self._by_shape: dict[tuple[int, bytes, bytes], list[_Place]] = {}
        places: dict[str, _Place] = {}
        for route in routes:
            if route.path not in places:
                place = places[route.path] = _Place(route.segments)
                first, second = (*route.segments, "")[:2]
                fixed = b"" if "{" in second else second.encode()
                shape = (len(route.segments), first.encode(), fixed)
                self._by_shape.setdefault(shape, []).append(place)
            places[route.path].routes[route.method] = route
        for near in self._by_shape.values():
            # A literal path wins over one with a name in braces.
            near.sort(key=lambda place: len(place.named))

    def find(self, method: str, raw_path: bytes) -> tuple[Route, dict[str, str]]:
        """The route and its variable segments, decoded; ``HEAD`` is served by ``GET``."""
        segments = raw_path[1:].split(b"/")
        place = self._place(segments)
        if place is None:
            raise NoSuchPath(f"there is no path {raw_path.decode('latin-1')!r:.200} on this server")
        route = place.route(method)
        if route is not None:
            return route, {name: decoded(segments[n]) for n, name in place.named}
        methods = sorted({*place.routes, "OPTIONS"})
        allow = ", ".join([*methods, "HEAD"] if "GET" in methods else methods)
        raise MethodNotAllowed(f"this path knows {allow}, found {method:.20}", allow=allow)

    def _place(self, segments: Sequence[bytes]) -> _Place | None:
        count, first = len(segments), segments[0]
        second = segments[1] if count > 1 else b""
        for shape in ((count, first, second), (count, first, b"")):
            for place in self._by_shape.get(shape, ()):
                if place.fits(segments):
                    return place
        return None
