"""The engine over HTTP: what starts, what is told to it, how it stands, and who may."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import perkey
from perkey import AsyncStore
from perkey.engine import AsyncEngine, Context, Definition, State, process
from perkey.errors import NotSupported
from perkey.server import identity
from perkey.server.app import application
from perkey.server.hosting import Processes
from perkey.server.settings import Settings
from tests.server import hosted
from tests.server.client import Answer, Client

ENGINE = "/v1/engine"


@asynccontextmanager
async def serving(
    store: AsyncStore,
    settings: Settings | None = None,
    processes: Processes | None = None,
) -> AsyncIterator[Client]:
    """A started application with an engine, which is ended."""
    settings = settings or replace(Settings(), engine_stop_s=20)
    app = application(store, settings, processes=processes or Processes(hosted.ALL[:3]))
    await app._start()
    try:
        yield Client(app)
    finally:
        await app.end()


@pytest.fixture
async def client(store: AsyncStore) -> AsyncIterator[Client]:
    async with serving(store) as client:
        yield client


def engine_of(client: Client) -> AsyncEngine:
    served = client.app.services.hosted
    assert served is not None
    return served.engine


async def ask(client: Client, path: str, body: Any = None, **headers: str) -> Answer:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    data = b"" if body is None else json.dumps(body).encode()
    return await client.send("POST", f"{ENGINE}/{path}", data, given)


async def look(client: Client, path: str = "") -> Any:
    answer = await client.send("GET", f"{ENGINE}{path}")
    assert answer.status == 200, answer
    return answer.json


async def started(client: Client, process: str, **body: Any) -> str:
    answer = await ask(client, f"processes/{process.replace('/', '%2F')}/start", body)
    assert answer.status == 201, answer
    found: str = answer.json["id"]
    assert answer.header("location") == f"{ENGINE}/instances/{found}"
    return found


# ------------------------------------------------------------------------------- starts


async def test_an_instance_from_its_start_to_its_result(client: Client) -> None:
    made = await started(client, "shop/add", variables={"numbers": [1, 2, 3]}, business_key="b")
    told = await look(client, f"/instances/{made}?wait=20")
    assert (told["process"], told["version"], told["state"]) == ("shop/add", 1, "completed")
    assert (told["result"], told["variables"]) == (6, {"numbers": [1, 2, 3]})
    assert (told["business_key"], told["address"]) == ("b", "b")
    assert (await look(client, f"/instances/{made}/steps")) == {"steps": {"sum": 6}}


async def test_one_that_fails_says_why(client: Client) -> None:
    made = await started(client, "fails")
    told = await look(client, f"/instances/{made}?wait=20")
    assert (told["state"], told["error"]) == ("failed", "ValueError: no such thing")
    assert "result" not in told


async def test_a_start_with_a_key_is_one_start(client: Client) -> None:
    path, body = "processes/shop%2Fadd/start", {"variables": {"numbers": [4]}}
    first = await ask(client, path, body, idempotency_key='"k"')
    again = await ask(client, path, body, idempotency_key='"k"')
    assert (first.status, first.body) == (again.status, again.body) == (201, first.body)
    assert (first.header("idempotent-replayed"), again.header("idempotent-replayed")) == (
        None,
        "true",
    )
    for other in ({}, {**body, "business_key": "x"}, {**body, "version": 2}):
        refused = await ask(client, path, other, idempotency_key='"k"')
        assert refused.status in (404, 422), refused
    assert len(engine_of(client).instances("shop/add")) == 1
    (await ask(client, path, body, idempotency_key="")).problem(400, "bad-request")


async def test_many_starts_with_one_key_at_once(client: Client) -> None:
    path, body = "processes/shop%2Fadd/start", {"variables": {"numbers": [4]}}
    answers = await asyncio.gather(
        *(ask(client, path, body, idempotency_key="k") for _ in range(20))
    )
    assert {each.status for each in answers} == {201}
    assert len({each.json["id"] for each in answers}) == 1
    assert len(engine_of(client).instances("shop/add")) == 1


async def test_a_version_by_its_number(client: Client) -> None:
    @process("shop/add")
    async def newer(ctx: Context) -> str:
        return "newer"

    assert isinstance(newer, Definition)
    await engine_of(client).register_process(newer)
    for body, result in (({}, "newer"), ({"version": 1}, 0), ({"version": 2}, "newer")):
        made = await started(client, "shop/add", **body)
        assert (await look(client, f"/instances/{made}?wait=20"))["result"] == result
    told = await look(client, "/processes/shop%2Fadd")
    assert [each["version"] for each in told["versions"]] == [1, 2]
    assert (told["latest"], told["starts"]) == (2, [])
    path = "processes/shop%2Fadd/start"
    (await ask(client, path, {"version": 3})).problem(404, "not-found")
    (await ask(client, path, {"version": 0})).problem(400, "usage")
    (await ask(client, path, {"version": "1"})).problem(422, "invalid-body")
    (await ask(client, path, {"nothing": 1})).problem(422, "invalid-body")
    (await ask(client, "processes/none/start", {})).problem(404, "not-found")


# ----------------------------------------------------------------------------- messages


async def test_a_message_starts_an_instance_and_another_reaches_it(client: Client) -> None:
    placed = {"name": "shop/placed", "payload": {"order": "o1"}, "message_id": "m1"}
    first = (await ask(client, "publish", placed)).json
    assert first["outcome"] == "started"
    again = (await ask(client, "publish", placed)).json
    assert again == {"outcome": "duplicate", "instance": first["instance"]}
    paid = {"name": "shop/paid", "payload": 12, "key": "o1", "ttl": 60}
    assert (await ask(client, "publish", paid)).json["outcome"] in ("delivered", "waiting")
    told = await look(client, f"/instances/{first['instance']}?wait=20")
    assert (told["state"], told["result"]) == ("completed", 12)
    nobody = {"name": "shop/none"}
    assert (await ask(client, "publish", nobody)).json == {"outcome": "dropped", "instance": ""}
    for ttl in (-1, 1e9):
        (await ask(client, "publish", {**nobody, "ttl": ttl})).problem(400, "usage")
    (await ask(client, "publish", {"name": ""})).problem(400, "invalid-key")
    (await ask(client, "publish", {})).problem(422, "invalid-body")


async def test_a_publication_whose_reply_was_lost_is_had_again(client: Client) -> None:
    placed = {"name": "shop/placed", "payload": {"order": "o2"}}
    first = await ask(client, "publish", placed, idempotency_key="k")
    again = await ask(client, "publish", placed, idempotency_key="k")
    assert first.body == again.body
    assert len(engine_of(client).instances("shop/order")) == 1
    other = {"name": "shop/placed", "payload": {"order": "o3"}}
    (await ask(client, "publish", other, idempotency_key="k")).problem(422, "key-reused")


async def test_a_signal_starts_whoever_declares_it(client: Client) -> None:
    (made,) = (await ask(client, "signal", {"name": "shop/everybody"})).json["started"]
    assert (await look(client, f"/instances/{made}"))["process"] == "shop/order"
    assert (await ask(client, "signal", {"name": "nobody's"})).json == {"started": []}


# ---------------------------------------------------------------------------- instances


async def test_instances_are_listed_in_pages(client: Client) -> None:
    for number in range(5):
        made = await started(client, "shop/add", variables={"numbers": [number]})
        await look(client, f"/instances/{made}?wait=20")
    waiting = (await ask(client, "signal", {"name": "shop/everybody"})).json["started"]
    seen: list[str] = []
    page = await look(client, "/instances?limit=2")
    while True:
        seen += [each["id"] for each in page["instances"]]
        if "next" not in page:
            break
        page = await look(client, f"/instances?limit=2&after={page['next']}")
    assert len(seen) == len(set(seen)) == 6
    assert len((await look(client, "/instances?process=shop/add"))["instances"]) == 5
    running = (await look(client, "/instances?state=running"))["instances"]
    assert [each["id"] for each in running] == waiting
    for query in ("state=dead", "limit=0", "limit=1001", "x=1"):
        (await client.send("GET", f"{ENGINE}/instances?{query}")).problem(400, "bad-request")
    (await client.send("GET", f"{ENGINE}/instances?after=../x")).problem(400, "usage")


async def test_a_page_of_one_process_is_filled(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of other processes stand between its instances, and do not count."""
    made = []
    for _ in range(3):
        made.append(await started(client, "shop/add"))
        for _ in range(3):
            await started(client, "fails")
    page = await look(client, "/instances?process=shop/add&limit=2")
    assert [each["id"] for each in page["instances"]] == sorted(made)[:2]
    rest = await look(client, f"/instances?process=shop/add&limit=2&after={page['next']}")
    assert [each["id"] for each in rest["instances"]] == sorted(made)[2:]
    assert "next" not in rest
    assert await look(client, "/instances?process=none&limit=5") == {"instances": []}
    monkeypatch.setattr("perkey.server.processes.LOOKS", 2)
    short = await look(client, "/instances?process=none&limit=5")
    assert short["instances"] == []
    assert short["next"], "it says where to go on instead of looking at all of them"


