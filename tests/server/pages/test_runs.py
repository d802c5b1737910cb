"""The pages of runs: who holds what, for how long, and what is missing."""

from __future__ import annotations

import pytest

from perkey import AsyncBoard, AsyncStore
from perkey.flows import tasklist
from perkey.server.pages import runs, spans
from perkey.server.pages.spans import Bar, Span
from perkey.store.record import Record
from tests.server.client import Client
from tests.server.pages.conftest import Guarded
from tests.server.pages.html import Page, compact
from tests.server.pages.test_documents import HOSTILE, look


async def test_no_runs_teach(client: Client) -> None:
    page = await look(client, "/runs")
    assert "There are no runs yet" in page.text
    assert "board.complete()" in page.one("pre").text
    assert "No run begins with x" in (await look(client, "/runs", prefix="x")).text
    await look(client, "/run", 404, run="none")
    await look(client, "/run", 400)


@pytest.fixture
async def audit(store: AsyncStore) -> AsyncBoard:
    """One task done, one at work, one failed, one open."""
    board = AsyncBoard(store, "audit/1")
    await board.create(["links", "style", "tests", "names"], by="boss")
    done = await board.claim("ann", lease=60)
    assert done is not None
    await board.finish(done, {"found": 3})
    assert await board.claim("bob", lease=60)
    failed = await board.claim("ann", lease=60)
    assert failed is not None
    await board.fail(failed, "no network")
    return board


def rows(page: Page) -> list[list[str]]:
    """The cells of each task."""
    return [
        [compact(cell.text) for cell in row.inside if cell.name in ("th", "td")]
        for row in page.all("tr")[1:]
    ]


@pytest.mark.usefixtures("audit")
async def test_who_holds_what_and_what_is_missing(client: Client) -> None:
    page = await look(client, "/run", run="audit/1")
    assert "1 of 4 tasks done" in page.text
    assert [each.text for each in page.one("ul", "missing").inside] == ["style", "tests", "names"]
    told = rows(page)
    assert [row[:3] for row in told] == [
        ["links", "done", "ann"],
        ["style", "running", "bob"],
        ["tests", "failed", "ann"],
        ["names", "open", ""],
    ]
    assert told[0][-1] == '{"found": 3}'
    assert told[2][-1] == "no network"
    assert told[1][5].endswith(("59 s", "60 s"))
    assert [row[4] != "" for row in told] == [False, True, False, False]
    drawn = [each["aria-label"] for each in page.all("svg", "claims")]
    assert drawn == ["ann done", "bob running", "ann failed", "never claimed"]
    assert any("/v1/boards/audit%2F1/claim" in line for line in page.commands())


async def test_a_complete_run(client: Client, audit: AsyncBoard, store: AsyncStore) -> None:
    board = AsyncBoard(store, "one")
    await board.create(["a"])
    claim = await board.claim("ann", lease=60)
    assert claim is not None
    await board.finish(claim, 1)
    assert "nobody has called the run complete yet" in (await look(client, "/run", run="one")).text
    await board.complete()
    page = await look(client, "/run", run="one")
    assert "complete 1 task, all done" in page.text
    assert page.all("ul", "missing") == []
    listed = await look(client, "/runs")
    assert [row[0] for row in rows(listed)] == ["audit/1", "one"]
    assert rows(listed)[0][2] == "1 done 1 running 1 open 1 failed"
    assert rows(listed)[1][2] == "complete 1 done"
    bar = listed.all("progress")[0]
    assert (bar["max"], bar["value"]) == ("4", "1")


async def test_runs_page_by_page(client: Client, store: AsyncStore) -> None:
    for number in range(runs.PAGE + 1):
        await AsyncBoard(store, f"r/{number:03}").create(["a"])
    page = await look(client, "/runs", prefix="r/")
    assert len(rows(page)) == runs.PAGE
    assert [row[0] for row in rows(Page(await client.send("GET", page.link("Next page"))))] == [
        "r/050"
    ]


async def test_a_token_sees_its_own_runs(guarded: Guarded, store: AsyncStore) -> None:
    await AsyncBoard(store, "secret").create(["hush"])
    await AsyncBoard(store, "runs/1").create(["open"])
    agent = guarded.signed_in("agent")
    await look(agent, "/run", 403, run="secret")
    assert "secret" not in (await look(agent, "/runs")).text
    assert rows(await look(agent, "/runs", prefix="runs/"))[0][0] == "runs/1"
    assert "open" in (await look(agent, "/run", run="runs/1")).text


async def test_hostile_names_come_out_as_text(client: Client, store: AsyncStore) -> None:
    board = AsyncBoard(store, HOSTILE)
    await board.create([HOSTILE, "b"])
    claim = await board.claim(HOSTILE, lease=60)
    assert claim is not None
    await board.fail(claim, HOSTILE)
    page = await look(client, "/run", run=HOSTILE)
    assert page.text.count("alert(1)") >= 5
    assert HOSTILE in (await look(client, "/runs")).one("html").text


# ------------------------------------------------------------------------- the line of claims


def history(*steps: tuple[int, dict[str, tuple[str, str, int]]]) -> list[Record]:
    """Versions from (moment, task -> (state, worker, token))."""
    found = []
    for version, (at, tasks) in enumerate(steps, 1):
        entries = {
            name: tasklist.Task(state=state, worker=worker, token=token)
            for name, (state, worker, token) in tasks.items()
        }
        body = tasklist.encode(tasklist.Run(entries, 5))
        found.append(Record("b/r", version, body, "", at))
    return found


def test_each_claim_is_one_span() -> None:
    found = spans.spans(
        "r",
        history(
            (0, {"a": ("open", "", 0), "b": ("open", "", 0)}),
            (10, {"a": ("running", "ann", 1), "b": ("open", "", 0)}),
            (20, {"a": ("running", "ann", 1), "b": ("running", "bob", 2)}),
            (30, {"a": ("running", "cy", 3), "b": ("open", "bob", 2)}),
            (40, {"a": ("done", "cy", 3), "b": ("running", "ann", 4)}),
            (50, {"a": ("done", "cy", 3), "b": ("failed", "ann", 4)}),
        ),
    )
    assert found == [
        Span("a", "ann", 1, 10, 30, "taken over"),
        Span("b", "bob", 2, 20, 30, "given back"),
        Span("a", "cy", 3, 30, 40, "done"),
        Span("b", "ann", 4, 40, 50, "failed"),
    ]


def test_history_may_start_late_and_tasks_go_on() -> None:
    (span,) = spans.spans("r", history((7, {"a": ("running", "ann", 9)})))
    assert span == Span("a", "ann", 9, 7)
    assert spans.spans("r", [Record("b/r", 1, None)]) == []


def test_bars_fit_the_line() -> None:
    claims = [Span("a", "ann", 1, 0, 50), Span("a", "bob", 2, 50), Span("b", "cy", 3, 99, 99)]
    lines = spans.bars(claims, 0, 100)
    assert lines["a"] == [Bar(claims[0], 0, 500), Bar(claims[1], 500, 500)]
    assert lines["b"] == [Bar(claims[2], 990, spans.THIN)]
    for bar in spans.bars([Span("a", "x", 1, -5, 300), Span("a", "y", 2, 100, 100)], 0, 100)["a"]:
        assert 0 <= bar.x <= bar.x + bar.width <= spans.WIDTH
    assert spans.bars(claims, 5, 5)["b"][0].width >= spans.THIN


def test_a_late_task_may_be_claimed() -> None:
    task = tasklist.Task(state="running", expires=10)
    assert runs.state_of(task, 9) == "running"
    assert runs.state_of(task, 10) == "late"
