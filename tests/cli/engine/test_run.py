"""``perkey run`` as a process: what it shows, how it stops, and what its exit code says."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
WAITS_S = 60

HEAD = """
import asyncio
from perkey.engine import define, every, message, process
"""

WAITING = """
@process("order", starts=[message("placed", key="id")])
async def order(ctx):
    await ctx.step("reserve", lambda: 1)
    return await ctx.receive("paid")

async def main(engine):
    await engine.publish("placed", {"id": "o-1"})
"""


class Running:
    """One ``perkey run`` in a process of its own."""

    def __init__(self, folder: Path, source: str, *options: str, **more: Any) -> None:
        self.path = folder / "work.py"
        self.path.write_text(HEAD + source, encoding="utf-8")
        environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "PERKEY_STORE")}
        environment |= {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100", "LINES": "30"}
        environment |= {"TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "perkey", "run", str(self.path), *options],
            env=environment,
            cwd=folder,
            **{
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "text": True,
                **more,
            },
        )
        self.lines: list[str] = []

    def until(self, reached: Callable[[str], bool]) -> None:
        """Read lines until one of them is what is waited for."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if reached(line):
                return
        raise AssertionError(f"it ended: {self.lines} {self.process.communicate(timeout=WAITS_S)}")

    def end(self, send: int | None = None) -> tuple[int, str]:
        """The exit code and standard error; the rest of the output is in ``lines``."""
        if send is not None:
            self.process.send_signal(send)
        out, err = self.process.communicate(timeout=WAITS_S)
        self.lines += out.splitlines()
        return self.process.returncode, err

    @property
    def json(self) -> list[dict[str, Any]]:
        return [json.loads(each) for each in self.lines]


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts one; whatever still runs at the end of the test is killed."""
    started: list[Running] = []

    def start(source: str, *options: str, **more: Any) -> Running:
        started.append(Running(tmp_path, source, *options, **more))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        if each.process.stdout is None:
            each.process.wait(WAITS_S)
        else:
            each.process.communicate(timeout=WAITS_S)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_stops_it_cleanly(start: Start, stop: int) -> None:
    run = start(WAITING, "--json")
    run.until(lambda line: '"step"' in line)
    assert run.end(stop) == (0, "")
    facts = [(each["fact"], each["detail"]) for each in run.json[:-1]]
    assert facts[:3] == [("registered", ""), ("engine", "started"), ("started", "")]
    assert facts[-1] == ("engine", "stopped")
    assert ("ended", "cancelled") in facts
    summary = run.json[-1]["summary"]
    assert summary["state"] == "stopped"
    assert summary["facts_dropped"] == 0
    assert summary["instances"]["cancelled"] == 1


def test_on_a_durable_store_it_goes_on_where_it_was_cut_off(start: Start, tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path}/work.db")
    run = start(WAITING, "--json", *store)
    run.until(lambda line: '"step"' in line)
    assert run.end(signal.SIGTERM)[0] == 0
    later = WAITING.replace('placed", {', 'paid", {').replace(
        '"o-1"}', '"o-1"}, key="o-1", ttl=600'
    )
    run = start(later, "--json", *store)
    run.until(lambda line: '"ended"' in line)
    assert run.end(signal.SIGINT)[0] == 0
    facts = [(each["fact"], each["detail"]) for each in run.json[:-1]]
    assert ("started", "recovered") in facts
    assert ("ended", "completed") in facts
    assert ("step", "reserve") not in facts


def test_until_idle_it_ends_by_itself_and_colours_nothing(start: Start, tmp_path: Path) -> None:
    text = WAITING + '    await engine.publish("paid", 1, key="o-1", ttl=600)\n'
    run = start(text, "--until-idle")
    assert run.end() == (0, "")
    assert "registered order v1" in run.lines
    assert run.lines[-1] == "in all: 1 completed"
    assert "\x1b" not in "".join(run.lines)


def test_what_runs_may_finish_first_when_that_is_asked_for(start: Start, tmp_path: Path) -> None:
    text = """
