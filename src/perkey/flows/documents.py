"""Versioned documents as flows: every accepted write is a version, and none is lost quietly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from perkey.errors import Gone, NotFound, UsageError
from perkey.flows import records, steps
from perkey.flows.records import MISSING
from perkey.observe import events
from perkey.store import codec
from perkey.store.keys import DOCUMENTS, Key, in_space
from perkey.store.record import Record
from perkey.store.transaction import Fence, Outcome, Tx, check_fn
from perkey.store.views import Document, document

Mutate = Callable[[Any], Any]
"""Pure: gets a copy of the value, returns the new value; may run again."""


@dataclass(frozen=True, slots=True)
class Write:
    """How a write is made, whatever it writes."""

    by: str = ""
    fence: Fence | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The new value of a document, and the version its author had read if not the head."""

    value: Any
    base: int | None = None


Decide = Callable[[Tx, Record | None], Decision]
"""Pure: (transaction, head) -> what to write; runs inside the commit."""


def change(key: Key, decide: Decide, write: Write) -> steps.Flow[Document]:
    """Commit what ``decide`` makes of the current head, unless a rule refuses it."""

    def run(tx: Tx) -> None:
        decision = decide(tx, tx.record(key))
        tx.put_body(key, codec.encode(decision.value), decision.base)

    outcome: Outcome = yield from records.conditional(
        key, run, write.by, write.fence, write.timeout
    )
    return document(outcome.writes[-1])


@dataclass(slots=True)
class Book:
    """The documents of one store: what their flows share."""

    rules: list[Any] = field(default_factory=list)

    def put(
        self,
        key: str,
        value: Any,
        write: Write,
        *,
        if_match: int | None = None,
        create: bool = False,
        overwrite: bool = False,
        base: int | None = None,
    ) -> steps.Flow[Document]:
        """Write a whole value under exactly one condition."""
        name = in_space(DOCUMENTS, key)
        records.check_condition(if_match, create, overwrite)
        records.check_by(write.by)

        def decide(tx: Tx, head: Record | None) -> Decision:
            if create:
                records.check_absent(name, head)
            elif not overwrite:
                records.check_version(name, head, if_match)
            return Decision(value, base if overwrite else None)

        written: Document = yield from change(name, decide, write)
        if written.base < written.version - 1:
            head = written.version - 1
            yield steps.Emit(events.StaleOverwrite(key, write.by, written.base, head))
        return written

    def update(
        self, key: str, mutate: Mutate, write: Write, default: Any = MISSING
    ) -> steps.Flow[Document]:
        """Put what ``mutate`` makes of the current value, read inside the commit."""
        name = in_space(DOCUMENTS, key)
        check_fn(mutate)
        records.check_by(write.by)

        def decide(tx: Tx, head: Record | None) -> Decision:
            old = tx.get(name, MISSING)
            if old is MISSING:
                if default is MISSING:
                    raise records.missing(name, head)
                old = codec.decode(codec.encode(default))
            new = mutate(old)
            if new is None:
                raise UsageError(
                    f"the function for {key!r} returned None; nothing was written: return the "
                    "new value, also when you changed it in place (use put() to store null)"
                )
            return Decision(new)

        return (yield from change(name, decide, write))

    def delete(self, key: str, write: Write, if_match: int | None = None) -> steps.Flow[Document]:
        """Leave a tombstone whose version goes on counting."""
        return (
            yield from records.delete(
                in_space(DOCUMENTS, key),
                if_match=if_match,
                by=write.by,
                fence=write.fence,
                timeout=write.timeout,
            )
        )


def at(key: str, version: int) -> steps.Flow[Document]:
    """One version; ``Gone`` when retention dropped it, ``NotFound`` when it never was."""
    name = in_space(DOCUMENTS, key)
    check_number(version)
    found: list[Record] = yield steps.History(name, version - 1, 1)
    if found and found[0].version == version:
        return document(found[0])
    if found:
        raise Gone(
            f"version {version} of {key!r} was dropped by retention; "
            f"the oldest one kept is {found[0].version}",
            key=key,
            version=version,
            oldest=found[0].version,
        )
    (head,) = yield steps.Read([name])
    last = 0 if head is None else head.version
    raise NotFound(
        f"{key!r} has no version {version}; its last one is {last}", key=key, version=version
    )


def check_number(version: object) -> None:
    """A version is 1, 2, 3, ..."""
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise UsageError(f"expected a version from 1 up, found {version!r}")
