"""Processes merge whole documents from old versions, while one deletes the document and makes
another one under its key: no write reaches over a deletion, and none of the others is refused."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

import perkey
from tests.races.processes import Process, finished
from tests.unit.sqlite_faults import url

WRITERS, LIVES = 3, 8

WRITE = """
docs, me = Documents(perkey.open(url)), arguments[0]
say("ready")
hear()
done = life = 0
while life < int(arguments[1]):
    read = docs.get("report", None)
    if read is None:
        continue
    life = read.value["life"]
    mine = {"from": read.version, "round": done}
    try:
        docs.put("report", {**read.value, me: mine}, if_match=read.version, merge=True, by=me)
        done += 1
    except Conflict as conflict:
        assert "deleted" in str(conflict), conflict
say(done)
"""

START_OVER = """
docs = Documents(perkey.open(url))
say("ready")
hear()
for number in range(int(arguments[1])):
    before = docs.get("report")
    while docs.get("report").version < before.version + 3:
        pass
    docs.delete("report", by="eraser")
    docs.put("report", {"life": number + 1}, create=True, by="eraser")
say(arguments[1])
"""


@pytest.mark.slow
def test_no_merge_reaches_over_a_deletion(tmp_path: Path) -> None:
    place = url(tmp_path)
    with ExitStack() as stack:
        store = stack.enter_context(perkey.open(place))
        store.put("report", {"life": 0}, create=True)
        processes = [
            stack.enter_context(Process(WRITE, place, f"w{n}", LIVES)) for n in range(WRITERS)
        ]
        processes.append(stack.enter_context(Process(START_OVER, place, "eraser", LIVES)))
        assert [process.hear() for process in processes] == ["ready"] * len(processes)
        for process in processes:
            process.say()
        assert all(process.hear().isdecimal() for process in processes)
        finished(processes)
        kept = store.history("report", limit=10_000)
        assert [each.version for each in kept] == list(range(1, len(kept) + 1))
        deleted = [each.version for each in kept if each.deleted]
        assert len(deleted) == LIVES
        for each in kept:
            if each.by.startswith("w"):
                base = each.value[each.by]["from"]
                assert not [version for version in deleted if base < version < each.version]
                # What it read is of the life that it wrote to.
                assert each.value["life"] == kept[base - 1].value["life"]
