"""``perkey serve --engine FILE`` itself: it outlives a kill, and its end waits for nobody."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.servers import base
from tests.servers.perkey_http import SOURCE, PerkeyHttp

FILE = str(Path(__file__).parent / "hosted.py")
INSTANCES = "/v1/engine/instances"


@pytest.fixture
def server() -> Iterator[PerkeyHttp]:
    with PerkeyHttp("--engine", FILE) as server:
        yield server


def ask(port: int, method: str, path: str, body: Any = None) -> Any:
    connection = http.client.HTTPConnection(base.HOST, port, timeout=60)
    connection.request(method, path, None if body is None else json.dumps(body))
    answer = connection.getresponse()
    assert answer.status < 300, answer.read()
    found = json.load(answer)
    connection.close()
    return found


def start(port: int, process: str, **variables: Any) -> str:
    path = f"/v1/engine/processes/{process}/start"
    found: str = ask(port, "POST", path, {"variables": variables})["id"]
    return found


def placed(port: int) -> str:
    message = {"name": "shop/placed", "payload": {"order": "o1"}}
    found: str = ask(port, "POST", "/v1/engine/publish", message)["instance"]
    return found


def paid(port: int, instance: str) -> dict[str, Any]:
    message = {"name": "shop/paid", "payload": 12, "key": "o1", "ttl": 60}
    ask(port, "POST", "/v1/engine/publish", message)
    while True:
        told: dict[str, Any] = ask(port, "GET", f"{INSTANCES}/{instance}?wait=20")
        if told["state"] != "running":
            return told


def test_instances_outlive_a_killed_server(server: PerkeyHttp) -> None:
    done, waiting = start(server.port, "shop%2Fadd", numbers=[1, 2]), placed(server.port)
    assert ask(server.port, "GET", f"{INSTANCES}/{done}?wait=20")["result"] == 3
    server.kill()
    server.start()
    assert ask(server.port, "GET", f"{INSTANCES}/{done}")["result"] == 3
    assert ask(server.port, "GET", f"{INSTANCES}/{waiting}")["state"] == "running"


@pytest.mark.parametrize("signals", [1, 2])
def test_what_is_cut_off_goes_on_with_the_next_server(server: PerkeyHttp, signals: int) -> None:
    """A second signal does not wait, and does not make the end of a server theirs either."""
    waiting = placed(server.port)
    process = psutil.Process(server.pid)
    connection = http.client.HTTPConnection(base.HOST, server.port, timeout=60)
    connection.request("GET", f"{INSTANCES}/{waiting}?wait=20")
    for _ in range(signals):
        process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert "Traceback" not in server.log_tail()
    connection.close()
    server.kill()
    server.start()
    told = paid(server.port, waiting)
    assert (told["state"], told["result"]) == ("completed", 12)


@pytest.mark.parametrize("name", ["stubborn", "blocked"])
def test_a_process_that_cannot_be_stopped_is_left(server: PerkeyHttp, name: str) -> None:
    instance = start(server.port, name)
    while ask(server.port, "GET", f"{INSTANCES}/{instance}")["state"] != "running":
        pass
    process = psutil.Process(server.pid)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 4
    assert "could not be stopped" in server.log_tail()


def refused(store: str, file: Path | str) -> str:
    """What a server that does not start says."""
    program = [sys.executable, "-m", "perkey.cli", "serve", store, "--port", "0"]
    environment = {"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin"}
    ran = subprocess.run(
        [*program, "--engine", str(file)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 2, ran
    return ran.stderr


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("x = 1\n")
    assert "defines no process" in refused("memory://", tmp_path / "bad.py")
    assert "cannot read" in refused("memory://", tmp_path / "none.py")


def test_a_store_that_cannot_hold_it(tmp_path: Path) -> None:
    assert "commits at most" in refused(f"file://{tmp_path}/store", FILE)
