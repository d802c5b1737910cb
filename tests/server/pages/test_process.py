"""The page of locks and feeds: leases, in-process locks, the committer, requests by route."""

from __future__ import annotations

from perkey import AsyncLeases, AsyncStore, KeyedLocks, Sections
from perkey.server.app import application
from perkey.server.metrics import Meters
from perkey.server.pages.process import Traffic, traffic
from tests.server.client import Client
from tests.server.pages.conftest import Guarded
from tests.server.pages.html import Page, compact
from tests.server.pages.test_documents import HOSTILE, look
from tests.server.pages.test_overview import section
from tests.server.pages.test_runs import rows


async def test_nothing_held_teaches(client: Client) -> None:
    page = await look(client, "/process")
    assert "Nobody holds a lease" in section(page, "leases-title")
    assert "locks={" in section(page, "locks-title")
    assert page.commands()[1].endswith("/v1/events -N")


async def test_leases_that_are_held(client: Client, store: AsyncStore) -> None:
    leases = AsyncLeases(store)
    await leases.acquire("printer", ttl=600, holder="ann")
    await leases.acquire(HOSTILE, ttl=600, holder=HOSTILE)
    gone = await leases.acquire("scanner", ttl=600, holder="bob")
    await gone.release()
    page = await look(client, "/process")
    told = {row[0]: row for row in rows(page)}
    assert told["printer"][1] == "ann"
    assert told["printer"][3] == "10 min"
    assert told["printer"][4] == "1"
    assert compact(HOSTILE) in told
    assert "scanner" not in told


async def test_a_token_sees_its_own_leases(guarded: Guarded, store: AsyncStore) -> None:
    leases = AsyncLeases(store)
    await leases.acquire("secret", ttl=600, holder="boss")
    await leases.acquire("runs/1", ttl=600, holder="agent")
    page = await look(guarded.signed_in("agent"), "/process")
    assert "secret" not in page.text
    assert "runs/1" in page.text


async def test_locks_of_the_application(store: AsyncStore) -> None:
    keyed, sections, lean = KeyedLocks(), Sections(4), Sections(4, profile="lean")
    with keyed("k"), sections("k"):
        app = application(store, locks={HOSTILE: keyed, "units": sections, "lean": lean})
        page = Page(await Client(app).send("GET", "/ui/process"))
    told = section(page, "locks-title")
    assert compact(HOSTILE) in told
    assert "KeyedLocks" in told
    assert "active 1" in told
    assert "units Sections acquisitions 1" in told
    assert "The lean profile keeps no counters" in told


async def test_requests_by_route(client: Client) -> None:
    for key in ("a", "b"):
        await client.get(key)
    await client.create("a", 1)
    page = await look(client, "/process")
    told = {row[0]: row for row in rows(page)}
    assert told["/v1/documents/{key}"][1:4] == ["3", "2", "–"]
    assert "/v1/documents/a" not in page.text
    assert "Commits 1" in section(page, "committer-title")


def test_how_slow_is_slow() -> None:
    meters = Meters()
    for number in range(100):
        meters.count("GET", "/a", 200 if number else 503, 0.004 if number else 5.0)
    meters.count("GET", "/b", 404, 60.0)
    meters.count("GET", "/b", 200, 60.0)
    first, second = traffic(meters)
    assert (first.path, first.count, first.refused, first.failed) == ("/a", 100, 0, 1)
    assert first.slow_ms == 5
    assert round(first.mean_ms, 1) == 54.0
    assert second == Traffic("/b", 2, 1, 0, 60_000.0, None)
