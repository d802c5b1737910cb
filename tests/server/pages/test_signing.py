"""Who may look: the cookie, the form that sets it, and what no other site can do."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest

from perkey import AsyncStore
from perkey.server.app import application
from perkey.server.pages import ROUTES
from perkey.server.settings import Settings
from tests.server.client import Answer, Client
from tests.server.pages.conftest import Guarded
from tests.server.pages.html import Page

FORM = "application/x-www-form-urlencoded"
OWN = {"origin": "http://localhost", "content-type": FORM}


async def sign_in(client: Client, token: str, wanted: str = "", **headers: str) -> Answer:
    body = urlencode({"token": token, "next": wanted}).encode()
    return await client.send("POST", "/ui/login", body, {**OWN, **headers})


async def test_without_tokens_a_local_caller_just_looks(client: Client) -> None:
    assert (await client.send("GET", "/")).header("location") == "/ui"
    page = Page(await client.send("GET", "/ui"))
    assert "Sign out" not in page.text


async def test_every_page_asks_for_a_token_and_comes_back(guarded: Guarded) -> None:
    for route in ROUTES:
        if route.role is None:
            continue
        answer = await guarded.anybody.send(
            route.method, route.path, b"x=1" * (route.method == "POST"), OWN
        )
        if route.method == "GET":
            assert answer.status == 303
            assert answer.header("location") == f"/ui/login?next={quote(route.path, safe='')}"
        else:
            assert answer.status == 401
    wanted = "/ui/document?key=a%20b%2F%C3%A9"
    answer = await guarded.anybody.send("GET", wanted)
    form = Page(await guarded.anybody.send("GET", answer.header("location") or ""))
    (hidden,) = (each for each in form.all("input") if each["name"] == "next")
    assert hidden["value"] == wanted
    answer = await sign_in(guarded.anybody, guarded.tokens["boss"], hidden["value"])
    assert (answer.status, answer.header("location")) == (303, wanted)


async def test_a_part_of_a_page_sends_the_whole_page_to_the_form(guarded: Guarded) -> None:
    answer = await guarded.anybody.send("GET", "/ui", headers={"hx-request": "true"})
    assert (answer.status, answer.header("hx-redirect")) == (401, "/ui/login?next=%2Fui")


async def test_the_cookie_is_strict_and_no_script_reads_it(guarded: Guarded) -> None:
    answer = await sign_in(guarded.anybody, guarded.tokens["agent"])
    cookie = answer.header("set-cookie") or ""
    assert cookie == f"perkey_token={guarded.tokens['agent']}; Path=/; HttpOnly; SameSite=Strict"
    secure = await sign_in(guarded.anybody, guarded.tokens["agent"], origin="https://localhost")
    assert (secure.header("set-cookie") or "").endswith("; Secure")
    page = Page(await guarded.signed_in("agent").send("GET", "/ui"))
    assert "agent" in page.text
    assert guarded.tokens["agent"] not in page.text
    out = await guarded.signed_in("agent").send("POST", "/ui/logout", b"", OWN)
    assert out.header("location") == "/ui/login"
    assert "Max-Age=0" in (out.header("set-cookie") or "")


@pytest.mark.parametrize("token", ["", "pk_x", "é", "a\nSet-Cookie: b=c", 'x"; y=z', "\x00"])
async def test_a_wrong_token_sets_no_cookie(guarded: Guarded, token: str) -> None:
    answer = await sign_in(guarded.anybody, token)
    assert answer.header("set-cookie") is None
    assert "No such token" in Page(answer, 401).text


@pytest.mark.parametrize(
    "body", [b"token", b"%FF", b"token=%FF", b"\xff=1", b"&".join([b"a=1"] * 30)]
)
async def test_what_is_no_form_is_refused(guarded: Guarded, body: bytes) -> None:
    answer = await guarded.anybody.send("POST", "/ui/login", body, OWN)
    Page(answer, 400)
    json = {"origin": "http://localhost", "content-type": "application/json"}
    Page(await guarded.anybody.send("POST", "/ui/login", b"{}", json), 415)


@pytest.mark.parametrize(
    "cookie",
    ["perkey_token=pk_x", "perkey_token", "=", "perkey_token=\xff", "a=b; ;;", '"; perkey_token="'],
)
async def test_a_cookie_that_means_nothing_is_nobody(guarded: Guarded, cookie: str) -> None:
    answer = await Client(guarded.app, cookie=cookie).send("GET", "/ui")
    assert answer.status == 303


@pytest.mark.parametrize(
    "wanted",
    [
        "//evil.example",
        "https://evil.example/ui",
        "/ui\\..",
        "/uix",
        "/ui/ x",
        "/ui/\r\nx: y",
        "/v1/documents",
        "javascript:alert(1)",
        "/ui/é",
    ],
)
async def test_the_form_sends_nobody_elsewhere(guarded: Guarded, wanted: str) -> None:
    answer = await sign_in(guarded.anybody, guarded.tokens["boss"], wanted)
    assert (answer.status, answer.header("location")) == (303, "/ui")


async def test_the_api_does_not_know_the_cookie(guarded: Guarded) -> None:
    boss = guarded.signed_in("boss")
    for method, path in [("GET", "/v1/documents"), ("PUT", "/v1/documents/k"), ("GET", "/metrics")]:
        (await boss.send(method, path)).problem(401, "unauthorised")


async def test_a_form_of_another_page_is_refused(guarded: Guarded) -> None:
    body = urlencode({"token": guarded.tokens["boss"]}).encode()
    wrong: list[dict[str, str]] = [
        {},
        {"origin": "null"},
        {"origin": "http://evil.example"},
        {"origin": "http://localhost", "sec-fetch-site": "cross-site"},
        {"origin": "http://127.0.0.1"},
    ]
    for path in ("/ui/login", "/ui/logout"):
        for headers in wrong:
            given = {"content-type": FORM, **headers}
            answer = await guarded.anybody.send("POST", path, body, given)
            assert answer.header("set-cookie") is None
            Page(answer, 403)


async def test_the_authorization_header_does_for_programs(guarded: Guarded) -> None:
    page = Page(await guarded.anybody.as_(guarded.tokens["reader"]).send("GET", "/ui"))
    assert "reader" in page.text


async def test_a_stranger_host_sees_nothing(client: Client) -> None:
    answer = await client.send("GET", "/ui", headers={"host": "evil.example"})
    assert "does not serve the host" in Page(answer, 421).text


async def test_a_page_that_is_not_there_says_so(client: Client) -> None:
    nowhere = Page(await client.send("GET", "/ui/nothing"), 404)
    assert "there is no path '/ui/nothing'" in nowhere.text
    assert nowhere.link("Overview") == "/ui"
    missing = Page(await client.send("GET", "/ui/document?key=none"), 404)
    assert "there is no document 'none'" in missing.text
    wrong = await client.send("POST", "/ui", b"", OWN)
    assert wrong.header("allow") == "GET, OPTIONS, HEAD"
    assert wrong.status == 405


async def test_mounted_below_a_path_all_links_stay_there(store: AsyncStore) -> None:
    app = application(store, Settings())
    inner = Client(app)
    sent: list[dict[str, object]] = []

    async def mounted(scope: dict[str, object], receive: object, send: object) -> None:
        sent.append(scope)
        scope["root_path"] = "/perkey"
        scope["raw_path"] = b"/perkey" + bytes(scope["raw_path"])  # type: ignore[call-overload]
        await app(scope, receive, send)  # type: ignore[arg-type]

    inner.app = mounted  # type: ignore[assignment]
    answer = await inner.send("GET", "/ui")
    assert b'href="/perkey/ui/documents"' in answer.body
    assert b'src="/perkey/ui/static/perkey.js?v=' in answer.body
    assert (await inner.send("GET", "/")).header("location") == "/perkey/ui"
    assert sent
