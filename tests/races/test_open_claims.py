"""Processes are killed while their effects run; what they left open is found by the index."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

import perkey
from perkey import Once
from tests.races.processes import Process

WORKER = """
once = Once(perkey.open(url))
name, = arguments

def effect(context):
    say("running", context.key)
    hear()

for n in range(20):
    once.run(f"{name}/done/{n}", 1, lambda context: n)
once.run(f"{name}/open", 1, effect, lease=0.2)
"""


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_what_killed_processes_left_open_is_found(tmp_path: Path, scheme: str) -> None:
    url = f"{scheme}:///{tmp_path}/once"
    with perkey.open(url) as store, ExitStack() as running:
        once = Once(store)
        assert once.unresolved() == []
        workers = [running.enter_context(Process(WORKER, url, name)) for name in "abc"]
        for name, worker in zip("abc", workers, strict=True):
            assert worker.hear() == f"running {name}/open"
            worker.signal(signal.SIGKILL)
            assert worker.end() == -signal.SIGKILL
        keys = {f"{name}/open" for name in "abc"}
        while {each.key for each in once.unresolved()} != keys:
            pass  # their leases run out by the store's time
        for key in keys:
            once.resolve(key, value="seen")
        assert once.unresolved() == []
        assert once.run("a/open", 1, lambda context: None).value == "seen"
