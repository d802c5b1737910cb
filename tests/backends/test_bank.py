"""Money that moves between ten records never changes its sum, whoever dies in between."""

from __future__ import annotations

import signal

import pytest

import perkey
from perkey.store.transaction import Tx
from tests.backends.crew import crew
from tests.backends.kinds import ALL, Kind
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
    if n == moves // 3:
        say("under way")
"""


def fill(tx: Tx, names: list[str], value: int) -> None:
    for name in names:
        tx[name] = value


@pytest.fixture(params=[name for name, kind in ALL.items() if kind.several_keys])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind of store that commits several keys."""
    return ALL[request.param]


def test_a_key_that_was_only_read_stops_the_commit(url: str, prefix: str, kind: Kind) -> None:
    """Two that each read what the other writes (write skew): one of them must run again."""
    if kind.locks:
        return  # the other would wait for the one that waits for it
    first, second = f"{prefix}a", f"{prefix}b"
    with perkey.open(url) as one, perkey.open(url) as other:
        one.transact([first, second], lambda tx: fill(tx, [first, second], 1))
        seen = []

        def go_off_duty(tx: Tx) -> None:
            seen.append(tx[second])
            if len(seen) == 1:
                other.transact([first, second], lambda tx: tx.__setitem__(second, 0))
            if tx[second]:
                tx[first] = 0

        one.transact([first, second], go_off_duty)
        assert (seen, one.get(first).value, one.get(second).value) == ([1, 0], 1, 0)


def test_the_total_is_the_same_in_every_read(url: str, prefix: str, kind: Kind) -> None:
    names = [f"{prefix}{n}" for n in range(ACCOUNTS)]
    with perkey.open(url) as store:
        store.transact(names, lambda tx: fill(tx, names, START))

        def total() -> int:
            read = lambda tx: sum(tx[name] for name in names)  # noqa: E731
            return int(store.transact(names, read, timeout=600))

        moves = int(60 * kind.pace)
        arguments = [(" ".join(names), seed, moves) for seed in range(PROCESSES)]
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
