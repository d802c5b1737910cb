"""The ledger over HTTP: money moves once for each Idempotency-Key, whatever is sent how often."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import perkey
from perkey import AsyncStore
from perkey.server import identity
from perkey.server.app import application
from perkey.server.settings import Settings
from perkey.store.transaction import Transaction
from tests.server.client import Answer, Client

KEY = "8e03978e-40d5-43dd-bc93-6894a57f9324"


async def post(
    client: Client, path: str, body: Any = None, key: str = "", **headers: str
) -> Answer:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if key:
        given["idempotency-key"] = key
    return await client.send("POST", path, json.dumps(body or {}).encode(), given)


async def opened(client: Client, *names: str, floor: int | None = None) -> None:
    for name in names:
        body = json.dumps({"unit": "EUR", "floor": floor}).encode()
        answer = await client.send("PUT", f"/v1/accounts/{name}", body)
        assert answer.status == 200, answer


def order(amount: int = 100, source: str = "a", target: str = "b", **more: Any) -> dict[str, Any]:
    return {"source": source, "target": target, "amount": amount, **more}


async def available(client: Client, name: str) -> int:
    return int((await client.send("GET", f"/v1/accounts/{name}")).json["available"])


async def test_a_transfer_and_its_repetitions(client: Client) -> None:
    await opened(client, "a", "b")
    first = await post(client, "/v1/transfers", order(memo="rent"), f'"{KEY}"', perkey_by="ann")
    assert (first.status, first.header("location")) == (201, f"/v1/transfers/{KEY}")
    assert first.json["legs"] == [
        {"account": "a", "amount": -100, "balance": -100},
        {"account": "b", "amount": 100, "balance": 100},
    ]
    assert (first.json["by"], first.json["memo"]) == ("ann", "rent")
    for key in (KEY, f'"{KEY}"'):
        again = await post(client, "/v1/transfers", order(memo="rent"), key, perkey_by="ann")
        assert (again.status, again.body) == (first.status, first.body)
        assert again.header("location") == first.header("location")
        assert again.header("idempotent-replayed") == "true"
    assert first.header("idempotent-replayed") is None
    assert await available(client, "b") == 100


async def test_keys_that_are_missing_wrong_or_used(client: Client) -> None:
    await opened(client, "a", "b")
    (await post(client, "/v1/transfers", order())).problem(400, "bad-request")
    (await post(client, "/v1/transfers", order(), '"a')).problem(400, "bad-request")
    (await post(client, "/v1/transfers", order(), "x" * 256)).problem(400, "bad-request")
    assert (await post(client, "/v1/transfers", order(), KEY)).status == 201
    (await post(client, "/v1/transfers", order(200), KEY)).problem(422, "key-reused")
    assert await available(client, "b") == 100


async def test_a_refused_transfer_leaves_its_key_free(client: Client) -> None:
    await opened(client, "a", "b", floor=0)
    (await post(client, "/v1/transfers", order(), KEY)).problem(409, "insufficient-funds")
    await opened(client, "bank")
    await post(client, "/v1/transfers", order(100, "bank", "a"), "fund")
    assert (await post(client, "/v1/transfers", order(), KEY)).status == 201
    assert (await available(client, "a"), await available(client, "b")) == (0, 100)


async def test_the_same_at_once_moves_money_once(client: Client) -> None:
    await opened(client, "a", "b")
    answers = await asyncio.gather(
        *(post(client, "/v1/transfers", order(), KEY) for _ in range(20))
    )
    assert {answer.status for answer in answers} == {201}
    assert len({answer.body for answer in answers}) == 1
    assert sum(answer.header("idempotent-replayed") is None for answer in answers) == 1
    assert await available(client, "b") == 100


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"source": "a", "target": "b"},
        order(amount=1.5),  # type: ignore[arg-type]  # what somebody may send
        order(amount="1"),  # type: ignore[arg-type]  # what somebody may send
        order(more=1),
        [],
        "x",
        {"source": 1, "target": "b", "amount": 1},
    ],
)
async def test_bodies_that_do_not_fit(client: Client, body: Any) -> None:
    await opened(client, "a", "b")
    answer = await client.send(
        "POST", "/v1/transfers", json.dumps(body).encode(), {"idempotency-key": KEY}
    )
    told = answer.problem(422, "invalid-body")
    assert told["title"] == "The request's body is not what this path takes."
    assert told["detail"].startswith("the body is not what this path takes: ")


async def test_a_transfer_without_a_key_is_told_that_it_needs_one(client: Client) -> None:
    body = json.dumps(order()).encode()
    none = await client.send("POST", "/v1/transfers", body)
    told = none.problem(400, "bad-request")["detail"]
    assert told.startswith("this path requires one Idempotency-Key header of 1 to 255 characters")
    assert "found none; choose a key" in told
    two = await client.send(
        "POST", "/v1/transfers", body, [("idempotency-key", "a"), ("idempotency-key", "b")]
    )
    assert two.problem(400, "bad-request")["detail"].endswith("found 2 of them")
    bad = await client.send("POST", "/v1/transfers", body, {"idempotency-key": "a b"})
    assert bad.problem(400, "bad-request")["detail"].endswith("found 'a b'")


@pytest.mark.parametrize(
    ("amount", "source", "status", "code"),
    [
        (0, "a", 422, "invalid-amount"),
        (-1, "a", 422, "invalid-amount"),
        (2**63, "a", 422, "invalid-amount"),
        (1, "b", 422, "same-account"),
        (1, "none", 404, "not-found"),
    ],
)
async def test_orders_that_are_refused(
    client: Client, amount: int, source: str, status: int, code: str
) -> None:
    await opened(client, "a", "b")
    (await post(client, "/v1/transfers", order(amount, source), KEY)).problem(status, code)


async def test_holds(client: Client) -> None:
    await opened(client, "a", "b")
    held = await post(client, "/v1/holds", order(100, expires_in=60), "h1")
    assert (held.status, held.json["kind"]) == (201, "hold")
    assert "expires" in held.json
    assert await available(client, "b") == 0
    settled = await post(client, "/v1/holds/h1/settle", {"amount": 30}, "s1")
    assert (settled.status, settled.json["refers"]) == (201, "h1")
    again = await post(client, "/v1/holds/h1/settle", {"amount": 30}, "s1")
    assert again.body == settled.body
    assert await available(client, "b") == 30
    (await post(client, "/v1/holds/h1/release")).problem(409, "invalid-state")
    await post(client, "/v1/holds", order(50), "h2")
    assert (await post(client, "/v1/holds/h2/release")).status == 200
    assert (await client.send("GET", "/v1/transfers/h2")).json["state"] == "released"
    (await post(client, "/v1/holds/none/release")).problem(404, "not-found")


async def test_a_reversal_happens_once(client: Client) -> None:
    await opened(client, "a", "b")
    await post(client, "/v1/transfers", order(), "t1")
    first = await post(client, "/v1/transfers/t1/reverse", {"memo": "wrong"})
    again = await post(client, "/v1/transfers/t1/reverse", {"memo": "wrong"})
    assert (first.status, again.body) == (200, first.body)
    assert await available(client, "b") == 0


@pytest.fixture
async def on_disk(tmp_path: Path) -> AsyncIterator[Client]:
    """A server whose store takes a while to commit, so that others come meanwhile."""
    async with await perkey.aopen(f"sqlite:///{tmp_path}/store.db") as store:
        yield Client(application(store))


def counted(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[Transaction]:
    """The transactions that the store is given from now on."""
    core, given = client.app.services.store.core, []
    transact = core.transact_async

    def counting(transaction: Transaction, timeout: float | None) -> Any:
        given.append(transaction)
        return transact(transaction, timeout)

    monkeypatch.setattr(core, "transact_async", counting)
    return given


async def test_transfers_that_arrive_together_share_a_transaction(
    on_disk: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each gets the answer that it would get alone: a refusal, a replay, a figure of its own."""
    client = on_disk
    await opened(client, "a", "c")
    await opened(client, "b", floor=0)
    await post(client, "/v1/transfers", order(5), "before")
    given = counted(client, monkeypatch)
    asked = [(order(n + 1), f"k{n}") for n in range(40)]
    asked += [(order(5), "before"), (order(6), "before"), (order(10**6, "b", "c"), "poor")]
    asked += [(order(1), "k0"), (order(1, "a", "none"), "lost")]
    answers = await asyncio.gather(
        *(post(client, "/v1/transfers", body, key) for body, key in asked)
    )
    assert [each.status for each in answers] == [201] * 41 + [422, 409, 201, 404]
    assert len(given) == 1, "one transaction for all"
    made, (again, other, poor, same, lost) = answers[:40], answers[40:]
    assert [each.json["key"] for each in made] == [f"k{n}" for n in range(40)]
    running = [5 + sum(range(1, n + 2)) for n in range(40)]
    assert [each.json["legs"][1]["balance"] for each in made] == running
    assert again.header("idempotent-replayed") == same.header("idempotent-replayed") == "true"
    assert same.body == made[0].body
    other.problem(422, "key-reused")
    poor.problem(409, "insufficient-funds")
    lost.problem(404, "not-found")
    assert await available(client, "b") == running[-1]
    assert (await client.send("GET", "/v1/trial-balance")).json["balanced"] is True


