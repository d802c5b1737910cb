"""What a durable engine keeps, and how two engines on one store never both own an instance.

One record an instance: its state, its inbox, what its steps returned, and who owns it.  An
engine holds a lease on its own name, renewed while it lives, and fences every write with it;
an instance belongs to whoever its record names, for as long as that engine's lease holds.
When it runs out, another engine takes the instance over in one transaction that compares
both, and goes on at the first unfinished step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from perkey.engine.instances import Delivered, Instance, InstanceState
from perkey.engine.registry import Registration
from perkey.errors import InvalidState, LeaseLost
from perkey.flows import steps
from perkey.store.fencing import LeaseState, lease_body, lease_state
from perkey.store.keys import ENGINE, Key, composite
from perkey.store.transaction import Fence, Outcome, Tx
from perkey.stores import AsyncStore


class Stored(msgspec.Struct):
    """The record of one instance."""

    id: str
    key: str
    version: int
    digest: str
    state: str
    owner: str
    variables: dict[str, Any]
    business_key: str
    correlation: str | None
    trigger: Delivered | None
    started_ms: int
    results: dict[str, Any] = {}
    inbox: list[Delivered] = []
    result: Any = None
    error: str = ""


class _Versions(msgspec.Struct):
    """The record of one process key: its last version number, and what each version was."""

    last: int
    digests: dict[str, str]


AGAIN = "?"
"""The box changed between the look and the commit: look again."""


class _Box(msgspec.Struct):
    """Where a message and the instance that waits for it meet."""

    waiting: str = ""
    letters: list[tuple[int, Delivered]] = []
    """(until when it waits, in ms of store time; message)."""


_boxes = msgspec.json.Decoder(_Box)
_stored = msgspec.json.Decoder(Stored)
_versions = msgspec.json.Decoder(_Versions)
_encode = msgspec.json.Encoder().encode


def _key(kind: str, *parts: str) -> Key:
    return composite(f"{ENGINE}{kind}/", *parts)


def instance_key(instance_id: str) -> Key:
    """Where an instance's record is."""
    return _key("i", instance_id)