async def test_the_link_leads_to_the_next_page(client: Client) -> None:
    for _ in range(2):
        await started(client, "shop/add")
    answer = await client.send("GET", f"{ENGINE}/instances?limit=1&process=shop/add")
    link = (answer.header("link") or "").partition(">")[0].removeprefix("<")
    rest = await look(client, f"/instances{link}")
    assert rest["instances"][0]["id"] > answer.json["instances"][0]["id"]


@pytest.mark.parametrize("name", ["none", "%2E%2E%2Fx", "a%00b", "x" * 500, "%F0%9F%90%8D"])
async def test_an_instance_that_there_is_not(client: Client, name: str) -> None:
    for path in ("", "/steps", "?wait=20"):
        answer = await client.send("GET", f"{ENGINE}/instances/{name}{path}")
        answer.problem(404, "not-found")
    (await ask(client, f"instances/{name}/cancel")).problem(404, "not-found")


async def test_one_is_cancelled_once_or_twice(client: Client) -> None:
    (made,) = (await ask(client, "signal", {"name": "shop/everybody"})).json["started"]
    for _ in range(2):
        answer = await ask(client, f"instances/{made}/cancel?wait=20")
        assert (answer.status, answer.json["state"]) == (200, "cancelled")


async def test_a_wait_gives_up_and_says_how_it_stands(client: Client) -> None:
    (made,) = (await ask(client, "signal", {"name": "shop/everybody"})).json["started"]
    assert (await look(client, f"/instances/{made}?wait=1"))["state"] == "running"
    for wait in ("21", "-1", "x"):
        answer = await client.send("GET", f"{ENGINE}/instances/{made}?wait={wait}")
        answer.problem(400, "bad-request")


