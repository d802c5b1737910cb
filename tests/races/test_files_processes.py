"""Processes that share a directory: killed writers leave nothing visible."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import perkey
from tests.backends.crew import crew

ROUNDS = 5

ADD = """
key, count = arguments[0], int(arguments[1])
store = perkey.open(url)

def add(tx):
    tx[key] = tx.get(key, 0) + 1
    return tx[key]

say("ready")
hear()
for n in range(count):
    told = store.transact(key, add)
    say(told)
store.close()
"""


@pytest.mark.slow
def test_killed_writers_leave_nothing_visible(tmp_path: Path) -> None:
    """What was acknowledged is there, once; at most one more a writer; all can be read."""
    url = f"file://{tmp_path}/store"
    with perkey.open(url, limits=perkey.Limits(keep_versions=20)) as store:
        acknowledged = 0
        for turn in range(ROUNDS):
            with crew(ADD, url, [("n", 100_000)] * 3) as writers:
                for writer in writers:
                    for _ in range(5 + turn):
                        assert writer.hear()
                for writer in writers:
                    writer.signal(signal.SIGKILL)
                for writer in writers:
                    assert writer.end() == -signal.SIGKILL
                    acknowledged += 5 + turn + sum(1 for line in iter(writer.hear, "") if line)
            found = store.get("n")
            assert found.value == found.version
            assert acknowledged <= found.value <= acknowledged + 3 * (turn + 1)
            assert store.history("n")[-1].value == found.value
            assert [each.key for each in store.scan("")] == ["n"]
