"""Eight processes move money among ten hot accounts while somebody kills them with ``kill -9``.

Every reader sees the same total at every moment, every key moved at most once, and at the end
the books balance.  ``PERKEY_BANK_TRANSFERS=2000`` makes it long.
"""

from __future__ import annotations

import os
import queue
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import perkey
from perkey import Ledger
from tests.races.processes import Process
from tests.unit.sqlite_faults import url

WORKERS, ACCOUNTS, FUNDS = 8, 10, 1000
TRANSFERS = int(os.environ.get("PERKEY_BANK_TRANSFERS", "150"))
EVERY_S = 0.1

# One process imports everything and forks the workers.  What worker ``w`` does as its ``n``-th
# transfer depends on the two numbers alone, so a worker that was killed can be started again
# where its last acknowledgement was, and repeats what nobody knows about.
MOVE = """
import os, random, signal

def move(ledger, worker, n):
    chance = random.Random(f"{worker}/{n}")
    a, b, c = chance.sample([f"hot/{i}" for i in range(10)], 3)
    x, y, z = (chance.randint(1, 300) for _ in "xyz")
    key = f"{worker}/{n}"
    if chance.random() < 0.3:
        ring = [(a, -x), (b, x), (b, -y), (c, y), (c, -z), (a, z)]
        ledger.post(ring, key=key)
    else:
        source, target = sorted([a, b], reverse=worker % 2 == 1)
        ledger.transfer(source, target, x, key=key)
"""
FORGE = """
perkey.open("sqlite:///:memory:").close()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while line := hear():
    worker, start, end = map(int, line.split())
    child = os.fork()
    if child:
        os.write(1, f"started {worker} {child}\\n".encode())
        continue
    ledger = Ledger(perkey.open(url))
    for n in range(start, end):
        try:
            move(ledger, worker, n)
        except InsufficientFunds:
            pass
        os.write(1, f"moved {worker} {n}\\n".encode())
    os.write(1, f"ended {worker} 0\\n".encode())
    os._exit(0)
"""


class Bank:
    """The workers, who does what and how far each has come."""

    def __init__(self, forge: Process) -> None:
        self.forge = forge
        self.next = dict.fromkeys(range(WORKERS), 0)
        self.pids: dict[int, int] = {}
        self.ended: set[int] = set()
        self.kills = 0
        self.said: queue.Queue[str] = queue.Queue()
        self.hearing = threading.Thread(target=self._hear, daemon=True)
        self.hearing.start()

    def _hear(self) -> None:
        while line := self.forge.hear():
            self.said.put(line)

    def start(self, worker: int) -> None:
        self.forge.say(f"{worker} {self.next[worker]} {TRANSFERS}")

    def listen(self) -> None:
        """Take in what was said so far."""
        while not self.said.empty():
            said, worker, number = self.said.get().split()
            if said == "moved":
                self.next[int(worker)] = max(self.next[int(worker)], int(number) + 1)
            elif said == "started":
                self.pids[int(worker)] = int(number)
            else:
                self.ended.add(int(worker))
                self.pids.pop(int(worker), None)

    def kill(self, chance: random.Random) -> None:
        """Kill a worker in the middle of whatever it does, and start another in its place."""
        if self.pids:
            worker = chance.choice(sorted(self.pids))
            try:
                os.kill(self.pids.pop(worker), signal.SIGKILL)
            except ProcessLookupError:  # it has ended; its last words are on their way
                return
            self.kills += 1
            self.start(worker)


@pytest.mark.slow
def test_the_total_never_changes(tmp_path: Path) -> None:
    chance = random.Random(1)
    with perkey.open(url(tmp_path)) as store, Process(MOVE + FORGE, url(tmp_path)) as forge:
        ledger = funded(store)
        bank = Bank(forge)
        for worker in range(WORKERS):
            bank.start(worker)
        kill_at = 0.0
        while len(bank.ended) < WORKERS:
            bank.listen()
            assert sum(each.posted for each in ledger.accounts("hot/")) == ACCOUNTS * FUNDS
            if time.monotonic() > kill_at:
                bank.kill(chance)
                kill_at = time.monotonic() + EVERY_S
        forge.say("")
        bank.hearing.join()
        books_are_sound(ledger)
        assert bank.kills > 0


def funded(store: perkey.Store) -> Ledger:
    ledger = Ledger(store)
    ledger.open_account("world", "EUR", floor=None)
    for n in range(ACCOUNTS):
        ledger.open_account(f"hot/{n}", "EUR")
        ledger.transfer("world", f"hot/{n}", FUNDS, key=f"funding/{n}")
    return ledger


def books_are_sound(ledger: Ledger) -> None:
    assert ledger.verify() is None
    assert ledger.trial_balance().balanced
    legs: Counter[str] = Counter()
    for n in range(ACCOUNTS):
        lines = ledger.statement(f"hot/{n}", limit=WORKERS * TRANSFERS * 6)
        legs.update(line.transfer for line in lines)
    posted = {key: len(ledger.find(key).legs) for key in legs if not key.startswith("funding")}
    assert len(posted) > WORKERS * TRANSFERS * 0.3
    assert {key: legs[key] for key in posted} == posted, "an entry is missing or there twice"
