"""Money that moves between ten records never changes its sum, whoever dies in between."""

from __future__ import annotations

import signal

import pytest

import perkey
from tests.backends.crew import crew
from tests.backends.kinds import KINDS
from tests.races.processes import finished

PROCESSES = 8
ACCOUNTS = 10
START = 1_000

MOVER = """
import random

names, seed, moves = arguments[0].split(), arguments[1], int(arguments[2])
choose = random.Random(seed)
store = perkey.open(url)

def move(tx):
    for name, step in changes.items():
        tx[name] += step

say("ready")
hear()
for n in range(moves):
    amount = choose.randrange(1, 50)
    if n % 3:  # pairs, in both directions
        here, there = choose.sample(names, 2)
        changes = {here: -amount, there: amount}
    else:  # a ring of three
        first, second, third = choose.sample(names, 3)
        changes = {first: -amount, second: amount + 1, third: -1}
    store.transact([*changes], move)
    if n == 20:
        say("under way")
"""


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.several_keys])
def test_the_total_is_the_same_in_every_read(
    kind: str, prefix: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(KINDS[kind].fixture).url
    names = [f"{prefix}{n}" for n in range(ACCOUNTS)]
    with perkey.open(url) as store:
        store.transact(names, lambda tx: [tx.__setitem__(name, START) for name in names] and None)

        def total() -> int:
            return int(store.transact(names, lambda tx: sum(tx[name] for name in names)))

        arguments = [(" ".join(names), seed, 60) for seed in range(PROCESSES)]
        with crew(MOVER, url, arguments) as movers:
            doomed, rest = movers[:3], movers[3:]
            for mover in doomed:
                assert mover.hear() == "under way"
                assert total() == START * ACCOUNTS
                mover.signal(signal.SIGKILL)
            for mover in rest:
                assert mover.hear() == "under way"
                assert total() == START * ACCOUNTS
            finished(rest)
            assert [mover.end() for mover in doomed] == [-signal.SIGKILL] * len(doomed)
        assert total() == START * ACCOUNTS
        values = [store.get(name).value for name in names]
        assert sum(values) == START * ACCOUNTS
        assert values != [START] * ACCOUNTS
