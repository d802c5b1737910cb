"""What a durable engine's records look like, and where they are.

Kinds of keys: ``i`` an instance, ``r`` below each engine what it may have to end, ``e`` an
engine's lease, ``d`` the versions of a process, ``t`` the last tick of a timer, ``k`` the live
instance of a correlation key, ``s`` of an idempotency key, ``m`` who has a message, ``b`` a
letter box, ``n`` what one engine has to tell another.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perkey.engine.instances import Delivered, Instance, InstanceState
from perkey.store.keys import ENGINE, Key, composite
from perkey.store.transaction import Tx


class Stored(msgspec.Struct, gc=False):
    """The record of one instance: what JSON can say, so the garbage collector need not look."""

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
    until: dict[str, int] = {}
    """Step that receives -> when it stops waiting, in ms of store time."""
    inbox: list[Delivered] = []
    result: Any = None
    error: str = ""
    cancel: bool = False
    """Somebody asked for its end; whoever owns it obeys."""

    @property
    def running(self) -> bool:
        return self.state == "running"


class Versions(msgspec.Struct, gc=False):
    """The record of one process key: its last version number, and what each version was."""

    last: int
    digests: dict[str, str]


class Box(msgspec.Struct, gc=False):
    """Where a message and the instances that wait for it meet: several may have one address."""

    waiting: list[str] = []
    """Ids of instances; the first gets the next message."""
    letters: list[tuple[int, Delivered]] = []
    """(until when it waits, in ms of store time; message)."""


_boxes = msgspec.json.Decoder(Box)
_stored = msgspec.json.Decoder(Stored)
_versions = msgspec.json.Decoder(Versions)
encode = msgspec.json.Encoder().encode


def stored_of(body: bytes | None) -> Stored | None:
    """The instance in a record's body, or None where there is none."""
    return None if body is None else _stored.decode(body)


def versions_of(body: bytes | None) -> Versions:
    """The versions in a record's body."""
    return Versions(0, {}) if body is None else _versions.decode(body)


def box_of(body: bytes | None) -> Box:
    """The letter box in a record's body; an empty one where there is none."""
    return Box() if body is None else _boxes.decode(body)


def leave_box(
    tx: Tx, box: Key, known: Box, waiting: list[str], letters: list[tuple[int, Delivered]]
) -> None:
    """Write a box, if anything changed; an empty one goes."""
    if (known.waiting, known.letters) != (waiting, letters):
        empty = not waiting and not letters
        tx.put_body(box, None if empty else encode(Box(waiting, letters)))


def step_out(tx: Tx, box: Key, known: Box, instance_id: str) -> None:
    """Whoever waited at this box waits no more."""
    others = [each for each in known.waiting if each != instance_id]
    leave_box(tx, box, known, others, known.letters)


def text_of(body: bytes) -> str:
    """The text in a record's body."""
    return str(msgspec.json.decode(body))


def place(kind: str, *parts: str) -> Key:
    """The key of a record of this kind."""
    return composite(f"{ENGINE}{kind}/", *parts)


def below(prefix: str, token: str) -> Key:
    """``place`` with one more part: an id that a clock made, so there is nothing to check."""
    return Key(f"{prefix}{len(token)}:{token}")


def parts_of(key: str) -> list[str]:
    """The parts that a key of ``place`` was made of."""
    parts = []
    text = key[len(ENGINE) + 2 :]
    while text:
        size, _, rest = text.partition(":")
        parts.append(rest[: int(size)])
        text = rest[int(size) :]
    return parts


def instance_key(instance_id: str) -> Key:
    """Where an instance's record is."""
    return below(INSTANCES, instance_id)


INSTANCES = f"{ENGINE}i/"
"""What the keys of instances begin with."""
BOXES = f"{ENGINE}b/"
"""What the keys of letter boxes begin with."""


def freeze(instance: Instance, digest: str, owner: str) -> Stored:
    """The record of a new instance."""
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
    """The instance that a record describes; whoever runs it, it is not (yet) this engine."""
    instance = Instance(
        stored.id,
        stored.key,
        stored.version,
        stored.variables,
        stored.business_key,
        stored.correlation,
        stored.trigger,
        stored.started_ms,
        elsewhere=True,
    )
    refresh(instance, stored)
    instance.inbox.extend(stored.inbox)
    return instance


def refresh(instance: Instance, stored: Stored) -> None:
    """Bring what a handle shows up to what the record says."""
    instance.state = InstanceState(stored.state)
    instance.result, instance.error = stored.result, stored.error
    instance.results = stored.results
