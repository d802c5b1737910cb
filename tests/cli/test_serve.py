"""``perkey serve`` and ``perkey token``, as far as they go without a socket."""

from __future__ import annotations

import json
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from perkey import Limits
from perkey.server import identity
from perkey.server import run as running
from perkey.server.ending import Ending
from perkey.server.hosting import Processes
from perkey.server.settings import Settings
from tests.cli.run import Command

kept: list[tuple[int, float | None]] = []
"""What would have been kept of each document."""
ran: list[str] = []
"""The processes that would have run."""


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Settings]]:
    """What would have been served."""
    calls: list[tuple[str, Settings]] = []
    kept.clear()
    ran.clear()

    def serve(
        url: str,
        settings: Settings,
        started: object,
        limits: Limits,
        processes: Processes | None,
        stopped: Callable[[Ending], None],
    ) -> bool:
        calls.append((url, settings))
        kept.append((limits.keep_versions, limits.keep_s))
        ran.extend(each.key for each in (processes.definitions if processes else ()))
        assert callable(started)
        started("http://127.0.0.1:1")
        if settings.port == 1:
            stopped(Ending(0.25, finished=1, streams=2))
        return True

    monkeypatch.setattr(running, "serve", serve)
    return calls


def test_what_is_served(perkey: Command, url: str, served: list[tuple[str, Settings]]) -> None:
    assert "http://127.0.0.1:1 serves the store" in perkey("serve").out
    ran = perkey(
        "serve", "memory://", "--port", "0", "--allow-host", "a", "--allow-host", "b", "--json"
    )
    assert ran.json == {"url": "http://127.0.0.1:1", "tokens": False}
    assert served == [(url, Settings()), ("memory://", Settings(port=0, hosts=("a", "b")))]
    assert perkey("serve", "--spans").code == 0
    assert served[-1] == (url, Settings(spans=True))


def test_what_its_end_came_to(perkey: Command, served: list[tuple[str, Settings]]) -> None:
    said = perkey("serve", "--port", "1").out.splitlines()
    assert said[-1] == "stopped in 0.2 s: 1 request finished, 2 event streams ended"
    last = json.loads(perkey("serve", "--port", "1", "--json").out.splitlines()[-1])
    assert last["stopped"]["seconds"] == 0.25
    assert (last["stopped"]["streams"], last["stopped"]["cut"]) == (2, 0)


def test_how_much_is_kept(perkey: Command, served: list[tuple[str, Settings]]) -> None:
    assert perkey("serve").code == 0
    assert perkey("serve", "--keep-versions", "5", "--keep-seconds", "0.5").code == 0
    assert kept == [(Limits().keep_versions, None), (5, 0.5)]
    assert perkey("serve", "--keep-versions", "0").code == 2


def test_what_its_engine_runs(
    perkey: Command, served: list[tuple[str, Settings]], tmp_path: Path
) -> None:
    file = tmp_path / "processes.py"
    file.write_text(
        "from perkey.engine import process\n"
        "@process('one')\nasync def one(ctx): ...\n"
        "@process('two')\nasync def two(ctx): ...\n"
    )
    assert perkey("serve", "--engine", str(file)).code == 0
    assert ran == ["one", "two"]
    refused = perkey("serve", "--engine", str(tmp_path / "none.py"))
    assert (refused.code, len(served)) == (2, 1)
    assert "cannot read" in refused.err


def test_no_store_is_named(perkey: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERKEY_STORE")
    ran = perkey("serve")
    assert ran.code == 2
    assert "PERKEY_STORE" in ran.err


def test_a_port_that_is_taken(perkey: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = perkey("serve", "memory://", "--port", str(port))
    assert ran.code == 3
    assert ran.err == (
        f"perkey: store-unavailable: cannot listen on 127.0.0.1 port {port}: "
        "Address already in use; name another with --port\n"
    )


def test_a_mistyped_store_is_told_before_a_port_that_is_taken(perkey: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = perkey("serve", "sqlit:///x", "--port", str(taken.getsockname()[1]))
    assert ran.code == 2
    assert "no store is called sqlit://" in ran.err
    assert "cannot listen" not in ran.err


def test_beyond_loopback_tokens_are_needed(
    perkey: Command, served: list[tuple[str, Settings]], tmp_path: Path
) -> None:
    ran = perkey("serve", "--host", "0.0.0.0")
    assert (ran.code, served) == (2, [])
    assert "perkey token" in ran.err
    tokens = tmp_path / "t.toml"
    ran = perkey("serve", "--host", "0.0.0.0", "--tokens", str(tokens))
    assert (ran.code, served) == (2, []), "it is read before anything is served"
    assert "cannot read the token file" in ran.err
    tokens.touch()
    assert perkey("serve", "--host", "0.0.0.0", "--tokens", str(tokens)).code == 0


def test_a_token_is_shown_once(perkey: Command, tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    first = perkey("token", "agent", "--prefix", "runs/", "--prefix", "notes/", "--file", str(path))
    second = perkey("token", "boss", "--role", "admin", "--file", str(path), "--json")
    assert (first.code, second.code) == (0, 0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    callers = identity.parse(path.read_text())
    tokens = [first.out.strip(), second.json["token"]]
    found = [callers[identity.digest(token)] for token in tokens]
    assert [(each.name, each.role, each.prefixes) for each in found] == [
        ("agent", "write", ("runs/", "notes/")),
        ("boss", "admin", ("",)),
    ]
    assert not any(token in path.read_text() for token in tokens)


def test_a_token_without_a_file(perkey: Command) -> None:
    ran = perkey("token", "agent")
    token, _, *entry = ran.out.splitlines()
    (known,) = identity.parse("\n".join(entry))
    assert known == identity.digest(token)


def test_tokens_that_cannot_be_made(perkey: Command, tmp_path: Path) -> None:
    assert perkey("token", "a/b").code == 2
    assert perkey("token", "a", "--role", "root").code == 2
    ran = perkey("token", "a", "--file", str(tmp_path / "none" / "tokens.toml"))
    assert ran.code == 2
    assert "cannot write" in ran.err
