"""Eight processes add 1 to one document 250 times each, while a reader looks all the time."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

import perkey
from tests.races.processes import Process, finished
from tests.unit.sqlite_faults import url

PROCESSES, ROUNDS = 8, 250

ADD = """
docs = Documents(perkey.open(url))

def add(value):
    value["n"] += 1
    value["text"] = str(value["n"]) * 50
    return value

say("ready")
hear()
for _ in range(int(arguments[0])):
    docs.update("counter", add, by="worker")
"""


def looked(store: perkey.Store, processes: list[Process]) -> set[tuple[int, int, str]]:
    """(version, n, text) of every look, in a tight loop until all processes have ended."""
    seen: set[tuple[int, int, str]] = set()
    version = 0
    while any(process.running() for process in processes):
        found = store.get("counter")
        assert found.version >= version, "the reader went back in time"
        version = found.version
        seen.add((version, found.value["n"], found.value["text"]))
    return seen


@pytest.mark.slow
def test_no_addition_is_lost_and_readers_see_only_what_was_committed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(perkey.open(url(tmp_path)))
        store.put("counter", {"n": 0, "text": ""}, create=True)
        processes = [
            stack.enter_context(Process(ADD, url(tmp_path), ROUNDS)) for _ in range(PROCESSES)
        ]
        assert [process.hear() for process in processes] == ["ready"] * PROCESSES
        for process in processes:
            process.say()
        seen = looked(store, processes)
        finished(processes)
        total = PROCESSES * ROUNDS
        kept = store.history("counter", limit=total + 2)
        assert [each.version for each in kept] == list(range(1, total + 2))
        assert [each.value["n"] for each in kept] == list(range(total + 1))
        assert store.get("counter").value["n"] == total
        assert len(seen) > 1
        assert seen <= {(each.version, each.value["n"], each.value["text"]) for each in kept}