class Journal:
    """Every read and write of one engine on its store.

    Nothing here decides anything about the engine; each method is one transaction.
    """

    def __init__(self, store: AsyncStore, owner: str, lease_s: float) -> None:
        self._store = store
        self._owner = owner
        self._lease_ms = int(lease_s * 1000)
        self._lease = _key("e", owner)
        self._fence: Fence | None = None

    async def _commit(self, keys: list[Key], fn: Callable[[Tx], Any], fenced: bool = True) -> Any:
        fence = self._fence if fenced else None
        if fenced and fence is None:
            raise InvalidState("this engine does not hold its lease; run() takes it")
        names = tuple(sorted({*keys, *([fence.lease] if fence else [])}))
        outcome: Outcome = await self._store.run(
            _one(steps.Transact(names, fn, self._owner, fence=fence))
        )
        return outcome.result

    # ------------------------------------------------------------------ the engine's lease

    async def take_lease(self) -> None:
        """Become an owner: a new token on this engine's name."""

        def take(tx: Tx) -> int:
            found = lease_state(tx.record(self._lease))
            token = (found.token if found else 0) + 1
            self._put_lease(tx, token)
            return token

        token = await self._commit([self._lease], take, fenced=False)
        self._fence = Fence(self._lease, token)

    async def renew_lease(self) -> None:
        """Hold it for another term; ``LeaseLost`` if it ran out."""
        fence = self._fence
        assert fence is not None
        await self._commit([self._lease], lambda tx: self._put_lease(tx, fence.token))

    def _put_lease(self, tx: Tx, token: int) -> None:
        state = LeaseState(self._owner, token, tx.now + self._lease_ms)
        tx.put_body(self._lease, lease_body(state))

    async def give_lease(self) -> None:
        """Let others take over at once what this engine still owns."""
        fence = self._fence
        if fence is None:
            return
        state = LeaseState(self._owner, fence.token, 0)
        try:
            await self._commit(
                [self._lease], lambda tx: tx.put_body(self._lease, lease_body(state))
            )
        except LeaseLost:
            pass  # somebody has taken over already
        self._fence = None

    # ------------------------------------------------------------------------ definitions

    async def give_version(self, key: str, digest: str, above: int) -> int:
        """A number above ``above`` for this content: the one it had before, else the next.

        A restart finds its versions again, and no number ever stands for two contents.
        """
        name = _key("d", key)

        def give(tx: Tx) -> int:
            body = tx.body(name)
            known = _versions.decode(body) if body else _Versions(0, {})
            same = [int(n) for n, each in known.digests.items() if each == digest]
            again = min((number for number in same if number > above), default=0)
            if again:
                return again
            known.last = max(known.last, above) + 1
            known.digests[str(known.last)] = digest
            tx.put_body(name, _encode(known))
            return known.last

        number: int = await self._commit([name], give, fenced=False)
        return number

    # -------------------------------------------------------------------------- instances

    async def start(
        self, instance: Instance, registration: Registration, uniques: dict[str, tuple[str, ...]]
    ) -> str:
        """Write a new instance, unless one of ``uniques`` names an earlier one; its id.

        ``uniques``: kind -> parts, such as ``{"s": (process, idempotency key)}``.
        """
        record = instance_key(instance.id)
        index = _key("r", self._owner, instance.id)
        marks = {kind: _key(kind, *parts) for kind, parts in uniques.items()}
        stored = _freeze(instance, registration.digest, self._owner)

        def start(tx: Tx) -> str:
            for mark in marks.values():
                earlier: str | None = tx.get(mark)
                if earlier is not None:
                    return earlier
            tx.put_body(record, _encode(stored))
            tx[index] = instance.id
            for mark in marks.values():
                tx[mark] = instance.id
            return instance.id

        started: str = await self._commit([record, index, *marks.values()], start)
        return started

    async def keep_step(self, instance: Instance, name: str, value: Any) -> Any:
        """Store a step's result, once; the stored one."""

        def keep(tx: Tx, stored: Stored) -> Any:
            if name not in stored.results:
                stored.results[name] = value
                tx.put_body(instance_key(instance.id), _encode(stored))
            return stored.results[name]

        return await self._change(instance.id, keep)

    async def take_message(self, instance: Instance, name: str, step: str) -> Delivered | None:
        """Move the first message ``name`` from the inbox to the results, in one commit."""

        def take(tx: Tx, stored: Stored) -> Delivered | None:
            for index, each in enumerate(stored.inbox):
                if each.name == name:
                    del stored.inbox[index]
                    stored.results[step] = each.payload
                    tx.put_body(instance_key(instance.id), _encode(stored))
                    return each
            return None

        taken: Delivered | None = await self._change(instance.id, take)
        return taken

    async def _change(self, instance_id: str, fn: Callable[[Tx, Stored], Any], *also: Key) -> Any:
        record = instance_key(instance_id)

        def change(tx: Tx) -> Any:
            body = tx.body(record)
            stored = _stored.decode(body) if body else None
            if stored is None or stored.owner != self._owner or stored.state != "running":
                raise LeaseLost(
                    f"instance {instance_id} passed to another engine; this one stops",
                    key=instance_id,
                )
            return fn(tx, stored)

        return await self._commit([record, *also], change)

    async def deliver(
        self, instance_id: str, message: Delivered, mark: tuple[str, ...] | None
    ) -> bool:
        """Put a message into an instance's inbox, whoever owns it; False once it has ended."""
        record = instance_key(instance_id)
        seen = _key("m", *mark) if mark else None

        def deliver(tx: Tx) -> bool:
            if seen is not None and tx.body(seen) is not None:
                return True
            body = tx.body(record)
            stored = _stored.decode(body) if body else None
            if stored is None or stored.state != "running":
                return False
            stored.inbox.append(message)
            tx.put_body(record, _encode(stored))
            if seen is not None:
                tx[seen] = instance_id
            return True

        delivered: bool = await self._commit([record, *([seen] if seen else [])], deliver)
        return delivered

    async def offer(
        self,
        name: str,
        address: str,
        message: Delivered,
        left_s: float,
        mark: tuple[str, ...] | None,
    ) -> str | None:
        """To the instance that waits at this address, else into the box for ``left_s`` seconds.

        Returns the id of the instance that has it now.
        """
        box = _key("b", name, address)
        seen = _key("m", *mark) if mark else None
        while True:
            (found,) = await self._store.run(_one(steps.Read([box])))
            known = _boxes.decode(found.body) if found and found.body else _Box()
            record = instance_key(known.waiting) if known.waiting else None

            def offer(tx: Tx, waiting: str = known.waiting, record: Key | None = record) -> str:
                body = tx.body(box)
                now = _boxes.decode(body) if body else _Box()
                if now.waiting != waiting:
                    return AGAIN
                if record is not None:
                    return _hand_over(tx, box, now, record, message, seen)
                if left_s > 0:
                    now.letters.append((tx.now + int(left_s * 1000), message))
                    tx.put_body(box, _encode(now))
                return ""

            keys = [box, *([record] if record else []), *([seen] if seen else [])]
            reached = await self._commit(keys, offer)
            if reached != AGAIN:
                return reached or None

    async def open_box(self, instance: Instance, name: str) -> bool:
        """Move the oldest letter of a box into the inbox, else wait there; whether it moved."""
        box = _key("b", name, instance.address)

        def open_box(tx: Tx, stored: Stored) -> bool:
            body = tx.body(box)
            known = _boxes.decode(body) if body else _Box()
            letters = [each for each in known.letters if tx.now < each[0]]
            moved = bool(letters)
            if letters:
                stored.inbox.append(letters.pop(0)[1])
                tx.put_body(instance_key(instance.id), _encode(stored))
            waiting = "" if moved else instance.id
            if (known.waiting, len(known.letters)) != (waiting, len(letters)):
                tx.put_body(box, _encode(_Box(waiting, letters)))
            return moved

        moved: bool = await self._change(instance.id, open_box, box)
        return moved

    async def live(self, process: str, correlation: str) -> str | None:
        """The live instance of this correlation key."""
        document = await self._store.run(_one(steps.Read([_key("k", process, correlation)])))
        record = document[0]
        if record is None or record.body is None:
            return None
        return str(msgspec.json.decode(record.body))

    async def seen(self, message_id: tuple[str, ...]) -> str | None:
        """The instance that a message with this id reached."""
        (record,) = await self._store.run(_one(steps.Read([_key("m", *message_id)])))
        return (
            None if record is None or record.body is None else str(msgspec.json.decode(record.body))
        )

    async def finish(self, instance: Instance) -> None:
        """Write how an instance ended, and free its correlation key, in one commit."""
        record = instance_key(instance.id)
        index = _key("r", self._owner, instance.id)
        live = (
            None if instance.correlation is None else _key("k", instance.key, instance.correlation)
        )

        def finish(tx: Tx) -> None:
            body = tx.body(record)
            stored = _stored.decode(body) if body else None
            if stored is None or stored.owner != self._owner or stored.state != "running":
                raise LeaseLost(f"instance {instance.id} passed to another engine", key=instance.id)
            stored.state = instance.state.value
            stored.result, stored.error = instance.result, instance.error
            tx.put_body(record, _encode(stored))
            tx.put_body(index, None)
            if live is not None:
                tx.put_body(live, None)

        await self._commit([record, index, *([live] if live else [])], finish)

    async def first_tick(self, key: str, trigger: str, due: int) -> bool:
        """Whether this engine is the first to fire this tick."""
        name = _key("t", key, trigger)

        def tick(tx: Tx) -> bool:
            if tx.get(name, 0) >= due:
                return False
            tx[name] = due
            return True

        first: bool = await self._commit([name], tick)
        return first

    # --------------------------------------------------------------------------- recovery

    async def orphans(self, limit: int) -> list[tuple[str, str]]:
        """(owner, instance id) of running instances whose engine's lease has run out."""
        now = await self._store.now_ms()
        found: list[tuple[str, str]] = []
        for record in await self._scan(f"{ENGINE}e/", limit):
            state = lease_state(record)
            if state is None or now < state.expires or state.holder == self._owner:
                continue
            prefix = _key("r", state.holder)
            indexes = await self._scan(prefix, limit - len(found))
            found.extend((state.holder, str(msgspec.json.decode(each.body))) for each in indexes)
        return found

    async def _scan(self, prefix: str, limit: int) -> list[Any]:
        records: list[Any] = await self._store.run(_one(steps.Scan(prefix, "", max(limit, 1))))
        return records

    async def take_over(self, owner: str, instance_id: str) -> Stored | None:
        """Make an orphan this engine's own, if its engine is still gone; its record."""
        record = instance_key(instance_id)
        theirs, old, new = (
            _key("e", owner),
            _key("r", owner, instance_id),
            _key("r", self._owner, instance_id),
        )

        def take(tx: Tx) -> Stored | None:
            lease = lease_state(tx.record(theirs))
            body = tx.body(record)
            stored = _stored.decode(body) if body else None
            if lease is None or tx.now < lease.expires or stored is None:
                return None
            if stored.owner != owner or stored.state != "running":
                return None
            stored.owner = self._owner
            tx.put_body(record, _encode(stored))
            tx.put_body(old, None)
            tx[new] = instance_id
            return stored

        taken: Stored | None = await self._commit([record, theirs, old, new], take)
        return taken

    async def load(self, instance_id: str) -> Stored | None:
        """An instance's record."""
        (record,) = await self._store.run(_one(steps.Read([instance_key(instance_id)])))
        return None if record is None or record.body is None else _stored.decode(record.body)


