"""Versioned documents as flows: every accepted write is a version, and none is lost quietly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from perkey.errors import ConditionRequired, Conflict, ConflictExhausted, UsageError
from perkey.flows import arguments, judging, merging, patching, records, steps
from perkey.flows.blame import Blame
from perkey.flows.diff import ABSENT
from perkey.flows.judging import Bound
from perkey.flows.lookback import Blames
from perkey.flows.records import MISSING
from perkey.flows.transforms import transform
from perkey.observe import events
from perkey.store import codec
from perkey.store.keys import DOCUMENTS, Key, in_space
from perkey.store.limits import Limits, backoff
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
    """What to write: encoded JSON, or None to delete."""

    body: bytes | None
    base: int | None = None
    """The version its author had read, where that is not the head."""
    merged: bool = False
    """Whether it holds what others changed since the author read."""


Decide = Callable[[Tx, Record | None], Decision]
"""Pure: (transaction, head) -> what to write; runs inside the commit."""


@dataclass(slots=True)
class Book:
    """The documents of one store: what their flows share."""

    limits: Limits = field(default_factory=Limits)
    rules: list[Bound] = field(default_factory=list)
    blames: Blames = field(default_factory=Blames)

    def rule(self, prefix: str, validator: Callable[..., None]) -> None:
        """Let ``validator`` judge every write under ``prefix`` from now on."""
        arguments.text("the prefix", prefix)
        self.rules.append(judging.bound(prefix, validator))

    def change(
        self,
        key: Key,
        decide: Decide,
        write: Write,
        look: Callable[[], steps.Flow[None]] | None = None,
    ) -> steps.Flow[tuple[Document, Decision]]:
        """Commit what ``decide`` makes of the current head, unless a rule refuses it.

        ``look`` reads on where ``decide`` finds itself behind.
        """
        record, decision = yield from self.commit(key, decide, write, look)
        return document(record), decision

    def commit(
        self,
        key: Key,
        decide: Decide,
        write: Write,
        look: Callable[[], steps.Flow[None]] | None = None,
    ) -> steps.Flow[tuple[Record, Decision]]:
        """``change`` for whoever does not look at the value: the record that was written."""
        records.check_by(write.by)
        rules = [each for each in self.rules if key.name.startswith(each.prefix)]
        blame: Blame | None = None
        for attempt in range(self.limits.attempts + 1):
            try:
                return (yield from self._commit(key, decide, write, rules, blame))
            except judging.Moved as moved:
                # Blame and deletions come from history, which a transaction cannot read: so
                # they are read outside, and inside the next one they must still fit the head.
                if attempt:
                    chance = yield steps.Random()
                    yield steps.Sleep(backoff(attempt, self.limits, chance))
                if look is not None and isinstance(moved, merging.Behind):
                    yield from look()
                else:
                    blame = yield from self.blames.of(key)
        yield steps.Emit(events.Exhausted(key.name, write.by, self.limits.attempts))
        raise ConflictExhausted(
            f"{key.name!r} got a newer version during each of {self.limits.attempts} attempts; "
            "nothing was changed, try again",
            key=key.name,
            attempts=self.limits.attempts,
        )

    def _commit(
        self, key: Key, decide: Decide, write: Write, rules: list[Bound], blame: Blame | None
    ) -> steps.Flow[tuple[Record, Decision]]:
        def run(tx: Tx) -> Decision:
            head = tx.record(key)
            decision = decide(tx, head)
            if rules:
                judging.judge(rules, key, head, decision.body, tx.by, blame)
            tx.put_body(key, decision.body, decision.base)
            return decision

        outcome: Outcome = yield from records.conditional(
            key, run, write.by, write.fence, write.timeout, self.limits.attempts
        )
        return outcome.writes[-1], outcome.result

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
        merge: bool = False,
    ) -> steps.Flow[Document]:
        """Write a whole value under exactly one condition."""
        name = in_space(DOCUMENTS, key)
        records.check_condition(if_match, create, overwrite, base)
        arguments.flag("merge=", merge)
        if merge:
            return (yield from self._merge(name, value, write, if_match))
        body = codec.encode(value)

        def decide(tx: Tx, head: Record | None) -> Decision:
            if create:
                records.check_absent(name, head)
            elif not overwrite:
                records.check_version(name, head, if_match)
            return Decision(body, base if overwrite else None)

        written, _ = yield from self.change(name, decide, write)
        if written.base < written.version - 1:
            head = written.version - 1
            yield steps.Emit(events.StaleOverwrite(key, write.by, written.base, head))
        return written

    def _merge(
        self, name: Key, value: Any, write: Write, if_match: int | None
    ) -> steps.Flow[Document]:
        """Write a whole value that was made from version ``if_match``: what others changed
        since is kept, and an overlap is a ``Conflict`` that names it."""
        if if_match is None:
            raise ConditionRequired("merge=True needs if_match=VERSION, the version you read")
        ours = codec.decode(codec.encode(value))
        ancestor = yield from merging.ancestor(name, if_match, write.by)
        base = ancestor.value

        def decide(tx: Tx, head: Record | None) -> Decision:
            if base is ABSENT or head is None or head.deleted or head.version <= if_match:
                records.check_version(name, head, if_match)
                return Decision(codec.encode(ours))
            ancestor.check(head)
            both = merging.merged(name, if_match, base, ours, tx, head)
            return Decision(codec.encode(both), merged=True)

        try:
            written, decision = yield from self.change(name, decide, write, ancestor.look)
        except Conflict as refused:
            if "overlaps" not in refused.details:
                raise
            raise (yield from merging.explained(refused, base, ours)) from None
        if decision.merged:
            yield steps.Emit(events.Merged(name.name, write.by, if_match, written.version - 1))
        return written

    def update(
        self, key: str, mutate: Mutate, write: Write, default: Any = MISSING
    ) -> steps.Flow[Document]:
        """Put what ``mutate`` makes of the current value, read inside the commit."""
        name = in_space(DOCUMENTS, key)
        check_fn(mutate)
        spare = MISSING if default is MISSING else codec.encode(default)

        def decide(tx: Tx, head: Record | None) -> Decision:
            new = mutate(_current(name, tx, head, spare))
            if new is None:
                raise UsageError(
                    f"the function for {key!r} returned None; nothing was written: return the "
                    "new value, also when you changed it in place (use put() to store null)"
                )
            return Decision(codec.encode(new))

        written, _ = yield from self.change(name, decide, write)
        return written

    def patch(
        self,
        key: str,
        write: Write,
        *,
        json_patch: Sequence[Any] | None = None,
        merge_patch: Any = MISSING,
        transforms: Sequence[Any] | None = None,
        if_match: int | None = None,
        default: Any = MISSING,
    ) -> steps.Flow[Document]:
        """Apply a change that is given as data to the current value, inside the commit."""
        name = in_space(DOCUMENTS, key)
        records.check_match(if_match)
        apply = _patcher(json_patch, merge_patch, transforms)
        spare = MISSING if default is MISSING else codec.encode(default)
        if transforms is not None and spare is MISSING:
            spare = ABSENT

        def decide(tx: Tx, head: Record | None) -> Decision:
            if if_match is not None:
                records.check_version(name, head, if_match)
            return Decision(codec.encode(apply(_current(name, tx, head, spare))))

        written, _ = yield from self.change(name, decide, write)
        return written

    def delete(self, key: str, write: Write, if_match: int | None = None) -> steps.Flow[Document]:
        """Leave a tombstone whose version goes on counting."""
        name = in_space(DOCUMENTS, key)
        records.check_match(if_match)

        def decide(tx: Tx, head: Record | None) -> Decision:
            if head is None or head.deleted:
                raise records.missing(name, head)
            if if_match is not None:
                records.check_version(name, head, if_match)
            return Decision(None)

        written, _ = yield from self.change(name, decide, write)
        return written


def _current(name: Key, tx: Tx, head: Record | None, spare: Any) -> Any:
    """A copy of the current value, or of the encoded ``spare``; ``NotFound`` without one."""
    body = tx.body(name)
    if body is not None:
        return codec.decode(body)
    if spare is MISSING:
        raise records.missing(name, head)
    return spare if spare is ABSENT else codec.decode(spare)


def _patcher(json_patch: Any, merge_patch: Any, transforms: Any) -> Callable[[Any], Any]:
    """The one way to patch that was given, as a function of the value."""
    if (json_patch is not None) + (merge_patch is not MISSING) + (transforms is not None) != 1:
        raise UsageError(
            "expected exactly one of json_patch=[...] (RFC 6902), merge_patch={...} (RFC 7396) "
            "and transforms=[increment(...), ...]"
        )
    if json_patch is not None:
        return lambda value: patching.json_patch(value, json_patch)
    if transforms is not None:
        return lambda value: transform(value, transforms)
    return lambda value: patching.merge_patch(value, merge_patch)
