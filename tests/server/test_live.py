"""A real server process: its socket, its limits on what arrives, its end."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

import perkey
from perkey.errors import StoreUnavailable
from perkey.server.run import listen
from perkey.server.settings import Settings
from tests.servers import base
from tests.servers.perkey_http import PerkeyHttp

HOST = b"Host: localhost\r\n"


@pytest.fixture
def server() -> Iterator[PerkeyHttp]:
    """A server of the test's own."""
    with PerkeyHttp() as server:
        yield server


LATE = """
import socket
from dataclasses import replace
from perkey.cli import main
from perkey.server import run
serve, listen = run.serve, run.listen
def small(settings):
    listener = listen(settings)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return listener
run.listen = small
run.serve = lambda url, settings, *more: serve(url, replace(settings, stop_s=600), *more)
main()
"""


class Patient(PerkeyHttp):
    """Waits ten minutes for its last requests: what ends before did not wait for that.

    Of what its clients have not read, their connections hold little and the server the rest.
    """

    def command(self) -> list[str]:
        python, *_, store, port, number = super().command()
        return [python, "-W", "error", "-c", LATE, "serve", store, port, number]


@pytest.fixture
def patient() -> Iterator[PerkeyHttp]:
    with Patient() as server:
        yield server


def put(port: int, key: str, value: object, **headers: str) -> int:
    connection = http.client.HTTPConnection(base.HOST, port, timeout=60)
    names = {name.replace("_", "-"): text for name, text in headers.items()}
    connection.request("PUT", f"/v1/documents/{key}", json.dumps(value), names)
    status = connection.getresponse().status
    connection.close()
    return status


def exchange(port: int, request: bytes) -> bytes:
    """Everything that comes back until the server closes."""
    with socket.create_connection((base.HOST, port), timeout=60) as connection:
        connection.sendall(request)
        answer = b""
        try:
            while chunk := connection.recv(65_536):
                answer += chunk
        except ConnectionResetError:
            pass  # it closed while more of the request was on its way
        return answer


def test_what_was_acknowledged_outlives_a_killed_server(server: PerkeyHttp) -> None:
    assert put(server.port, "k", {"a": 1}, if_none_match="*") == 201
    server.kill()
    server.start()
    status, body = base.http_get(server.port, "/v1/documents/k")
    assert (status, json.loads(body)) == (200, {"a": 1})


def test_of_many_writers_on_one_version_one_wins(perkey_server: PerkeyHttp) -> None:
    port = perkey_server.port
    assert put(port, "race", 0, if_none_match="*") == 201
    gate = threading.Barrier(8)
    statuses: list[int] = []

    def write(n: int) -> None:
        gate.wait()
        statuses.append(put(port, "race", n, if_match='"1"'))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200, *[412] * 7]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_when_told_and_has_succeeded(server: PerkeyHttp, number: int) -> None:
    assert put(server.port, "k", 1, if_none_match="*") == 201
    process = psutil.Process(server.pid)
    process.send_signal(number)
    assert process.wait(60) == 0
    assert "Traceback" not in server.log_tail()
    server.kill()
    server.start()
    assert base.http_get(server.port, "/v1/documents/k") == (200, b"1")


def test_a_request_that_is_running_is_finished_first(patient: PerkeyHttp) -> None:
    server = patient
    body = b'"' + b"x" * 1000 + b'"'
    head = b"PUT /v1/documents/k HTTP/1.1\r\n" + HOST + b"If-None-Match: *\r\n"
    with socket.create_connection((base.HOST, server.port), timeout=60) as connection:
        connection.sendall(head + b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % len(body))
        assert connection.recv(100).startswith(b"HTTP/1.1 100"), "it is working on it"
        process = psutil.Process(server.pid)
        process.send_signal(signal.SIGTERM)
        connection.sendall(body)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 201")
    assert process.wait(60) == 0


def test_it_says_where_it_listens(server: PerkeyHttp) -> None:
    assert f"http://127.0.0.1:{server.port} serves the store" in server.log.read_text()


def test_a_taken_port(perkey_server: PerkeyHttp) -> None:
    with pytest.raises(StoreUnavailable, match=f"127.0.0.1 port {perkey_server.port}"):
        listen(Settings(port=perkey_server.port))


@pytest.mark.parametrize("lines", [101, 10_000])
def test_too_many_header_lines(perkey_server: PerkeyHttp, lines: int) -> None:
    many = b"".join(b"X-%d: v\r\n" % n for n in range(lines))
    answer = exchange(perkey_server.port, b"GET /healthz HTTP/1.1\r\n" + HOST + many + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 431")
    assert answer.count(b"HTTP/1.1") == 1
    assert b'"code":"headers-too-large"' in answer
    assert base.http_get(perkey_server.port, "/healthz")[0] == 200


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n",
        b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 200_000 + b"\r\n",
    ],
)
def test_a_head_that_is_too_long(perkey_server: PerkeyHttp, head: bytes) -> None:
    answer = exchange(perkey_server.port, head + HOST + b"\r\n")
    assert answer.startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))
    assert base.http_get(perkey_server.port, "/healthz")[0] == 200


