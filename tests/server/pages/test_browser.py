"""The pages in a real Chromium: every one looked at, clicked through, and checked with axe-core.

Screenshots of each in light, dark and at phone width go to ``build/pages``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

import perkey
from perkey import Board
from perkey.server import identity
from tests.server.pages import seeds
from tests.server.pages.chromium import Chromium, Tab, find
from tests.servers.perkey_http import PerkeyHttp

ROOT = Path(__file__).parents[3]
SHOTS = ROOT / "build" / "pages"
AXE = (Path(__file__).parent / "vendored" / "axe.min.js").read_text("utf-8")
DESK, PHONE = (1280, 900), (390, 844)

PAGES = {
    "overview": "/ui",
    "documents": "/ui/documents",
    "document": "/ui/document?key=audit/report",
    "compare": "/ui/compare?key=audit/report&from=5&to=8",
    "hostile": "/ui/document?key=" + quote(seeds.HOSTILE, safe=""),
    "runs": "/ui/runs",
    "run": "/ui/run?run=audit/q3",
    "ledger": "/ui/ledger?check=true",
    "account": "/ui/account?account=ann",
    "transfer": "/ui/transfer?key=rent-1",
    "engine": "/ui/engine",
    "instance": "/ui/instance?id={order}",
    "process": "/ui/process",
    "problems": "/problems",
    "problem": "/problems/condition-required",
}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    """One browser for all tests here."""
    program = find()
    assert program is not None, "no Chromium is installed; tools/chromium.sh says how to have one"
    with Chromium(program) as browser:
        yield browser


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PerkeyHttp]:
    """A server with an engine, and something on every page."""
    engine = seeds.processes(tmp_path_factory.mktemp("processes"))
    with PerkeyHttp("--engine", engine) as server:
        seeds.fill(server.url)
        yield server


@pytest.fixture
def tab(chromium: Chromium) -> Iterator[Tab]:
    """A fresh tab; at its end nothing may have been complained of."""
    tab = chromium.tab()
    yield tab
    tab.close()
    assert tab.complaints == []


def address(server: PerkeyHttp, name: str) -> str:
    """Where a page is; an instance has an id that nobody knows before."""
    if "{order}" not in PAGES[name]:
        return PAGES[name]
    found = seeds.get(server.url, "/v1/engine/instances?process=order&state=running")
    return PAGES[name].format(order=quote(found["instances"][0]["id"], safe=""))


def violations(tab: Tab, only: str = "") -> list[str]:
    """What axe-core finds wrong with the page as it is."""
    options = {"runOnly": [only]} if only else {}
    script = f"""axe.run({json.dumps(options)}).then(found => found.violations.flatMap(
        each => each.nodes.map(node => `${{each.id}}: ${{node.html}} ${{node.failureSummary}}`)))"""
    found: list[str] = tab.run(script)
    return found


@pytest.mark.parametrize("name", PAGES)
def test_each_page_is_sound_in_light_in_dark_and_on_a_phone(
    tab: Tab, server: PerkeyHttp, name: str
) -> None:
    tab.look(*DESK)
    tab.open(server.url + address(server, name))
    if name == "overview":
        tab.until("document.querySelectorAll('.plot canvas').length === 6")
    tab.run(AXE + "; 0")
    assert violations(tab) == []
    tab.screenshot(SHOTS / f"{name}-light.png")
    tab.look(*DESK, dark=True)
    assert violations(tab, "color-contrast") == []
    tab.screenshot(SHOTS / f"{name}-dark.png")
    tab.look(*PHONE, phone=True)
    assert tab.run("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"
    assert tab.run(ASIDE) == [], "a part of it scrolls sideways"
    assert violations(tab) == []
    tab.screenshot(SHOTS / f"{name}-phone.png")
    assert tab.run("window.hacked") is None
    assert tab.run("document.querySelectorAll('main img, main script').length") == 0


ASIDE = """[...document.querySelectorAll('nav, nav a, main .scroll, main table')]
    .filter(each => each.scrollWidth > each.clientWidth + 1 && each.clientWidth
        || each.getBoundingClientRect().right > innerWidth + 1)
    .map(each => each.outerHTML.slice(0, 80))"""
"""What is wider than a phone shows of it."""


def heading(tab: Tab) -> str:
    return str(tab.run("document.querySelector('h1').textContent"))


def follow(tab: Tab, selector: str, title: str) -> None:
    """Click a link and arrive."""
    tab.click(selector)
    tab.until(f"document.querySelector('h1')?.textContent === {json.dumps(title)}")
    tab.loaded()


def test_clicked_through_by_mouse(tab: Tab, server: PerkeyHttp) -> None:
    tab.open(server.url + "/")
    assert heading(tab) == "Overview"
    for title in ("Documents", "Runs", "Ledger", "Engine", "Locks and feeds", "Overview"):
        at = tab.run(
            f"[...document.querySelectorAll('nav a')].findIndex(a => a.textContent === '{title}')"
        )
        follow(tab, f"nav a:nth-of-type({at + 1})", title)
        assert tab.run("document.querySelector('nav [aria-current]').textContent") == title
    tab.open(server.url + "/ui/documents?prefix=audit/")
    follow(tab, "#found a", "audit/report")
    follow(tab, ".timeline li:nth-child(3) .v", "audit/report")
    assert "version=6" in tab.run("location.href")
    tab.open(server.url + "/ui/runs")
    follow(tab, "#found a", "audit/q3")
    tab.open(server.url + "/ui/ledger")
    follow(tab, "#found a", "ann")
    follow(tab, "#line-2", "rent-1")
    follow(tab, "main td a", "ann")
    tab.open(server.url + "/ui/engine")
    row = tab.run("[...document.querySelectorAll('td a')].find(a => a.textContent === 'o-1').id")
    follow(tab, f"#{row}", "o-1")


def test_two_versions_are_picked_and_compared(tab: Tab, server: PerkeyHttp) -> None:
    tab.open(server.url + PAGES["document"])
    tab.click("input[name=from][value='2']")
    tab.click("input[name=to][value='6']")
    follow(tab, ".pick button[type=submit]", "Versions 2 and 6")
    assert tab.run("document.querySelectorAll('tr.added').length") > 3


def test_by_keyboard_alone(tab: Tab, server: PerkeyHttp) -> None:
    tab.open(server.url + "/ui")
    tab.press("Tab", 9)
    assert tab.run("document.activeElement.textContent") == "Skip to the content"
    tab.press("Enter", 13, "\r")
    tab.until("document.activeElement.id === 'main'")
    tab.open(server.url + "/ui")
    for _ in range(4):
        tab.press("Tab", 9)
    assert tab.run("document.activeElement.textContent") == "Documents"
    assert tab.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.press("Enter", 13, "\r")
    tab.until("document.querySelector('h1')?.textContent === 'Documents'")


def test_search_narrows_as_one_types(tab: Tab, server: PerkeyHttp) -> None:
    tab.open(server.url + "/ui/documents")
    tab.run("window.same = true; document.querySelector('#prefix').focus()")
    tab.type("orders/00")
    tab.until("document.querySelectorAll('#found tbody tr').length === 10")
    tab.type("7")
    tab.until("document.querySelectorAll('#found tbody tr').length === 1")
    assert tab.run("window.same && document.activeElement.id === 'prefix'"), "no page was loaded"


def test_what_another_process_writes_shows_up_by_itself(tab: Tab, server: PerkeyHttp) -> None:
    tab.open(server.url + "/ui")
    tab.until("Number(document.querySelector('[data-total=commits]').textContent) > 0")
    tab.run("window.same = true")
    with perkey.open(server.store) as store:
        store.put("news", 1, create=True, by="a stranger")
    tab.until("document.querySelector('#live').textContent.includes('a stranger')")
    assert tab.run("window.same"), "no page was loaded"


STILL = "window.setInterval = () => 0"
"""A page that never does anything by the clock alone: what it shows then, it was told."""


def streaming(tab: Tab) -> None:
    """Wait until the page is told of changes."""
    tab.until("document.documentElement.dataset.stream === 'open'")


def shown(tab: Tab, text: str) -> None:
    """Wait until the part of the page that is read again has this text."""
    tab.until(f"document.querySelector('#live').textContent.includes({json.dumps(text)})")


def test_what_is_committed_is_told_to_the_page_which_does_not_ask(
    tab: Tab, server: PerkeyHttp
) -> None:
    tab.call("Page.addScriptToEvaluateOnNewDocument", source=STILL)
    with perkey.open(server.store) as store:
        store.put("told/list-1", 1, create=True)
        # Twice each: the first time it may have been the look that comes with the stream.
        for page, key, text in (
            ("/ui", "told/overview-{n}", "told/overview-{n}"),
            ("/ui/documents?prefix=told/", "told/list-{n}", "told/list-{n}"),
            ("/ui/document?key=told/list-1", "told/list-1", "version {n}, the newest"),
        ):
            tab.open(server.url + page)
            streaming(tab)
            for n in (2, 3):
                store.put(key.format(n=n), n, overwrite=True, by="a teller")
                shown(tab, text.format(n=n))
        tab.open(server.url + "/ui/runs")
        streaming(tab)
        for name in ("told/run", "told/more"):
            Board(store, name).create(["a", "b"])
            shown(tab, name)
        tab.open(server.url + "/ui/run?run=told/run")
        streaming(tab)
        for worker in ("worker-a", "worker-b"):
            assert Board(store, "told/run").claim(worker, lease=600) is not None
            shown(tab, worker)
    tab.open(server.url + "/ui/engine")
    streaming(tab)
    for order in ("told-1", "told-2"):
        seeds.post(
            server.url,
            "/v1/engine/publish",
            {"name": "order placed", "payload": {"order_id": order}},
        )
        shown(tab, order)


def test_the_charts_are_sent_their_samples(tab: Tab, server: PerkeyHttp) -> None:
    tab.call("Page.addScriptToEvaluateOnNewDocument", source=STILL)
    tab.open(server.url + "/ui")
    streaming(tab)
    tab.run(
        "window.got = 0; document.addEventListener('perkey:samples', () => { window.got++; }); 0"
    )
    tab.until("window.got > 1")
    assert int(tab.run("document.querySelector('[data-total=commits]').textContent")) > 0


def test_a_page_that_is_left_is_told_nothing_more(tab: Tab, server: PerkeyHttp) -> None:
    for page in ("/ui", "/ui/documents", "/ui/runs", "/ui/engine"):
        tab.open(server.url + page)
        streaming(tab)
    tab.open(server.url + "/ui/process")
    streaming(tab)
    pages = "[...document.querySelectorAll('dt')].find(e => e.textContent === 'Pages that follow')"
    tab.until(f"{pages}.nextElementSibling.textContent === '1'")
    tab.click("[data-live]")
    tab.until("document.documentElement.dataset.stream === 'none'")
    tab.click("[data-live]")
    streaming(tab)


def test_a_restarted_server_has_its_pages_again(chromium: Chromium) -> None:
    tab = chromium.tab()  # what cannot be reached meanwhile is complained of
    with PerkeyHttp() as server:
        tab.open(server.url + "/ui/documents")
        tab.run("window.same = true")
        streaming(tab)
        server.stop()
        tab.until("document.documentElement.dataset.stream === 'lost'")
        server.start()
        streaming(tab)
        with perkey.open(server.store) as store:
            store.put("after", 1, create=True)
        shown(tab, "after")
        assert tab.run("window.same"), "no page was loaded"
    tab.close()


NARROW = """
from dataclasses import replace
from perkey.cli import main
from perkey.server import run
serve = run.serve
run.serve = lambda url, settings, *more: serve(url, replace(settings, page_streams=1), *more)
main()
"""


class Narrow(PerkeyHttp):
    """It tells one page at a time of changes."""

    def command(self) -> list[str]:
        python, *_, store, port, number = super().command()
        return [python, "-W", "error", "-c", NARROW, "serve", store, port, number]


def test_a_page_that_is_told_nothing_asks(chromium: Chromium) -> None:
    with Narrow() as server:
        first, second = chromium.tab(), chromium.tab()  # that it was refused is complained of
        first.open(server.url + "/ui/documents")
        streaming(first)
        second.open(server.url + "/ui/documents")
        second.until("document.documentElement.dataset.stream === 'none'")
        with perkey.open(server.store) as store:
            store.put("asked", 1, create=True)
        shown(second, "asked")
        shown(first, "asked")
        first.close()
        second.close()


def test_a_search_is_not_undone_by_what_happens(tab: Tab, server: PerkeyHttp) -> None:
    tab.open(server.url + "/ui/runs")
    streaming(tab)
    tab.run("document.querySelector('#prefix').focus()")
    tab.type("searched/")
    tab.until("document.querySelectorAll('#found tbody tr').length === 0")
    with perkey.open(server.store) as store:
        Board(store, "searched/1").create(["a"])
        shown(tab, "searched/1")
    assert tab.run("document.querySelectorAll('#found tbody tr').length") == 1


def test_a_page_can_be_held_still(tab: Tab, server: PerkeyHttp) -> None:
    tab.open(server.url + "/ui/process")
    tab.click("[data-live]")
    assert tab.run("document.querySelector('[data-live]').ariaPressed") == "false"
    tab.click("[data-live]")
    assert tab.run("document.querySelector('[data-live]').ariaPressed") == "true"


def test_a_command_is_copied_or_else_selected(tab: Tab, server: PerkeyHttp) -> None:
    tab.open(server.url + PAGES["document"])
    tab.click(".copy")
    tab.until("['Copied', 'Selected'].includes(document.querySelector('.copy').textContent)")


def test_the_key_of_a_page_is_copied_or_else_selected(tab: Tab, server: PerkeyHttp) -> None:
    tab.open(server.url + PAGES["document"])
    tab.click(".head .copy")
    tab.until("['Copied', 'Selected'].includes(document.querySelector('.head .copy').textContent)")


def test_the_engine_is_paused_only_after_a_question(tab: Tab, server: PerkeyHttp) -> None:
    def state() -> str:
        return str(seeds.get(server.url, "/v1/engine")["state"])

    tab.open(server.url + "/ui/engine")
    tab.click("[data-opens=ask-pause]")
    tab.until("document.querySelector('#ask-pause').open")
    tab.press("Escape", 27)
    tab.until("!document.querySelector('#ask-pause').open")
    assert state() == "started"
    tab.click("[data-opens=ask-pause]")
    tab.until("document.querySelector('#ask-pause').open")
    tab.click("#ask-pause button[type=submit]")
    tab.until("document.querySelector('.head .badge')?.textContent === 'paused'")
    assert state() == "paused"
    tab.click("[data-opens=ask-resume]")
    tab.until("document.querySelector('#ask-resume').open")
    tab.click("#ask-resume button[type=submit]")
    tab.until("document.querySelector('.head .badge')?.textContent === 'started'")
    assert state() == "started"


def test_a_page_of_another_site_cannot_press_a_button(
    chromium: Chromium, server: PerkeyHttp
) -> None:
    tab = chromium.tab()
    form = (
        f'<form method="post" action="{server.url}/ui/engine">'
        '<input name="action" value="pause"></form>'
    )
    tab.open("data:text/html," + quote(form))
    tab.run("document.forms[0].submit(); 0")
    tab.until("document.querySelector('h1')?.textContent.includes('another origin')")
    assert seeds.get(server.url, "/v1/engine")["state"] == "started"
    tab.close()


def test_signing_in_and_out(chromium: Chromium, tmp_path: Path) -> None:
    token, entry = identity.make("ann", "read", ["orders/"])
    path = tmp_path / "tokens.toml"
    path.write_text(entry)
    tab = chromium.tab()
    with PerkeyHttp("--tokens", str(path)) as server:
        tab.open(server.url + "/ui/documents?prefix=orders/")
        assert heading(tab) == "Sign in"
        tab.run(AXE + "; 0")
        assert violations(tab) == []
        tab.screenshot(SHOTS / "login-light.png")
        assert tab.complaints == []
        tab.run("document.querySelector('#token').focus()")
        tab.type("pk_wrong")
        tab.press("Enter", 13, "\r")
        tab.until("document.querySelector('[role=alert]')")
        tab.run("document.querySelector('#token').focus()")
        tab.type(token)
        tab.press("Enter", 13, "\r")
        tab.until("document.querySelector('h1')?.textContent === 'Documents'")
        assert "prefix=orders/" in tab.run("location.href")
        assert tab.run("document.cookie") == ""
        assert "ann" in tab.run("document.querySelector('.who').textContent")
        tab.click(".who button")
        tab.until("document.querySelector('h1')?.textContent === 'Sign in'")
        tab.open(server.url + "/ui")
        assert heading(tab) == "Sign in"
    tab.close()
