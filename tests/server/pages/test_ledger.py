"""The pages of the ledger: accounts, statements, holds, postings, the trial balance."""

from __future__ import annotations

from itertools import pairwise

import pytest

from perkey import AsyncLedger, AsyncStore
from perkey.flows.ledger.model import account_key, decode_account, encode
from perkey.flows.ledger.queries import Line
from perkey.server.pages import ledger as pages
from perkey.store.transaction import Tx
from tests.server.client import Client
from tests.server.pages.conftest import Guarded
from tests.server.pages.html import Page
from tests.server.pages.test_documents import HOSTILE, look
from tests.server.pages.test_runs import rows


@pytest.fixture
async def books(store: AsyncStore) -> AsyncLedger:
    """Bank gave ann 12.50, ann gave bob 2.50 and keeps 1.00 back."""
    ledger = AsyncLedger(store)
    await ledger.open_account("bank", unit="EUR", floor=None)
    await ledger.open_account("ann", unit="EUR")
    await ledger.open_account("bob", unit="EUR")
    await ledger.transfer("bank", "ann", 1250, key="pay-1", memo="pay", by="boss")
    await ledger.transfer("ann", "bob", 250, key="lunch", memo="lunch", by="ann")
    await ledger.hold("ann", "bob", 100, key="hold-1", expires_in=600, by="ann")
    return ledger


async def test_an_empty_ledger_teaches(client: Client) -> None:
    page = await look(client, "/ledger")
    assert "There are no accounts yet" in page.text
    assert page.one("pre").text.splitlines()[0] == "export PERKEY_STORE=http://localhost"
    assert "perkey ledger transfer" in page.one("pre").text
    assert "No account begins with x" in (await look(client, "/ledger", prefix="x")).text
    await look(client, "/account", 404, account="none")
    await look(client, "/transfer", 404, key="none")


@pytest.mark.usefixtures("books")
async def test_accounts_and_the_trial_balance(client: Client) -> None:
    page = await look(client, "/ledger")
    assert rows(page)[:3] == [
        ["ann", "EUR", "10.00", "1.00", "9.00", "0.00", "2"],
        ["bank", "EUR", "-12.50", "–", "unlimited", "none", "1"],
        ["bob", "EUR", "2.50", "–", "2.50", "0.00", "1"],
    ]
    assert "balanced over 3 accounts" in page.text
    assert ["EUR", "15.00", "15.00"] in rows(page)
    checked = Page(await client.send("GET", page.link("Recompute every balance")))
    assert "checked every balance agrees with its entries" in checked.text
    assert "perkey ledger verify --store http://localhost" in page.commands()


@pytest.mark.usefixtures("books")
async def test_a_wrong_balance_is_found(client: Client, store: AsyncStore) -> None:
    key = account_key("bob")

    def spoil(tx: Tx) -> None:
        body = tx.body(key)
        assert body is not None
        account = decode_account(body)
        account.credits += 1
        tx.put_body(key, encode(account))

    await store.transact([key], spoil)
    assert "not balanced" in (await look(client, "/ledger")).text
    checked = await look(client, "/ledger", check="true")
    assert "bob: credits should be 250 and is 251" in checked.text


@pytest.mark.usefixtures("books")
async def test_a_long_list_is_added_up_only_when_asked(client: Client, books: AsyncLedger) -> None:
    for number in range(pages.PAGE):
        await books.open_account(f"c/{number:02}", unit="EUR")
    page = await look(client, "/ledger")
    assert "balanced" not in page.text
    assert "Adding them up reads every account" in page.text
    assert "balanced over 53" in (await look(client, "/ledger", check="true")).text
    rest = Page(await client.send("GET", page.link("Next page")))
    assert [row[0] for row in rows(rest)] == ["c/47", "c/48", "c/49"]


@pytest.mark.usefixtures("books")
async def test_a_statement_with_its_holds(client: Client) -> None:
    page = await look(client, "/account", account="ann")
    assert [each.text for each in page.one("dl", "figures").inside if each.name == "dd"] == [
        "10.00", "1.00", "9.00", "EUR"
    ]  # fmt: skip
    told = rows(page)
    assert [told[0][n] for n in (0, 1, 2, 3, 5, 6)] == [
        "2",
        "lunch",
        "lunch",
        "ann",
        "-2.50",
        "10.00",
    ]
    assert [told[1][n] for n in (0, 1, 2, 3, 5, 6)] == [
        "1",
        "pay-1",
        "pay",
        "boss",
        "+12.50",
        "12.50",
    ]
    assert told[3][0] == "hold-1 Copy"
    assert told[3][2] == "1.00"
    assert len(page.one("polyline")["points"].split()) == 6
    assert "from 0.00 at the bottom to 12.50 at the top" in page.one("html").text
    empty = await look(client, "/account", account="bob")
    assert "Nothing is held" in empty.text


async def test_an_account_without_entries(client: Client, books: AsyncLedger) -> None:
    await books.open_account("new", unit="EUR")
    assert "No entry yet" in (await look(client, "/account", account="new")).text
    await books.hold("bank", "new", 5, key="h2")
    page = await look(client, "/account", account="bank")
    assert rows(page)[-1] == ["h2 Copy", "never", "0.05"]
    assert page.link("h2") == "/ui/transfer?key=h2"
    assert "h2" in [each["data-copy"] for each in page.all("button", "copy")]
    assert "perkey ledger settle h2 --key h2/settled --store http://localhost" in page.commands()
    assert "perkey ledger release h2 --store http://localhost" in page.commands()
    assert "others" not in page.text
    await books.settle("h2", key="h2/settled")
    assert "Nothing is held" in (await look(client, "/account", account="bank")).text


