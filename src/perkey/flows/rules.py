"""Rules: validators that run inside the commit on what is about to be written.

A validator returns None, or raises ``Rejected`` and nothing is written.  It takes a
``Proposal``, or in its simple form ``(old, new, author)``, where None stands for a document
that is not there.  It must be pure: it may run again, and others wait for the commit.
"""

from __future__ import annotations

import importlib
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from perkey.errors import MissingExtra, NotFound, Rejected, UsageError
from perkey.flows import pointer
from perkey.flows.align import identity, mark
from perkey.flows.blame import Blame, Origin
from perkey.flows.diff import ABSENT, Change, diff
from perkey.flows.patching import copied
from perkey.flows.pointer import Path, shown
from perkey.store.codec import same
from perkey.store.transaction import check_fn

__all__ = [
    "Proposal",
    "Rule",
    "as_rule",
    "done_equals_outputs",
    "json_schema",
    "no_removals_of_others",
]

NAMED = 10
"""How many offences a message names; ``details`` has them all."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A write that is about to be committed."""

    key: str
    old: Any
    """The current value; ``ABSENT`` where there is none."""
    new: Any
    """The value to be written, after any merge; ``ABSENT`` for a deletion."""
    author: str
    old_version: int
    """0 where the key was never written."""
    blame: Callable[[], Blame]
    """The blame of ``old``; costs a walk over the history, so call it only when needed."""

    @property
    def creates(self) -> bool:
        """Whether there is no current value."""
        return self.old is ABSENT

    @property
    def deletes(self) -> bool:
        """Whether this is a deletion."""
        return self.new is ABSENT


Rule = Callable[[Proposal], None]


def as_rule(validator: Callable[..., Any]) -> Rule:
    """The validator, in either form, as a function of the proposal.

    ``UsageError`` where it takes neither one nor three arguments, or is not a plain function.
    """
    check_fn(validator)
    simple = _arguments(validator) == 3

    def rule(proposal: Proposal) -> None:
        if simple:
            old, new = (None if each is ABSENT else each for each in (proposal.old, proposal.new))
            answer = validator(old, new, proposal.author)
        else:
            answer = validator(proposal)
        if answer is not None:
            _close(answer)
            raise UsageError(
                f"expected the rule on {proposal.key!r} to return None or to raise Rejected, "
                f"found {pointer.describe(answer)}; nothing was written"
            )

    return rule