async def test_the_end_of_the_server_ends_a_wait(client: Client) -> None:
    (made,) = (await ask(client, "signal", {"name": "shop/everybody"})).json["started"]
    waiting = asyncio.create_task(look(client, f"/instances/{made}?wait=20"))
    while not engine_of(client).instance(made)._instance.waiters:  # noqa: ASYNC110
        await asyncio.sleep(0)
    client.app.stop()
    async with asyncio.timeout(60):
        assert (await waiting)["state"] == "running"


async def test_two_servers_on_one_store_tell_the_same(tmp_path: Path) -> None:
    """Whichever replica is asked: it knows the instances of the other, and ends them too."""
    url = f"sqlite:///{tmp_path}/store.db"
    async with (
        await perkey.aopen(url) as one,
        await perkey.aopen(url) as two,
        serving(one) as here,
        serving(two) as there,
    ):
        (made, *_) = (await ask(here, "signal", {"name": "shop/everybody"})).json["started"]
        assert (await look(there, f"/instances/{made}"))["state"] == "running"
        listed = (await look(there, "/instances?state=running"))["instances"]
        assert [each["id"] for each in listed] == [made]
        ended = await ask(there, f"instances/{made}/cancel?wait=20")
        assert ended.json["state"] == "cancelled"
        path, body = "processes/shop%2Fadd/start", {"variables": {"numbers": [4]}}
        first = await ask(here, path, body, idempotency_key="k")
        again = await ask(there, path, body, idempotency_key="k")
        assert (again.body, again.header("idempotent-replayed")) == (first.body, "true")
        (await ask(there, path, {}, idempotency_key="k")).problem(422, "key-reused")


# ---------------------------------------------------------------------------- lifecycle


async def test_pause_and_resume(client: Client) -> None:
    assert (await look(client))["state"] == "started"
    for _ in range(2):
        assert (await ask(client, "pause")).json["state"] == "paused"
    held = await started(client, "shop/add")
    assert (await look(client, f"/instances/{held}"))["state"] == "pending"
    placed = {"name": "shop/placed", "payload": {"order": "o"}}
    assert (await ask(client, "publish", placed)).json["outcome"] == "buffered"
    assert (await ask(client, "resume")).json["state"] == "started"
    assert (await look(client, f"/instances/{held}?wait=20"))["state"] == "completed"
    assert len(engine_of(client).instances("shop/order")) == 1


async def test_drain_waits_for_what_runs_and_goes_on_without_its_caller(client: Client) -> None:
    (made,) = (await ask(client, "signal", {"name": "shop/everybody"})).json["started"]
    for _ in range(2):
        answer = await ask(client, "drain")
        assert (answer.status, answer.json["draining"]) == (202, True)
        assert answer.json["instances"]["running"] == 1
    refused = await ask(client, "processes/shop%2Fadd/start", {})
    assert "draining" in refused.problem(409, "invalid-state")["detail"]
    engine_of(client)._runner.cancel(engine_of(client).instance(made)._instance)
    answer = await ask(client, "drain?wait=20")
    assert (answer.status, answer.json["state"]) == (200, "stopped")
    assert (await ask(client, "drain?wait=20")).status == 200
    (await ask(client, "pause")).problem(409, "invalid-state")
    (await ask(client, "resume")).problem(409, "invalid-state")
    assert (await client.send("GET", "/readyz")).status == 200, "it was asked for"


