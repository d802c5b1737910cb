"""What the engine's methods are given: a receipt, a definition, a key or an id, never each other.

All four name a process or an instance, so they are easily mixed up.  Each check says what was
expected, what was found, and the call that takes what was found.
"""

from __future__ import annotations

from typing import Any

from perkey.engine.definitions import Definition
from perkey.engine.handles import Look
from perkey.engine.registry import Registration
from perkey.errors import InvalidState, UsageError

_RECEIPT = "a Registration, as register_process(...) returns it"


def check_definition(definition: Any) -> None:
    """``UsageError`` unless it is a definition."""
    if isinstance(definition, Definition):
        return
    what = "a definition made by @process(...)"
    if callable(definition):
        raise UsageError(
            f"expected {what}, found {definition!r:.80}; decorate it: "
            '@process("key"), or use define("key", body)'
        )
    raise UsageError(f"expected {what}, found {_shown(definition)}")


def check_receipt(receipt: Any, engine: str, *, by_key: str) -> None:
    """Refuse what is no receipt, and another engine's receipt.

    ``by_key`` is the method that takes a process's key instead.
    """
    if not isinstance(receipt, Registration):
        raise UsageError(
            f"expected {_RECEIPT}, found {_shown(receipt)}; to name the process by its key "
            f'use {by_key}("{_named(receipt)}")'
        )
    if receipt.engine != engine:
        raise InvalidState(
            f"this receipt of {receipt.key!r} was given by another engine",
            key=receipt.key,
        )


def check_key(key: Any, method: str) -> None:
    """``UsageError`` unless a process's key is text; ``method`` is the one that takes it."""
    if isinstance(key, str):
        return
    raise UsageError(
        f"expected the key of a process as text, found {_shown(key)}; "
        f'give its key: {method}("{_named(key)}")'
    )


def check_id(instance_id: Any, what: str = "the id of an instance") -> None:
    """``UsageError`` unless an instance's id is text."""
    if isinstance(instance_id, str):
        return
    advice = "give its .id" if isinstance(instance_id, Look) else "a handle has it as .id"
    raise UsageError(f"expected {what} as text, found {_shown(instance_id)}; {advice}")


def check_ids(ids: Any) -> None:
    """``UsageError`` unless these are ids in a list (or tuple, or set)."""
    if not isinstance(ids, list | tuple | set | frozenset):
        raise UsageError(
            f"expected a list of ids of instances, found {_shown(ids)}; "
            "give forget([handle.id, ...])"
        )
    for each in ids:
        check_id(each)


def _named(found: Any) -> str:
    """The key of a process that somebody gave or may have meant, to stand in advice."""
    key = found if isinstance(found, str) else getattr(found, "key", None)
    return f"{key:.80}" if isinstance(key, str) else "key"


def _shown(found: Any) -> str:
    """What somebody gave, short: text as it is, a thing of the engine by its type and key."""
    if found is None or isinstance(found, str | int | float):
        return f"{found!r:.80}"
    key = getattr(found, "key", None)
    named = f" of {key!r:.80}" if isinstance(key, str) else ""
    return f"a {type(found).__name__}{named}"