@process("slow")
async def slow(ctx):
    await ctx.step("began", lambda: 1)
    await ctx.sleep(0.3)

async def main(engine):
    await engine.start_latest("slow")
"""
    run = start(text, "--json", "--drain", "60")
    run.until(lambda line: '"began"' in line)
    assert run.end(signal.SIGINT)[0] == 0
    assert run.json[-1]["summary"]["instances"]["completed"] == 1


def test_a_second_signal_does_not_wait_for_what_does_not_stop(start: Start) -> None:
    text = """
@process("stubborn")
async def stubborn(ctx):
    while True:
        try:
            await ctx.step("began", lambda: 1)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            print("{}", flush=True)

async def main(engine):
    await engine.start_latest("stubborn")
"""
    run = start(text, "--json")
    run.until(lambda line: '"began"' in line)
    run.process.send_signal(signal.SIGINT)
    run.until(lambda line: line == "{}\n")
    assert run.end(signal.SIGINT)[0] == 130


FAILING = """
def reserve(order):
    return {}[order]

@process("order")
async def order(ctx):
    await ctx.step("reserve", lambda: reserve("o-1"))

@process("parcel")
def parcel(ctx):
    raise OSError("no stamps")

async def main(engine):
    await engine.start_latest("order")
    await engine.start_latest("parcel")
    while any(not each.state.ended for each in engine.instances()):
        await asyncio.sleep(0.01)
    raise ValueError("no more orders")
"""


def line_of(text: str) -> int:
    """The line of ``FAILING`` that has this text, in the file."""
    return 1 + next(n for n, line in enumerate((HEAD + FAILING).splitlines()) if text in line)


def test_what_fails_is_told_with_its_line_and_main_with_exit_code_1(start: Start) -> None:
    run = start(FAILING)
    code, err = run.end()
    assert code == 1
    said = sorted(line for line in err.splitlines() if line.startswith("perkey: "))
    raised = [("ValueError", "main"), ("{}[order]", "reserve"), ("OSError", "parcel")]
    places = [f"({run.path}:{line_of(text)} in {name})" for text, name in raised]
    assert said[0] == f"perkey: main() failed: ValueError: no more orders {places[0]}"
    assert re.fullmatch(r"perkey: order \S+ failed: KeyError: 'o-1' (\(.+\))", said[1])
    assert re.fullmatch(r"perkey: parcel \S+ failed: OSError: no stamps (\(.+\))", said[2])
    assert [line.endswith(place) for line, place in zip(said, places, strict=True)] == [True] * 3
    assert "Traceback" not in err
    assert "--traceback" in err


def test_the_whole_traceback_is_shown_to_who_asks(start: Start) -> None:
    code, err = start(FAILING, "--traceback").end()
    assert code == 1
    assert err.count("Traceback (most recent call last)") == 3
    assert 'await ctx.step("reserve", lambda: reserve("o-1"))' in err
    assert "hint:" not in err


def test_what_fails_is_told_as_json(start: Start) -> None:
    run = start(FAILING, "--json")
    code, err = run.end()
    assert code == 1
    assert run.json[-1]["summary"]["state"] == "stopped"
    errors = [json.loads(line)["error"] for line in err.splitlines()]
    assert sorted(each["code"] for each in errors) == ["main-failed", *["process-failed"] * 2]
    (main,) = (each for each in errors if each["code"] == "main-failed")
    assert main["message"].startswith("main() failed: ValueError: no more orders (")
    place = {"file": str(run.path), "line": line_of("ValueError"), "in": "main"}
    assert main["details"] == {"error": "ValueError", **place}


def test_a_file_that_changes_is_deployed_again(start: Start, tmp_path: Path) -> None:
    text = '@process("order")\ndef body(ctx):\n    return 1\n'
    run = start(text, "--json", "--reload")
    run.until(lambda line: '"detail": "started"' in line)
    run.path.write_text("this is no Python")
    assert run.process.stderr is not None
    assert "not deployed" in run.process.stderr.readline()
    run.path.write_text(HEAD + text.replace("return 1", "return 2"))
    run.until(lambda line: '"registered"' in line and '"version": 2' in line)
    assert run.end(signal.SIGTERM)[0] == 0
    registered = [each["version"] for each in run.json if each.get("fact") == "registered"]
    assert registered == [1, 2]


def test_a_file_that_changed_while_it_was_loaded_is_deployed_again(start: Start) -> None:
    """Its time says nothing: it is the old one, as within one tick of the file system's clock."""
    text = """
import os
was = os.stat(__file__)
source = open(__file__).read()
open(__file__, "w").write(source.replace("return " + "1", "return 2"))
os.utime(__file__, ns=(was.st_atime_ns, was.st_mtime_ns))

@process("order")
def body(ctx):
    return 1
"""
    run = start(text, "--json", "--reload")
    run.until(lambda line: '"registered"' in line and '"version": 2' in line)
    assert run.end(signal.SIGTERM)[0] == 0


