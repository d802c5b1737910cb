"""Problems: one for each class of the error tree, each with a page."""

from __future__ import annotations

import html
import pkgutil
import re

import pytest
from starlette.types import Receive, Scope, Send

from perkey import errors
from perkey.server import problems
from tests.server.client import Client
from tests.server.pages.html import Page


async def test_every_problem_has_a_page(client: Client) -> None:
    listed = (await client.send("GET", "/problems")).body.decode()
    for code, kind in errors.by_code().items():
        page = await client.send("GET", f"/problems/{code}")
        assert page.status == 200
        assert page.header("content-type") == "text/html; charset=utf-8"
        text = html.unescape(page.body.decode())
        assert problems.title(kind) in text
        (python,) = re.findall(r"<dt>Python</dt><dd><code>(.*)</code>", text)
        assert pkgutil.resolve_name(python) is kind
        assert str(kind.status) in text
        assert f'"/problems/{code}"' in listed
    (await client.send("GET", "/problems/none")).problem(404, "not-found")


@pytest.mark.parametrize("target", ["/problems", "/problems/", "/problems/conflict"])
async def test_a_problems_page_looks_like_all_the_others(client: Client, target: str) -> None:
    page = Page(await client.send("GET", target))
    sheets = [each["href"] for each in page.all("link") if each["rel"] == "stylesheet"]
    assert len(sheets) == 1
    assert sheets[0].startswith("/ui/static/perkey.css?v=")
    assert (await client.send("GET", sheets[0])).status == 200
    assert page.link("Overview") == "/ui"
    assert page.link("Engine") == "/ui/engine"


async def test_with_a_slash_the_list_is_the_same(client: Client) -> None:
    without, with_one = [await client.send("GET", f"/problems{end}") for end in ("", "/")]
    assert without.body == with_one.body
    assert Page(await client.send("GET", "/problems/gone")).link("All problems") == "/problems"


async def test_below_a_mount_the_links_are_below_it_too(client: Client) -> None:
    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        scope["root_path"] = "/perkey"
        await client.app(scope, receive, send)

    outside = Client(mounted)  # type: ignore[arg-type]
    text = (await outside.send("GET", "/problems")).body.decode()
    assert 'href="/perkey/problems/conflict"' in text
    assert 'href="/perkey/ui/engine"' in text


async def test_a_page_shows_no_markup_of_others(client: Client) -> None:
    answer = await client.send("GET", "/problems/%3Cscript%3E")
    answer.problem(404, "not-found")
    assert answer.header("x-content-type-options") == "nosniff"


def test_the_type_stands_below_the_mount() -> None:
    answer = problems.answer(errors.Conflict("x", key="k"), "/perkey")
    assert b'"type":"/perkey/problems/conflict"' in bytes(answer.body)


def test_details_cannot_replace_the_fixed_members() -> None:
    error = errors.Conflict("told", status=1, type="t", title="x", detail="d", code="c", key="k")
    answer = problems.answer(error)
    text = bytes(answer.body)
    assert b'"status":412' in text
    assert b'"detail":"told"' in text
    assert b'"key":"k"' in text
    assert text.count(b'"code"') == 1


@pytest.mark.parametrize(
    ("python", "http"),
    [
        ("expected unit= as text", 'expected "unit" as text'),
        ("read it, or use if_match=", "read it, or use If-Match"),
        ("one of create=True and scale=, then", 'one of "create": True and "scale", then'),
        ("needs if_match=VERSION, the version", "needs If-Match: VERSION, the version"),
        ("wait for it with wait=SECONDS, or", 'wait for it with "wait": SECONDS, or'),
        ("expected by= as text", "expected Perkey-By as text"),
        ("expected ?after= once", "expected ?after= once"),
        ("expected scale= from 1, found 'floor= x'", "expected \"scale\" from 1, found 'floor= x'"),
        ('key "it\'s memo= y" of scale= z', 'key "it\'s memo= y" of "scale" z'),
        ("somebody's by= is not 'by= '", "somebody's Perkey-By is not 'by= '"),
        (r"'a\'b= c' d= e", r"""'a\'b= c' "d" e"""),
        ("x==y and a= b", 'x==y and "a" b'),
        ("no board; create(tasks) makes one", "no board; PUT /v1/boards/RUN makes one"),
    ],
)  # fmt: skip
def test_what_python_says_is_told_in_words_of_http(python: str, http: str) -> None:
    assert problems.spoken(python) == http


def test_no_title_and_no_advice_speaks_python() -> None:
    for kind in errors.by_code().values():
        told = problems.title(kind) + problems.advice(kind)
        assert problems.spoken(told) == told
        assert "=True" not in told
        assert "if_match" not in told


async def test_a_board_that_nobody_made(client: Client) -> None:
    told = (await client.send("GET", "/v1/boards/none")).problem(404, "not-found")
    assert "PUT /v1/boards/RUN makes one" in told["detail"]


def test_details_that_are_no_json_are_told_as_text() -> None:
    answer = problems.answer(errors.Refused("x", what=object, path=("a",)))
    assert b'"path":["a"]' in bytes(answer.body)


@pytest.mark.parametrize(
    ("error", "after"),
    [
        (errors.Busy("x"), "1"),
        (errors.InProgress("x", retry_after=2.2), "3"),
        (errors.QueueFull("x"), "1"),
        (errors.Conflict("x"), None),
    ],
)
def test_when_to_come_again(error: errors.PerkeyError, after: str | None) -> None:
    assert problems.answer(error).headers.get("retry-after") == after


async def test_methods(client: Client) -> None:
    answer = await client.send("POST", "/v1/documents/k")
    answer.problem(405, "method-not-allowed")
    assert answer.header("allow") == "DELETE, GET, OPTIONS, PATCH, PUT, HEAD"
    asked = await client.send("OPTIONS", "/v1/documents/k")
    assert (asked.status, asked.header("allow"), asked.body) == (204, answer.header("allow"), b"")
    (await client.send("OPTIONS", "/none")).problem(404, "no-such-path")


async def test_live_and_ready(client: Client) -> None:
    assert (await client.send("GET", "/healthz")).body == b"ok\n"
    (await client.send("GET", "/readyz")).problem(503, "store-unavailable")
    client.app.services.ready = True
    assert (await client.send("GET", "/readyz")).body == b"ready\n"
    client.app.stop()
    (await client.send("GET", "/readyz")).problem(503, "store-unavailable")
