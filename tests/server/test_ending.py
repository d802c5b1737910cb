"""What a server says of its own end."""

from __future__ import annotations

import json
import signal
import socket
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import psutil

import perkey
from perkey import AsyncStore
from perkey.server.app import application
from perkey.server.ending import Ending, Watch
from tests.servers import base
from tests.servers.perkey_http import PerkeyHttp


def test_in_words() -> None:
    assert str(Ending(0.04)) == "stopped in 0.0 s: nothing was running"
    one = Ending(1.26, finished=1, cut=1, claims=1, streams=1, pages=1)
    assert str(one) == (
        "stopped in 1.3 s: 1 request finished, 1 request cut off, 1 waiting claim sent away, "
        "1 event stream ended, 1 open page let go"
    )
    assert "2 waiting claims sent away, 3 event streams ended" in str(
        Ending(1, claims=2, streams=3)
    )
    assert one.as_json() == {
        "seconds": 1.26, "finished": 1, "cut": 1, "claims": 1, "streams": 1, "pages": 1,
    }  # fmt: skip


async def test_it_counts_when_it_is_told_and_not_again(store: AsyncStore) -> None:
    app = application(store)
    watch = Watch(app)
    assert watch.end() is None, "nobody told it to stop"
    app.running, app.services.watching = 5, 1
    app.services.feed._wakers |= {object(), object(), object()}  # type: ignore[arg-type]
    watch.begin()
    app.running, app.cut = 0, 1
    app.services.watching, app.services.sent_away = 0, 2
    watch.begin()
    found = watch.end()
    assert found is not None
    assert found.seconds >= 0
    assert found.as_json() | {"seconds": 0} == Ending(0, 2, 1, 2, 2, 1).as_json()


def claim(url: str) -> int:
    """Wait for a task that nobody gives back."""
    asked = json.dumps({"worker": "late", "lease": 60, "wait": 600}).encode()
    request = urllib.request.Request(
        f"{url}/v1/boards/run/claim", asked, {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code


def test_a_server_says_whom_it_sent_away() -> None:
    with PerkeyHttp() as server, ThreadPoolExecutor() as pool:
        with perkey.open(server.store) as store:
            board = perkey.Board(store, "run")
            board.create(["a"])
            assert board.claim("early", lease=3600) is not None
        waiting = pool.submit(claim, server.url)
        with socket.create_connection((base.HOST, server.port), timeout=60) as listening:
            listening.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert listening.recv(4096).startswith(b"HTTP/1.1 200")
            while not waits(server):
                time.sleep(0.01)
            process = psutil.Process(server.pid)
            process.send_signal(signal.SIGTERM)
            assert waiting.result() == 503
            assert process.wait(60) == 0
        said = server.log.read_text()
    assert "1 waiting claim sent away, 1 event stream ended" in said, said
    assert "stopped in " in said


def waits(server: PerkeyHttp) -> bool:
    """Whether a claim waits there."""
    return b"perkey_waiting_claims 1\n" in base.http_get(server.port, "/metrics")[1]