def test_a_store_that_cannot_be_opened_is_exit_code_3(start: Start, tmp_path: Path) -> None:
    (tmp_path / "work.db").write_text("this is no database, and long enough to be sure" * 99)
    code, err = start(WAITING, "--store", f"sqlite:///{tmp_path}/work.db").end()
    assert code == 3
    assert "Traceback" not in err


# ------------------------------------------------------------------------------- terminal


def read_all(terminal: int, until: str = "", process: Any = None) -> str:
    """What a terminal shows until ``until``, or until its other side is closed."""
    shown = ""
    end = time.monotonic() + WAITS_S
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            new = os.read(terminal, 65536)
        except OSError:  # the other side is closed
            break
        if not new:
            break
        shown += new.decode()
        if until and until in plain(shown):
            break
    return plain(shown)


def own_terminal() -> None:
    """Make standard input this process's terminal, so that Ctrl-C typed there reaches it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_at_a_terminal_failures_come_below_the_table(start: Start) -> None:
    here, there = pty.openpty()
    try:
        run = start(FAILING, stdin=there, stdout=there, stderr=there, text=False)
        os.close(there)
        shown = read_all(here)
        assert run.process.wait(WAITS_S) == 1
    finally:
        os.close(here)
    table, _, below = shown.rpartition("engine stopped   0 running, 2 ended")
    assert "main() failed" not in table
    for said in ("main() failed: ValueError", "failed: KeyError", "failed: OSError"):
        assert below.count(said) == 1


def test_at_a_terminal_it_shows_a_live_table(start: Start, tmp_path: Path) -> None:
    here, there = pty.openpty()
    try:
        run = start(
            WAITING,
            stdin=there,
            stdout=there,
            stderr=there,
            text=False,
            preexec_fn=own_terminal,
            start_new_session=True,
        )
        os.close(there)
        shown = read_all(here, until="message paid")
        os.write(here, b"\x03")
        shown += read_all(here)
        assert run.process.wait(WAITS_S) == 0
    finally:
        os.close(here)
    assert "engine started   1 running, 0 ended" in shown
    assert re.search(r"order +v1 +message:placed +1 +0 +0", shown)
    assert re.search(r"order v1 +o-1 +running +1 +message paid", shown)
    assert "engine stopped   0 running, 1 ended" in shown
    assert "in all: 1 cancelled" in shown
    assert " \r\n" not in shown, "what fills a column would be copied with it"


def test_the_example_redeploys_while_its_orders_run(start: Start, tmp_path: Path) -> None:
    example = ROOT / "examples" / "orders.py"
    done = subprocess.run(
        [sys.executable, "-m", "perkey", "run", str(example), "--until-idle", "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WAITS_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    *facts, last = [json.loads(line) for line in done.stdout.splitlines()]
    started = [each for each in facts if each["fact"] == "started" and each["key"] == "order"]
    assert [each["version"] for each in started] == [1] * 6 + [2] * 6
    assert any(each["key"] == "stock take" for each in facts if each["fact"] == "ended")
    assert last["summary"]["instances"]["completed"] >= 12
    assert last["summary"]["instances"]["failed"] == 0
