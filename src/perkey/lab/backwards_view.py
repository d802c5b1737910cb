"""Backwards view: an event path and a sweep both load, decide, send and record one entity."""

from __future__ import annotations

from typing import Any

from perkey import AsyncPublisher, Publisher, Sections
from perkey.lab.costs import kept_locks, one_lock_for_all
from perkey.lab.scenario import Diary, Kind, Scenario, Variant, must
from perkey.lab.worlds import drive, io, new_lock, on_a_loop
from perkey.testing import VirtualClock

UNIT = "unit-7"


class Feed:
    """A state that moves on, what was sent of it in order, and what was recorded as sent."""

    def __init__(self) -> None:
        self.diary = Diary()
        self.version = 0
        self.sent: list[int] = []
        self.recorded: int | None = None  # after a restart nobody knows what was sent
        self.lock = new_lock()
        self.locks: dict[str, Any] = {}

    async def load(self, key: str) -> int:
        """Read the state."""
        await io("load")
        version = self.version
        self.diary.say(f"loads state {version}")
        await io("reply")  # what was read is on its way, and gets older
        return version

    async def send(self, key: str, version: int) -> None:
        """Show a state to the subscribers."""
        await io("send")
        self.sent.append(version)
        self.diary.say(f"sends state {version}")

    async def look_and_send(self) -> None:
        """Load, decide, send, record; others may run in between."""
        version = await self.load(UNIT)
        if version != self.recorded:
            await self.send(UNIT, version)
            self.recorded = version

    def __str__(self) -> str:
        return f"state {self.version}, view {self.sent[-1] if self.sent else 'empty'}"


def judge(feed: Feed) -> None:
    """What subscribers see never goes back, and in the end it is the state."""
    for before, after in zip(feed.sent, feed.sent[1:], strict=False):
        must(before <= after, f"the view went back from state {before} to state {after}")
    shown = feed.sent[-1]
    must(shown == feed.version, f"the state is {feed.version}, and the view stays at {shown}")


def moves_on(feed: Feed) -> None:
    """The event: the state is a new one."""
    feed.version += 1
    feed.diary.say(f"state {feed.version} comes")


async def event_bare(feed: Feed) -> None:
    moves_on(feed)
    await feed.look_and_send()


async def sweep_bare(feed: Feed) -> None:
    await feed.look_and_send()


async def send_locked(feed: Feed) -> None:
    version = await feed.load(UNIT)
    async with feed.lock:
        if version != feed.recorded:
            await feed.send(UNIT, version)
            feed.recorded = version


async def event_send_locked(feed: Feed) -> None:
    moves_on(feed)
    await send_locked(feed)


async def event_global(feed: Feed) -> None:
    moves_on(feed)
    async with feed.lock:
        await feed.look_and_send()


async def sweep_global(feed: Feed) -> None:
    async with feed.lock:
        await feed.look_and_send()


async def event_own_lock(feed: Feed) -> None:
    moves_on(feed)
    async with feed.locks.setdefault(UNIT, new_lock()):
        await feed.look_and_send()


async def sweep_own_lock(feed: Feed) -> None:
    async with feed.locks.setdefault(UNIT, new_lock()):
        await feed.look_and_send()


class PerkeyFeed(Feed):
    """The same load and send under perkey's publisher, of the colour that the world has."""

    def __init__(self) -> None:
        super().__init__()
        sections = Sections(1, hash=len, clock=VirtualClock())
        self.publisher: Any = (
            AsyncPublisher(self.load, self.send, sections=sections)
            if on_a_loop()
            else Publisher(
                lambda key: drive(self.load(key)),
                lambda key, version: drive(self.send(key, version)),
                sections=sections,
            )
        )


async def event_perkey(feed: PerkeyFeed) -> None:
    moves_on(feed)
    passed = feed.publisher.publish(UNIT)
    if on_a_loop():
        await passed


async def sweep_perkey(feed: PerkeyFeed) -> None:
    swept = feed.publisher.sweep([UNIT])
    if on_a_loop():
        swept = await swept
    if swept.skipped:
        feed.diary.say("section held: leaves it to the next sweep")


def _variant(name: str, title: str, kind: Kind, event: Any, sweep: Any, **more: Any) -> Variant:
    more = {"setup": Feed, **more}
    return Variant(
        name, title, kind, callers=(event, sweep, event),
        names=("event", "sweep", "event 2"), judge=judge, **more,
    )  # fmt: skip


SCENARIO = Scenario(
    "backwards-view",
    "Backwards view",
    "The sweep loads the old state; the event path loads and sends the new one; then the sweep "
    "sends the old one after it.",
    "state and view",
    [
        _variant(
            "no-section", "no section", "wrong", event_bare, sweep_bare,
            why="between load and send there is room for a whole other pass",
        ),
        _variant(
            "lock-the-send", "a lock around the send", "wrong", event_send_locked, send_locked,
            why="the sends take turns, and what they send was loaded before",
        ),
        _variant(
            "global-lock", "one lock for everything", "costly", event_global, sweep_global,
            cost=one_lock_for_all,
            why="load to record happens alone; one slow send stops everybody",
        ),
        _variant(
            "lock-per-entity", "a lock per entity", "costly", event_own_lock, sweep_own_lock,
            cost=kept_locks,
            why="load to record happens alone, entity by entity; the map never shrinks",
        ),
        _variant(
            "sections", "perkey: Publisher over Sections", "right", event_perkey, sweep_perkey,
            setup=PerkeyFeed,
            why="a fixed array of sections; the event waits for its own, the sweep only tries",
        ),
    ],
)  # fmt: skip
"""The third failure and its variants."""