async def test_holds_without_an_end_beyond_those_that_are_looked_for(
    client: Client, books: AsyncLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await books.hold("bank", "bob", 5, key="a1")
    await books.hold("bank", "bob", 7, key="z1")
    await books.hold("ann", "bank", 1, key="a2", expires_in=600)
    monkeypatch.setattr(pages, "SEARCHED", 2)  # of all postings: a1, a2 and no more
    page = await look(client, "/account", account="bank")
    assert rows(page)[-2:] == [
        ["a1 Copy", "never", "0.05"],
        ["others, without an end", "never", "0.07"],
    ]
    assert "Their keys are looked for in 2 postings" in page.text
    monkeypatch.setattr(pages, "SEARCHED", 100)
    page = await look(client, "/account", account="bank")
    assert [row[0] for row in rows(page)[-2:]] == ["a1 Copy", "z1 Copy"]
    assert "others" not in page.text


async def test_a_long_statement_goes_on(client: Client, books: AsyncLedger) -> None:
    for number in range(pages.PAGE * 2):
        await books.transfer("bank", "bob", 1, key=f"t{number}")
    seen: list[int] = []
    address = "/ui/account?account=bob"
    while address:
        page = Page(await client.send("GET", address))
        seen += [int(each["id"].removeprefix("line-")) for each in page.all("a") if
                 each.attributes.get("id", "").startswith("line-")]  # fmt: skip
        more = [each for each in page.all("a") if each.text == "Older entries"]
        address = more[0]["href"] if more else ""
    assert seen == list(range(pages.PAGE * 2 + 1, 0, -1))


@pytest.mark.usefixtures("books")
async def test_one_posting(client: Client, books: AsyncLedger) -> None:
    page = await look(client, "/transfer", key="lunch")
    assert rows(page) == [["ann", "-2.50 EUR", "10.00"], ["bob", "+2.50 EUR", "2.50"]]
    held = await look(client, "/transfer", key="hold-1")
    assert "What is kept back" in held.text
    assert "pending" in held.text
    assert rows(held) == [["ann", "-1.00 EUR"], ["bob", "+1.00 EUR"]]
    await books.settle("hold-1", key="s1")
    settled = await look(client, "/transfer", key="s1")
    assert settled.link("hold-1") == "/ui/transfer?key=hold-1"
    assert "settled" in (await look(client, "/transfer", key="hold-1")).text


async def test_a_token_sees_its_own_accounts(guarded: Guarded, store: AsyncStore) -> None:
    ledger = AsyncLedger(store)
    await ledger.open_account("bank", unit="EUR", floor=None)
    await ledger.open_account("runs/1", unit="EUR")
    await ledger.transfer("bank", "runs/1", 5, key="t1")
    agent = guarded.signed_in("agent")
    await look(agent, "/account", 403, account="bank")
    await look(agent, "/transfer", 403, key="t1")
    assert "bank" not in (await look(agent, "/ledger")).text
    page = await look(agent, "/ledger", prefix="runs/", check="true")
    assert rows(page)[0][:3] == ["runs/1", "EUR", "0.05"]
    assert "your token is limited" in page.text
    assert "t1" in (await look(agent, "/account", account="runs/1")).text


async def test_hostile_names_and_memos_come_out_as_text(client: Client, store: AsyncStore) -> None:
    ledger = AsyncLedger(store)
    await ledger.open_account(HOSTILE, unit="<i>", floor=None, by=HOSTILE)
    await ledger.open_account("b", unit="<i>", by=HOSTILE)
    await ledger.transfer(HOSTILE, "b", 5, key=HOSTILE, memo=HOSTILE, by=HOSTILE)
    await ledger.hold(HOSTILE, "b", 5, key=HOSTILE + "h", expires_in=60, memo=HOSTILE)
    for path in ("/ledger", "/account", "/transfer"):
        query = {"/ledger": {}, "/account": {"account": HOSTILE}, "/transfer": {"key": HOSTILE}}
        page = await look(client, path, **query[path])
        assert HOSTILE in page.one("html").text


def lines(*balances: int) -> list[Line]:
    """Entries that take a balance from the first figure through the others."""
    moved = pairwise(balances)
    return [
        Line(n, f"t{n}", after - before, after, 0) for n, (before, after) in enumerate(moved, 1)
    ]


def test_the_curve_fills_its_box_step_by_step() -> None:
    assert pages.curve([]) is None
    assert pages.curve(lines(5, 5)) is None, "it never moved"
    steps = "0.0,100.0 500.0,100.0 500.0,0.0 1000.0,0.0"
    assert pages.curve(lines(0, 10)) == pages.Curve(steps, 0, 10)
    steps = "0.0,100.0 250.0,100.0 250.0,50.0 500.0,50.0 500.0,0.0 750.0,0.0 750.0,25.0 1000.0,25.0"
    assert pages.curve(lines(-10, 0, 10, 5)) == pages.Curve(steps, -10, 10)


def test_a_payment_shows_on_a_rich_account() -> None:
    found = pages.curve(lines(10**9, 10**9 - 5, 10**9))
    assert found is not None
    heights = [float(point.split(",")[1]) for point in found.points.split(" ")]
    assert heights == [0, 0, 100, 100, 0, 0]
    assert (found.low, found.high) == (10**9 - 5, 10**9)