async def test_authors_do_not_share(on_disk: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client = on_disk
    await opened(client, "a", "b")
    names = ["ann", "bob", "ann", "eve", "eve"]
    given = counted(client, monkeypatch)
    answers = await asyncio.gather(
        *(
            post(client, "/v1/transfers", order(), f"k{n}", perkey_by=name)
            for n, name in enumerate(names)
        )
    )
    assert [each.json["by"] for each in answers] == names
    assert sorted(each.by for each in given) == ["ann", "ann", "bob", "eve"]
    found = [(await client.send("GET", f"/v1/transfers/k{n}")).json["by"] for n in range(5)]
    assert found == names


async def test_looking(client: Client) -> None:
    for name in ("a%2F1", "a%2F2", "b"):
        await opened(client, name)
    listed = (await client.send("GET", "/v1/accounts?prefix=a/&limit=1")).json
    assert ([each["account"] for each in listed["accounts"]], listed["next"]) == (["a/1"], "a/1")
    rest = (await client.send("GET", "/v1/accounts?prefix=a/&after=a/1")).json
    assert [each["account"] for each in rest["accounts"]] == ["a/2"]
    for n in range(3):
        await post(client, "/v1/transfers", order(n + 1, "a/1", "b"), f"t{n}")
    lines = (await client.send("GET", "/v1/accounts/b/statement?after=1")).json["lines"]
    assert [(each["number"], each["amount"], each["balance"]) for each in lines] == [
        (2, 2, 3),
        (3, 3, 6),
    ]
    moved = [(await client.send("GET", f"/v1/transfers/t{n}")).json["at"] for n in (1, 2)]
    assert [each["at"] for each in lines] == moved
    found = (await client.send("GET", "/v1/trial-balance")).json
    assert (found["balanced"], found["accounts"]) == (True, 3)
    assert found["debits"] == found["credits"]
    none = (await client.send("GET", "/v1/accounts/none")).problem(404, "not-found")
    assert none["detail"] == "there is no account 'none'; open it first (PUT /v1/accounts/NAME)"
    (await client.send("GET", "/v1/transfers/none")).problem(404, "not-found")


async def test_an_account_is_opened_once(client: Client) -> None:
    await opened(client, "a")
    await opened(client, "a")
    other = json.dumps({"unit": "USD"}).encode()
    (await client.send("PUT", "/v1/accounts/a", other)).problem(409, "invalid-state")


async def test_callers_do_not_meet(store: AsyncStore, tmp_path: Path) -> None:
    """Neither in their keys, nor beyond their prefixes."""
    made = {
        name: identity.make(name, "write", prefixes)
        for name, prefixes in (("ann", [""]), ("bob", [""]), ("eve", ["eve/"]))
    }
    (tmp_path / "t.toml").write_text("".join(entry for _, entry in made.values()))
    app = application(store, Settings(tokens=str(tmp_path / "t.toml")))
    ann, bob, eve = (Client(app).as_(token) for token, _ in made.values())
    await opened(ann, "a", "b")
    assert (await post(ann, "/v1/transfers", order(1), KEY)).status == 201
    assert (await post(bob, "/v1/transfers", order(2), KEY)).status == 201
    assert await available(ann, "b") == 3
    await opened(eve, "eve%2F1")
    for wrong in (order(1), order(1, "eve/1", "b"), order(1, "a", "eve/1")):
        (await post(eve, "/v1/transfers", wrong, KEY)).problem(403, "forbidden")
        (await post(eve, "/v1/holds", wrong, KEY)).problem(403, "forbidden")
    held = await post(ann, "/v1/holds", order(1), "h")
    path = f"/v1/holds/{held.json['key'].replace('/', '%2F')}"
    (await post(eve, f"{path}/release")).problem(403, "forbidden")
    (await post(eve, f"{path}/settle", {}, "s")).problem(403, "forbidden")
    (await post(eve, f"/v1/transfers/ann%2F{KEY}/reverse")).problem(403, "forbidden")
    for target in (
        f"/v1/transfers/ann%2F{KEY}",
        "/v1/accounts/a",
        "/v1/accounts/a/statement",
        "/v1/accounts",
        "/v1/trial-balance",
    ):
        (await eve.send("GET", target)).problem(403, "forbidden")
