"""The pages of the engine: definitions, instances, buttons that ask first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import pytest

from perkey import AsyncStore
from perkey.engine import AsyncEngine, State, every, message, process
from perkey.server import identity
from perkey.server.app import Application, application
from perkey.server.hosting import Processes
from perkey.server.pages import engine as pages
from perkey.server.settings import Settings
from tests.server.client import Answer, Client
from tests.server.pages.html import Page, compact
from tests.server.pages.test_documents import HOSTILE, look
from tests.server.pages.test_overview import alive
from tests.server.pages.test_runs import rows
from tests.server.pages.test_signing import FORM


@process("runs/order", starts=[message("order placed", key="order_id")])
async def order(ctx: Any) -> Any:
    await ctx.step("reserve", lambda: {"stock": 3})
    return await ctx.receive("paid")


@process("sweep", starts=[every("36h")])
async def sweep(ctx: Any) -> None:
    """Is shown, and not due in a test."""


@process("nap")
async def nap(ctx: Any) -> None:
    await ctx.sleep("1h")


@process("broken")
async def broken(ctx: Any) -> None:
    raise ValueError(HOSTILE)


@pytest.fixture
async def app(store: AsyncStore) -> AsyncIterator[Application]:
    app = application(store, processes=Processes([order, nap, broken]))
    async with alive(app):
        yield app


def engine_of(app: Application) -> AsyncEngine:
    assert app.services.hosted is not None
    return app.services.hosted.engine


async def waits(engine: AsyncEngine, instance: str, what: str) -> None:
    """Until an instance waits for that."""
    handle = await engine.look_up(instance)
    while handle.waiting_for != what:  # noqa: ASYNC110 (nothing tells of it)
        await asyncio.sleep(0)


async def send(client: Client, path: str, **fields: str) -> Answer:
    body = urlencode(fields).encode()
    headers = {"origin": "http://localhost", "content-type": FORM}
    return await client.send("POST", f"/ui{path}", body, headers)


async def test_without_an_engine_it_teaches(client: Client) -> None:
    page = await look(client, "/engine")
    assert "--engine orders.py" in page.one("pre").text
    await look(client, "/instance", 404, id="x")
    Page(await send(client, "/engine", action="pause"), 404)


async def test_definitions_and_instances(app: Application) -> None:
    client, engine = Client(app), engine_of(app)
    assert "No instance yet" in (await look(client, "/engine")).text
    await engine.register_process(order)
    begun = await engine.publish("order placed", {"order_id": "o-1"})
    await waits(engine, begun.instance, "message paid")
    page = await look(client, "/engine")
    told = compact(page.one("dl", "definitions").text)
    assert "runs/order version 2, latest version 1" in told
    assert "started by hand" in told
    await engine.register_process(sweep)
    assert "every 36h" in compact((await look(client, "/engine")).one("dl", "definitions").text)
    assert rows(page) == [["o-1", "runs/order version 2", "running", "message paid", "1"]]
    shown = Page(await client.send("GET", page.link("o-1")))
    assert [
        compact(each.text) for each in shown.one("ol", "steps").inside if each.name == "li"
    ] == [
        'done reserve {"stock": 3}',
        "waits message paid",
    ]
    await engine.publish("paid", {"eur": 12}, key="o-1")
    handle = await engine.look_up(begun.instance)
    await handle.wait(60)
    ended = await look(client, "/instance", id=begun.instance)
    assert 'returned {"eur": 12}' in compact(ended.text)
    assert ended.all("dialog") == []


async def test_a_timer_says_how_long_it_sleeps(app: Application) -> None:
    engine = engine_of(app)
    handle = await engine.start_latest("nap", variables={"a": [HOSTILE]})
    await waits(engine, handle.id, "timer")
    page = await look(Client(app), "/instance", id=handle.id)
    assert "sleeps timer 1 for another 60 min" in compact(page.text)
    assert HOSTILE.replace('"', '\\"') in page.one("pre", "value").text


async def test_what_failed_says_why(app: Application) -> None:
    handle = await engine_of(app).start_latest("broken")
    await handle.wait(60)
    page = await look(Client(app), "/instance", id=handle.id)
    assert HOSTILE in page.one("ol", "steps").text


async def test_buttons_ask_first_and_do_it(app: Application) -> None:
    client, engine = Client(app), engine_of(app)
    page = await look(client, "/engine")
    asks = {each["data-opens"] for each in page.all("button") if "data-opens" in each.attributes}
    assert asks == {each["id"] for each in page.all("dialog")} == {"ask-pause", "ask-drain"}
    answer = await send(client, "/engine", action="pause")
    assert (answer.status, answer.header("location")) == (303, "/ui/engine")
    assert engine.state is State.PAUSED
    assert "ask-resume" in {each["id"] for each in (await look(client, "/engine")).all("dialog")}
    await send(client, "/engine", action="resume")
    assert engine.state is State.STARTED
    Page(await send(client, "/engine", action="explode"), 400)
    await send(client, "/engine", action="drain")
    assert engine.draining
    assert (await look(client, "/engine")).all("dialog") == []


async def test_an_instance_is_cancelled(app: Application) -> None:
    client, engine = Client(app), engine_of(app)
    handle = await engine.start_latest("nap")
    await waits(engine, handle.id, "timer")
    page = await look(client, "/instance", id=handle.id)
    assert page.one("dialog")["id"] == "ask-cancel"
    assert any("/cancel" in each.text for each in page.all("code"))
    answer = await send(client, "/instance", id=handle.id)
    assert answer.header("location") == f"/ui/instance?id={handle.id}"
    assert handle.state.value == "cancelled"
    assert (await send(client, "/instance", id=handle.id)).status == 303
    ended = await look(client, "/instance", id=handle.id)
    assert ended.all("dialog") == []
    assert not any("/cancel" in each.text for each in ended.all("code")), "it could only fail"


async def test_who_sees_few_has_full_pages(
    store: AsyncStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a token may not see takes no place on its page, and is not counted."""
    monkeypatch.setattr(pages, "PAGE", 2)
    token, entry = identity.make("agent", "read", ["nap"])
    (tmp_path / "tokens.toml").write_text(entry)
    settings = Settings(host="0.0.0.0", tokens=str(tmp_path / "tokens.toml"))
    app = application(store, settings, processes=Processes([order, nap]))
    agent = Client(app, cookie=f"perkey_token={token}")
    async with alive(app):
        engine = engine_of(app)
        mine = set()
        for _ in range(3):
            mine.add((await engine.start_latest("nap")).id)
            for _ in range(2):
                await engine.start_latest("runs/order")
        page = await look(agent, "/engine")
        assert [each.text for each in page.all("dd")][:2] == ["3", "0"]
        seen: list[str] = []
        after = ""
        for rows in (2, 1):
            page = await look(agent, "/engine", **({"after": after} if after else {}))
            found = listed(page, "instance")
            assert len(found) == rows
            assert len(listed(page, "latest")) == (0 if after else 3)
            seen += found
            after = found[-1]
        assert set(seen) == mine


