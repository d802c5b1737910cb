"""``http://`` as a store: what a server lets its clients write, and what they make of answers."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import perkey
from perkey import AsyncStore, Documents, Leases, Ledger, Limits, Once, Store, errors
from perkey.cli import exits, main
from perkey.clock import SYSTEM
from perkey.errors import Forbidden, StoreUnavailable, Unauthorised, UsageError
from perkey.observe import events
from perkey.server import identity
from perkey.store import transfer
from perkey.store.backends import http_wire as wire
from perkey.store.backends.http import HttpBackend
from perkey.store.backends.http_client import Lost, refusal
from perkey.store.backends.port import NothingDone
from perkey.store.keys import Key
from perkey.store.record import Record
from perkey.store.transaction import Tx
from perkey.store.url import parse
from tests.moving import fill
from tests.server.client import Answer, Client
from tests.servers.perkey_http import PerkeyHttp
from tests.servers.proxy import Proxy


class Guarded:
    """A server with tokens, and URLs that carry them."""

    def __init__(self, folder: Path) -> None:
        made = {
            "boss": identity.make("boss", "admin", [""]),
            "worker": identity.make("worker", "write", [""]),
            "agent": identity.make("agent", "write", ["runs/"]),
            "reader": identity.make("reader", "read", [""]),
        }
        path = folder / "tokens.toml"
        path.write_text("\n".join(entry for _, entry in made.values()))
        self.tokens = {name: token for name, (token, _) in made.items()}
        self.server = PerkeyHttp("--tokens", str(path))

    def url(self, name: str) -> str:
        token = self.tokens[name]
        return self.server.url.replace("http://", f"http://token:{token}@")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A guarded server that the tests of this file share."""
    found = Guarded(tmp_path_factory.mktemp("tokens"))
    with found.server:
        yield found


def test_everything_runs_over_it(guarded: Guarded) -> None:
    with perkey.open(guarded.url("worker")) as store:
        docs = Documents(store)
        docs.put("report", {"n": 1}, create=True)
        docs.update("report", lambda value: {"n": value["n"] + 1}, by="step-1")
        assert docs.get("report").value == {"n": 2}
        assert [each.by for each in docs.history("report")] == ["worker", "worker/step-1"]
        with Leases(store).acquire("job", ttl=30) as lease:
            docs.put("held", 1, create=True, fence=lease.fence)
        ledger = Ledger(store)
        ledger.open_account("a", "EUR", floor=None)
        ledger.open_account("b", "EUR")
        for _ in range(2):
            ledger.transfer("a", "b", 100, key="t1")
        assert ledger.balance("b").available == 100
        calls: list[int] = []
        for _ in range(2):
            Once(store).run("k", {"a": 1}, lambda context: calls.append(1))
        assert calls == [1]


async def test_both_colours(guarded: Guarded) -> None:
    async with await perkey.aopen(guarded.url("worker")) as store:
        await store.put("async", 1, create=True)
        assert (await store.get("async")).by == "worker"


def test_nobody_signs_as_somebody_else(guarded: Guarded) -> None:
    with perkey.open(guarded.url("worker")) as store:
        store.put("signed", 1, create=True, by="boss")
        assert store.get("signed").by == "worker/boss"
    with perkey.open(guarded.url("boss")) as store:
        store.put("signed", 2, overwrite=True, by="boss/x")
        assert store.get("signed").by == "boss/x"


def test_what_a_write_returns_is_what_is_stored(guarded: Guarded) -> None:
    """Its author as well, which is for the server to say; also when it has to be tried again."""
    heard: list[object] = []
    with perkey.open(guarded.url("worker")) as store, perkey.open(guarded.url("boss")) as other:
        store.observe(heard.append)
        for by, stored in (("", "worker"), ("me", "worker/me"), ("worker/me", "worker/me")):
            written = store.put("told", by, overwrite=True, by=by)
            assert written.by == stored
            assert written == store.get("told")
            assert [each.by for each in heard if isinstance(each, events.Committed)] == [stored]
            heard.clear()
        with pytest.raises(UsageError, match="at most 200 characters"):
            store.put("told", 2, overwrite=True, by="x" * 199)
        seen: list[int] = []

        def add(value: int) -> int:
            if not seen:
                other.put("told", 10, overwrite=True)
            seen.append(value)
            return value + 1

        store.put("told", 1, overwrite=True)
        written = Documents(store).update("told", add, by="me")
        assert seen == [1, 10]
        assert (written.by, written.value) == ("worker/me", 11)
        assert written == Documents(store).get("told")
        assert store.transact("told", lambda tx: tx.by, by="me") == "worker/me"


