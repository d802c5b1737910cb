"""Lost update: three agents each add a section to one report, after minutes of thinking."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from perkey import AsyncDocuments, Document
from perkey.lab.costs import turn_lock_minutes, turn_retry_minutes
from perkey.lab.scenario import Diary, Kind, Scenario, Variant, must
from perkey.lab.stepped import SteppedStore
from perkey.lab.worlds import io, new_lock

AGENTS = ("a", "b", "c")
REPORT = "report"


class Desk:
    """The report, the lock that some variants take, and who was told that its write was done."""

    def __init__(self) -> None:
        self.version = 1
        self.report: tuple[str, ...] = ()  # the sections, by the agent that wrote them
        self.diary = Diary()
        self.lock = new_lock()
        self.row: str | None = None  # a lock as a row in a database: it outlives its owner
        self.freed: asyncio.Event | None = None
        self.told: list[str] = []

    async def read(self) -> tuple[int, tuple[str, ...]]:
        """The report as it is now, which starts the agent's thinking."""
        await io("read")
        self.diary.say(f"reads version {self.version}, thinks")
        return self.version, self.report

    async def write(self, name: str, report: tuple[str, ...]) -> None:
        """Replace the whole report, whatever is there."""
        await io("write")
        self._replace(name, report)

    async def swap(self, name: str, version: int, report: tuple[str, ...]) -> bool:
        """Replace the whole report if it still has that version."""
        await io("write")
        if version != self.version:
            self.diary.say(f"refused: it is version {self.version} by now")
            return False
        self._replace(name, report)
        return True

    def _replace(self, name: str, report: tuple[str, ...]) -> None:
        self.version, self.report = self.version + 1, report
        self.told.append(name)
        self.diary.say(f"writes all of version {self.version}")

    async def until_freed(self) -> None:
        """Wait until the lock row is deleted."""
        self.freed = self.freed or asyncio.Event()
        await self.freed.wait()

    def free(self) -> None:
        """Delete the lock row and wake who waits for that."""
        self.row = None
        if self.freed is not None:
            self.freed.set()
            self.freed = None

    def sections(self) -> tuple[str, ...]:
        """The agents whose work the report holds."""
        return self.report

    def __str__(self) -> str:
        return f"v{self.version}: {' '.join(self.sections()) or '(empty)'}"


class PerkeyDesk(Desk):
    """The same report as a document of perkey."""

    def __init__(self) -> None:
        super().__init__()
        self.store = SteppedStore()
        self.docs = AsyncDocuments(self.store)

    async def look(self) -> Document:
        """The report as it is now, which starts the agent's thinking."""
        read: Document = await self.docs.get(REPORT)
        self.diary.say(f"reads version {read.version}, thinks")
        return read

    def wrote(self, name: str, how: str, written: Document) -> None:
        """An agent was told that its write was done."""
        self.version = written.version
        self.told.append(name)
        self.diary.say(f"{how} version {written.version}")

    def sections(self) -> tuple[str, ...]:
        return tuple(self.store.value(REPORT))


async def perkey_desk() -> PerkeyDesk:
    """An empty report in a new store."""
    made = PerkeyDesk()
    await made.docs.put(REPORT, {}, create=True)
    return made


def judge(made: Desk) -> None:
    """Whoever was told that its write was done finds its section in the report."""
    sections = made.sections()
    lost = [name for name in made.told if name not in sections]
    must(not lost, f"agent {' and '.join(lost)} wrote, was told so, and what it wrote is gone")


async def whole_document(name: str, made: Desk) -> None:
    _, report = await made.read()
    await made.write(name, (*report, name))


async def jitter(name: str, made: Desk) -> None:
    _, report = await made.read()
    await io("jitter")
    made.diary.say("waits a little")
    await made.write(name, (*report, name))


async def turn_lock(name: str, made: Desk) -> None:
    async with made.lock:
        _, report = await made.read()
        await made.write(name, (*report, name))


async def turn_lock_row(name: str, made: Desk) -> None:
    await io("take the lock row")
    while made.row is not None:
        await made.until_freed()
    made.row = name
    made.diary.say("takes the lock row")
    try:
        _, report = await made.read()
        await made.write(name, (*report, name))
    finally:
        made.free()


async def retry_turn(name: str, made: Desk) -> None:
    while True:
        version, report = await made.read()
        if await made.swap(name, version, (*report, name)):
            return


async def merge(name: str, made: PerkeyDesk) -> None:
    read = await made.look()
    value = {**read.value, name: "what it found"}
    written = await made.docs.put(REPORT, value, if_match=read.version, merge=True)
    made.wrote(name, "merges into", written)


async def update(name: str, made: PerkeyDesk) -> None:
    await made.look()
    written = await made.docs.update(REPORT, lambda value: {**value, name: "what it found"})
    made.wrote(name, "adds its section in", written)


def _variant(name: str, title: str, kind: Kind, work: Any, **more: Any) -> Variant:
    return Variant(
        name, title, kind, perkey_desk if work in (merge, update) else Desk,
        tuple(partial(work, agent) for agent in AGENTS),
        tuple(f"agent {agent}" for agent in AGENTS), judge, **more,
    )  # fmt: skip


SCENARIO = Scenario(
    "lost-update",
    "Lost update",
    "Agents read the same version, think for minutes, and write the whole report back. "
    "The later write drops what the earlier one added.",
    "the report",
    [
        _variant(
            "whole-document", "write the whole document", "wrong", whole_document,
            why="the write carries a version of everything that is minutes old",
        ),
        _variant(
            "jitter", "jitter before the write", "wrong", jitter,
            why="it moves the write, not the read: the window stays as long as the thinking",
        ),
        _variant(
            "turn-lock-row", "lock row over the whole turn", "wrong", turn_lock_row,
            crashes=1, threaded=False,
            why="its holder dies, no finally runs, and all the others wait for ever",
        ),
        _variant(
            "turn-lock", "lock over the whole turn, one process", "costly", turn_lock,
            crashes=1, processes=(0, 0, 0), cost=turn_lock_minutes,
            why="one agent thinks at a time; across processes it needs a row, a lease, a fence",
        ),
        _variant(
            "retry-turn", "compare-and-swap, redo the turn", "costly", retry_turn,
            crashes=1, cost=turn_retry_minutes,
            why="nothing is lost but the thinking: whoever is refused thinks again",
        ),
        _variant(
            "merge", "perkey: put(if_match=, merge=True)", "right", merge, crashes=1,
            why="what others changed since the version that was read is kept, path by path",
        ),
        _variant(
            "update", "perkey: update(key, mutate)", "right", update, crashes=1,
            why="the small pure change is applied to the newest version, inside the commit",
        ),
    ],
)  # fmt: skip
"""The first failure and its variants."""
