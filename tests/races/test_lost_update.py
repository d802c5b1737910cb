"""Several processes change one document; without care the later write drops the earlier one.

The kind of report: agent stores that validate and write in separate steps ("2 commits accepted,
value 1") or that load, change and save whole files (most accepted saves lost with six
processes).
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

import perkey
from perkey import Documents
from tests.races.processes import Process, finished

PROCESSES, ROUNDS = 4, 50

UPDATE = """
number, rounds = map(int, arguments)
docs = Documents(perkey.open(url))

def count(value):
    value["n"] += 1
    return value

for _ in range(rounds):
    docs.update("counter", count, by=f"w{number}")
"""

BLIND = """
docs = Documents(perkey.open(url))
value = docs.get("counter").value
say("read")
hear()
docs.put("counter", {"n": value["n"] + 1}, overwrite=True)
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/documents.db"
    with perkey.open(url) as store:
        Documents(store).put("counter", {"n": 0}, create=True)
    return url


def test_update_loses_none(url: str) -> None:
    with ExitStack() as stack:
        finished(
            [
                stack.enter_context(Process(UPDATE, url, number, ROUNDS))
                for number in range(PROCESSES)
            ]
        )
    with perkey.open(url) as store:
        docs = Documents(store)
        kept = docs.history("counter", limit=PROCESSES * ROUNDS + 1)
    assert [each.value["n"] for each in kept] == list(range(PROCESSES * ROUNDS + 1))
    assert [each.version for each in kept] == list(range(1, PROCESSES * ROUNDS + 2))
    by = [each.by for each in kept]
    assert [by.count(f"w{number}") for number in range(PROCESSES)] == [ROUNDS] * PROCESSES


def test_blind_writes_lose_and_history_shows_it(url: str) -> None:
    """The bug itself, so that the test above is known to be able to fail."""
    with Process(BLIND, url) as one, Process(BLIND, url) as two:
        assert (one.hear(), two.hear()) == ("read", "read")
        one.say()
        assert one.end() == 0
        two.say()
        assert two.end() == 0
    with perkey.open(url) as store:
        assert [each.value["n"] for each in Documents(store).history("counter")] == [0, 1, 1]
