"""What a durable engine keeps, and how two engines on one store never both own an instance.

One record an instance: its state, its inbox, what its steps returned, and who owns it.  An
engine holds a lease on its own name, renewed while it lives, and fences every write with it;
an instance belongs to whoever its record names, for as long as that engine's lease holds.
When it runs out, another engine takes the instance over in one transaction that compares
both, and goes on at the first unfinished step.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from perkey.engine.changes import Begin, End, Riding, passed_on
from perkey.engine.instances import Instance, InstanceState
from perkey.engine.records import (
    INSTANCES,
    Stored,
    below,
    encode,
    freeze,
    instance_key,
    parts_of,
    place,
    stored_of,
    text_of,
    versions_of,
)
from perkey.engine.registry import Registration
from perkey.engine.rounds import Alone, Asked, Rounds
from perkey.engine.segments import Segments, instances_of, is_segment
from perkey.errors import InvalidState, PerkeyError
from perkey.flows import steps
from perkey.store.fencing import LeaseState, lease_body, lease_state
from perkey.store.keys import ENGINE, Key
from perkey.store.record import Record
from perkey.store.transaction import Fence, Outcome, Tx
from perkey.stores import AsyncStore

Tick = tuple[str, str, int]
"""(process key, trigger, due time in ms)."""

PAGE = 100
"""How many engines' leases are looked at together, or how many instances of a segment."""
SPENT = 50
"""How many segments are dropped at once; every store commits so many keys together."""


