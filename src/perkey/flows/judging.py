"""Rules at work: what a write proposes, judged inside the commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perkey.errors import Rejected
from perkey.flows.blame import Blame
from perkey.flows.diff import ABSENT
from perkey.flows.rules import Proposal, Rule, as_rule
from perkey.store import codec
from perkey.store.keys import Key
from perkey.store.record import Record


class Moved(Exception):
    """A rule asks for the blame of a version that is not at hand."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A rule and the keys that it holds for."""

    prefix: str
    name: str
    rule: Rule


def bound(prefix: str, validator: Callable[..., None]) -> Bound:
    """The validator as a rule under ``prefix``, with a name for observers."""
    given = getattr(validator, "__qualname__", type(validator).__qualname__)
    # What a factory made is called after the factory.
    return Bound(prefix, given.partition(".<locals>")[0], as_rule(validator))


def judge(
    rules: Sequence[Bound], key: Key, head: Record | None, body: bytes | None, by: str, blame: Any
) -> None:
    """Raise ``Rejected`` unless every rule accepts ``body`` (None: a deletion).

    ``blame`` is that of the head, or of the version before, or None; ``Moved`` where a rule
    asks for it and that does not do.
    """
    for each in rules:
        # Fresh copies for each rule: one that changes its own must not deceive the next.
        old, new = _value(head.body if head else None), _value(body)
        version = head.version if head else 0
        proposal = Proposal(key.name, old, new, by, version, lambda: _of_head(blame, head))
        try:
            each.rule(proposal)
        except Rejected as rejected:
            rejected.details.setdefault("rule", each.name)
            raise


def _of_head(blame: Blame | None, head: Record | None) -> Blame:
    version = 0 if head is None else head.version
    if blame is not None and blame.version == version:
        return blame
    if blame is not None and head is not None and blame.version + 1 == version:
        return blame.advance(version, head.by, _value(head.body))
    raise Moved


def _value(body: bytes | None) -> Any:
    return ABSENT if body is None else codec.decode(body)