def _arguments(validator: Callable[..., object]) -> int:
    """How many arguments the validator must be given: one or three."""
    try:
        found = inspect.signature(validator).parameters.values()
    except (TypeError, ValueError):  # as of most classes that are built in
        raise UsageError(
            "expected a validator of one argument (the proposal) or three (old, new, author), "
            f"found {getattr(validator, '__name__', type(validator).__name__)!r}, which does not "
            "tell its arguments; wrap it in a function of your own"
        ) from None
    needed = [
        each
        for each in found
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if len(needed) not in (1, 3) or any(each.kind is each.KEYWORD_ONLY for each in needed):
        raise UsageError(
            "expected a validator of one argument (the proposal) or three (old, new, author), "
            f"found {len(needed)}"
        )
    return len(needed)


def _close(answer: object) -> None:
    if inspect.iscoroutine(answer):
        answer.close()


def _rejected(key: str, lead: str, offences: list[str], advice: str, **details: Any) -> Rejected:
    more = len(offences) - NAMED
    named = "; ".join(offences[:NAMED]) + (f"; and {more} more" if more > 0 else "")
    return Rejected(f"{key!r}: {lead}: {named} ({advice})", key=key, **details)


# ---------------------------------------------------------------------------- JSON Schema


def json_schema(schema: Mapping[str, Any] | bool) -> Rule:
    """Documents must fit a JSON Schema (draft 2020-12 unless ``$schema`` says otherwise).

    Needs the ``schema`` extra.  References are resolved inside the schema alone; nothing is
    ever fetched.  Deletions pass.
    """
    library, catalogue = _jsonschema()
    fixed = copied(schema)
    kind = library.validators.validator_for(fixed, default=library.Draft202012Validator)
    try:
        kind.check_schema(fixed)
    except library.SchemaError as error:
        raise UsageError(f"expected a JSON Schema, found an error in it: {error.message}") from None
    validator = kind(fixed, registry=catalogue)

    def rule(proposal: Proposal) -> None:
        if proposal.deletes:
            return
        try:
            found = list(islice(validator.iter_errors(proposal.new), 100))
        except _unresolvable() as error:
            raise UsageError(
                f"expected the schema for {proposal.key!r} to hold all it refers to: {error}"
            ) from error
        if found:
            errors = [
                {"path": pointer.format(error.absolute_path), "message": _short(error.message)}
                for error in found
            ]
            raise _rejected(
                proposal.key,
                "the new value does not fit the schema",
                [f"{shown(error['path'])} {error['message']}" for error in errors],
                "correct it and write again",
                errors=errors,
            )

    return rule


def _jsonschema() -> tuple[Any, Any]:
    """(jsonschema, the registry of the standard drafts), imported on first use."""
    try:
        library = importlib.import_module("jsonschema")
        return library, importlib.import_module("jsonschema_specifications").REGISTRY
    except ImportError as error:
        raise MissingExtra(
            "json_schema() needs the package jsonschema; install it with: "
            "pip install 'perkey[schema]'",
            extra="schema",
        ) from error


def _unresolvable() -> type[Exception]:
    found: type[Exception] = importlib.import_module("referencing.exceptions").Unresolvable
    return found


def _short(message: str) -> str:
    """The library quotes the offending value, whatever its length."""
    return message if len(message) <= 200 else f"{message[:120]}...{message[-60:]}"


# --------------------------------------------------------------- no removals of others' work


def no_removals_of_others(*, unknown: Literal["refuse", "allow"] = "refuse") -> Rule:
    """Nobody may drop what another author added; to change it, or to move it within its list,
    is no removal.

    Dropped are removed paths, items of a list that gave way to others, and whatever was
    inside a value that became something else.  ``unknown`` decides about things whose author
    went with the dropped history.  ``Rejected.dropped`` lists path, author and version.
    """

    def rule(proposal: Proposal) -> None:
        paths = list(_dropped(diff(proposal.old, proposal.new)))
        if not paths:
            return
        blame = proposal.blame()
        found = [
            (path, origin)
            for dropped in paths
            for path, origin in blame.parts(dropped)
            if _of_another(origin, proposal.author, unknown)
        ]
        if found:
            raise _rejected(
                proposal.key,
                f"this write by {proposal.author!r} would drop what others added",
                [f"{shown(pointer.format(path))}, set in {origin}" for path, origin in found],
                "read the current version and keep these",
                dropped=[
                    {"path": pointer.format(path), "by": origin.by, "version": origin.version}
                    for path, origin in found
                ],
            )

    return rule


def _of_another(origin: Origin, author: str, unknown: str) -> bool:
    return origin.by != author if origin.known else unknown == "refuse"


def _dropped(changes: list[Change]) -> Iterator[Path]:
    """Paths in the old value of what is gone in the new one."""
    came = Counter(
        (change.was[:-1], mark(change.new)) for change in changes if change.new is not ABSENT
    )
    for change in changes:
        if change.kind == "add" or not (change.kind == "remove" or _gave_way(change)):
            continue
        if _in_list(change) and came[change.was[:-1], mark(change.old)]:
            came[change.was[:-1], mark(change.old)] -= 1  # moved
        else:
            yield change.was


def _gave_way(change: Change) -> bool:
    """Whether a replacement drops something: it was inside, or it was an item of a list."""
    inside = isinstance(change.old, dict | list) and bool(change.old)
    return inside or _in_list(change)


def _in_list(change: Change) -> bool:
    return bool(change.was) and isinstance(change.was[-1], int)


# ----------------------------------------------------------------------- done equals outputs


def done_equals_outputs(
    tasks: str = "/tasks",
    *,
    status: str = "status",
    done: Any = "done",
    output: str = "output",
    outputs: str | None = None,
) -> Rule:
    """A task that says it is done has an output: no run can report a false success.

    ``tasks`` points at a list or dict of tasks, each with the field ``status``.  Its output is
    its own field ``output``; or, with the pointer ``outputs``, the entry there under the
    task's name (its key, or its identity in a list).  Null, empty text and empty containers
    are no output.  Deletions pass.  ``Rejected.missing`` lists the paths where outputs lack.
    """
    places = pointer.parse(tasks), None if outputs is None else pointer.parse(outputs)

    def rule(proposal: Proposal) -> None:
        if proposal.deletes:
            return
        found = _lookup(proposal.new, places[0])
        missing = []
        for token, task in _tasks(found):
            if not isinstance(task, dict) or not same(task.get(status), done):
                continue
            path = (
                (*places[0], token, output)
                if places[1] is None
                else (*places[1], _name(token, task))
            )
            if _lookup(proposal.new, path) in (None, "", [], {}):
                missing.append(pointer.format(path))
        if missing:
            raise _rejected(
                proposal.key,
                "tasks say they are done and have no output",
                [f"{shown(path)} is missing or empty" for path in missing],
                "write the output first, or together with the status",
                missing=missing,
            )

    return rule


def _tasks(found: Any) -> list[tuple[str | int, Any]]:
    if isinstance(found, dict):
        return list(found.items())
    return list(enumerate(found)) if isinstance(found, list) else []


def _name(token: str | int, task: dict[str, Any]) -> str:
    known = identity(task) if isinstance(token, int) else None
    return str(token if known is None else known[1])


def _lookup(value: Any, path: Path) -> Any:
    try:
        return pointer.get(value, path)
    except NotFound:
        return None