class Journal:
    """Reads and writes of one engine on its store: its lease, its versions, its instances.

    Nothing here decides anything about the engine; each method is one transaction.  ``changes``
    says what the most frequent two of them do.
    """

    def __init__(self, store: AsyncStore, owner: str, lease_s: float) -> None:
        self._store = store
        self.owner = owner
        self._lease_ms = int(lease_s * 1000)
        self._lease = place("e", owner)
        self._mine = place("r", owner)
        self._fence: Fence | None = None
        self.keeps_lease = False
        """Whether each commit also renews the lease, where that is due."""
        self.segments = Segments(store.core.clock, self._mine)
        self._rounds = Rounds(self._commit, store.backend.atomic_keys)

    # -------------------------------------------------------------------------- the store

    async def commit(
        self, keys: Sequence[Key], fn: Callable[[Tx], Any], fenced: bool = True
    ) -> Any:
        """Commit ``fn`` over ``keys``; ``LeaseLost`` unless this engine still holds its lease."""
        outcome: Outcome = await self._commit({*keys}, fn, fenced)
        return outcome.result

    def _commit(
        self, keys: set[Key], fn: Callable[[Tx], Any], fenced: bool = True
    ) -> Coroutine[Any, Any, Outcome]:
        """To be awaited."""
        fence = self._fence if fenced else None
        if fence is not None:
            keys.add(fence.lease)
        elif fenced:
            raise InvalidState("this engine does not hold its lease; run() takes it")
        if fence is not None and self.keeps_lease:
            fn = Riding(fn, self._lease, self._lease_ms)
        step = steps.Transact(tuple(sorted(keys)), fn, self.owner, fence=fence)
        return self._store.run_step(step)

    async def change(self, instance_id: str, fn: Callable[[Tx, Stored], Any], *also: Key) -> Any:
        """Commit ``fn`` over an instance that this engine owns; ``LeaseLost`` if it does not."""
        record = instance_key(instance_id)

        def change(tx: Tx) -> Any:
            stored = stored_of(tx.body(record))
            if stored is None or stored.owner != self.owner or not stored.running:
                raise passed_on(instance_id)
            return fn(tx, stored)

        return await self.commit([record, *also], change)

    async def read(self, key: Key) -> bytes | None:
        """The encoded value at ``key``."""
        (record,) = await self._store.run_step(steps.Read([key]))
        return None if record is None else record.body

    async def now_ms(self) -> int:
        """The store's time."""
        return await self._store.now_ms()

    async def scan(self, prefix: str, limit: int, after: str = "") -> list[Record]:
        """Up to ``limit`` live records under ``prefix``, behind ``after``."""
        records: list[Record] = await self._store.run_step(steps.Scan(prefix, after, limit))
        return records

    # ------------------------------------------------------------------ the engine's lease

    async def take_lease(self) -> None:
        """Become an owner: a new token on this engine's name."""

        def take(tx: Tx) -> int:
            found = lease_state(tx.record(self._lease))
            token = (found.token if found else 0) + 1
            self._put_lease(tx, token)
            return token

        token = await self.commit([self._lease], take, fenced=False)
        self._fence = Fence(self._lease, token)
        self.keeps_lease = True

    async def renew_lease(self) -> None:
        """Hold it for another term; ``LeaseLost`` if it ran out."""
        fence = self._fence
        assert fence is not None
        await self.commit([self._lease], lambda tx: self._put_lease(tx, fence.token))

    def _put_lease(self, tx: Tx, token: int) -> None:
        state = LeaseState(self.owner, token, tx.now + self._lease_ms)
        tx.put_body(self._lease, lease_body(state))

    async def give_lease(self) -> None:
        """Let others take over at once what this engine still owns."""
        self.keeps_lease = False
        fence = self._fence
        if fence is None:
            return
        self.segments.close()
        state = LeaseState(self.owner, fence.token, 0)
        over = self.segments.spent[:SPENT]

        def give(tx: Tx) -> None:
            tx.put_body(self._lease, lease_body(state))
            for key in over:
                tx.put_body(key, None)

        try:
            await self.commit([self._lease, *over], give)
        except PerkeyError:
            pass  # somebody has taken over already, or will when the lease has run out
        self._fence = None

    async def drop_spent(self) -> None:
        """Forget segments whose instances have all ended."""
        over = self.segments.spent[:SPENT]
        if not over:
            return

        def drop(tx: Tx) -> None:
            for key in over:
                tx.put_body(key, None)

        await self.commit(over, drop)
        del self.segments.spent[: len(over)]

    # ------------------------------------------------------------------------ definitions

    async def give_version(self, key: str, digest: str, above: int) -> int:
        """A number above ``above`` for this content: the one it had before, else the next.

        A restart finds its versions again, and no number ever stands for two contents.
        """
        name = place("d", key)

        def give(tx: Tx) -> int:
            known = versions_of(tx.body(name))
            same = [int(n) for n, each in known.digests.items() if each == digest]
            again = min((number for number in same if number > above), default=0)
            if again:
                return again
            known.last = max(known.last, above) + 1
            known.digests[str(known.last)] = digest
            tx.put_body(name, encode(known))
            return known.last

        number: int = await self.commit([name], give, fenced=False)
        return number

    # -------------------------------------------------------------------------- instances

    def start(
        self,
        instance: Instance,
        registration: Registration,
        uniques: dict[str, tuple[str, ...]],
        tick: Tick | None = None,
    ) -> Asked | Alone:
        """Write a new instance, unless one of ``uniques`` names an earlier one; to be awaited.

        ``uniques``: kind -> parts, such as ``{"s": (process, idempotency key)}``.  The result is
        the id of the instance, the kind that named it, empty if it is new, and the
        store's time.  With ``tick``, only if no engine has fired it or a later one: ``t`` says
        that one has.
        """
        record, segment = instance_key(instance.id), instance.segment
        marks = {kind: place(kind, *parts) for kind, parts in uniques.items()}
        stored = freeze(instance, registration.digest, self.owner)
        timer, due = (None, 0) if tick is None else (place("t", *tick[:2]), tick[2])
        noted = None if segment is None or segment.noted else segment.record
        keys = {record, *marks.values()}
        if timer is not None:
            keys.add(timer)
        if noted is not None:
            keys.add(noted)
        return self._rounds.ask(keys, Begin(record, noted, stored, marks, timer, due))

    def began(self, instance: Instance) -> None:
        """Its start is on the store, and so is the record of its segment."""
        if instance.segment is not None:
            instance.segment.noted = True

    def ended(self, instance: Instance) -> None:
        """Its end is on the store, or its start will never be there."""
        if instance.segment is not None:
            self.segments.ended(instance.segment)

    async def landed(self, instance: Instance) -> bool:
        """Whether a start whose caller went away was committed; behind it in the queue."""
        record = instance_key(instance.id)

        def look(tx: Tx) -> bool:
            stored = stored_of(tx.body(record))
            return stored is not None and stored.owner == self.owner and stored.running

        landed: bool = await self.commit([record], look)
        return landed

    async def keep_step(self, instance: Instance, name: str, value: Any) -> Any:
        """Store a step's result, once; the stored one."""

        def keep(tx: Tx, stored: Stored) -> Any:
            if name not in stored.results:
                stored.results[name] = value
                tx.put_body(instance_key(instance.id), encode(stored))
            return stored.results[name]

        return await self.change(instance.id, keep)

    def finish(
        self, instance: Instance, state: InstanceState, result: Any, error: str
    ) -> Asked | Alone:
        """Write how an instance ended, and free its correlation key, in one commit; to be awaited.

        The result is the names of the messages that it never received.  May be
        repeated.
        """
        record = instance_key(instance.id)
        held: tuple[Key, ...] = ()
        if instance.segment is None:
            held = (below(self._mine, instance.id),)
        if instance.correlation is not None:
            held += (place("k", instance.key, instance.correlation),)
        boxes = tuple(place("b", name, instance.address) for name in instance.boxes)
        end = End(instance.id, self.owner, record, held, boxes, state.value, result, error)
        return self._rounds.ask({record, *held, *boxes}, end)

    async def load(self, instance_id: str) -> Stored | None:
        """An instance's record."""
        return stored_of(await self.read(instance_key(instance_id)))

    async def page(self, after: str, limit: int) -> list[Stored]:
        """Up to ``limit`` instances' records in the order of their keys, behind that id."""
        behind = instance_key(after) if after else ""
        records = await self.scan(INSTANCES, limit, behind)
        found = [stored_of(each.body) for each in records]
        return [each for each in found if each is not None]

    # --------------------------------------------------------------------------- recovery

    async def orphans(self, limit: int) -> list[tuple[str, str]]:
        """(owner, instance id) of running instances whose engine's lease has run out."""
        found: list[tuple[str, str]] = []
        after = ""
        while len(found) < limit and (page := await self.scan(f"{ENGINE}e/", PAGE, after)):
            after = page[-1].key
            now = await self.now_ms()
            for state in map(lease_state, page):
                if state is None or state.expires > now or state.holder == self.owner:
                    continue
                if state.expires == 0 or await self._end_lease(state.holder):
                    found.extend(await self._left_by(state.holder, limit))
        return found[:limit]

    async def _end_lease(self, holder: str) -> bool:
        """Move the record of a lease that has run out; whether it has.

        A commit may have been decided while the lease was held, and arrive at any time.  It is
        refused from now on; without that, an instance could begin in a segment that was looked
        through and is dropped.
        """
        theirs = place("e", holder)

        def end(tx: Tx) -> bool:
            lease = lease_state(tx.record(theirs))
            if lease is None or tx.now < lease.expires:
                return False
            if lease.expires:
                tx.put_body(theirs, lease_body(LeaseState(holder, lease.token, 0)))
            return True

        ended: bool = await self.commit([theirs], end)
        return ended

    async def _left_by(self, holder: str, limit: int) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        over: list[Key] = []
        left = await self.scan(place("r", holder), limit)
        for each in left:
            if each.body is None or len(found) >= limit:
                continue
            if not is_segment(each.body):
                found.append((holder, text_of(each.body)))
                continue
            unended = await self._unended(parts_of(each.key)[1], holder)
            found.extend((holder, instance_id) for instance_id in unended)
            if not unended:
                over.append(Key(each.key))
        if over or not left:
            await self._bury(holder, over)
        return found

    async def _unended(self, segment: str, holder: str) -> list[str]:
        """The ids of a segment's instances that still belong to its engine."""
        found: list[str] = []
        prefix, after = instances_of(segment), ""
        while page := await self.scan(prefix, PAGE, after):
            after = page[-1].key
            theirs = [stored_of(each.body) for each in page]
            found += [each.id for each in theirs if each and each.running and each.owner == holder]
        return found

    async def _bury(self, holder: str, over: list[Key]) -> None:
        """Forget what an engine that is gone has left: these segments, which are over, else its
        lease, where there is nothing else; without it, it writes nothing any more."""
        theirs = place("e", holder)

        def bury(tx: Tx) -> None:
            lease = lease_state(tx.record(theirs))
            if lease is not None and lease.expires <= tx.now:
                for key in over or [theirs]:
                    tx.put_body(key, None)

        await self.commit([theirs, *over], bury)

    async def take_over(self, owner: str, instance_id: str) -> Stored | None:
        """Make an orphan this engine's own, if its engine is still gone; its record."""
        record = instance_key(instance_id)
        theirs, old, new = (
            place("e", owner),
            place("r", owner, instance_id),
            below(self._mine, instance_id),
        )

        def take(tx: Tx) -> Stored | None:
            lease = lease_state(tx.record(theirs))
            stored = stored_of(tx.body(record))
            if lease is None or tx.now < lease.expires or stored is None:
                return None
            if stored.owner != owner or not stored.running:
                return None
            stored.owner = self.owner
            tx.put_body(record, encode(stored))
            if tx.body(old) is not None:
                tx.put_body(old, None)
            tx.put_body(new, encode(instance_id))
            return stored

        taken: Stored | None = await self.commit([record, theirs, old, new], take)
        return taken
