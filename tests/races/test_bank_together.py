"""Two processes, each with 64 tasks that share transactions, are killed with ``kill -9``.

Whatever a process had acknowledged is there; every key moved once or not at all; nobody's money
is missing.  The second life of a process repeats what nobody knows about.
"""

from __future__ import annotations

import random
import signal
from pathlib import Path

import perkey
from perkey import Ledger, NotFound
from tests.races.processes import Process
from tests.races.test_bank import ACCOUNTS, FUNDS, funded
from tests.unit.sqlite_faults import url

TASKS, EACH, KILLS = 64, 4, 2

TELLER = """
import asyncio, random

async def main(worker, limits):
    store = await perkey.aopen(url, limits=limits)
    ledger = AsyncLedger(store)

    async def task(number):
        chance = random.Random(f"{worker}/{number}")
        for n in range(EACH):
            source, target = chance.sample([f"hot/{i}" for i in range(10)], 2)
            amount = chance.randint(1, 90)
            try:
                moved = await ledger.transfer(source, target, amount, key=f"{worker}/{number}/{n}")
            except InsufficientFunds:
                say("refused", f"{worker}/{number}/{n}", 0, ".")
            else:
                say("moved", moved.key, moved.amount, ".")

    await asyncio.gather(*(task(number) for number in range(64)))
    assert store.statistics()["commits"] < 64 * EACH / 2, "nothing was shared"
    await store.close()
    say("ended", worker, 0, ".")

asyncio.run(main(arguments[0], perkey.Limits(timeout_s=600)))
"""


def test_a_killed_process_leaves_each_transfer_done_or_not(tmp_path: Path) -> None:
    chance = random.Random(7)
    told: dict[str, int] = {}
    code = TELLER.replace("EACH", str(EACH))
    with perkey.open(url(tmp_path)) as store:
        ledger = funded(store)
        with Process(code, url(tmp_path), "y") as other:
            for life in range(KILLS + 1):
                with Process(code, url(tmp_path), "x") as killed:
                    # In the middle of what it does; the last life may go on to its end.
                    most = chance.randrange(1, TASKS * EACH // 2) if life < KILLS else None
                    listen(killed, told, most)
                assert sum(each.posted for each in ledger.accounts("hot/")) == ACCOUNTS * FUNDS
            listen(other, told, None)
            assert other.end() == 0
        assert ledger.verify() is None
        assert_each_once(ledger, told)


def listen(process: Process, told: dict[str, int], most: int | None) -> None:
    """Take in what a process acknowledges; kill it after so many words."""
    heard = 0
    while line := process.hear():
        what, *rest = line.split()
        if len(rest) < 3:  # its last words were cut off
            continue
        key, amount, _ = rest
        if what == "moved":
            assert told.setdefault(key, int(amount)) == int(amount)
            heard += 1
        if heard == most:
            process.signal(signal.SIGKILL)
            most = None


def assert_each_once(ledger: Ledger, told: dict[str, int]) -> None:
    """What was acknowledged is in the books, and everything in the books is there once."""
    entries: list[str] = []
    for n in range(ACCOUNTS):
        entries += [line.transfer for line in ledger.statement(f"hot/{n}", limit=10_000)]
    moves = [key for key in entries if not key.startswith("funding")]
    assert {moves.count(key) for key in {*moves}} == {2}, "a transfer that moved not once"
    for key, amount in told.items():
        try:
            assert ledger.find(key).amount == amount
        except NotFound:
            raise AssertionError(f"{key} was acknowledged and is not there") from None
        assert entries.count(key) == 2
    assert len(told) > TASKS * EACH / 2
