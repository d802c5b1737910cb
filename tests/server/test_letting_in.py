"""Who is let in: tokens, roles, prefixes, hosts, origins; and how much of it at a time."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from perkey import AsyncStore
from perkey.errors import Unauthorised, UsageError
from perkey.server import identity
from perkey.server.app import application
from perkey.server.documents import JSON_PATCH
from perkey.server.identity import Tokens
from perkey.server.settings import Settings
from tests.server.client import Client, document
from tests.unit.manual_clock import ManualClock

LOCAL = "localhost"


class Guarded:
    """A server with three tokens."""

    def __init__(self, store: AsyncStore, path: Path) -> None:
        made = {
            "reader": identity.make("reader", "read", [""]),
            "agent": identity.make("agent", "write", ["runs/", "notes/"]),
            "boss": identity.make("boss", "admin", [""]),
        }
        self.tokens = {name: token for name, (token, _) in made.items()}
        path.write_text("\n".join(entry for _, entry in made.values()))
        self.anybody = Client(application(store, Settings(host="0.0.0.0", tokens=str(path))))
        self.reader, self.agent, self.boss = (
            self.anybody.as_(self.tokens[name]) for name in ("reader", "agent", "boss")
        )


@pytest.fixture
async def guarded(store: AsyncStore, tmp_path: Path) -> Guarded:
    return Guarded(store, tmp_path / "tokens.toml")


async def test_nobody_without_a_token(guarded: Guarded) -> None:
    refused = await guarded.anybody.get("k")
    refused.problem(401, "unauthorised")
    assert (refused.header("www-authenticate") or "").startswith("Bearer")
    for wrong in ("", "Bearer", "Bearer x", f"Basic {guarded.tokens['boss']}", "bearer \xff"):
        answer = await guarded.anybody.get("k", authorization=wrong)
        answer.problem(401, "unauthorised")
    twice = [("authorization", f"Bearer {guarded.tokens['boss']}")] * 2
    (await guarded.anybody.send("GET", document("k"), headers=twice)).problem(401, "unauthorised")
    assert (await guarded.anybody.send("GET", "/healthz")).status == 200
    assert (await guarded.anybody.send("GET", "/problems")).status == 200


async def test_a_path_that_does_not_exist_says_so_to_everybody(guarded: Guarded) -> None:
    (await guarded.anybody.send("GET", "/v1/nothing")).problem(404, "no-such-path")


async def test_roles(guarded: Guarded) -> None:
    await guarded.boss.create("k", 1)
    assert (await guarded.reader.get("k")).json == 1
    (await guarded.reader.put("k", 2, if_match="*")).problem(403, "forbidden")
    (await guarded.reader.delete("k", if_match="*")).problem(403, "forbidden")
    (await guarded.reader.patch("k", [], JSON_PATCH, if_match="*")).problem(403, "forbidden")
    assert (await guarded.boss.get("k")).etag == '"1"'


async def test_prefixes(guarded: Guarded) -> None:
    await guarded.boss.create("secret", 1)
    await guarded.agent.create("runs/1", 1)
    await guarded.agent.create("notes/1", 1)
    for path in ("", "/history", "/versions/1", "/diff?from=0&to=1", "/blame"):
        answer = await guarded.agent.send("GET", document("secret") + path)
        answer.problem(403, "forbidden")
    for key in ("runs", "secret", "run", "RUNS/1", "x/runs/"):
        (await guarded.agent.put(key, 1, if_match="*")).problem(403, "forbidden")
        (await guarded.agent.delete(key, if_match="*")).problem(403, "forbidden")
    (await guarded.agent.send("GET", "/v1/documents")).problem(403, "forbidden")
    (await guarded.agent.send("GET", "/v1/documents?prefix=run")).problem(403, "forbidden")
    found = (await guarded.agent.send("GET", "/v1/documents?prefix=runs/1")).json["documents"]
    assert [each["key"] for each in found] == ["runs/1"]


async def test_pages_stay_within_the_prefix(guarded: Guarded) -> None:
    """What follows ``after`` is still under the prefix, whatever ``after`` says."""
    await guarded.boss.create("z", 1)
    await guarded.agent.create("runs/1", 1)
    for after in ("", "a", "runs/1", "y"):
        target = f"/v1/documents?prefix=runs/&after={after}"
        found = (await guarded.agent.send("GET", target)).json["documents"]
        assert {each["key"] for each in found} <= {"runs/1"}


@pytest.mark.parametrize(
    ("claimed", "by"),
    [
        (None, "agent"),
        ("agent", "agent"),
        ("agent/step-3", "agent/step-3"),
        ("boss", "agent/boss"),
        ("agentx", "agent/agentx"),
        ("boss/agent/", "agent/boss/agent/"),
        ("", "agent"),
        ("/boss", "agent//boss"),
    ],
)
async def test_nobody_writes_as_somebody_else(
    guarded: Guarded, claimed: str | None, by: str
) -> None:
    headers = {} if claimed is None else {"perkey_by": claimed}
    made = await guarded.agent.put("runs/k", 1, if_none_match="*", **headers)
    assert made.json["by"] == by


async def test_an_author_that_cannot_be_read_is_refused_by_every_write(guarded: Guarded) -> None:
    """Also by those that keep no author."""
    for path in ("/v1/engine/publish", "/v1/boards/runs%2F1/claim", "/v1/transfers"):
        answer = await guarded.boss.send("POST", path, b"{}", {"perkey-by": "x" * 300})
        assert "author of at most" in answer.problem(400, "usage")["detail"]


async def test_two_authors_in_one_request(guarded: Guarded) -> None:
    lines = [("perkey-by", "a"), ("perkey-by", "b"), ("if-none-match", "*")]
    answer = await guarded.agent.send("PUT", document("runs/k"), b"1", lines)
    answer.problem(400, "bad-request")


async def test_who_am_i(guarded: Guarded, client: Client) -> None:
    assert (await guarded.agent.send("GET", "/v1/whoami")).json == {
        "name": "agent", "role": "write", "prefixes": ["runs/", "notes/"]
    }  # fmt: skip
    assert (await client.send("GET", "/v1/whoami")).json["name"] == ""


# ------------------------------------------------------------------------- the token file


def test_the_file_holds_no_token() -> None:
    token, entry = identity.make('a"\\\n'.strip(), "read", ["é\t", '"'])
    assert token not in entry
    assert token.removeprefix(identity.PREFIX) not in entry
    (caller,) = identity.parse(entry).values()
    assert (caller.name, caller.role, caller.prefixes) == ('a"\\', "read", ("é\t", '"'))
    assert len({identity.make("a", "read", [""])[0] for _ in range(100)}) == 100


GOOD = identity.make("a", "read", [""])[1]


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("[[token", "not TOML"),
        ("token = 1", "tables"),
        ("token = [1]", "table"),
        (GOOD.replace("sha256:", "md5:"), "sha256"),
        (GOOD + GOOD, "twice"),
        (GOOD.replace('"read"', '"root"'), "role"),
        (GOOD.replace('"a"', '"a/b"'), "slash"),
        (GOOD.replace('"a"', '""'), "name"),
        (GOOD.replace('[""]', '""'), "prefixes"),
        (GOOD.replace("role", "roles"), "unknown"),
    ],
)
def test_a_broken_file_is_refused(broken: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        identity.parse(broken)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path, clock = tmp_path / "tokens.toml", ManualClock()
    old, entry = identity.make("old", "read", [""])
    path.write_text(entry)
    tokens = Tokens(str(path), clock)
    given = [f"Bearer {old}".encode()]
    assert tokens.caller(given).name == "old"
    new, entry = identity.make("newer", "read", [""])
    path.write_text(entry)
    os.utime(path, ns=(1, 1))
    clock.sleep(identity.RELOAD_S + 1)
    with pytest.raises(Unauthorised):
        tokens.caller(given)
    assert tokens.caller([f"Bearer {new}".encode()]).name == "newer"
    path.write_text("[[broken")
    clock.sleep(identity.RELOAD_S + 1)
    assert tokens.caller([f"Bearer {new}".encode()]).name == "newer", "the former tokens stay"


def test_a_missing_file_is_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        Tokens(str(tmp_path / "none"), ManualClock())


# ---------------------------------------------------------------------- hosts and origins


def test_without_tokens_only_loopback() -> None:
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost", "LOCALHOST"):
        assert Settings(host=host).host == host
    for host in ("0.0.0.0", "::", "", "192.168.0.1", "example.org", "127.0.0.1.example.org"):
        with pytest.raises(UsageError, match="token"):
            Settings(host=host)
        assert Settings(host=host, tokens="tokens.toml").host == host


@pytest.mark.parametrize("host", ["localhost", f"{LOCAL}:8420", "127.0.0.1:1", "[::1]", "[::1]:80"])
async def test_hosts_that_are_served(client: Client, host: str) -> None:
    assert (await client.send("GET", "/healthz", headers={"host": host})).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8420", "localhost.evil.example", "127.0.0.1.nip.example",
             "", ":", f"{LOCAL}:8420@evil.example", "10.0.0.1"],
)  # fmt: skip
async def test_a_name_that_was_made_to_point_here(client: Client, host: str) -> None:
    (await client.send("GET", document("k"), headers={"host": host})).problem(421, "wrong-host")


async def test_one_host_exactly(client: Client) -> None:
    lines = [("host", "localhost"), ("host", "localhost")]
    (await client.send("GET", "/healthz", headers=lines)).problem(400, "bad-request")


async def test_allowed_hosts(store: AsyncStore) -> None:
    client = Client(application(store, Settings(hosts=("Perkey.Example",))))
    for host, status in (("perkey.example:443", 200), ("localhost", 200), ("other.example", 421)):
        assert (await client.send("GET", "/healthz", headers={"host": host})).status == status


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"http://{LOCAL}:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://localhost", "sec-fetch-site": "cross-site"},
    ],
)
async def test_pages_of_others_cannot_write(client: Client, headers: dict[str, str]) -> None:
    given = {"if-none-match": "*", **headers}
    (await client.send("PUT", document("k"), b"1", given)).problem(403, "cross-origin")
    (await client.get("k")).problem(404, "not-found")


@pytest.mark.parametrize(
    "headers", [{"origin": "http://localhost"}, {"sec-fetch-site": "same-origin"}, {}]
)
async def test_its_own_pages_can(client: Client, headers: dict[str, str]) -> None:
    given = {"if-none-match": "*", **headers}
    made = await client.send("PUT", document("k"), b"1", given)
    assert made.status == 201
    assert not [name for name, _ in made.headers if name.startswith("access-control")]


async def test_every_answer_is_careful(client: Client) -> None:
    for target in ("/healthz", "/none", "/problems/conflict", document("k")):
        answer = await client.send("GET", target)
        assert answer.header("x-content-type-options") == "nosniff"
        assert "default-src 'none'" in (answer.header("content-security-policy") or "")


# -------------------------------------------------------------------------------- limits


def limited(store: AsyncStore, **limits: float) -> Client:
    return Client(application(store, replace(Settings(), **limits)))  # type: ignore[arg-type]  # numbers


async def test_long_bodies(store: AsyncStore) -> None:
    client = limited(store, body_bytes=10)
    for body in (b'"' + b"x" * 9 + b'"', [b'"xxxx', b"xxxxx", b'x"']):
        answer = await client.send("PUT", document("k"), body, {"if-none-match": "*"})
        answer.problem(413, "limit-exceeded")
        assert answer.header("connection") == "close", "the rest of it must not be a request"
    assert (
        await client.send("PUT", document("k"), b'"12345678"', {"if-none-match": "*"})
    ).status == 201


async def test_a_length_that_is_a_lie(store: AsyncStore) -> None:
    client = limited(store, body_bytes=10)
    given = {"if-none-match": "*", "content-length": "9" * 30}
    answer = await client.send("PUT", document("k"), headers=given)
    answer.problem(413, "limit-exceeded")


async def test_all_bodies_together(store: AsyncStore) -> None:
    client = limited(store, bodies_bytes=10)
    answer = await client.put("k", "x" * 20, if_none_match="*")
    answer.problem(503, "overloaded")
    assert answer.header("retry-after") == "1"
    assert (await client.put("k", 1, if_none_match="*")).status == 201, "it was given back"


async def test_a_body_that_does_not_come(store: AsyncStore) -> None:
    client = limited(store, body_s=0.01)
    given = {"if-none-match": "*", "content-length": "5"}
    answer = await client.send("PUT", document("k"), headers=given, parts=[])
    answer.problem(408, "request-timeout")
    assert answer.header("connection") == "close"


async def test_more_requests_than_it_may_work_on(store: AsyncStore) -> None:
    client = limited(store, requests=2)
    gate = asyncio.Event()
    now_ms = store.now_ms

    async def slow() -> int:
        await gate.wait()
        return await now_ms()

    client.app.services.ready = True
    store.now_ms = slow  # type: ignore[method-assign]  # holds the two requests where they are
    held = [asyncio.create_task(client.send("GET", "/readyz")) for _ in range(2)]
    await asyncio.sleep(0)
    full = await client.send("GET", "/healthz")
    full.problem(503, "overloaded")
    assert full.header("retry-after") == "1"
    gate.set()
    assert [(await each).status for each in held] == [200, 200]
    assert (await client.send("GET", "/healthz")).status == 200


async def test_header_lines(client: Client) -> None:
    lines = [("host", "localhost"), *((f"x-{n}", "v") for n in range(10_000))]
    (await client.send("GET", "/healthz", headers=lines)).problem(431, "headers-too-large")


async def test_an_error_of_our_own_says_nothing(
    client: Client, store: AsyncStore, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> int:
        raise RuntimeError("sqlite:///secret/place")

    client.app.services.ready = True
    store.now_ms = broken  # type: ignore[method-assign]  # as a defect would
    answer = await client.send("GET", "/readyz")
    assert b"secret" not in answer.body
    answer.problem(500, "error")
    assert "secret/place" in caplog.text
