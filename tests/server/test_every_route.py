"""What must hold for every route that there is or will be: nobody unknown, nobody too small, no
name that was made to point here, no page of another site, and nobody's token in the log."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from perkey import AsyncStore
from perkey.server import identity, pages
from perkey.server.app import application, routes
from perkey.server.hosting import Processes
from perkey.server.routes import Route
from perkey.server.settings import Settings
from tests.server import hosted
from tests.server.client import Answer, Client

GUARDED = [route for route in routes() if route.role is not None]
WRITES = [route for route in GUARDED if route.method != "GET"]
FOR_WRITERS = [route for route in GUARDED if route.role != "read"]
FOR_ADMINS = [route for route in GUARDED if route.role == "admin"]
KEYED = [route for route in GUARDED if "{" in route.path]
FOREIGN = "somebody-elses"
"""What the prefixes of the limited callers do not cover."""


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


class Callers:
    """A server, and one caller of each kind."""

    def __init__(self, store: AsyncStore, path: Path) -> None:
        made = {
            "reader": identity.make("reader", "read", [""]),
            "writer": identity.make("writer", "write", [""]),
            "limited": identity.make("limited", "admin", ["mine/"]),
            "boss": identity.make("boss", "admin", [""]),
        }
        path.write_text("\n".join(entry for _, entry in made.values()))
        settings = Settings(host="0.0.0.0", tokens=str(path), hosts=("localhost",))
        self.app = application(store, settings, processes=Processes(hosted.ALL[:1]))
        self.anybody = Client(self.app)
        self.tokens = {name: token for name, (token, _) in made.items()}

    def of(self, name: str) -> Client:
        return self.anybody.as_(self.tokens[name])


@pytest.fixture
async def callers(store: AsyncStore, tmp_path: Path) -> Callers:
    return Callers(store, tmp_path / "tokens.toml")


async def ask(client: Client, route: Route, **headers: str) -> Answer:
    """The route with something in each of its places."""
    path = route.path
    for segment in route.segments:
        if segment.startswith("{"):
            path = path.replace(segment, "1" if segment == "{version}" else FOREIGN)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    body = b"" if route.method == "GET" else b"{}"
    return await client.send(route.method, path, body, {"idempotency-key": "k", **given})


@pytest.mark.parametrize("route", GUARDED, ids=named)
async def test_nobody_unknown(callers: Callers, route: Route) -> None:
    (await ask(callers.anybody, route)).problem(401, "unauthorised")
    (await ask(callers.anybody.as_("pk_" + "0" * 43), route)).problem(401, "unauthorised")


@pytest.mark.parametrize("route", FOR_WRITERS, ids=named)
async def test_nobody_who_only_reads(callers: Callers, route: Route) -> None:
    (await ask(callers.of("reader"), route)).problem(403, "forbidden")


@pytest.mark.parametrize("route", FOR_ADMINS, ids=named)
async def test_nobody_who_is_no_admin(callers: Callers, route: Route) -> None:
    (await ask(callers.of("writer"), route)).problem(403, "forbidden")


@pytest.mark.parametrize("route", KEYED, ids=named)
async def test_nobody_beyond_its_prefixes(callers: Callers, route: Route) -> None:
    """Refused before anything is looked up: also of what there is not, nothing is told."""
    body = {"if_match": "*"} if route.method in ("PUT", "PATCH", "DELETE") else {}
    answer = await ask(callers.of("limited"), route, **body)
    if answer.status == 404:  # found by an id that nobody gave out, not by a key
        assert "{key}" not in route.path or route.path.startswith(("/v1/transfers", "/v1/holds"))
        assert "{run}" not in route.path
    elif answer.status in (400, 415, 422):  # what was sent was not even looked at
        assert answer.json["status"] == answer.status
    else:
        answer.problem(403, "forbidden")


@pytest.mark.parametrize("route", [*routes(), *pages.ROUTES], ids=named)
async def test_no_name_that_was_made_to_point_here(callers: Callers, route: Route) -> None:
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.nip.io", ""):
        answer = await ask(callers.of("boss"), route, host=host)
        assert answer.status == 421
        assert "set-cookie" not in dict(answer.headers)


@pytest.mark.parametrize("route", WRITES, ids=named)
async def test_no_page_of_another_site(callers: Callers, route: Route) -> None:
    for origin in ("http://evil.example", "null", "http://localhost.x", "http://127.0.0.1:1"):
        (await ask(callers.of("boss"), route, origin=origin)).problem(403, "cross-origin")
    for site in ("cross-site", "same-site"):
        (await ask(callers.of("boss"), route, sec_fetch_site=site)).problem(403, "cross-origin")


@pytest.mark.parametrize("route", GUARDED, ids=named)
async def test_no_other_site_may_read_the_answer(callers: Callers, route: Route) -> None:
    if route.path == "/v1/events":
        return  # a stream; its head is tested with the others, below
    answer = await ask(callers.of("reader"), route, origin="http://localhost")
    names = {name for name, _ in answer.headers}
    assert not any(name.startswith("access-control-") for name in names)
    assert {"x-content-type-options", "content-security-policy"} <= names


async def test_a_stream_is_as_careful(callers: Callers) -> None:
    answer = await callers.of("reader").send("HEAD", "/v1/events", headers={"origin": "http://x"})
    names = {name for name, _ in answer.headers}
    assert answer.status == 200
    assert not any(name.startswith("access-control-") for name in names)
    assert "x-content-type-options" in names


async def test_a_body_that_drips(store: AsyncStore) -> None:
    """Each byte comes in time, and the whole never does."""
    app = application(store, Settings(body_s=0.05))

    async def receive() -> dict[str, object]:
        await asyncio.sleep(0.001)
        return {"type": "http.request", "body": b"1", "more_body": True}

    statuses: list[int] = []

    async def send(message: dict[str, object]) -> None:
        if "status" in message:
            statuses.append(int(str(message["status"])))

    headers = [(b"host", b"localhost"), (b"transfer-encoding", b"chunked")]
    scope = {"type": "http", "method": "PUT", "raw_path": b"/v1/documents/k", "query_string": b"",
             "path": "/v1/documents/k", "headers": headers}  # fmt: skip
    await app(scope, receive, send)  # type: ignore[arg-type]
    assert statuses == [408]
    assert (app.running, app._buffered) == (0, 0)


async def test_no_token_in_the_log(callers: Callers, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is logged at any level while every route is asked, and fails."""
    caplog.set_level(logging.DEBUG)
    boss = callers.of("boss")
    for route in GUARDED:
        if route.path != "/v1/events":
            await ask(boss, route)
            await ask(boss, route, perkey_by="\x00\xff")
    for token in callers.tokens.values():
        assert token not in caplog.text
