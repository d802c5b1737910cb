"""Finding a request among the routes: literal segments first, and a key is any text."""

from __future__ import annotations

import pytest

from perkey.server import pages
from perkey.server.app import routes
from perkey.server.calls import Call
from perkey.server.refusals import MethodNotAllowed, NoSuchPath
from perkey.server.routes import Route, Table


async def handler(call: Call) -> None:
    """Never called."""


def table(*paths: str) -> Table:
    return Table([Route(*path.split(" "), handler) for path in paths])  # type: ignore[arg-type, call-arg]  # method and path


FEW = table(
    "GET /", "GET /a", "GET /a/{x}", "PUT /a/{x}", "GET /a/b", "GET /a/{x}/c/{y}",
    "GET /a/{x}/c/d", "DELETE /a/b/c/d", "GET /a/b/{x}",
)  # fmt: skip


@pytest.mark.parametrize(
    ("method", "raw", "path", "named"),
    [
        ("GET", b"/", "/", {}),
        ("GET", b"/a", "/a", {}),
        ("GET", b"/a/b", "/a/b", {}),
        ("HEAD", b"/a/b", "/a/b", {}),
        ("GET", b"/a/c", "/a/{x}", {"x": "c"}),
        ("GET", b"/a/", "/a/{x}", {"x": ""}),
        ("GET", b"/a/%2F..%20", "/a/{x}", {"x": "/.. "}),
        ("PUT", b"/a/c", "/a/{x}", {"x": "c"}),
        ("GET", b"/a/x/c/y", "/a/{x}/c/{y}", {"x": "x", "y": "y"}),
        ("GET", b"/a/x/c/d", "/a/{x}/c/d", {"x": "x"}),
        ("DELETE", b"/a/b/c/d", "/a/b/c/d", {}),
        ("GET", b"/a/b/%C3%A9", "/a/b/{x}", {"x": "é"}),
    ],
)
def test_what_is_found(method: str, raw: bytes, path: str, named: dict[str, str]) -> None:
    route, params = FEW.find(method, raw)
    assert (route.path, params) == (path, named)


@pytest.mark.parametrize("raw", [b"/b/c", b"/a/x/d/y", b"//", b"/a/b/c/d/e", b"/a/x/c"])
def test_what_is_nowhere(raw: bytes) -> None:
    with pytest.raises(NoSuchPath):
        FEW.find("GET", raw)


def test_a_literal_path_wins_also_where_it_lacks_the_method() -> None:
    for raw, allow in ((b"/a/b", "GET, OPTIONS, HEAD"), (b"/a/b/c/d", "DELETE, OPTIONS")):
        with pytest.raises(MethodNotAllowed) as refused:
            FEW.find("PATCH", raw)
        assert refused.value.allow == allow


def test_every_route_of_the_server_is_found_by_its_own_path() -> None:
    every = [*routes(), *pages.ROUTES]
    whole = Table(every)
    for route in every:
        raw = "/".join("~" if "{" in each else each for each in route.path.split("/")).encode()
        assert whole.find(route.method, raw)[0] is route
