"""Each store against the loop one would write on it: ``python -m benchmarks.backends [NAME ...]``.

The servers are those of the tests, started here; the hand-written side uses the same client
library, keeps history too, and writes to the same server.  Both sides take turns, so a busy
machine slows both; the ratio of each pair is what counts, and its median is shown.
"""

from __future__ import annotations

import itertools
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import perkey
from benchmarks.hand.far_loops import S3, Azure, DynamoDB, Gcs, Http
from benchmarks.hand.loops import LOOPS as NEAR_LOOPS
from benchmarks.hand.loops import Loop, pause
from benchmarks.hand.transfers import Transfers
from benchmarks.records import record, rounds
from benchmarks.store import four_kilobytes
from perkey.store.transaction import Tx

SECONDS = 1.0
ROUNDS = rounds(5)
CALLERS = 6
CLIENTS = 8
ACCOUNTS = 200
LOOPS: dict[str, Callable[[str, bytes], Loop]] = {
    **NEAR_LOOPS,
    "objects": S3,
    "gcs": Gcs,
    "azure": Azure,
    "dynamodb": DynamoDB,
    "http": Http,
}
GOALS = {1: "goal 0.75x", CALLERS: "goal 1.50x on postgres"}


@dataclass
class Turn:
    """What one side did in one turn."""

    commits: list[int]
    """Of each caller."""
    conflicts: int
    seconds: float
    processor: float = 0.0
    """Seconds of processor time, of this process and of the server, where that was asked for."""

    @property
    def rate(self) -> float:
        return sum(self.commits) / self.seconds


def race(
    callers: int, step: Callable[[int], int], processor: Callable[[], float] = lambda: 0.0
) -> Turn:
    """Let ``callers`` threads call ``step(caller)``, which returns its conflicts, for a while."""
    commits, conflicts = [0] * callers, [0] * callers
    gate = threading.Barrier(callers + 1)
    end = [0.0]

    def run(place: int) -> None:
        gate.wait()
        while time.perf_counter() < end[0]:
            conflicts[place] += step(place)
            commits[place] += 1

    threads = [threading.Thread(target=run, args=(place,)) for place in range(callers)]
    for thread in threads:
        thread.start()
    spent = processor()
    began = time.perf_counter()
    end[0] = began + SECONDS
    gate.wait()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    return Turn(commits, sum(conflicts), seconds, processor() - spent)


def with_server(pid: int) -> Callable[[], float]:
    """A count of the processor time of this process and of a server's, in seconds."""
    import psutil

    server = psutil.Process(pid)

    def spent() -> float:
        found = time.process_time()
        for each in (server, *server.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):  # one that cleans up has ended
                times = each.cpu_times()
                found += times.user + times.system
        return found

    return spent


def in_turn(ours: Callable[[], Turn], theirs: Callable[[], Turn]) -> list[tuple[Turn, Turn]]:
    """Pairs of turns, the two sides going first in turn."""
    pairs = []
    for n in range(ROUNDS):
        if n % 2:
            second = theirs()
            pairs.append((ours(), second))
        else:
            pairs.append((ours(), theirs()))
    return pairs


def by_hand(loops: list[Loop]) -> Callable[[int], int]:
    def step(place: int) -> int:
        lost = 0
        while not loops[place].step():
            lost += 1
            pause(lost)
        return lost

    return step


def updating(store: perkey.Store) -> Callable[[int], int]:
    documents = perkey.Documents(store)
    documents.put("k", four_kilobytes(), overwrite=True)

    def changed(value: dict[str, int]) -> dict[str, int]:
        value["n"] += 1
        return value

    def step(place: int) -> int:
        documents.update("k", changed, by="me")
        return 0

    return step


def show(what: str, pairs: list[tuple[Turn, Turn]], goal: str) -> None:
    ours = statistics.median(pair[0].rate for pair in pairs)
    theirs = statistics.median(pair[1].rate for pair in pairs)
    ratios = [first.rate / second.rate for first, second in pairs]
    ratio = statistics.median(ratios)
    record(what, ours, "/s", theirs=theirs, ratios=ratios, goal=goal)
    print(
        f"{what:<34}{ours:>9,.0f}/s{theirs:>9,.0f}/s{ratio:>7.2f}x  "
        f"{fairness(pairs, 0):>8}{fairness(pairs, 1):>10}{lost(pairs, 0):>7.0%}"
        f"{lost(pairs, 1):>7.0%}   {goal}",
        flush=True,
    )


def show_processor(what: str, pairs: list[tuple[Turn, Turn]], goal: str) -> None:
    """The same by processor time, which other programs on the machine do not change."""
    sides = [
        [turn.processor / sum(turn.commits) * 1000 for turn in side]
        for side in zip(*pairs, strict=True)
    ]
    ratios = [theirs / ours for ours, theirs in zip(*sides, strict=True)]
    ours, theirs = (statistics.median(side) for side in sides)
    record(what, ours, "ms", theirs=theirs, ratios=ratios, goal=goal)
    ratio = statistics.median(ratios)
    print(f"{what:<34}{ours:>9.2f}ms{theirs:>9.2f}ms{ratio:>7.2f}x  {goal:>43}", flush=True)


