"""Every interleaving of two event callers and two sweeps on one key."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perkey import AsyncPublisher, Sections
from perkey.testing import explore, step
from tests.explore.test_locks import LoopClock
from tests.races import buggy_publishers


class Feed:
    """A state with a version, and what was read, sent and recorded, in order."""

    def __init__(self, kind: Any = AsyncPublisher) -> None:
        self.version = 0
        self.reads: list[int] = []
        self.sent: list[int] = []
        self.recorded: list[int] = []
        self.publisher = kind(
            self.load,
            self.send,
            record=self.record,
            sections=Sections(1, hash=len, clock=LoopClock()),
        )

    async def load(self, key: str) -> int:
        return await step("load", self.read)

    def read(self) -> int:
        self.reads.append(self.version)
        return self.version

    async def send(self, key: str, version: int) -> None:
        await step("send", lambda: self.sent.append(version))

    async def record(self, key: str, version: int) -> None:
        await step("record", lambda: self.recorded.append(version))

    def forward(self) -> bool:
        """No send is older than the one before, and the record follows the sends."""
        return self.sent == sorted(self.sent) and self.recorded == sorted(self.recorded)

    def current(self) -> bool:
        """At the end the last send carries the last read, which is the state."""
        return self.forward() and self.sent[-1:] == self.reads[-1:] == [self.version]


async def event(feed: Feed) -> None:
    feed.version += 1
    await feed.publisher.publish("k")


async def sweep(feed: Feed) -> None:
    await feed.publisher.sweep(["k"])


CALLERS = [event, event, sweep, sweep]
STEPS = ("load", "send", "record")


def test_the_view_never_goes_backwards() -> None:
    explore(Feed, CALLERS, check=Feed.current, always=Feed.forward, steps=STEPS).assert_holds()


async def settled(feed: Feed) -> bool:
    """After whatever failed, one quiet sweep brings the view up to date."""
    await feed.publisher.sweep(["k"])
    shown = feed.sent[-1] if feed.sent else None
    return feed.forward() and shown == feed.version and len(feed.publisher._groups) == 0


@pytest.mark.parametrize(
    "budgets",
    [{"failures": 1}, {"cancellations": 1}, {"lost_replies": 1}],
    ids=lambda budgets: next(iter(budgets)),
)
def test_after_a_failure_the_next_pass_repairs_the_view(budgets: dict[str, int]) -> None:
    explore(
        Feed, [event, event, sweep], check=settled, always=Feed.forward, steps=STEPS, **budgets
    ).assert_holds()


def test_the_exploration_finds_a_view_that_goes_backwards() -> None:
    explore(
        lambda: Feed(buggy_publishers.PublishWithoutASection), CALLERS, always=Feed.forward
    ).assert_fails()


def test_the_exploration_finds_a_record_before_the_send() -> None:
    make = buggy_publishers.RecordBeforeSend
    explore(lambda: Feed(make), [event, sweep], check=settled, failures=1).assert_fails()


class Slow(Feed):
    """The send of a key takes until the sweep, which looks at other keys too, is done."""

    def __init__(self, kind: Any = AsyncPublisher) -> None:
        super().__init__(kind)
        self.swept = asyncio.Event()

    async def send(self, key: str, version: int) -> None:
        await self.swept.wait()


async def sweep_and_tell(feed: Slow) -> None:
    await step("begin")
    try:
        if feed.publisher._groups._open or feed.reads:
            await feed.publisher.sweep(["k"])
    finally:
        feed.swept.set()


def test_a_sweep_never_waits_for_a_slow_send() -> None:
    explore(Slow, [event, sweep_and_tell]).assert_holds()


def test_the_exploration_finds_a_sweep_that_queues() -> None:
    explore(lambda: Slow(buggy_publishers.SweepThatQueues), [event, sweep_and_tell]).assert_fails()