def listed(page: Page, name: str) -> list[str]:
    """The instances that one table of the page links to."""
    links = [each for each in page.all("a") if each.attributes.get("id", "").startswith(f"{name}-")]
    return [parse_qs(each["href"].partition("?")[2])["id"][0] for each in links]


async def test_what_runs_comes_first_then_what_ended_last(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, engine = Client(app), engine_of(app)
    failed = []
    for _ in range(2):
        failed.append(await engine.start_latest("broken"))
        await failed[-1].wait(60)
    runs = [await engine.start_latest("nap") for _ in range(2)]
    expected = [each.id for each in (*runs[::-1], *failed[::-1])]
    page = await look(client, "/engine")
    assert listed(page, "instance") == expected
    assert listed(page, "latest") == []
    monkeypatch.setattr(pages, "PAGE", 3)
    monkeypatch.setattr(pages, "LATEST", 2)
    page = await look(client, "/engine")
    assert listed(page, "latest") == expected[:2]
    assert listed(page, "instance") == sorted(expected)[:3]


async def test_who_may_press_what(store: AsyncStore, tmp_path: Path) -> None:
    made = {
        "boss": identity.make("boss", "admin", [""]),
        "writer": identity.make("writer", "write", [""]),
        "reader": identity.make("reader", "read", [""]),
        "agent": identity.make("agent", "admin", ["runs/"]),
    }
    path = tmp_path / "tokens.toml"
    path.write_text("\n".join(entry for _, entry in made.values()))
    settings = Settings(host="0.0.0.0", tokens=str(path))
    app = application(store, settings, processes=Processes([order, nap]))
    who = {name: Client(app, cookie=f"perkey_token={token}") for name, (token, _) in made.items()}
    async with alive(app):
        engine = engine_of(app)
        handle = await engine.start_latest("nap")
        for name in ("writer", "reader", "agent"):
            assert (await look(who[name], "/engine")).all("dialog") == []
            Page(await send(who[name], "/engine", action="pause"), 403)
        assert engine.state is State.STARTED
        assert len((await look(who["boss"], "/engine")).all("dialog")) == 2
        assert "nap" not in (await look(who["agent"], "/engine")).text
        await look(who["agent"], "/instance", 403, id=handle.id)
        Page(await send(who["agent"], "/instance", id=handle.id), 403)
        assert (await look(who["reader"], "/instance", id=handle.id)).all("dialog") == []
        Page(await send(who["reader"], "/instance", id=handle.id), 403)
        await send(who["writer"], "/instance", id=handle.id)
        assert handle.state.value == "cancelled"