@pytest.mark.parametrize("name", ["worker", "agent", "reader"])
def test_nobody_but_an_admin_restores(guarded: Guarded, name: str) -> None:
    """The copy is refused before it writes; and so is who asks the server all the same."""
    location = parse(guarded.url(name))
    backend = HttpBackend(location, Limits(), SYSTEM)
    try:
        with pytest.raises(Forbidden, match=f"role admin.*{name}"):
            transfer.begin(backend, "somewhere", SYSTEM)
        backend._restoring = True
        record = Record("d/runs/forged", 1, b"1", "boss", 1, f"op-{name}", "", 0, 0)
        with pytest.raises((Forbidden, NothingDone), match="role"):
            backend.commit({Key(record.key): None}, [record])
        if name != "reader":
            assert backend.read([Key(record.key)]) == [None]
    finally:
        backend.close()


def test_an_admins_copy_keeps_every_author(tmp_path: Path) -> None:
    """And what an admin writes in the ordinary way is signed as before."""
    guarded = Guarded(tmp_path)
    source = f"sqlite:///{tmp_path}/source.db"
    with perkey.open(source) as store:
        fill(store, 6)
    with guarded.server:
        target = guarded.url("boss")
        assert main(["copy", source, target]) == exits.DONE
        assert main(["copy", source, target, "--verify-only"]) == exits.DONE
        with perkey.open(source) as old, perkey.open(target) as new:
            authors = [each.by for each in old.history("doc/3 é\0" + "0")]
            assert authors == ["w0", "w1", "w2", "w3"]
            assert [each.by for each in new.history("doc/3 é\0" + "0")] == authors
            new.put("after", 1, create=True, by="me")
            assert new.get("after").by == "boss/me"
        with perkey.open(guarded.url("worker")) as store:
            store.put("worked", 1, create=True, by="boss")
            assert store.get("worked").by == "worker/boss"


def test_a_reader_only_reads(guarded: Guarded) -> None:
    with perkey.open(guarded.url("boss")) as store:
        store.put("seen", 1, create=True)
    with perkey.open(guarded.url("reader")) as store:
        assert store.get("seen").value == 1
        with pytest.raises(Forbidden, match="role write"):
            store.put("seen", 2, overwrite=True)
        assert store.get("seen").version == 1


def test_a_reader_is_told_what_is_unresolved(guarded: Guarded) -> None:
    """Whoever may write keeps the index of it; whoever may not needs none."""

    def lost(context: object) -> None:
        raise TimeoutError

    with perkey.open(guarded.url("worker")) as store, perkey.open(guarded.url("reader")) as reads:
        runner, reader = Once(store, "looked/at"), Once(reads)
        for number in (1, 2):
            with pytest.raises(TimeoutError):
                runner.run(f"k{number}", 1, lost, on_error="unknown")

        def told(**how: bool) -> list[str]:
            found = reader.unresolved(**how)
            return sorted(each.key for each in found if each.scope == "looked/at")

        assert told() == ["k1", "k2"]
        assert len(runner.unresolved()) >= 2  # the index is complete
        assert told() == told(thorough=True) == ["k1", "k2"]
        runner.resolve("k1", value=1)
        assert told() == ["k2"]


def test_prefixes_hold_below_the_faces_too(guarded: Guarded) -> None:
    with perkey.open(guarded.url("agent")) as store:
        Documents(store).put("runs/1", 1, create=True)
        Leases(store).acquire("runs/1", ttl=1)
        assert [each.key for each in store.scan("runs/")] == ["runs/1"]
        acts = (
            lambda: store.get("other"),
            lambda: store.put("other", 1, create=True),
            lambda: store.transact(["runs/1", "other"], lambda tx: tx.get("runs/1")),
            lambda: list(store.scan("")),
            lambda: store.history("other"),
            lambda: Leases(store).acquire("other", ttl=1),
            lambda: Ledger(store).open_account("runs/a", "EUR"),
            lambda: store.transact("runs/1", lambda tx: None, idempotency_key="x"),
            lambda: store.core.read(lambda backend: backend.walk("", 10)),
        )
        for act in acts:
            with pytest.raises(Forbidden):
                act()


def test_tokens_that_are_not_known(guarded: Guarded) -> None:
    wrong = guarded.server.url.replace("http://", "http://token:wrong@")
    for url in (guarded.server.url, wrong):
        with pytest.raises(Unauthorised) as caught:
            perkey.open(url)
        assert "wrong" not in str(caught.value)


