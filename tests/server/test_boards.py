"""Boards over HTTP: tasks are claimed by one worker at a time, and no success is false."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from perkey import AsyncStore
from perkey.server import identity
from perkey.server.app import application
from perkey.server.settings import Settings
from tests.server.client import Answer, Client


async def ask(
    client: Client, verb: str, body: Any = None, run: str = "run", **headers: str
) -> Answer:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if verb == "claim" and body:
        body = {"worker": "anybody", **body}
    return await client.send(
        "POST", f"/v1/boards/{run}/{verb}", json.dumps(body or {}).encode(), given
    )


async def made(client: Client, tasks: Any, run: str = "run") -> Answer:
    return await client.send("PUT", f"/v1/boards/{run}", json.dumps({"tasks": tasks}).encode())


async def test_a_run_from_its_tasks_to_its_success(client: Client) -> None:
    assert (await made(client, {"a": {"file": "x"}, "b": None})).status == 200
    assert (await made(client, {"a": {"file": "x"}, "b": None})).status == 200
    (await made(client, ["c"])).problem(412, "conflict")
    first = (await ask(client, "claim", {"lease": 60, "worker": "w1"})).json
    assert (first["task"], first["spec"], first["attempt"]) == ("a", {"file": "x"}, 1)
    mine = {"task": "a", "token": first["token"], "worker": "w1"}
    longer = (await ask(client, "heartbeat", {**mine, "lease": 600})).json
    begins, ends = (datetime.fromisoformat(each["expires"]) for each in (first, longer))
    assert timedelta(seconds=500) < ends - begins < timedelta(seconds=3600)
    for _ in range(2):
        done = await ask(client, "finish", {**mine, "output": {"words": 3}})
        assert done.json["tasks"][0]["output"] == {"words": 3}
    missing = (await ask(client, "complete")).problem(409, "incomplete-run")
    assert "b" in json.dumps(missing)
    second = (await ask(client, "claim", {"lease": 60})).json
    last = {"task": "b", "token": second["token"], "output": "x"}
    assert (await ask(client, "finish", last)).status == 200
    assert (await ask(client, "claim", {"lease": 60})).status == 204
    assert (await ask(client, "complete")).json["completed"] is True
    assert (await client.send("GET", "/v1/boards/run")).json["completed"] is True


async def test_what_is_at_work_elsewhere(client: Client) -> None:
    await made(client, ["a"])
    await ask(client, "claim", {"lease": 60})
    held = await ask(client, "claim", {"lease": 60})
    told = held.problem(409, "lease-held")
    assert told["detail"].endswith('wait for it with "wait": SECONDS')
    assert "now" not in told
    assert 1 <= int(held.header("retry-after") or 0) <= 60


async def test_late_and_foreign_tokens(client: Client) -> None:
    await made(client, ["a"])
    token = (await ask(client, "claim", {"lease": 60})).json["token"]
    for verb, more in (("finish", {"output": 1}), ("heartbeat", {"lease": 1}), ("release", {}),
                       ("fail", {"reason": "x"})):  # fmt: skip
        body = {"task": "a", "token": token + 1, **more}
        (await ask(client, verb, body)).problem(409, "lease-lost")
    assert (await ask(client, "release", {"task": "a", "token": token})).status == 200
    retried = (await ask(client, "claim", {"lease": 60})).json
    assert (retried["token"] > token, retried["attempt"]) == (True, 1)
    body = {"task": "a", "token": retried["token"], "reason": "no", "retry": True}
    assert (await ask(client, "fail", body)).json == {"again": True}


async def test_a_claim_whose_reply_was_lost_is_had_again(client: Client) -> None:
    """With an Idempotency-Key the same claim comes back, status, headers and body."""
    await made(client, ["a", "b"])
    first = await ask(client, "claim", {"lease": 60}, idempotency_key='"k1"')
    again = await ask(client, "claim", {"lease": 60}, idempotency_key='"k1"')
    assert (again.status, again.body) == (first.status, first.body)
    assert again.header("content-type") == first.header("content-type")
    assert again.header("x-content-type-options") == "nosniff"
    other = await ask(client, "claim", {"lease": 60}, idempotency_key='"k2"')
    assert other.json["task"] == "b"
    refused = await ask(client, "claim", {"lease": 61}, idempotency_key='"k1"')
    refused.problem(422, "key-reused")
    (await ask(client, "claim", {"lease": 60}, idempotency_key="")).problem(400, "bad-request")


async def test_a_refused_claim_frees_its_key(client: Client) -> None:
    await made(client, ["a"])
    token = (await ask(client, "claim", {"lease": 60})).json["token"]
    (await ask(client, "claim", {"lease": 60}, idempotency_key="k")).problem(409, "lease-held")
    await ask(client, "release", {"task": "a", "token": token})
    assert (await ask(client, "claim", {"lease": 60}, idempotency_key="k")).status == 200


@pytest.mark.parametrize("key", [None, "k"])
async def test_who_waits_for_a_task_does_not_hold_up_the_server_s_end(
    client: Client, key: str | None
) -> None:
    await made(client, ["a"])
    token = (await ask(client, "claim", {"lease": 600})).json["token"]
    given = {} if key is None else {"idempotency_key": key}
    waiting = asyncio.create_task(ask(client, "claim", {"lease": 60, "wait": 1e9}, **given))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not waiting.done()
    client.app.services.stopping.set()
    refused = await waiting
    assert "this server stops" in refused.problem(503, "overloaded")["detail"]
    assert refused.header("retry-after") == "1"
    # What can be had without waiting is still given, and the key of the refused is free.
    (await ask(client, "claim", {"lease": 60, "wait": 1e9})).problem(503, "overloaded")
    await ask(client, "release", {"task": "a", "token": token})
    assert (await ask(client, "claim", {"lease": 60, "wait": 1e9}, **given)).status == 200


async def test_a_claim_is_found_by_who_waits_for_it(client: Client) -> None:
    await made(client, ["a"])
    token = (await ask(client, "claim", {"lease": 600})).json["token"]
    waiting = asyncio.create_task(ask(client, "claim", {"lease": 60, "wait": 1e9}))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    await ask(client, "release", {"task": "a", "token": token})
    found = await waiting
    assert (found.status, found.json["task"], found.json["attempt"]) == (200, "a", 1)
    (await ask(client, "claim", {"lease": 60, "wait": 0.01})).problem(409, "lease-held")


async def test_workers_share_the_tasks(client: Client) -> None:
    tasks = [f"t{n:02}" for n in range(20)]
    await made(client, tasks)
    found: list[str] = []

    async def work(name: str) -> None:
        while True:
            answer = await ask(client, "claim", {"lease": 60, "worker": name, "wait": 20})
            if answer.status == 204:
                return
            found.append(answer.json["task"])
            mine = {"task": answer.json["task"], "token": answer.json["token"], "worker": name}
            await ask(client, "finish", {**mine, "output": name})

    await asyncio.gather(*(work(f"w{n}") for n in range(5)))
    assert sorted(found) == tasks
    assert (await ask(client, "complete")).json["completed"] is True


async def test_bodies_that_do_not_fit(client: Client) -> None:
    (await made(client, 5)).problem(422, "invalid-body")
    (await made(client, ["a", "a"])).problem(400, "usage")
    await made(client, ["a"])
    for body in ({}, {"lease": "1"}, {"lease": 1, "x": 1}):
        (await ask(client, "claim", body)).problem(422, "invalid-body")
    (await ask(client, "claim", {"lease": -1})).problem(400, "usage")
    (await ask(client, "claim", {"lease": 1}, run="none")).problem(404, "not-found")
    nobody = (await ask(client, "claim", {"lease": 1, "worker": ""})).problem(400, "usage")
    assert "who holds the task" in nobody["detail"]


async def test_runs_are_listed(client: Client) -> None:
    for run in ("a%2F1", "a%2F2", "b"):
        await made(client, ["t"], run)
    listed = (await client.send("GET", "/v1/boards?prefix=a/&limit=1")).json
    assert ([each["run"] for each in listed["boards"]], listed["next"]) == (["a/1"], "a/1")
    rest = (await client.send("GET", "/v1/boards?prefix=a/&after=a/1")).json
    assert [each["run"] for each in rest["boards"]] == ["a/2"]


async def test_callers_keep_to_their_names_and_prefixes(store: AsyncStore, tmp_path: Path) -> None:
    token, entry = identity.make("agent", "write", ["mine/"])
    (tmp_path / "t.toml").write_text(entry)
    agent = Client(application(store, Settings(tokens=str(tmp_path / "t.toml")))).as_(token)
    (await made(agent, ["a"], "other")).problem(403, "forbidden")
    (await agent.send("GET", "/v1/boards")).problem(403, "forbidden")
    await made(agent, ["a"], "mine%2F1")
    found = (await ask(agent, "claim", {"lease": 60, "worker": "boss"}, run="mine%2F1")).json
    assert found["worker"] == "agent/boss"
