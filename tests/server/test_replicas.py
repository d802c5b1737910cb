"""Several servers on one PostgreSQL are one: whichever is asked, the same holds."""

from __future__ import annotations

import http.client
import json
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.servers import base
from tests.servers.perkey_http import PerkeyHttp
from tests.servers.postgres import Postgres

FILE = str(Path(__file__).parent / "hosted.py")
Answer = tuple[int, dict[str, str], Any]


@pytest.fixture(scope="module")
def replicas() -> Iterator[list[PerkeyHttp]]:
    with Postgres() as database:
        servers = [PerkeyHttp("--engine", FILE, store=database.url) for _ in range(2)]
        try:
            for server in servers:
                server.start()
            yield servers
        finally:
            for server in servers:
                server.close()


def ask(server: PerkeyHttp, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    connection = http.client.HTTPConnection(base.HOST, server.port, timeout=60)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, None if body is None else json.dumps(body), given)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    found = {name.lower(): value for name, value in answer.getheaders()}
    return answer.status, found, json.loads(data) if data else None


def test_a_tag_of_one_is_a_tag_of_the_other(replicas: list[PerkeyHttp]) -> None:
    one, two = replicas
    status, headers, _ = ask(one, "PUT", "/v1/documents/k", 1, if_none_match="*")
    assert status == 201
    assert ask(two, "GET", "/v1/documents/k", if_none_match=headers["etag"])[0] == 304
    assert ask(two, "PUT", "/v1/documents/k", 2, if_match=headers["etag"])[0] == 200
    assert ask(one, "PUT", "/v1/documents/k", 3, if_match=headers["etag"])[0] == 412
    assert ask(one, "GET", "/v1/documents/k")[2] == 2


def test_a_start_with_one_key_is_one_start(replicas: list[PerkeyHttp]) -> None:
    """Sent to both at once, many times; and any of them tells how it went."""
    path, body = "/v1/engine/processes/shop%2Fadd/start", {"variables": {"numbers": [1, 2]}}

    def start(number: int) -> Answer:
        return ask(replicas[number % 2], "POST", path, body, idempotency_key="k")

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(start, range(8)))
    assert {status for status, _, _ in answers} == {201}
    (made,) = {found["id"] for _, _, found in answers}
    for server in replicas:
        told = ask(server, "GET", f"/v1/engine/instances/{made}?wait=20")[2]
        assert (told["state"], told["result"]) == ("completed", 3)


def test_a_transfer_with_one_key_moves_once(replicas: list[PerkeyHttp]) -> None:
    for name, terms in (("bank", {"unit": "EUR", "floor": None}), ("ann", {"unit": "EUR"})):
        assert ask(replicas[0], "PUT", f"/v1/accounts/{name}", terms)[0] == 200
    order = {"source": "bank", "target": "ann", "amount": 5}

    def pay(number: int) -> int:
        return ask(replicas[number % 2], "POST", "/v1/transfers", order, idempotency_key="p")[0]

    with ThreadPoolExecutor(8) as threads:
        assert Counter(threads.map(pay, range(8))) == {201: 8}
    assert ask(replicas[1], "GET", "/v1/accounts/ann")[2]["posted"] == 5


def test_each_tells_of_what_the_other_committed(replicas: list[PerkeyHttp]) -> None:
    one, two = replicas
    with socket.create_connection((base.HOST, two.port), timeout=60) as stream:
        stream.sendall(b"GET /v1/events?prefix=told HTTP/1.1\r\nHost: localhost\r\n\r\n")
        seen = b""
        while b"event: synced" not in seen:
            seen += stream.recv(4096)
        assert ask(one, "PUT", "/v1/documents/told", 1, if_none_match="*")[0] == 201
        while b'"key":"told"' not in seen:
            chunk = stream.recv(4096)
            assert chunk
            seen += chunk
