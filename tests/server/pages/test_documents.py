"""The pages of documents: search, who wrote what, the timeline, two versions side by side."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from perkey import AsyncDocuments, AsyncStore
from perkey.server.pages import documents, render
from perkey.store.record import Record
from tests.server.client import Client
from tests.server.pages.conftest import Guarded
from tests.server.pages.html import Element, Page, compact


async def look(client: Client, path: str, status: int = 200, **query: str | int) -> Page:
    asked = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in query.items())
    return Page(await client.send("GET", f"/ui{path}?{asked}" if asked else f"/ui{path}"), status)


@pytest.fixture
def docs(store: AsyncStore) -> AsyncDocuments:
    return AsyncDocuments(store)


@pytest.fixture
async def report(docs: AsyncDocuments) -> None:
    """Four versions; bob's fourth was made from the second, so ann's third is gone."""
    await docs.put("report", {"title": "Audit"}, create=True, by="ann")
    await docs.put("report", {"title": "Audit", "links": [1]}, if_match=1, by="bob")
    await docs.put("report", {"title": "Audit", "links": [1], "sum": 3}, if_match=2, by="ann")
    stale = {"title": "Review", "links": [1]}
    await docs.put("report", stale, overwrite=True, base=2, by="bob")


# -------------------------------------------------------------------------------- search


async def test_an_empty_store_teaches(client: Client) -> None:
    page = await look(client, "/documents")
    assert "There are no documents yet" in page.text
    assert page.one("pre").text.splitlines()[0] == "export PERKEY_STORE=http://localhost"
    assert "perkey doc put report" in page.one("pre").text
    assert page.commands() == ["perkey doc list --store http://localhost"]


async def test_search_by_prefix_page_by_page(client: Client, docs: AsyncDocuments) -> None:
    for number in range(documents.PAGE + 3):
        await docs.put(f"orders/{number:03}", {}, create=True, by="ann")
    await docs.put("other", {}, create=True)
    page = await look(client, "/documents", prefix="orders/")
    rows = page.all("tr")[1:]
    assert len(rows) == documents.PAGE
    assert compact(rows[0].text).startswith("orders/000 1 ann")
    assert "perkey doc list orders/ --store" in page.commands()[0]
    rest = Page(await client.send("GET", page.link("Next page")))
    assert [compact(row.text).split()[0] for row in rest.all("tr")[1:]] == [
        "orders/050", "orders/051", "orders/052"
    ]  # fmt: skip
    assert "Next page" not in rest.text
    assert "begins with none" in (await look(client, "/documents", prefix="none")).text
    assert "No further keys" in (await look(client, "/documents", after="zzz")).text


@pytest.mark.parametrize(
    "key", [".", "..", "a/b", "ä ö+%&?#", "a\x00\n", "\u202eevil", "'\"; rm -rf ~"]
)
async def test_any_key_can_be_opened(client: Client, docs: AsyncDocuments, key: str) -> None:
    await docs.put(key, {"k": 1}, create=True, by="ann")
    page = await look(client, "/documents")
    address = page.all("tr")[1].inside[1]["href"]
    opened = Page(await client.send("GET", address))
    assert opened.one("h1").text == key
    assert '"k":' in opened.text


# --------------------------------------------------------------------------- one document


async def test_there_is_no_such_document(client: Client) -> None:
    assert "never was" in (await look(client, "/document", 404, key="none")).text
    await look(client, "/document", 400)


def lines(page: Page) -> list[tuple[str, str, str]]:
    """(who, version, text) of each line of the value."""
    found = []
    for row in page.all("tr"):
        cells: list[Element] = [each for each in row.inside if each.name == "td"]
        if cells:
            found.append((cells[0].text, cells[1].text, cells[2].text))
    return found


@pytest.mark.usefixtures("report")
async def test_the_value_says_who_wrote_what(client: Client) -> None:
    page = await look(client, "/document", key="report")
    assert lines(page) == [
        ("", "", "{"),
        ("bob", "4", '"title": "Review",'),
        ("", "", '"links": ['),
        ("bob", "2", "1"),
        ("", "", "]"),
        ("", "", "}"),
    ]
    assert "version 4, the newest by bob" in page.text
    assert "made from version 2" in page.text


@pytest.mark.usefixtures("report")
async def test_an_older_version_has_its_own_authors(client: Client) -> None:
    page = await look(client, "/document", key="report", version=3)
    assert [(who, version) for who, version, _ in lines(page) if version] == [
        ("ann", "1"), ("bob", "2"), ("ann", "3")
    ]  # fmt: skip
    assert page.link("newest: 4") == "/ui/document?key=report"
    assert any("--at 3" in line for line in page.commands())
    await look(client, "/document", 404, key="report", version=9)
    await look(client, "/document", 400, key="report", version="x")


@pytest.mark.usefixtures("report")
async def test_the_timeline_marks_a_stale_overwrite_and_what_it_lost(client: Client) -> None:
    page = await look(client, "/document", key="report")
    told = [compact(each.text) for each in page.one("ol", "timeline").inside if each.name == "li"]
    assert [text.split()[0:2] for text in told] == [
        ["4", "bob"],
        ["3", "ann"],
        ["2", "bob"],
        ["1", "ann"],
    ]
    assert "from 2 stale overwrite" in told[0]
    assert "1 place is gone" in told[0]
    assert "−/sum" in told[0]
    assert "~/title" in told[0]
    assert "+/sum" in told[1]
    assert not any("stale" in text for text in told[1:])
    tints = [each.classes[0] for each in page.one("ol", "timeline").inside if each.name == "li"]
    assert tints == [render.tint("bob"), render.tint("ann")] * 2


async def test_an_author_has_the_same_colour_on_every_page(client: Client) -> None:
    names = ["ann", "bob", "carol", "dave", "eve"]
    for number, name in enumerate(reversed(names)):
        await client.put(f"one/{number}", 1, if_none_match="*", perkey_by=name)
    for name in names:
        await client.put(f"two/{name}", 1, if_none_match="*", perkey_by=name)
    seen: dict[str, set[str]] = {}
    for path, query in (("", {}), ("/documents", {}), ("/document", {"key": "two/ann"})):
        for each in (await look(client, path, **query)).all("span", "author"):
            seen.setdefault(each.text, set()).add(each["class"])
    assert seen.keys() == set(names)
    assert all(len(classes) == 1 for classes in seen.values()), seen
    assert seen["ann"] == {f"author {render.tint('ann')}"}


def test_colours_come_from_the_name_alone_and_are_spread() -> None:
    tints = [render.tint(f"agent/step-{number}") for number in range(400)]
    assert set(tints) == {f"by-{number}" for number in range(render.TINTS)}
    assert render.tint(None) == "by-unknown"
    assert render.tint("ann") != render.tint("bob"), "the first two that a newcomer sees"


async def test_a_long_timeline_goes_on(client: Client, docs: AsyncDocuments) -> None:
    for number in range(documents.PAGE * 2 + 5):
        await docs.put("k", number, overwrite=True)
    seen: list[int] = []
    address = "/ui/document?key=k"
    while address:
        page = Page(await client.send("GET", address))
        seen += [int(each.text) for each in page.all("a", "v")]
        more = [each for each in page.all("a") if each.text == "Older versions"]
        address = more[0]["href"] if more else ""
    assert seen == list(range(documents.PAGE * 2 + 5, 0, -1))


@pytest.mark.usefixtures("report")
async def test_what_is_asked_for_again_and_is_the_same_is_not_made_again(client: Client) -> None:
    page = await look(client, "/document", key="report")
    (again,) = {each["hx-get"] for each in page.elements if "hx-get" in each.attributes}
    answer = await client.send("GET", again)
    assert (answer.status, answer.body) == (204, b"")
    await client.put("report", 5, if_match='"4"')
    assert "version 5, the newest" in Page(await client.send("GET", again)).text


async def test_a_timeline_of_long_values_does_not_compare_them(docs: AsyncDocuments) -> None:
    many = [Record("d/k", n, b'"' + b"x" * 100_000 + b'%d"' % n, base=n - 1) for n in range(1, 51)]
    assert all(each.paths == () for each in documents.timeline(many))
    assert all(each.paths == ("~(all)",) for each in documents.timeline(many[:9])[:-1])
    long = [Record("d/k", n, b'"' + b"x" * 300_000 + b'%d"' % n, base=n - 1) for n in (1, 2)]
    assert documents.timeline(long)[0].paths == ()


async def test_a_deletion_is_a_version(client: Client, docs: AsyncDocuments) -> None:
    await docs.put("k", 1, create=True, by="ann")
    await docs.delete("k", by="bob")
    page = await look(client, "/document", key="k")
    assert "This version is a deletion" in page.text
    assert "deleted" in page.all("li")[0].text
    assert lines(await look(client, "/document", key="k", version=1)) == [("ann", "1", "1")]


async def test_a_long_key_is_shown_without_its_middle_and_copied_whole(
    client: Client, docs: AsyncDocuments
) -> None:
    """Keys differ in their ends; what is copied or hovered over is the whole of them."""
    keys = [f"customers/{'x' * 300}/{n}" for n in (1, 2)]
    for key in keys:
        await docs.put(key, 1, create=True, by="a" * 100)
    page = await look(client, "/documents")
    assert [each.text for each in page.all("a") if "…" in each.text] == [
        f"customers/{'x' * 54}…{'x' * 30}/{n}" for n in (1, 2)
    ]
    titles = [each.attributes.get("title", "") for each in page.all("span")]
    assert [each for each in titles if each.startswith("customers/")] == keys
    assert "a" * 100 not in page.text
    shown = await look(client, "/document", key=keys[0])
    assert shown.one("h1").text == keys[0]
    assert keys[0] in [each["data-copy"] for each in shown.all("button", "copy")]


async def test_one_version_has_nothing_to_be_compared_with(
    client: Client, docs: AsyncDocuments
) -> None:
    await docs.put("k", 1, create=True)
    page = await look(client, "/document", key="k")
    assert page.all("input", "") == [each for each in page.all("input") if each["name"] == "key"]
    await docs.put("k", 2, if_match=1)
    page = await look(client, "/document", key="k")
    assert len([each for each in page.all("input") if each["type"] == "radio"]) == 4


async def test_a_deleted_document_has_commands_that_work(
    client: Client, docs: AsyncDocuments
) -> None:
    """``doc get`` and ``doc blame`` would only say that it is deleted."""
    await docs.put("k", 1, create=True, by="ann")
    await docs.put("k", 2, if_match=1, by="ann")
    await docs.delete("k", by="bob")
    for version, before in (("", 2), ("2", 2), ("1", 1)):
        page = await look(client, "/document", key="k", **({"version": version} if version else {}))
        told = page.commands()
        assert [each.split(" --store")[0] for each in told[:2]] == [
            f"perkey doc get k --at {before}",
            "perkey doc history k",
        ]
        assert f"/v1/documents/k/versions/{before}" in told[2]
        assert (await client.send("GET", f"/v1/documents/k/versions/{before}")).status == 200
        assert len(told) == 3
    await docs.put("k", 3, create=True)
    assert "doc blame k" in (await look(client, "/document", key="k")).text


async def test_long_documents_are_cut(client: Client, docs: AsyncDocuments) -> None:
    await docs.put("k", list(range(9000)), create=True)
    await docs.put("k", list(range(90_000)), if_match=1)
    page = await look(client, "/document", key="k")
    assert "Only the first 3000 lines are shown" in page.text
    assert len(lines(page)) == 3000


# ---------------------------------------------------------------------------- side by side


@pytest.mark.usefixtures("report")
async def test_two_versions_side_by_side(client: Client) -> None:
    page = await look(client, "/compare", **{"key": "report", "from": 3, "to": 4})
    assert "0 added, 1 removed, 1 changed" in page.text
    (changed,) = page.all("tr", "changed")
    assert [each.text for each in changed.inside if each.name == "td"] == [
        'removed: "title": "Audit",', 'added: "title": "Review",'
    ]  # fmt: skip
    (removed,) = page.all("tr", "removed")
    assert '"sum": 3' in removed.text
    assert page.commands() == ["perkey doc diff report 3 4 --store http://localhost"]
    swapped = Page(await client.send("GET", page.link("swap sides")))
    assert "1 added, 0 removed, 1 changed" in swapped.text


@pytest.mark.usefixtures("report")
async def test_what_cannot_be_compared(client: Client) -> None:
    same = await look(client, "/compare", **{"key": "report", "from": 2, "to": 2})
    assert "Both versions hold the same value" in same.text
    await look(client, "/compare", 404, **{"key": "report", "from": 2, "to": 9})
    await look(client, "/compare", 400, **{"key": "report", "from": 2})
    await look(client, "/compare", 404, **{"key": "none", "from": 1, "to": 2})


# --------------------------------------------------------------------------- who sees what


async def test_a_token_sees_its_own_keys(
    guarded: Guarded, docs: AsyncDocuments, tmp_path: Path
) -> None:
    await docs.put("secret/plan", {"hush": 1}, create=True, by="boss")
    await docs.put("runs/1", {"open": 1}, create=True, by="agent")
    agent = guarded.signed_in("agent")
    for path in ("/document?key=secret/plan", "/compare?key=secret/plan&from=1&to=1"):
        answer = await agent.send("GET", f"/ui{path}")
        assert "hush" not in Page(answer, 403).text
    page = await look(agent, "/documents")
    assert "secret" not in page.text
    assert page.link("runs/") == "/ui/documents?prefix=runs%2F"
    assert "runs/1" in (await look(agent, "/documents", prefix="runs/")).text
    assert '"open": 1' in (await look(agent, "/document", key="runs/1")).text
    assert "hush" in (await look(guarded.signed_in("boss"), "/document", key="secret/plan")).text


async def test_commands_name_no_token(guarded: Guarded, docs: AsyncDocuments) -> None:
    await docs.put("runs/1", 1, create=True)
    page = await look(guarded.signed_in("agent"), "/document", key="runs/1")
    for line in page.commands():
        assert "$PERKEY_TOKEN" in line
        assert guarded.tokens["agent"] not in line


async def test_what_an_empty_page_teaches_names_no_token(guarded: Guarded) -> None:
    page = await look(guarded.signed_in("boss"), "/documents")
    line = page.one("pre").text.splitlines()[0]
    assert line == 'export PERKEY_STORE="http://token:$PERKEY_TOKEN@localhost"'


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'`{{7*7}}{%x%}"


async def test_hostile_keys_values_and_authors_come_out_as_text(
    client: Client, docs: AsyncDocuments
) -> None:
    await docs.put(HOSTILE, {HOSTILE: HOSTILE}, create=True, by=HOSTILE)
    await docs.put(HOSTILE, {HOSTILE: [HOSTILE]}, overwrite=True, base=1, by=HOSTILE)
    await docs.put(HOSTILE, {}, overwrite=True, base=1, by=HOSTILE)
    for path in ("/documents", "/document", "/compare"):
        query: dict[str, str | int] = {} if path == "/documents" else {"key": HOSTILE}
        query |= {"from": 1, "to": 2} if path == "/compare" else {}
        query |= {"version": 2} if path == "/document" else {}
        page = await look(client, path, **query)
        assert HOSTILE in page.one("html").text
        assert page.all("img") == [page.all("img")[0]], "the logo alone"
    searched = await look(client, "/documents", prefix=HOSTILE + "x")
    assert HOSTILE in searched.text
    refused = await look(client, "/document", 404, key=HOSTILE + "x")
    assert "alert(1)" in refused.text


async def test_that_check_can_fail(
    client: Client, docs: AsyncDocuments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mistake put back: templates that print what is stored as it is."""
    await docs.put(HOSTILE, {HOSTILE: HOSTILE}, create=True, by=HOSTILE)
    careless = render.environment().overlay(autoescape=False)
    monkeypatch.setattr(render, "environment", lambda: careless)
    for path in ("/documents", "/document"):
        query: dict[str, str | int] = {} if path == "/documents" else {"key": HOSTILE}
        with pytest.raises(AssertionError):
            await look(client, path, **query)
