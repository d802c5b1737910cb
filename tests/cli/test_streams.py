"""Standard streams that are full, closed, narrow or not text: an exit code, never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import perkey


@pytest.fixture
def url(tmp_path: Path) -> str:
    made = f"sqlite:///{tmp_path}/streams.db"
    with perkey.open(made) as store:
        store.put("k", "ü", create=True)
    return made


def shell(line: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", "-c", line],
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", ["get k", "history k"])
@pytest.mark.parametrize(
    ("where", "code"), [("> /dev/full", 3), (">&-", 0), ("| true; exit ${PIPESTATUS[0]}", 0)]
)
def test_an_output_that_takes_nothing(url: str, command: str, where: str, code: int) -> None:
    name, key = command.split()
    line = f"{sys.executable} -m perkey doc {name} {key} --store '{url}' {where}"
    ran = shell(line)
    assert ran.returncode == code, ran.stderr
    assert b"Traceback" not in ran.stderr


@pytest.mark.parametrize("command", ["get", "history"])
def test_a_narrow_output_shows_escapes(url: str, command: str) -> None:
    line = f"PYTHONIOENCODING=ascii {sys.executable} -m perkey doc {command} k --store '{url}'"
    ran = shell(line)
    assert ran.returncode == 0, ran.stderr
    assert b"\\xfc" in ran.stdout


@pytest.mark.parametrize("words", ["--help", "doc put --help", "completion bash", "--version"])
@pytest.mark.parametrize(
    ("where", "code"), [("> /dev/full", 3), ("| true; exit ${PIPESTATUS[0]}", 0)]
)
def test_pages_for_an_output_that_takes_nothing(words: str, where: str, code: int) -> None:
    ran = shell(f"{sys.executable} -m perkey {words} {where}")
    assert ran.returncode == code, ran.stderr
    assert b"Traceback" not in ran.stderr


def test_an_input_that_is_no_text(url: str) -> None:
    line = (
        f"printf '\\xff' | PYTHONIOENCODING=utf-8:strict {sys.executable} -m perkey doc "
        f"put k - --overwrite --store '{url}'"
    )
    ran = shell(line)
    assert ran.returncode == 2
    assert b"standard input is not UTF-8" in ran.stderr


CHATTY = """
import logging, sys
import azure.identity

class Chatty:
    def get_token(self, *scopes):
        logging.getLogger("azure.identity").warning("a page on what was tried")
        raise OSError("no")

azure.identity.DefaultAzureCredential = Chatty
from perkey.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("as_json", [False, True])
def test_a_vendor_that_logs_adds_nothing_to_an_error(as_json: bool, tmp_path: Path) -> None:
    program = tmp_path / "chatty.py"
    program.write_text(CHATTY)
    words = ["doctor", "az://acc@box", *["--json"][: int(as_json)]]
    ran = subprocess.run(
        [sys.executable, str(program), *words], capture_output=True, timeout=60, check=False
    )
    assert ran.returncode == 3, ran.stderr
    said = ran.stderr.decode()
    assert len(said.splitlines()) == (1 if as_json else 2), said
    assert "OSError; log in (az login), or say az://account:KEY@container" in said
    if as_json:
        assert json.loads(said)["error"]["code"] == "nothing-done"
