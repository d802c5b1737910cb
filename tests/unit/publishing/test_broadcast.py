"""The in-process sink, and ``Latest``, the subscriber's guard."""

from __future__ import annotations

import asyncio
import random
from typing import Any, NamedTuple

import pytest

from perkey import Broadcast, Dropped, Latest, LimitExceeded, Message, Publisher, Timeout
from tests.unit.locks.helpers import Crew, eventually


class Snapshot(NamedTuple):
    version: int
    text: str = ""


def test_every_subscriber_gets_what_is_sent_after_it_subscribed() -> None:
    broadcast = Broadcast()
    early = broadcast.subscribe()
    broadcast.send("a", Snapshot(1))
    late = broadcast.subscribe()
    broadcast.send("a", Snapshot(2))
    assert [early.get(1), early.get(1)] == [
        Message("a", Snapshot(1), 1),
        Message("a", Snapshot(2), 2),
    ]
    assert late.get(1) == Message("a", Snapshot(2), 2)
    with pytest.raises(Timeout):
        late.get(0)


def test_a_slow_subscriber_is_told_to_read_the_snapshot_again() -> None:
    broadcast = Broadcast(queue=3)
    slow, quick = broadcast.subscribe(), broadcast.subscribe()
    for number in range(5):
        broadcast.send("a", number)
        assert quick.get(1) == Message("a", number)
    assert slow.get(1) == Dropped(5)
    broadcast.send("a", 5)
    assert slow.get(1) == Message("a", 5)


def test_a_closed_subscription_ends_after_what_is_queued() -> None:
    broadcast = Broadcast()
    with broadcast.subscribe() as subscription:
        broadcast.send("a", 1)
        assert len(broadcast) == 1
    broadcast.send("a", 2)
    assert len(broadcast) == 0
    assert list(subscription) == [Message("a", 1)]
    assert subscription.get() is None


def test_the_number_of_subscribers_is_limited() -> None:
    broadcast = Broadcast(subscribers=1)
    subscription = broadcast.subscribe()
    with pytest.raises(LimitExceeded, match="limit is 1"):
        broadcast.subscribe()
    subscription.close()
    broadcast.subscribe()


def test_a_blocked_subscriber_wakes_up() -> None:
    broadcast = Broadcast()
    subscription = broadcast.subscribe()
    got: list[Any] = []
    with Crew() as crew:
        crew.start(lambda: got.extend(subscription))
        for number in range(100):
            broadcast.send("a", number)
        eventually(lambda: len(got) == 100)
        subscription.close()
    assert [message.value for message in got] == list(range(100))


async def test_a_suspended_subscriber_wakes_up_from_another_thread() -> None:
    broadcast = Broadcast()
    subscription = broadcast.subscribe()

    def produce() -> None:
        for number in range(100):
            broadcast.send("a", number)
        subscription.close()

    producer = asyncio.create_task(asyncio.to_thread(produce))
    got = [message.value async for message in subscription if isinstance(message, Message)]
    await producer
    assert got == list(range(100))


async def test_a_cancelled_subscriber_leaves_nothing_behind() -> None:
    subscription = Broadcast().subscribe()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(subscription.get_async(), 0.001)
    assert subscription._wakers == set()


def test_a_publisher_broadcasts_versions() -> None:
    broadcast = Broadcast()
    subscription = broadcast.subscribe()
    Publisher(lambda key: Snapshot(41), broadcast.send).publish("a")
    assert subscription.get(1) == Message("a", Snapshot(41), 41)


# --------------------------------------------------------------------------------- Latest


def test_latest_lets_only_newer_versions_through() -> None:
    latest = Latest()
    assert [latest.accept("a", version) for version in [3, 2, 3, 4, 1]] == [
        True,
        False,
        False,
        True,
        False,
    ]
    assert latest.accept("b", 1)
    assert (latest.version("a"), latest.version("b"), latest.version("c")) == (4, 1, None)
    assert latest.dropped == 3
    latest.forget("a")
    assert latest.accept("a", 1)


def test_latest_is_bounded() -> None:
    latest = Latest(limit=2)
    for key in "abc":
        latest.accept(key, 1)
    assert latest.version("a") is None
    assert latest.version("c") == 1


@pytest.mark.parametrize("seed", range(20))
def test_no_order_of_delivery_moves_a_view_backwards(seed: int) -> None:
    """Two producers, a transport that reorders and repeats: the view only moves forward."""
    chance = random.Random(seed)
    messages = [(key, version) for key in "ab" for version in range(1, 30)] * 2
    chance.shuffle(messages)
    latest, shown = Latest(), {"a": 0, "b": 0}
    for key, version in messages:
        if latest.accept(key, version):
            assert version > shown[key]
            shown[key] = version
    assert shown == {"a": 29, "b": 29}


def test_two_threads_never_accept_the_same_version() -> None:
    latest, accepted = Latest(), []

    def deliver() -> None:
        accepted.extend(v for v in range(2000) if latest.accept("a", v))

    with Crew() as crew:
        for _ in range(4):
            crew.start(deliver)
    assert sorted(set(accepted)) == sorted(accepted)
    assert latest.version("a") == 1999
