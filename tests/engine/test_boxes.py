"""Letter boxes: what comes late is not lost, and what is too old does not pile up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from perkey.engine.instances import Delivered, Instance
from perkey.engine.journal import Journal
from perkey.engine.limits import EngineLimits
from perkey.engine.mail import Mail
from perkey.engine.post import LocalPost
from perkey.engine.records import below, box_of, encode, freeze, instance_key, place, stored_of
from perkey.engine.registry import Registration
from perkey.errors import QueueFull
from perkey.flows import steps
from perkey.store.keys import ENGINE, Key
from perkey.store.record import Record
from perkey.store.transaction import Tx
from perkey.testing import VirtualClock
from tests.unit.manual_clock import ManualClock, async_memory_store


def instance() -> Instance:
    return Instance("i1", "order", 1, {}, "b", None, None, 0)


async def test_what_comes_right_after_the_timeout_is_received() -> None:
    waiting = instance()
    post = LocalPost(VirtualClock(), EngineLimits(), {"i1": waiting}.get)
    assert await post.take(waiting, "paid", "receive:paid:1", 1000) == (None, 1.0)
    message = Delivered("paid", 7)
    assert await post.offer("paid", "b", message, 5, None) == ("delivered", "i1")
    assert await post.give_up(waiting, "paid", "receive:paid:1") is message
    assert waiting.inbox == []
    assert await post.give_up(waiting, "paid", "receive:paid:2") is None


class Records:
    """As much of a journal as letter boxes need, with a clock that is set by hand."""

    def __init__(
        self, owner: str = "engine", bodies: dict[Key, bytes | None] | None = None
    ) -> None:
        self.owner = owner
        self.now = 1_000
        self.bodies = {} if bodies is None else bodies

    async def read(self, key: Key) -> bytes | None:
        return self.bodies.get(key)

    async def scan(self, prefix: str, limit: int) -> list[Record]:
        found = sorted((key, body) for key, body in self.bodies.items() if body is not None)
        rows = [Record(key, 1, body, "", 0, "op") for key, body in found if key.startswith(prefix)]
        return rows[:limit]

    async def commit(self, keys: Sequence[Key], fn: Callable[[Tx], Any]) -> Any:
        heads: dict[Key, Record | None] = {}
        for key in keys:
            body = self.bodies.get(key)
            heads[key] = None if body is None else Record(key, 1, body, "", 0, "op")
        tx = Tx(heads, "", self.now)
        result = fn(tx)
        self.bodies.update({key: body for key, (body, _) in tx.finish().items()})
        return result


async def test_letters_whose_time_is_over_make_room() -> None:
    records = Records()
    mail = Mail(cast(Journal, records), EngineLimits())
    for number in range(5):
        assert await mail.offer("paid", "b", Delivered("paid", number), 1, None) == ("waiting", "")
        records.now += 700
    box = box_of(records.bodies[place("b", "paid", "b")])
    assert [message.payload for _, message in box.letters] == [3, 4]


PAID = Delivered("paid", 7, "p-1")


async def test_a_message_offered_again_says_who_has_it() -> None:
    waiting = instance()
    post = LocalPost(VirtualClock(), EngineLimits(), {"i1": waiting}.get)
    assert await post.offer("paid", "b", PAID, 5, PAID.mark) == ("waiting", "")
    assert await post.offer("paid", "b", PAID, 5, PAID.mark) == ("duplicate", "")
    assert await post.take(waiting, "paid", "receive:paid:1", None) == (PAID, None)
    assert await post.offer("paid", "b", PAID, 5, PAID.mark) == ("duplicate", "i1")
    assert await post.deliver("i1", PAID, PAID.mark) == "duplicate"
    assert waiting.inbox == []


async def test_a_message_offered_again_to_a_box_on_a_store_is_a_duplicate() -> None:
    records = Records()
    mail = Mail(cast(Journal, records), EngineLimits())
    assert await mail.offer("paid", "b", PAID, 5, PAID.mark) == ("waiting", "")
    assert await mail.offer("paid", "b", PAID, 5, PAID.mark) == ("duplicate", "")
    assert len(box_of(records.bodies[place("b", "paid", "b")]).letters) == 1


async def test_what_others_did_to_an_instance_is_told_to_its_engine_once() -> None:
    theirs = Records("theirs")
    ours = Records("ours", theirs.bodies)
    theirs.bodies[instance_key("i1")] = encode(freeze(instance(), "digest", "theirs"))
    mail = Mail(cast(Journal, ours), EngineLimits())
    assert await mail.deliver("i1", PAID, None) == "delivered"
    await mail.cancel("i1")
    assert await mail.notices() == []
    told = Mail(cast(Journal, theirs), EngineLimits())
    assert sorted(await told.notices()) == [("i1", "cancel"), ("i1", "message")]
    assert await told.notices() == []
    assert await told.deliver("i1", PAID, None) == "delivered"  # its own: it need not be told
    assert await told.notices() == []
    stored = stored_of(theirs.bodies[instance_key("i1")])
    assert stored is not None
    assert (stored.inbox, stored.cancel) == ([PAID, PAID], True)


async def test_letters_in_memory_whose_time_is_over_make_room() -> None:
    clock = VirtualClock()
    post = LocalPost(clock, EngineLimits(waiting=1), {}.get)
    assert await post.offer("paid", "b", PAID, 5, None) == ("waiting", "")
    with pytest.raises(QueueFull, match="the limit is 1"):
        await post.offer("paid", "c", PAID, 5, None)
    clock.advance(6)
    assert await post.offer("paid", "c", PAID, 5, None) == ("waiting", "")


async def test_who_waited_too_long_gets_nothing_that_comes_later() -> None:
    waiting = instance()
    post = LocalPost(VirtualClock(), EngineLimits(), {"i1": waiting}.get)
    await post.take(waiting, "paid", "receive:paid:1", 1000)
    assert await post.give_up(waiting, "paid", "receive:paid:1") is None
    assert await post.offer("paid", "b", PAID, 5, None) == ("waiting", "")
    assert waiting.inbox == []


async def test_an_instance_that_was_taken_over_is_found_when_its_new_engine_dies_too() -> None:
    clock = ManualClock()
    store = async_memory_store(clock)
    journals = [Journal(store, name, lease_s=10) for name in ("one", "two", "three")]
    owners = []
    for journal in journals:
        await journal.take_lease()
        if journal is journals[0]:
            receipt = Registration("order", 1, "id", "digest", "one")
            new = instance()
            new.id, new.segment = journal.segments.give()
            await journal.start(new, receipt, {})
            clock.elapsed += 11
            continue
        for owner, found in await journal.orphans(9):
            taken = await journal.take_over(owner, found)
            assert taken is not None
            owners.append(owner)
        assert await journal.orphans(9) == []
        mine = await store.run_step(steps.Scan(f"{ENGINE}r/"))
        assert [each.key for each in mine] == [below(place("r", journal.owner), new.id)]
        clock.elapsed += 11
    assert owners == ["one", "two"]
    await store.close()