def test_urls() -> None:
    for wrong in ("http://", "http:///x", "http://h?timeout=x", "http://h?x=1", "http://h?ca=x"):
        with pytest.raises(UsageError):
            perkey.open(wrong)
    with pytest.raises(UsageError, match="characters"):
        perkey.open("http://token:a%20b@127.0.0.1:1")


def test_what_it_says_of_itself(guarded: Guarded) -> None:
    with perkey.open(guarded.url("boss")) as store:
        told = store.core.read(lambda backend: backend.describe())
        assert (told["store"], told["token of"]) == ("sqlite", "boss")
        assert guarded.tokens["boss"] not in repr(told)
        assert "server" in store.backend.durability


# ------------------------------------------------------ what a server takes from a client


async def ask(client: Client, name: str, question: Any) -> Answer:
    body = wire.encode(question)
    return await client.send("POST", f"{wire.PATH}/{name}", body, {"content-type": wire.MEDIA})


def record(version: int, **fields: Any) -> Record:
    known = {"by": "x", "op": f"op{version}", "at": 5, "base": version - 1, **fields}
    return Record("d/k", version, b"1", **known)


class Written:
    """A server with tokens in this process."""

    def __init__(self, store: AsyncStore, folder: Path) -> None:
        from perkey.server.app import application
        from perkey.server.settings import Settings

        token, entry = identity.make("worker", "write", [""])
        (folder / "t.toml").write_text(entry)
        app = application(store, Settings(tokens=str(folder / "t.toml")))
        self.client = Client(app).as_(token)
        self.store = store

    async def commit(self, *records: Record, **heads: wire.Mark) -> Answer:
        marks = {f"d/{name}": mark for name, mark in heads.items()}
        return await ask(self.client, "commit", wire.Commit(marks, [*records], 5.0))

    async def head(self) -> Record | None:
        found = await self.store.core.read_async(lambda backend: backend.read([Key("d/k")]))
        return found[0]


@pytest.fixture
async def written(store: AsyncStore, tmp_path: Path) -> Written:
    return Written(store, tmp_path)


def landed(answer: Answer) -> bool:
    assert answer.status == 200, answer
    return msgspec.msgpack.decode(answer.body, type=wire.Committed).landed


async def test_a_commit_compares_heads(written: Written) -> None:
    assert landed(await written.commit(record(1), k=None))
    assert not landed(await written.commit(record(1, op="other"), k=None))
    assert not landed(await written.commit(record(2), k=(1, "another op")))
    assert not landed(await written.commit(record(2), k=(1, "op1"), other=(1, "x")))
    assert landed(await written.commit(record(2), k=(1, "op1"), other=None))
    head = await written.head()
    assert head is not None
    assert (head.version, head.op, head.ops, head.by) == (2, "op2", "op1", "worker/x")


async def test_several_versions_in_one_commit(written: Written) -> None:
    assert landed(await written.commit(record(1), record(2), record(3), k=None))
    head = await written.head()
    assert head is not None
    assert (head.version, head.ops) == (3, "op2 op1")


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 3},
        {"version": 1},
        {"fence": 4},
        {"base": 2},
        {"base": -1},
        {"op": ""},
        {"op": "a b"},
        {"op": "op1!"},
        {"op": "x" * 201},
        {"by": "y" * 300},
    ],
)
async def test_records_that_are_made_up(written: Written, wrong: dict[str, Any]) -> None:
    assert landed(await written.commit(record(1, fence=5), k=None))
    fields = {"version": 2, "fence": 5, **wrong}
    answer = await written.commit(record(**fields), k=(1, "op1"))
    answer.problem(400, "usage")
    head = await written.head()
    assert head is not None
    assert head.version == 1


async def test_times_and_ops_are_the_servers(written: Written, store: AsyncStore) -> None:
    now = await store.now_ms()
    future = record(1, at=now + 10**9, ops="made up")
    assert landed(await written.commit(future, k=None))
    head = await written.head()
    assert head is not None
    assert now <= head.at <= await store.now_ms()
    assert head.ops == ""


@pytest.mark.parametrize("key", ["", "d", "d/", "k", "x/k", "dd/k", "d/" + "x" * 5000])
async def test_keys_of_no_space(written: Written, key: str) -> None:
    (await ask(written.client, "look", wire.Look([key]))).problem(400, "usage")


