"""What many writers of one document cost: optimistic retry, a lock over the turn, merging.

Every writer reads the report, thinks for a turn (half to one and a half times its length), and
writes its section; all begin at the same moment.  The code is perkey's ``AsyncDocuments`` and
``AsyncLeases`` in all three ways.  ``simulate`` runs it on virtual time over a store in memory,
``measure`` in real time over a SQLite file, with turns of milliseconds.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import perkey
from perkey import AsyncDocuments, AsyncLeases, Conflict, LeaseHeld
from perkey.lab import virtual
from perkey.store.backends.memory import MemoryBackend
from perkey.stores import AsyncStore
from perkey.testing import VirtualClock

Way = Literal["retry", "lock", "merge"]
WAYS: tuple[Way, ...] = ("retry", "lock", "merge")
TITLES: dict[Way, str] = {
    "retry": "optimistic retry of the turn",
    "lock": "lock over the whole turn",
    "merge": "perkey: merge",
}
REPORT = "report"


@dataclass(frozen=True)
class Cost:
    """What one way cost so many writers.  Times in seconds."""

    way: Way
    writers: int
    turn: float
    took: float
    """Until the last writer was done."""
    repeated: float
    """Thinking that was thrown away and done again, over all writers."""
    waited: float
    """Waiting for the lock, over all writers."""
    writes: int
    """Commits that were tried."""
    refused: int
    """Those that met a newer version."""

    @property
    def conflict_rate(self) -> float:
        """The share of commits that were refused."""
        return self.refused / self.writes

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "conflict_rate": round(self.conflict_rate, 4)}


class Team:
    """Writers of one report in one way; counts what it costs them."""

    def __init__(self, way: Way, writers: int, turn: float, store: AsyncStore) -> None:
        self.way: Way = way
        self.writers = writers
        self.turn = turn
        self.docs = AsyncDocuments(store)
        self.leases = AsyncLeases(store)
        self.clock = store.core.clock
        self.chances = [VirtualClock(seed=number) for number in range(writers)]
        self.first = [0.5 + (each + 0.5) / writers for each in range(writers)]
        self.queue: deque[asyncio.Future[None]] = deque()
        self.repeated = self.waited = 0.0
        self.writes = self.refused = 0

    async def work(self) -> Cost:
        """Let all writers do their turn, and see that nothing was lost."""
        await self.docs.put(REPORT, {}, create=True)
        ways: dict[Way, Callable[[int], Awaitable[None]]] = {
            "retry": self._retry, "lock": self._lock, "merge": self._merge,
        }  # fmt: skip
        names = list(map(_name, range(self.writers)))
        began = self.clock.monotonic()
        await asyncio.gather(*map(ways[self.way], range(self.writers)))
        took = self.clock.monotonic() - began
        kept = (await self.docs.get(REPORT)).value
        if sorted(kept) != sorted(names):
            raise AssertionError(f"expected the work of {names}, found {sorted(kept)}")
        return Cost(
            self.way, self.writers, self.turn, took, self.repeated, self.waited, self.writes,
            self.refused,
        )  # fmt: skip

    async def _think(self, writer: int, again: bool = False) -> float:
        """A turn: the first ones are spread evenly from 0.5 to 1.5, so that their mean is 1."""
        share = 0.5 + self.chances[writer].random() if again else self.first[writer]
        await asyncio.sleep(share * self.turn)
        return share * self.turn

    async def _retry(self, writer: int) -> None:
        again = False
        while True:
            read = await self.docs.get(REPORT)
            thought = await self._think(writer, again)
            self.writes += 1
            try:
                await self.docs.put(REPORT, {**read.value, _name(writer): 1}, if_match=read.version)
            except Conflict:
                again = True
                self.refused += 1
                self.repeated += thought
                continue
            return

    async def _lock(self, writer: int) -> None:
        began = self.clock.monotonic()
        lease = await self._acquired(_name(writer))
        self.waited += self.clock.monotonic() - began
        async with lease:
            read = await self.docs.get(REPORT)
            await self._think(writer)
            self.writes += 1
            value = {**read.value, _name(writer): 1}
            await self.docs.put(REPORT, value, if_match=read.version, fence=lease.fence)
        if self.queue:
            self.queue.popleft().set_result(None)

    async def _acquired(self, name: str) -> Any:
        """The lease; whoever waits is woken at once when it is free, which favours the lock."""
        while True:
            try:
                # Long enough that a busy machine loses no lease in a turn of milliseconds.
                ttl = 3 * self.turn + 60
                return await self.leases.acquire(REPORT, ttl=ttl, holder=name)
            except LeaseHeld:
                turn = asyncio.get_running_loop().create_future()
                self.queue.append(turn)
                await turn

    async def _merge(self, writer: int) -> None:
        read = await self.docs.get(REPORT)
        await self._think(writer)
        self.writes += 1
        value = {**read.value, _name(writer): 1}
        await self.docs.put(REPORT, value, if_match=read.version, merge=True)


def _name(writer: int) -> str:
    return f"writer-{writer}"


def simulate(way: Way, writers: int, turn: float) -> Cost:
    """The cost for ``writers`` with turns of ``turn`` seconds, on virtual time."""

    async def main() -> Cost:
        clock = virtual.LoopClock(seed=1)
        store = AsyncStore(MemoryBackend(None, clock), clock=clock)
        return await Team(way, writers, turn, store).work()

    return virtual.run(main)


def measure(way: Way, writers: int, turn: float) -> Cost:
    """The same in real time, over a SQLite file of its own."""

    async def main(folder: str) -> Cost:
        url = f"sqlite:///{quote(str(Path(folder, 'conflicts.db')))}"
        async with await perkey.aopen(url) as store:
            return await Team(way, writers, turn, store).work()

    with tempfile.TemporaryDirectory(prefix="perkey-lab-") as folder:
        return asyncio.run(main(folder))


def doublings(low: int, high: int) -> list[int]:
    """``low``, twice that, and so on, and ``high``."""
    found = []
    while low < high:
        found.append(low)
        low *= 2
    return [*found, high]


def table(
    writers: Sequence[int], turn: float, how: Callable[[Way, int, float], Cost] = simulate
) -> list[Cost]:
    """Every way for every number of writers."""
    return [how(way, number, turn) for number in writers for way in WAYS]