def fairness(pairs: list[tuple[Turn, Turn]], side: int) -> str:
    """slowest:fastest caller, as 1:n, the median of the turns."""
    found = [max(pair[side].commits) / max(1, min(pair[side].commits)) for pair in pairs]
    return f"1:{statistics.median(found):.1f}"


def lost(pairs: list[tuple[Turn, Turn]], side: int) -> float:
    """Attempts that met a conflict, as a share of all."""
    conflicts = sum(pair[side].conflicts for pair in pairs)
    return conflicts / max(1, conflicts + sum(sum(pair[side].commits) for pair in pairs))


def attempts(store: perkey.Store) -> int:
    """How many attempts of this store met a conflict so far."""
    found = Counter(store.statistics()["attempts"])
    return sum((int(tries) - 1) * count for tries, count in found.items())


@contextmanager
def places(name: str) -> Iterator[tuple[str, str]]:
    """(the URL of our store, where the hand-written side goes), on one server or folder."""
    if name in ("sqlite", "files"):
        with tempfile.TemporaryDirectory(prefix="perkey-bench-") as folder:
            scheme = "sqlite:///" if name == "sqlite" else "file://"
            yield f"{scheme}{folder}/ours", f"{folder}/hand"
        return
    from tests.backends.kinds import KINDS

    with KINDS[name].own_server() as server:
        yield server.url, server.url


def update(name: str, callers: int) -> None:
    """``update`` of one 4 KB document by ``callers`` threads of one process."""
    first = json.dumps(four_kilobytes()).encode()
    with places(name) as (url, place):
        loops = [LOOPS[name](place, first) for _ in range(callers)]
        with perkey.open(url) as store:
            step, theirs = updating(store), by_hand(loops)

            def ours() -> Turn:
                before = attempts(store)
                turn = race(callers, step)
                turn.conflicts = attempts(store) - before
                return turn

            pairs = in_turn(ours, lambda: race(callers, theirs))
        for loop in loops:
            loop.close()
    show(f"{name}, {callers} caller{'s' * (callers > 1)}", pairs, GOALS[callers])


def transfers() -> None:
    """Three accounts and a receipt, eight clients, PostgreSQL."""
    from tests.servers.postgres import Postgres

    with Postgres() as server, perkey.open(server.url) as store:
        once = perkey.Once(store)
        names = [f"account/{n}" for n in range(ACCOUNTS)]
        store.transact(names, lambda tx: [tx.__setitem__(name, 0) for name in names] and None)
        clients = [Transfers(server.url) for _ in range(CLIENTS)]
        clients[0].prepare(ACCOUNTS)
        choose = [random.Random(n) for n in range(CLIENTS)]
        number = itertools.count()

        def changes(place: int) -> dict[int, int]:
            one, two, three = choose[place].sample(range(ACCOUNTS), 3)
            return {one: -3, two: 2, three: 1}

        def ours(place: int) -> int:
            moved = {names[n]: step for n, step in changes(place).items()}

            def move(tx: Tx) -> None:
                for name, step in moved.items():
                    tx[name] += step

            once.transact(f"move{next(number)}", [*moved], move, payload=moved)
            return 0

        def theirs(place: int) -> int:
            clients[place].move(f"move{next(number)}", changes(place))
            return 0

        spent = with_server(server.pid)
        pairs = in_turn(lambda: race(CLIENTS, ours, spent), lambda: race(CLIENTS, theirs, spent))
        total = store.transact(names, lambda tx: sum(tx[name] for name in names))
        assert total == 0
        for client in clients:
            client.close()
    show(f"postgres, 3 keys + receipt, {CLIENTS} clients", pairs, "goal 3.00x")
    show_processor("the same, by processor time", pairs, "")


def at_hand(name: str) -> bool:
    """Whether there is a server for it: Azurite is not in every place (``tools/azurite.sh``)."""
    from tests.servers import azure

    return name != "azure" or azure.installed()


def main(names: list[str]) -> int:
    """Run the comparisons of these stores, or of all, and print them."""
    print(
        f"{'':<34}{'perkey':>11}{'by hand':>11}{'ratio':>8}  {'fair':>8}{'by hand':>10}"
        f"{'lost':>7}{'hand':>7}"
    )
    for name in names or [*filter(at_hand, LOOPS)]:
        for callers in (1, CALLERS):
            update(name, callers)
        if name == "postgres":
            transfers()
    print("fair: commits of the slowest to those of the fastest caller, goal 1:3 or better")
    print("lost: attempts that met a conflict")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
