"""Conditional PUTs of 4 KB over HTTP, in one run: ``python -m benchmarks.server``.

Each client owns a document and replaces it, on the condition that it still is the version that it
got last.  ``perkey serve`` commits durably, with history, to a SQLite file at ``synchronous=FULL``.
Beside it: the same framework (Starlette on uvicorn, with the same parser and loop) that reads the
body and does nothing; etcd behind its own gRPC gateway, a transaction that compares the revision
and puts; and SeaweedFS's S3 gateway, ``If-Match`` on an object.  etcd flushes each commit to the
disk and keeps former revisions until it is compacted, as perkey keeps its history.  SeaweedFS does
neither: its volumes write through the page cache and a bucket without versioning holds the last
object only, whose tag is a digest of its content.  All take turns, so a busy machine slows all;
medians are shown.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.http_load import Next, Turn, turn
from benchmarks.records import record
from benchmarks.store import four_kilobytes
from tests.servers.base import Server, http_get
from tests.servers.etcd import Etcd
from tests.servers.objects import BUCKET, Objects
from tests.servers.perkey_http import PerkeyHttp

CLIENTS = (6, 64)
SECONDS = 1.5
ROUNDS = 7
GOALS = {"bare": "goal 0.4x", "etcd": "goal 5.0x", "seaweedfs": "no goal"}
BODY = json.dumps(four_kilobytes()).encode()

BARE = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

async def put(request):
    await request.body()
    return Response(b'{}', media_type="application/json")

app = Starlette(routes=[Route("/documents/{key}", put, methods=["PUT"]),
                        Route("/health", lambda request: Response(b"ok"))])
uvicorn.run(app, port=int(sys.argv[1]), http="httptools", loop="uvloop", ws="none",
            log_level="critical", access_log=False)
"""


class Bare(Server):
    """The framework, doing no work."""

    name = "bare"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @staticmethod
    def version() -> str:
        return "of this environment"

    def command(self) -> list[str]:
        return [sys.executable, "-c", BARE, str(self.port)]

    def ready(self) -> bool:
        return http_get(self.port, "/health")[0] == 200


class OpenObjects(Objects):
    """SeaweedFS, whose bucket anybody may write: the client here signs nothing."""

    def prepare(self) -> None:
        super().prepare()
        path = self.directory / "s3.json"
        known = json.loads(path.read_text())
        known["identities"].append({"name": "anonymous", "actions": ["Read", "Write"]})
        path.write_text(json.dumps(known))


def _request(method: str, path: str, headers: str, body: bytes) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


def perkey_client(number: int) -> Next:
    """Replaces one document, on the tag of the answer before."""
    return _replacing(f"/v1/documents/bench-{os.getpid()}-{time.monotonic_ns()}-{number}", b"etag")


def seaweedfs_client(number: int) -> Next:
    """Replaces one object, on the tag of the answer before."""
    return _replacing(f"/{BUCKET}/bench-{os.getpid()}-{time.monotonic_ns()}-{number}", b"ETag")


def _replacing(path: str, name: bytes) -> Next:
    """``name``: of the header with the tag, as this server writes it."""

    def following(head: bytes, body: bytes) -> bytes:
        if not head:
            return _request("PUT", path, "If-None-Match: *\r\n", BODY)
        assert head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")), head + body
        tag = head.partition(name + b": ")[2].partition(b"\r\n")[0].decode()
        assert tag.startswith('"'), head
        return _request("PUT", path, f"If-Match: {tag}\r\n", BODY)

    return following


def bare_client(number: int) -> Next:
    """Sends the same bytes to a server that does nothing with them."""
    path = f"/documents/bench-{number}"
    ready = _request("PUT", path, 'If-Match: "1"\r\n', BODY)

    def following(head: bytes, body: bytes) -> bytes:
        assert not head or head.startswith(b"HTTP/1.1 200"), head + body
        return ready

    return following


def etcd_client(number: int) -> Next:
    """Puts one key if its revision is that of the answer before."""
    key = base64.b64encode(f"bench-{time.monotonic_ns()}-{number}".encode()).decode()
    value = base64.b64encode(BODY).decode()

    def following(head: bytes, body: bytes) -> bytes:
        revision = "0"
        if head:
            answer = json.loads(body)
            assert answer.get("succeeded"), head + body
            revision = answer["header"]["revision"]  # of this very transaction
        compare = {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision}
        put = {"request_put": {"key": key, "value": value}}
        asked = json.dumps({"compare": [compare], "success": [put]}).encode()
        return _request("POST", "/v3/kv/txn", "", asked)

    return following


SIDES: dict[str, tuple[type[Server], Callable[[int], Next]]] = {
    "perkey": (PerkeyHttp, perkey_client),
    "bare": (Bare, bare_client),
    "etcd": (Etcd, etcd_client),
    "seaweedfs": (OpenObjects, seaweedfs_client),
}


def show(clients: int, turns: dict[str, list[Turn]]) -> None:
    """A line for each side."""
    for name, found in turns.items():
        rate = statistics.median(each.rate for each in found)
        p50 = statistics.median(each.p50_ms for each in found)
        p99 = statistics.median(each.p99_ms for each in found)
        line = f"{clients:>3} clients  {name:<10}{rate:>9,.0f}/s"
        line += f"  p50 {p50:>7.2f} ms  p99 {p99:>7.2f} ms"
        if name != "perkey":
            pairs = zip(turns["perkey"], found, strict=True)
            ratios = [ours.rate / theirs.rate for ours, theirs in pairs]
            goal = GOALS[name]
            line += f"   perkey is {statistics.median(ratios):.2f}x ({goal})"
            what = f"conditional PUT of 4 KB, {clients} clients, beside {name}"
            ours = statistics.median(each.rate for each in turns["perkey"])
            record(what, ours, "/s", theirs=rate, ratios=ratios, goal=goal)
        print(line)


@contextmanager
def running(names: list[str]) -> Iterator[dict[str, Server]]:
    servers = {name: SIDES[name][0]() for name in names}
    try:
        for server in servers.values():
            server.start()
        yield servers
    finally:
        for server in servers.values():
            server.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--only", choices=[*SIDES], nargs="*", default=[*SIDES])
    asked = parser.parse_args()
    with running(asked.only) as servers:
        for clients in CLIENTS:
            turns: dict[str, list[Turn]] = {name: [] for name in servers}
            for number in range(asked.rounds):
                order = [*servers] if number % 2 else [*servers][::-1]
                for name in order:
                    each = [SIDES[name][1](n) for n in range(clients)]
                    turns[name].append(turn(servers[name].port, each, asked.seconds))
            show(clients, turns)
    return 0


if __name__ == "__main__":
    sys.exit(main())