async def test_limits_of_questions(written: Written) -> None:
    for limit in (0, -1, wire.MOST + 1):
        (await ask(written.client, "scan", wire.Scan("d/", "", limit))).problem(400, "usage")
        (await ask(written.client, "history", wire.History("d/k", 0, limit))).problem(400, "usage")
        (await ask(written.client, "changes", wire.Changes("d/", "", limit))).problem(400, "usage")
        (await ask(written.client, "walk", wire.WalkFrom("", limit))).problem(400, "usage")
    many = wire.Look([f"d/{n}" for n in range(5001)])
    (await ask(written.client, "look", many)).problem(413, "limit-exceeded")
    for timeout in (0.0, -1.0, float("nan"), 1e9):
        asked = wire.Commit({}, [], timeout)
        (await ask(written.client, "commit", asked)).problem(400, "usage")


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x90", b"\x81\xa4keys\x01", b"\xff" * 100])
async def test_bodies_that_are_none(written: Written, body: bytes) -> None:
    for name in ("look", "commit", "scan", "history", "changes", "cursor", "walk"):
        answer = await written.client.send(
            "POST", f"{wire.PATH}/{name}", body, {"content-type": wire.MEDIA}
        )
        answer.problem(422, "invalid-body")
    answer = await written.client.send("POST", f"{wire.PATH}/look", body)
    answer.problem(415, "unsupported-media-type")


# --------------------------------------------------- what a client makes of what comes back


def problem(code: str, status: int) -> errors.PerkeyError:
    body = msgspec.json.encode({"code": code, "status": status, "detail": "told", "key": "k"})
    return refusal(status, "application/problem+json", body)


def test_problems_become_errors_again() -> None:
    error = problem("conflict", 412)
    assert (type(error), str(error), error.key) == (errors.Conflict, "told", "k")
    assert type(problem("forbidden", 403)) is Forbidden
    assert type(problem("invented", 418)) is UsageError, "nothing was done"
    assert type(problem("queue-full", 503)) is NothingDone
    assert type(problem("overloaded", 503)) is NothingDone
    assert type(problem("outcome-unknown", 503)) is Lost, "it has to be found out"
    assert type(problem("error", 500)) is Lost


@pytest.mark.parametrize(
    ("status", "media", "body"),
    [
        (502, "text/html", b"<h1>Bad gateway"),
        (404, "text/html", b""),
        (400, "application/problem+json", b"{"),
        (400, "application/problem+json", b"[]"),
        (400, "application/problem+json", b"{}"),
    ],
)
def test_answers_of_somebody_else_decide_nothing(status: int, media: str, body: bytes) -> None:
    assert type(refusal(status, media, body)) is Lost


def test_a_server_that_is_no_perkey() -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        try:
            with pytest.raises(StoreUnavailable, match="no perkey server"):
                perkey.open(f"http://127.0.0.1:{other.server_port}?timeout=60")
        finally:
            other.shutdown()
            thread.join()


# -------------------------------------------------------------- two planted bugs, both found


class SendsAgain(HttpBackend):
    """Repeats a commit whose reply was lost, as some clients of other stores do."""

    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        try:
            return super().commit(heads, writes)
        except Lost:
            return super().commit(heads, writes)


class ComparesNothing(HttpBackend):
    """Commits whatever the heads are by now."""

    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        now = dict(zip(heads, self.read([*heads]), strict=True))
        versions = {key: 0 if head is None else head.version for key, head in now.items()}
        moved = [replace(each, version=versions[Key(each.key)] + 1, base=0) for each in writes]
        return super().commit(now, moved)


@pytest.mark.parametrize(("kind", "counted"), [(HttpBackend, 1), (SendsAgain, 2)])
def test_a_client_that_sends_again_does_it_twice(
    perkey_server: PerkeyHttp, kind: type[HttpBackend], counted: int
) -> None:
    key = f"again {counted}"

    def add(tx: Tx) -> None:
        tx[key] = tx.get(key, 0) + 1

    with Proxy(perkey_server.port, only=lambda request: b"/commit " in request) as proxy:
        location = parse(proxy.url(perkey_server.url))
        with Store(kind(location, Limits(), SYSTEM)) as store:
            proxy.arm("drop")
            store.transact(key, add)
            assert proxy.counts["drop"] == 1
            assert store.get(key).value == counted


@pytest.mark.parametrize(("kind", "counted"), [(HttpBackend, 2), (ComparesNothing, 1)])
def test_a_client_that_compares_nothing_loses_updates(
    perkey_server: PerkeyHttp, kind: type[HttpBackend], counted: int
) -> None:
    key = f"compares {counted}"
    location = parse(perkey_server.url)
    with Store(kind(location, Limits(), SYSTEM)) as one, perkey.open(perkey_server.url) as other:
        met: list[int] = []

        def add(tx: Tx) -> None:
            seen = tx.get(key, 0)
            met.append(seen)
            if len(met) == 1:
                other.put(key, 1, create=True)  # between the look and the commit
            tx[key] = seen + 1

        one.transact(key, add)
        assert one.get(key).value == counted
