"""Several documents in one commit: all of it or nothing, and never on a stale read."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from perkey import AsyncStore
from perkey.server import identity
from perkey.server.app import application
from perkey.server.settings import Settings
from tests.server.client import Answer, Client


async def commit(client: Client, body: Any, **headers: str) -> Answer:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.send("POST", "/v1/commit", json.dumps(body).encode(), names)


async def test_all_or_nothing(client: Client) -> None:
    await client.create("a", 1)
    done = await commit(client, {"if": {"a": 1, "b": 0}, "put": {"a": 2, "b": 1}}, perkey_by="ann")
    assert done.status == 200
    written = {each["key"]: (each["version"], each["by"]) for each in done.json["written"]}
    assert written == {"a": (2, "ann"), "b": (1, "ann")}
    stale = await commit(client, {"if": {"a": 1, "b": 1}, "put": {"a": 9, "b": 9}})
    found = stale.problem(412, "conflict")
    assert found["moved"] == [{"key": "a", "expected": 1, "found": 2, "by": "ann"}]
    assert ((await client.get("a")).json, (await client.get("b")).json) == (2, 1)


async def test_a_key_that_was_only_read_counts(client: Client) -> None:
    await client.create("a", 1)
    await client.create("b", 1)
    assert (await commit(client, {"if": {"a": 1, "b": 1}, "put": {"b": 2}})).status == 200
    await client.put("a", 2, if_match='"1"')
    (await commit(client, {"if": {"a": 1, "b": 2}, "put": {"b": 3}})).problem(412, "conflict")


async def test_deleting(client: Client) -> None:
    await client.create("a", 1)
    assert (
        await commit(client, {"if": {"a": 1, "b": 0}, "put": {"b": 1}, "delete": ["a"]})
    ).status == 200
    (await client.get("a")).problem(410, "gone")
    again = await commit(client, {"if": {"a": 0}, "put": {"a": 5}})
    assert again.json["written"][0]["version"] == 3
    (await commit(client, {"if": {"a": 0}, "delete": ["a"]})).problem(400, "usage")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"if": {}, "put": {"a": 1}}, 428, "condition-required"),
        ({"if": {}, "delete": ["a"]}, 428, "condition-required"),
        ({"if": {"a": 1}, "put": {"a": 1}, "delete": ["a"]}, 400, "usage"),
        ({"if": {"a": 1}, "delete": ["a", "a"]}, 400, "usage"),
        ({"put": {"a": 1}}, 422, "invalid-body"),
        ({"if": {"a": "1"}}, 422, "invalid-body"),
        ({"if": {"a": 0}, "puts": {"a": 1}}, 422, "invalid-body"),
        ({"if": {"": 0}, "put": {"": 1}}, 400, "invalid-key"),
        ({"if": {str(n): 0 for n in range(5001)}}, 413, "limit-exceeded"),
    ],
)
async def test_what_is_refused(client: Client, body: Any, status: int, code: str) -> None:
    (await commit(client, body)).problem(status, code)


async def test_the_same_key_twice_is_written_once(client: Client) -> None:
    """A lost reply: with an Idempotency-Key the request may be sent again."""
    body = {"if": {"a": 0}, "put": {"a": 1}}
    first = await commit(client, body, idempotency_key="k")
    again = await commit(client, body, idempotency_key="k")
    assert (first.status, again.body) == (200, first.body)
    assert (await client.get("a")).etag == '"1"'


async def test_a_sum_that_many_move_never_changes(client: Client) -> None:
    names = [f"n{n}" for n in range(4)]
    for name in names:
        await client.create(name, 100)

    async def move(here: str, there: str) -> int:
        tries = 0
        while True:
            tries += 1
            one, other = await asyncio.gather(client.get(here), client.get(there))
            body = {
                "if": {here: int(one.etag.strip('"')), there: int(other.etag.strip('"'))},
                "put": {here: one.json - 1, there: other.json + 1},
            }
            if (await commit(client, body)).status == 200:
                return tries

    pairs = [(names[n % 4], names[(n + 1 + n // 4 % 3) % 4]) for n in range(40)]
    tries = await asyncio.gather(*(move(*pair) for pair in pairs))
    assert sum(tries) > len(pairs), "they did meet"
    values = [(await client.get(name)).json for name in names]
    assert sum(values) == 400


async def test_prefixes(store: AsyncStore, tmp_path: Path) -> None:
    token, entry = identity.make("agent", "write", ["mine/"])
    (tmp_path / "t.toml").write_text(entry)
    agent = Client(application(store, Settings(tokens=str(tmp_path / "t.toml")))).as_(token)
    assert (await commit(agent, {"if": {"mine/a": 0}, "put": {"mine/a": 1}})).status == 200
    for body in (
        {"if": {"mine/a": 1, "other": 0}, "put": {"mine/a": 2}},
        {"if": {"other": 0}, "put": {"other": 1}},
        {"if": {"other": 1}, "delete": ["other"]},
    ):
        (await commit(agent, body)).problem(403, "forbidden")
