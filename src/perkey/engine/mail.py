"""Messages on a store: into the inbox of an instance, or into a box until somebody waits there.

An engine hears of what another one did to its instances through *notices*: records under its
own name, written in the same commit, which its keeper looks for.
"""

from __future__ import annotations

from collections.abc import Sequence

from perkey.engine.instances import Delivered, Instance, Mark, timeout_of
from perkey.engine.journal import Journal
from perkey.engine.limits import EngineLimits
from perkey.engine.records import (
    Box,
    Stored,
    box_of,
    encode,
    instance_key,
    leave_box,
    parts_of,
    place,
    step_out,
    stored_of,
    text_of,
)
from perkey.store.keys import Key
from perkey.store.transaction import Tx

AGAIN = "?"
"""Something changed between the look and the commit: look again."""
MESSAGE, CANCEL = "message", "cancel"
NOTICES = 50
"""How many notices are read and cleared at once; every store commits so many keys together."""


class Mail:
    """The post of a durable engine, ``post.Post``.  Each method is one transaction, repeated
    where what it had read first has changed."""

    def __init__(self, journal: Journal, limits: EngineLimits) -> None:
        self._journal = journal
        self._limits = limits

    # -------------------------------------------------------------------------- to instances

    async def deliver(self, instance_id: str, message: Delivered, mark: Mark | None) -> str:
        """Into an instance's inbox, whoever owns it."""
        record = instance_key(instance_id)
        seen = _seen(mark)
        owner = self._journal.owner
        while True:
            notice = self._notice(owner, instance_id, MESSAGE)

            def deliver(tx: Tx, owner: str = owner, notice: list[Key] = notice) -> tuple[str, str]:
                if any(tx.body(each) is not None for each in seen):
                    return "duplicate", ""
                stored = stored_of(tx.body(record))
                if stored is None or not stored.running:
                    return "", ""
                if stored.owner != owner:
                    return AGAIN, stored.owner
                if len(stored.inbox) >= self._limits.inbox:
                    return "full", ""
                _put(tx, stored, message, seen, notice)
                return "delivered", ""

            done, other = await self._journal.commit([record, *seen, *notice], deliver)
            if done != AGAIN:
                return str(done)
            owner = other

    async def cancel(self, instance_id: str) -> None:
        """Ask for the end of an instance that another engine runs; nothing if it has ended."""
        record = instance_key(instance_id)
        owner = self._journal.owner
        while True:
            notice = self._notice(owner, instance_id, CANCEL)

            def cancel(tx: Tx, owner: str = owner, notice: list[Key] = notice) -> str:
                stored = stored_of(tx.body(record))
                if stored is None or not stored.running:
                    return ""
                if stored.owner != owner:
                    return stored.owner
                stored.cancel = True
                tx.put_body(record, encode(stored))
                for each in notice:
                    tx.put_body(each, encode(CANCEL))
                return ""

            other = await self._journal.commit([record, *notice], cancel)
            if not other:
                return
            owner = other

    async def live(self, process: str, correlation: str) -> str | None:
        """The live instance of this correlation key."""
        body = await self._journal.read(place("k", process, correlation))
        return None if body is None else text_of(body)

    # ------------------------------------------------------------------------------ notices

    def _notice(self, owner: str, instance_id: str, what: str) -> list[Key]:
        """Where to tell ``owner``; nowhere if it is this engine, which knows."""
        own = owner == self._journal.owner
        return [] if own else [place("n", owner, instance_id, what)]

    async def notices(self) -> list[tuple[str, str]]:
        """(instance id, what) of everything that others told this engine; told once.

        They are cleared before they are acted on, so what is told meanwhile is told again.
        """
        prefix = place("n", self._journal.owner)
        records = await self._journal.scan(prefix, NOTICES)
        if not records:
            return []
        keys = [Key(each.key) for each in records]

        def clear(tx: Tx) -> None:
            for key in keys:
                tx.put_body(key, None)

        await self._journal.commit(keys, clear)
        told = [parts_of(each.key)[1:] for each in records]
        return [(each[0], each[1]) for each in told]

    # -------------------------------------------------------------------------------- boxes

    async def offer(
        self, name: str, address: str, message: Delivered, left_s: float, mark: Mark | None
    ) -> tuple[str, str]:
        """To the instance that waits at this address, else into its box."""
        box = place("b", name, address)
        seen = _seen(mark)
        while True:
            waiting = _next(box_of(await self._journal.read(box)))
            known = None if not waiting else await self._journal.load(waiting)
            owner = known.owner if known else ""
            record = [instance_key(waiting)] if waiting else []
            notice = self._notice(owner, waiting, MESSAGE) if owner else []

            def offer(
                tx: Tx,
                waiting: str = waiting,
                owner: str = owner,
                record: list[Key] = record,
                notice: list[Key] = notice,
            ) -> tuple[str, str]:
                for each in seen:
                    earlier = tx.body(each)
                    if earlier is not None:
                        return "duplicate", text_of(earlier)
                now = box_of(tx.body(box))
                if _next(now) != waiting:
                    return AGAIN, ""
                if waiting:
                    stored = stored_of(tx.body(record[0]))
                    others = now.waiting[1:]
                    if stored is None or not stored.running:  # it ended while it waited
                        leave_box(tx, box, now, others, now.letters)
                        return AGAIN, ""
                    if stored.owner != owner:
                        return AGAIN, ""
                    leave_box(tx, box, now, others, now.letters)
                    _put(tx, stored, message, seen, notice)
                    return "delivered", waiting
                if left_s <= 0:
                    return "dropped", ""
                now.letters = [each for each in now.letters if tx.now < each[0]]
                if len(now.letters) >= self._limits.waiting:
                    return "full", ""
                now.letters.append((tx.now + int(left_s * 1000), message))
                tx.put_body(box, encode(now))
                for each in seen:
                    tx.put_body(each, encode(""))
                return "waiting", ""

            outcome: tuple[str, str] = await self._journal.commit(
                [box, *record, *notice, *seen], offer
            )
            if outcome[0] != AGAIN:
                return outcome

    async def take(
        self, instance: Instance, name: str, step: str, wait_ms: int | None
    ) -> tuple[Delivered | None, float | None]:
        """From the inbox, else the oldest letter of the box; else wait there."""
        box = place("b", name, instance.address)
        record = instance_key(instance.id)
        marks: list[Key] = []
        if name not in instance.boxes:  # before the commit: a cancelled one may land
            instance.boxes += (name,)
        while True:

            def take(
                tx: Tx, stored: Stored, marks: list[Key] = marks
            ) -> tuple[Delivered | None, float | None, list[Key] | None]:
                found = _first(stored.inbox, name)
                if found is None:
                    known = box_of(tx.body(box))
                    letters = [each for each in known.letters if tx.now < each[0]]
                    found = letters[0][1] if letters else None
                    needed = _seen(found.mark) if found else []
                    if needed != marks:
                        return None, None, needed
                    others = [each for each in known.waiting if each != instance.id]
                    waiting = others if found else _with(known.waiting, instance.id)
                    leave_box(tx, box, known, waiting, letters[1:])
                    for each in needed:
                        tx.put_body(each, encode(instance.id))
                if found is not None:
                    stored.results[step] = found.payload
                    tx.put_body(record, encode(stored))
                    return found, None, None
                return None, _left(tx, stored, step, wait_ms), None

            taken, left, needed = await self._journal.change(instance.id, take, box, *marks)
            if needed is None:
                if taken is not None:
                    _left_box(instance, name)
                return taken, left
            marks = needed

    async def give_up(self, instance: Instance, name: str, step: str) -> Delivered | None:
        """Note that ``step`` waited too long, unless a message came after all."""
        box = place("b", name, instance.address)

        def give_up(tx: Tx, stored: Stored) -> Delivered | None:
            if step in stored.results:  # a commit landed that nobody waited for any more
                return Delivered(name, stored.results[step])
            found = _first(stored.inbox, name)
            known = box_of(tx.body(box))
            step_out(tx, box, known, instance.id)
            stored.results[timeout_of(step) if found is None else step] = (
                True if found is None else found.payload
            )
            tx.put_body(instance_key(instance.id), encode(stored))
            return found

        came: Delivered | None = await self._journal.change(instance.id, give_up, box)
        _left_box(instance, name)
        return came


