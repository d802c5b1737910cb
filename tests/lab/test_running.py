"""Worker processes: what goes wrong in one comes out, and none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from multiprocessing import active_children
from pathlib import Path

import pytest

from perkey.lab import catalogue, running
from perkey.lab.examine import Report

ROOT = Path(__file__).parents[2]
TWO = catalogue.choose(["half-open/check-then-set", "half-open/compare-and-swap"])


def test_the_reports_are_in_the_order_that_was_asked_for() -> None:
    heard: list[str] = []
    found = running.everything(TWO, 1, jobs=2, done=lambda each: heard.append(each.variant.name))
    assert [each.variant.name for each in found] == ["check-then-set", "compare-and-swap"]
    assert sorted(heard) == sorted(name for _, name in TWO)
    assert all(each.as_expected for each in found)


def test_an_error_comes_out_and_the_workers_end() -> None:
    def refuses(report: Report) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        running.everything(TWO, 1, jobs=2, done=refuses)
    assert active_children() == []


def test_a_name_that_is_nothing_is_an_error_before_anything_begins() -> None:
    with pytest.raises(KeyError, match="nothing"):
        running.everything([("half-open", "nothing"), *TWO], 1, jobs=2)
    assert active_children() == []


def test_who_takes_longest_begins_first() -> None:
    order = running._longest_first(catalogue.choose(["double-move"]))
    assert [name for _, name in order] == [
        "counted", "perkey-locks", "perkey-once", "delete", "delete-if-mine", "keep",
    ]  # fmt: skip


INTERRUPTED = """
import sys
from perkey.lab import catalogue, running

def tell(report):
    print("first", flush=True)
    sys.stdin.readline()  # until Ctrl-C

if __name__ == "__main__":
    try:
        running.everything(catalogue.choose(["half-open"]), 1, jobs=2, done=tell)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def test_ctrl_c_ends_all_of_them_without_a_word(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(INTERRUPTED), encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert (out, err) == ("interrupted\n", "")
    assert process.returncode == 0
