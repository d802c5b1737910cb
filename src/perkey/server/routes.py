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
        for route in routes:
            first, second = (*route.segments, "")[:2]
            shape = (len(route.segments), first.encode(), b"" if "{" in second else second.encode())
            self._by_shape.setdefault(shape, []).append(route)

    def find(self, method: str, raw_path: bytes) -> tuple[Route, dict[str, str]]:
        """The route and its variable segments, decoded; ``HEAD`` is served by ``GET``."""
        segments = raw_path[1:].split(b"/")
        first, second = (*segments, b"")[:2]
        near = self._by_shape.get((len(segments), first, second), [])
        if len(segments) == 2:
            near = [*near, *self._by_shape.get((2, first, b""), [])]
        matches = [route for route in near if _fits(route, segments)]
        if not matches:
            raise NoSuchPath(f"there is no path {raw_path.decode('latin-1')!r:.200} on this server")
        # A literal path wins over one with a name in braces.
        fewest = min(route.path.count("{") for route in matches)
        matches = [route for route in matches if route.path.count("{") == fewest]
        wanted = "GET" if method == "HEAD" else method
        for route in matches:
            if route.method == wanted:
                return route, _params(route, segments)
        methods = sorted({route.method for route in matches} | {"OPTIONS"})
        allow = ", ".join([*methods, "HEAD"] if "GET" in methods else methods)
        raise MethodNotAllowed(f"this path knows {allow}, found {method:.20}", allow=allow)


def _fits(route: Route, segments: Sequence[bytes]) -> bool:
    return all(
        name.startswith("{") or name.encode() == given
        for name, given in zip(route.segments, segments, strict=True)
    )


def _params(route: Route, segments: Sequence[bytes]) -> dict[str, str]:
    return {
        name[1:-1]: decoded(given)
        for name, given in zip(route.segments, segments, strict=True)
        if name.startswith("{")
    }
