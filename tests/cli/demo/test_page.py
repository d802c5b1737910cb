"""The demo's run on its page: at a terminal, until Ctrl-C; elsewhere it does not wait."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest

import perkey as library
from perkey.cli import exits
from perkey.cli.demo import page
from tests.cli.run import Command

WAIT_S = 120
SOURCE = Path(library.__file__).resolve().parents[1]


def command(*arguments: str) -> list[str]:
    quick = ("--think", "0", "--workers", "2", "a.md")
    return [sys.executable, "-m", "perkey", "demo", *quick, *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE), "NO_COLOR": "1", "TERM": "dumb"}


def read(descriptor: int, mark: str) -> str:
    """What is printed until a text comes."""
    text = ""
    while mark not in text:
        try:
            chunk = os.read(descriptor, 65_536)
        except OSError:  # the other side of a terminal is gone
            chunk = b""
        assert chunk, text
        text += chunk.decode("utf-8", "replace")
    return text


def test_at_a_terminal_it_stays_until_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Title\n\nText.\n")
    ours, theirs = pty.openpty()
    demo = subprocess.Popen(
        command(), cwd=tmp_path, env=environment(), stdout=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        told = read(ours, "(Ctrl-C ends it)")
        assert "watch it: http://127.0.0.1:" in told
        (address,) = re.findall(r"page: (http://\S+)", told)
        with urllib.request.urlopen(address, timeout=WAIT_S) as answer:
            shown = answer.read().decode()
        assert '<span class="badge good">complete</span> 6 tasks, all done' in shown
        children = psutil.Process(demo.pid).children()
        assert len(children) == 1, "the workers have ended, the server has not"
        demo.send_signal(signal.SIGINT)  # to the command alone: it ends its server
        assert demo.wait(WAIT_S) == 0
        assert psutil.wait_procs(children, WAIT_S)[1] == []
    finally:
        demo.kill()
        demo.wait()
        os.close(ours)


def test_elsewhere_it_says_how_to_look_and_ends(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Title\n\nText.\n")
    done = subprocess.run(
        command(), cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=WAIT_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    last = done.stdout.splitlines()[-1]
    assert re.fullmatch(
        r"page: perkey serve 'sqlite:///report/audit\.db'  then open "
        r"http://127\.0\.0\.1:8420/ui/run\?run=audit%2F\w+%2Fboard",
        last,
    )
    assert "watch it" not in done.stdout


def test_json_names_the_page_and_a_busy_port_is_no_matter(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Title\n\nText.\n")
    demo = subprocess.Popen(
        command("--json", "--serve"),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert demo.stdout is not None
        told = json.loads(read(demo.stdout.fileno(), "\n}\n"))
        with urllib.request.urlopen(told["page"], timeout=WAIT_S) as answer:
            assert told["run"] in answer.read().decode()
        os.killpg(demo.pid, signal.SIGINT)  # as a terminal sends it
        assert demo.wait(WAIT_S) == 0
    finally:
        demo.kill()
        demo.wait()
        assert demo.stdout is not None
        demo.stdout.close()


@pytest.mark.parametrize("missing", page.NEEDED)
def test_a_page_that_was_asked_for_and_cannot_be_is_refused_before_the_work(
    perkey: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, missing, None)
    before = sorted(tmp_path.iterdir())
    ran = perkey("demo", "--serve", "a.md")
    assert (ran.code, ran.out) == (exits.STORE, "")
    assert f"missing-extra: perkey demo --serve needs the package '{missing}'" in ran.err
    assert "pip install 'perkey[server]'" in ran.err
    assert sorted(tmp_path.iterdir()) == before


def test_a_server_that_does_not_come_up_is_no_matter(tmp_path: Path) -> None:
    with page.Page("nowhere://x", wanted=True) as none:
        assert none.address == ""
        none.stay()
    with page.Page(f"sqlite:///{tmp_path}/x.db", wanted=False) as unwanted:
        assert unwanted.address == ""


def test_a_runs_page() -> None:
    assert page.path("audit/a b/board") == "/ui/run?run=audit%2Fa%20b%2Fboard"