async def test_an_engine_that_ended_by_itself_is_not_ready(client: Client) -> None:
    await engine_of(client)._give_up()
    assert engine_of(client).state is State.STOPPED
    refused = (await client.send("GET", "/readyz")).problem(503, "store-unavailable")
    assert "lost its lease" in refused["detail"]


async def test_main_runs_beside_it_and_its_failure_is_told(
    store: AsyncStore, caplog: pytest.LogCaptureFixture
) -> None:
    ran = asyncio.Event()

    async def main(engine: AsyncEngine) -> None:
        await engine.start_latest("shop/add")
        ran.set()
        raise RuntimeError("what main says")

    async with serving(store, processes=Processes(hosted.ALL, main)) as client:
        async with asyncio.timeout(60):
            await ran.wait()
        assert len(engine_of(client).instances()) == 1
    assert "what main says" in caplog.text


async def test_a_server_without_an_engine_says_so(store: AsyncStore) -> None:
    client = Client(application(store))
    refused = (await client.send("GET", ENGINE)).problem(404, "not-found")
    assert "--engine FILE" in refused["detail"]
    (await ask(client, "publish", {"name": "x"})).problem(404, "not-found")


async def test_a_store_that_cannot_hold_an_engine(tmp_path: Path) -> None:
    async with await perkey.aopen(f"file://{tmp_path}/store") as store:
        with pytest.raises(NotSupported, match="commits"):
            application(store, processes=Processes(hosted.ALL))


# ------------------------------------------------------------------------------ who may


async def test_roles_and_prefixes(store: AsyncStore, tmp_path: Path) -> None:
    made = {
        "reader": identity.make("reader", "read", [""]),
        "shop": identity.make("shop", "write", ["shop/"]),
        "limited": identity.make("limited", "admin", ["shop/"]),
        "boss": identity.make("boss", "admin", [""]),
    }
    (tmp_path / "t.toml").write_text("\n".join(entry for _, entry in made.values()))
    settings = Settings(tokens=str(tmp_path / "t.toml"), engine_stop_s=20)
    async with serving(store, settings) as anybody:
        reader, shop, limited, boss = (anybody.as_(token) for token, _ in made.values())
        (await anybody.send("GET", ENGINE)).problem(401, "unauthorised")
        for path, body in (("publish", {"name": "x"}), ("signal", {"name": "x"}),
                           ("processes/fails/start", {}), ("instances/x/cancel", {})):  # fmt: skip
            (await ask(reader, path, body)).problem(403, "forbidden")
        for path in ("pause", "resume", "drain"):
            for caller in (reader, shop, limited):
                (await ask(caller, path)).problem(403, "forbidden")
        mine, other = await started(shop, "shop/add"), await started(boss, "fails")
        (await ask(shop, "processes/fails/start", {})).problem(403, "forbidden")
        (await ask(shop, "publish", {"name": "placed"})).problem(403, "forbidden")
        (await ask(shop, "signal", {"name": "everybody"})).problem(403, "forbidden")
        assert (await ask(shop, "signal", {"name": "shop/everybody"})).status == 200
        for path in ("", "/steps"):
            answer = await shop.send("GET", f"{ENGINE}/instances/{other}{path}")
            answer.problem(403, "forbidden")
        (await ask(shop, f"instances/{other}/cancel")).problem(403, "forbidden")
        (await shop.send("GET", f"{ENGINE}/processes/fails")).problem(403, "forbidden")
        listed = {each["process"] for each in (await look(shop, "/instances"))["instances"]}
        assert listed == {"shop/add", "shop/order"}
        known = [each["process"] for each in (await look(shop, "/processes"))["processes"]]
        assert known == ["shop/add", "shop/order"]
        assert (await look(boss, f"/instances/{mine}?wait=20"))["state"] == "completed"
        assert (await ask(boss, "pause")).json["state"] == "paused"


async def test_two_callers_never_meet_at_one_key(store: AsyncStore, tmp_path: Path) -> None:
    made = [identity.make(name, "write", [""]) for name in ("ann", "bob")]
    (tmp_path / "t.toml").write_text("\n".join(entry for _, entry in made))
    async with serving(store, Settings(tokens=str(tmp_path / "t.toml"))) as anybody:
        ids = set()
        for token, _ in made:
            for _ in range(2):
                path = "processes/shop%2Fadd/start"
                answer = await ask(anybody.as_(token), path, {}, idempotency_key="k")
                ids.add(answer.json["id"])
        assert len(ids) == 2
