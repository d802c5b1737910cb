"""``perkey doctor`` on each store: it finds what it should, and shows no password."""

from __future__ import annotations

import json

import pytest

from perkey.cli import exits, main
from tests.backends.kinds import Kind, everywhere
from tests.servers.base import Server


def examined(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object]]:
    capsys.readouterr()
    code = main(["doctor", *arguments, "--json", "--n", "20"])
    told = json.loads(capsys.readouterr().out)
    assert isinstance(told, dict)
    return code, told


@everywhere
def test_a_new_store_and_one_that_is_there(empty: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = examined(capsys, empty)
    if told["state"] == "absent":  # this kind of store has something to make
        assert code == exits.REFUSED
        assert examined(capsys, empty)[1]["state"] == "absent"
        code, told = examined(capsys, empty, "--create")
    assert told["state"] == "open"
    assert any("changes arrived" in line for line in told["probed"])  # type: ignore[attr-defined]
    assert code == (exits.REFUSED if told["warnings"] else exits.DONE)
    assert examined(capsys, empty)[0] == code


def test_a_password_never_shows(
    kind: Kind, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    scheme, _, rest = server.url.partition("://")
    place = rest.rpartition("@")[2]
    url = f"{scheme}://perkey:s3cr3t-w0rd@{place}"
    code = main(["doctor", url])
    out, err = capsys.readouterr()
    # Azure's keys are base64: this one is found wrong before anybody is asked.
    assert code in (exits.DONE, exits.REFUSED, exits.STORE, exits.USAGE)
    assert out + err
    assert "s3cr3t" not in out + err


def test_a_server_that_is_not_there(kind: Kind, capsys: pytest.CaptureFixture[str]) -> None:
    server = kind.own_server()
    with server:
        url = server.url
    assert main(["doctor", url]) == exits.STORE
    assert capsys.readouterr().err.count("\n") == 2
