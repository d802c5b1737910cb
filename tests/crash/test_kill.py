"""``kill -9`` at random points of two writers, over and over, on one SQLite file.

After each round the next open works, nothing acknowledged is missing, nothing is there twice,
and what belongs together is there together.  ``PERKEY_KILL_ROUNDS=10000`` makes it long.  Nothing
is flushed here: what a killed process has written to its files stays written.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
from pathlib import Path

import pytest

import perkey
from tests.races.processes import Process
from tests.unit.sqlite_faults import url

ROUNDS = int(os.environ.get("PERKEY_KILL_ROUNDS", "200"))
WRITERS = 2

# One process imports everything and forks a round's writers, so that a round is short.  Each
# write adds 1 to a document of its own and to the total, and is acknowledged when it returned.
WRITE = """
import itertools, os

def write(name):
    store.transact(["total", f"id/{name}"], lambda tx: add_to(tx, "total", f"id/{name}"))
    os.write(1, f"{name}\\n".encode())
"""
FORGE = """
def add_to(tx, *keys):
    for key in keys:
        tx[key] = tx.get(key, 0) + 1

perkey.open("sqlite:///:memory:").close()  # all is imported before the first fork
while turn := hear():
    children = []
    for writer in range(int(arguments[0])):
        child = os.fork()
        if child == 0:
            store = perkey.open(url)
            for n in itertools.count():
                write(f"{turn}-{writer}-{n}")
        children.append(child)
    say("writers", *children)
    for child in children:
        os.waitpid(child, 0)
    say("end")
"""


class Rounds:
    """Kill, look, and compare with what was acknowledged."""

    def __init__(self, url: str, write: str, seed: int) -> None:
        self.url = url
        self.write = write
        self.chance = random.Random(seed)
        self.total = 0
        self.acknowledged = 0

    def run(self, count: int) -> None:
        with Process(self.write + FORGE, self.url, WRITERS) as forge:
            for turn in range(1, count + 1):
                self.check(turn, self.killed(forge, turn))

    def killed(self, forge: Process, turn: int) -> set[str]:
        """Kill each writer after some acknowledgements; all that were acknowledged."""
        forge.say(str(turn))
        heard: list[str] = []
        while not (line := forge.hear()).startswith("writers"):
            heard.append(line)
        for writer in line.split()[1:]:
            heard += [forge.hear() for _ in range(self.chance.choice([0, 1, 1, 2, 5]))]
            os.kill(int(writer), signal.SIGKILL)
        while (line := forge.hear()) != "end":
            heard.append(line)
        return set(heard)

    def check(self, turn: int, acknowledged: set[str]) -> None:
        with perkey.open(self.url) as store:
            found = list(store.scan(f"id/{turn}-"))
            there = {each.key.removeprefix("id/") for each in found}
            total = store.get("total", None)
            assert acknowledged <= there, "an acknowledged write is missing"
            assert len(there) <= len(acknowledged) + WRITERS, "more than was under way"
            assert [(each.value, each.version) for each in found] == [(1, 1)] * len(found)
            self.total += len(found)
            assert (total.value if total else 0) == self.total, "what belongs together is apart"
            store.put("checked", turn, overwrite=True)  # and the next writer is not kept waiting
        self.acknowledged += len(acknowledged)


def test_kill_at_random_points(tmp_path: Path) -> None:
    rounds = Rounds(url(tmp_path), WRITE, seed=1)
    rounds.run(ROUNDS)
    assert rounds.acknowledged > ROUNDS
    with perkey.open(rounds.url) as store:
        assert store.get("total").version == rounds.total
        kept = store.history("total", limit=rounds.total + 1)
        assert [each.value for each in kept[-100:]] == list(
            range(max(1, rounds.total - 99), rounds.total + 1)
        )
        sound = store.backend._connection.execute("PRAGMA integrity_check")  # type: ignore[attr-defined]
        assert sound.fetchone() == ("ok",)


MUTANTS = {
    "acknowledged before the commit": """
import itertools, os

def write(name):
    os.write(1, f"{name}\\n".encode())
    store.transact(["total", f"id/{name}"], lambda tx: add_to(tx, "total", f"id/{name}"))
""",
    "two commits for what belongs together": """
import itertools, os

def write(name):
    store.transact(f"id/{name}", lambda tx: add_to(tx, f"id/{name}"))
    store.transact("total", lambda tx: add_to(tx, "total"))
    os.write(1, f"{name}\\n".encode())
""",
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_rounds_catch(tmp_path: Path, mutant: str) -> None:
    with pytest.raises(AssertionError, match=r"missing|apart"):
        Rounds(url(tmp_path), MUTANTS[mutant], seed=2).run(1000)


# A writer that kills itself at one statement of its commit, before it or after it.
AT_STATEMENT = """
import os, signal
store = perkey.open(url)
at, when = int(arguments[0]), arguments[1]
backend, count = store.backend, 0
run = backend._run

def dying(sql, *parameters):
    global count
    place, count = count, count + 1
    if place == at and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    result = run(sql, *parameters)
    if place == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return result

backend._run = dying
store.transact(["a", "b"], lambda tx: [tx.__setitem__(key, tx[key] + 1) for key in "ab"])
say("acknowledged")
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_kill_at_each_statement(tmp_path: Path, when: str) -> None:
    with perkey.open(url(tmp_path)) as store:
        store.transact(["a", "b"], lambda tx: [tx.__setitem__(key, 0) for key in "ab"])
    values = [0]
    for at in range(8):
        with Process(AT_STATEMENT, url(tmp_path), at, when) as process:
            acknowledged = process.hear() == "acknowledged"
            process.end()
        with perkey.open(url(tmp_path)) as store:
            a, b = (store.get(key) for key in "ab")
            assert a.value == b.value == a.version - 1 == b.version - 1
            values.append(a.value)
        if acknowledged:
            break
    steps = [after - before for before, after in itertools.pairwise(values)]
    landed = 1 if when == "after" else 0  # killed right after COMMIT: landed, never told
    assert steps == [0] * (len(steps) - 1 - landed) + [1] * (1 + landed)
    assert acknowledged
