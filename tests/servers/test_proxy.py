"""The proxy's faults are what they say, and the same for the same seed."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from tests.servers.base import HOST
from tests.servers.proxy import Faults, HeaderStripper, Proxy


class _Echo(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while line := self.rfile.readline():
            self.server.seen.append(line)  # type: ignore[attr-defined]
            self.wfile.write(b"re:" + line)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__((HOST, 0), _Echo)
        self.seen: list[bytes] = []


@pytest.fixture
def echo() -> Iterator[_Server]:
    with _Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def port_of(server: _Server) -> int:
    port: int = server.server_address[1]
    return port


def ask(port: int, line: bytes, timeout: float = 60) -> bytes:
    """All that comes back for one line, up to the first reply or the end."""
    with socket.create_connection((HOST, port), timeout=timeout) as connection:
        connection.sendall(line)
        try:
            return connection.recv(1000)
        except ConnectionResetError:
            return b""


def test_passes_everything_on(echo: _Server) -> None:
    with Proxy(port_of(echo)) as proxy:
        assert ask(proxy.port, b"one\n") == b"re:one\n"
        assert proxy.url(f"redis://{HOST}:{port_of(echo)}/0") == f"redis://{HOST}:{proxy.port}/0"
    assert proxy.counts == {"passed": 1}


def test_a_dropped_reply_reaches_the_server(echo: _Server) -> None:
    with Proxy(port_of(echo)) as proxy:
        proxy.arm("drop")
        assert ask(proxy.port, b"lost\n") == b""
        assert ask(proxy.port, b"kept\n") == b"re:kept\n"
    assert echo.seen == [b"lost\n", b"kept\n"]
    assert proxy.counts == {"drop": 1, "passed": 1}


def test_a_duplicate_comes_twice_and_then_the_end(echo: _Server) -> None:
    with Proxy(port_of(echo)) as proxy:
        proxy.arm("duplicate")
        with socket.create_connection((HOST, proxy.port), timeout=60) as connection:
            connection.sendall(b"x\n")
            received = b""
            while chunk := connection.recv(1000):
                received += chunk
    assert received == b"re:x\nre:x\n"


def test_a_delayed_reply_is_whole(echo: _Server) -> None:
    with Proxy(port_of(echo), faults=Faults(delay=1.0, delay_seconds=0.02)) as proxy:
        began = time.monotonic()
        assert ask(proxy.port, b"slow\n") == b"re:slow\n"
        # Not a limit on how slow: the fault's own promise that it waits at all.
        assert time.monotonic() - began >= 0.02


def test_only_some_requests(echo: _Server) -> None:
    writes = Faults(drop=1.0)
    with Proxy(port_of(echo), faults=writes, only=lambda r: r.startswith(b"PUT")) as proxy:
        assert ask(proxy.port, b"GET\n") == b"re:GET\n"
        assert ask(proxy.port, b"PUT\n") == b""
    assert proxy.counts == {"ignored": 1, "drop": 1}


@pytest.mark.parametrize("seed", [1, 2])
def test_the_seed_decides(echo: _Server, seed: int) -> None:
    faults = Faults(drop=0.3, duplicate=0.2)

    def run(seed: int) -> list[bool]:
        with Proxy(port_of(echo), faults=faults, seed=seed) as proxy:
            return [ask(proxy.port, b"n\n") != b"" for _ in range(20)]

    first = run(seed)
    assert first == run(seed)
    assert True in first
    assert False in first
    assert first != run(seed + 2)


def test_cut_breaks_open_connections_and_accepts_new_ones(echo: _Server) -> None:
    with Proxy(port_of(echo)) as proxy:
        with socket.create_connection((HOST, proxy.port), timeout=60) as connection:
            connection.sendall(b"a\n")
            assert connection.recv(1000) == b"re:a\n"
            proxy.cut()
            with pytest.raises(ConnectionResetError):
                connection.recv(1000)
        assert ask(proxy.port, b"b\n") == b"re:b\n"


def test_a_partition_holds_back_and_heals(echo: _Server) -> None:
    with Proxy(port_of(echo)) as proxy:
        proxy.partition()
        with socket.create_connection((HOST, proxy.port), timeout=60) as connection:
            connection.sendall(b"held\n")
            connection.settimeout(0.05)
            with pytest.raises(TimeoutError):
                connection.recv(1000)
            assert echo.seen == []
            proxy.heal()
            connection.settimeout(60)
            assert connection.recv(1000) == b"re:held\n"


def test_no_upstream_is_a_broken_connection() -> None:
    with socket.socket() as closed:
        closed.bind((HOST, 0))
        with Proxy(closed.getsockname()[1]) as proxy:
            assert ask(proxy.port, b"x\n") == b""


REQUEST = (
    b'PUT /k HTTP/1.1\r\nHost: h\r\nIf-Match: "1"\r\nContent-Length: 12\r\n\r\n'
    b"If-Match: b\n"
    b"GET /k HTTP/1.1\r\nif-match: *\r\nX: y\r\n\r\n"
)
STRIPPED = (
    b"PUT /k HTTP/1.1\r\nHost: h\r\nContent-Length: 12\r\n\r\nIf-Match: b\n"
    b"GET /k HTTP/1.1\r\nX: y\r\n\r\n"
)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_headers_are_stripped_however_the_bytes_arrive(size: int) -> None:
    stripper = HeaderStripper(frozenset([b"if-match"]))
    pieces = [REQUEST[at : at + size] for at in range(0, len(REQUEST), size)]
    assert b"".join(map(stripper.feed, pieces)) == STRIPPED