def _hand_over(
    tx: Tx, box: Key, known: _Box, record: Key, message: Delivered, seen: Key | None
) -> str:
    """Put a message into the inbox of the instance that waits at a box; its id."""
    body = tx.body(record)
    stored = _stored.decode(body) if body else None
    waiting, known.waiting = known.waiting, ""
    tx.put_body(box, _encode(known))
    if stored is None or stored.state != "running":
        return AGAIN  # it ended while it waited
    stored.inbox.append(message)
    tx.put_body(record, _encode(stored))
    if seen is not None:
        tx[seen] = waiting
    return waiting


def _one(step: steps.Step) -> steps.Flow[Any]:
    return (yield step)


def _freeze(instance: Instance, digest: str, owner: str) -> Stored:
    return Stored(
        instance.id,
        instance.key,
        instance.version,
        digest,
        InstanceState.RUNNING.value,
        owner,
        instance.variables,
        instance.business_key,
        instance.correlation,
        instance.trigger,
        instance.started_ms,
    )


def thaw(stored: Stored) -> Instance:
    """The instance that a record describes."""
    instance = Instance(
        stored.id,
        stored.key,
        stored.version,
        stored.variables,
        stored.business_key,
        stored.correlation,
        stored.trigger,
        stored.started_ms,
        state=InstanceState(stored.state),
        result=stored.result,
        error=stored.error,
        results=stored.results,
    )
    instance.inbox.extend(stored.inbox)
    return instance