def _left_box(instance: Instance, name: str) -> None:
    instance.boxes = tuple(each for each in instance.boxes if each != name)


def _left(tx: Tx, stored: Stored, step: str, wait_ms: int | None) -> float | None:
    """Seconds that ``step`` may still wait; the deadline is kept when it is first set."""
    if wait_ms is None:
        return None
    until = stored.until.get(step)
    if until is None:
        until = stored.until[step] = tx.now + wait_ms
        tx.put_body(instance_key(stored.id), encode(stored))
    return max(until - tx.now, 0) / 1000


def _seen(mark: Mark | None) -> list[Key]:
    return [place("m", *mark)] if mark else []


def _put(
    tx: Tx, stored: Stored, message: Delivered, seen: Sequence[Key], notice: Sequence[Key]
) -> None:
    """Into the inbox, marked as seen, and told to the instance's engine."""
    stored.inbox.append(message)
    tx.put_body(instance_key(stored.id), encode(stored))
    for each in seen:
        tx.put_body(each, encode(stored.id))
    for each in notice:
        tx.put_body(each, encode(MESSAGE))


def _first(inbox: list[Delivered], name: str) -> Delivered | None:
    """Take the first message ``name`` out of an inbox."""
    for index, each in enumerate(inbox):
        if each.name == name:
            del inbox[index]
            return each
    return None


def _next(box: Box) -> str:
    """The instance that gets the next message; empty where nobody waits."""
    return box.waiting[0] if box.waiting else ""


def _with(waiting: list[str], instance_id: str) -> list[str]:
    return waiting if instance_id in waiting else [*waiting, instance_id]