@pytest.mark.parametrize(
    "request_",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost localhost\r\n\r\n",
        b"GET \xff\xfe HTTP/1.1\r\n" + HOST + b"\r\n",
        b"PUT /v1/documents/k HTTP/1.1\r\n" + HOST
        + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"PUT /v1/documents/k HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n",
        b"PUT /v1/documents/k HTTP/1.1\r\n" + HOST
        + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + HOST + b"X: a\r\n b\x00\r\n\r\n",
    ],
)  # fmt: skip
def test_what_is_no_http(perkey_server: PerkeyHttp, request_: bytes) -> None:
    assert exchange(perkey_server.port, request_).startswith(b"HTTP/1.1 400")
    assert base.http_get(perkey_server.port, "/healthz")[0] == 200


def test_a_body_beyond_the_limit_is_refused_before_it_comes(perkey_server: PerkeyHttp) -> None:
    head = b"PUT /v1/documents/k HTTP/1.1\r\n" + HOST + b"If-None-Match: *\r\n"
    answer = exchange(perkey_server.port, head + b"Content-Length: 99999999999\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"\r\nconnection: close\r\n" in answer


def test_tokens_and_keys_are_not_in_the_log(tmp_path: Path) -> None:
    from perkey.server import identity

    token, entry = identity.make("agent", "write", [""])
    (tmp_path / "tokens.toml").write_text(entry)
    with PerkeyHttp("--host", "0.0.0.0", "--tokens", str(tmp_path / "tokens.toml")) as server:
        given = {"authorization": f"Bearer {token}", "if_none_match": "*"}
        assert put(server.port, "a-secret-key", 1, **given) == 201
        assert put(server.port, "a-secret-key", 1) == 401
        assert base.http_get(server.port, f"/v1/documents/a-secret-key?token={token}")[0] == 401
        exchange(
            server.port, b"GET / HTTP/1.1\r\nAuthorization: " + token.encode() + b"\r\n\r\n\x00"
        )
        server.stop()
        log = server.log.read_text()
        assert token not in log
        assert "a-secret-key" not in log


def opened(server: PerkeyHttp, path: bytes, until: bytes) -> tuple[socket.socket, bytes]:
    """A connection that has read an answer as far as ``until``, and what that was."""
    stream = socket.socket()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stream.connect((base.HOST, server.port))
    stream.settimeout(60)
    stream.sendall(b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n")
    seen = b""
    while until not in seen:
        seen += stream.recv(4096)
    return stream, seen


def rest(stream: socket.socket) -> bytes:
    """What comes until the server ends the connection, however it does."""
    seen = b""
    with suppress(ConnectionResetError):
        while chunk := stream.recv(4096):
            seen += chunk
    return seen


def stopped(server: PerkeyHttp) -> int:
    """Its exit status, long before its patience is over."""
    process = psutil.Process(server.pid)
    process.send_signal(signal.SIGTERM)
    return int(process.wait(120))


END = b"0\r\n\r\n"
"""Of a stream that ended in good order."""


def test_open_streams_and_pages_do_not_hold_it_up(patient: PerkeyHttp) -> None:
    page, _ = opened(patient, b"/ui", b"</html>")
    told, _ = opened(patient, b"/ui/events?of=documents,samples", b"\n\n")
    stream, _ = opened(patient, b"/v1/events", b"event: synced")
    with page, told, stream:
        assert put(patient.port, "k", 1, if_none_match="*") == 201
        assert stopped(patient) == 0
        assert rest(stream).endswith(END)
        assert rest(told).endswith(END)
        assert rest(page) == b""
    assert "1 event stream ended, 1 open page let go" in patient.log.read_text()


@pytest.mark.parametrize("changes", [100, 400])
def test_clients_that_do_not_read_do_not_hold_it_up(patient: PerkeyHttp, changes: int) -> None:
    """Of few changes, the server is rid of all that it has to say, and not of its last bytes."""
    stream, _ = opened(patient, b"/v1/events", b"event: synced")
    with stream, perkey.open(patient.url) as store:
        for n in range(changes):
            store.put(f"{n:04}{'x' * 500}", 1, create=True)
        assert stopped(patient) == 0
        assert not rest(stream).endswith(END), "the test filled the connection"
    assert "1 event stream ended" in patient.log.read_text()


def test_who_waits_for_a_task_does_not_hold_it_up(patient: PerkeyHttp) -> None:
    """This server would wait for a running request for longer than the test does."""
    client = http.client.HTTPConnection(base.HOST, patient.port, timeout=60)
    for method, path, asked in (
        ("PUT", "/v1/boards/run", {"tasks": ["a"]}),
        ("POST", "/v1/boards/run/claim", {"lease": 600, "worker": "w"}),
    ):
        client.request(method, path, json.dumps(asked))
        assert client.getresponse().read()
    client.close()
    body = json.dumps({"lease": 600, "worker": "late", "wait": 20}).encode()
    head = b"POST /v1/boards/run/claim HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\n"
    with socket.create_connection((base.HOST, patient.port), timeout=60) as waiting:
        waiting.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body))
        assert waiting.recv(100).startswith(b"HTTP/1.1 100")
        waiting.sendall(body)
        process = psutil.Process(patient.pid)
        process.send_signal(signal.SIGTERM)
        answer = b""
        while chunk := waiting.recv(65_536):
            answer += chunk
        assert process.wait(60) == 0
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"this server stops" in answer
