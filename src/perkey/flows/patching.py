"""JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7396).

A patch is applied to a copy, all of it or none of it; neither the value nor the patch is
changed or shared with the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from perkey.errors import InvalidPatch, LimitExceeded, NotFound, UsageError
from perkey.flows import pointer
from perkey.flows.diff import ABSENT, Change
from perkey.store import codec

MAX_OPS = 10_000
"""The most operations in one patch."""

MAX_COPIED = codec.MAX_VALUE_BYTES
"""The most bytes that one patch's ``copy`` operations may copy, so that a short patch that
doubles the value again and again is refused early."""


def json_patch(value: Any, operations: Sequence[Any]) -> Any:
    """The value after the operations of an RFC 6902 patch.

    ``InvalidPatch`` names the first operation that is malformed or does not apply (``op``,
    its index ``at``, its ``path``); a ``test`` that fails is one.
    """
    check_operations(operations)
    patched = _Patched(copied(value))
    for at, operation in enumerate(operations):
        op, path = head(at, operation, _APPLY)
        try:
            _APPLY[op](patched, operation, _path(path))
        except (UsageError, NotFound) as error:
            if isinstance(error, LimitExceeded):
                raise
            raise refused(at, op, path, error) from error
    return patched.value


def merge_patch(value: Any, patch: Any) -> Any:
    """The value after an RFC 7396 merge patch: null removes, dicts merge, all else
    replaces.  ``value`` may be ``ABSENT``: the document is made."""
    return _merged(copied(value), copied(patch))


def _merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = target if isinstance(target, dict) else {}
    for key, item in patch.items():
        if item is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), item)
    return merged


def from_changes(changes: Iterable[Change]) -> list[dict[str, Any]]:
    """What ``diff(a, b)`` found, as a JSON Patch that turns ``a`` into ``b``."""
    found = list(changes)
    # Back to front, a removal moves no path that is still to come; then front to back,
    # everything before an addition is already as it will be.
    removals = [
        {"op": "remove", "path": pointer.format(change.was)}
        for change in reversed(found)
        if change.kind == "remove"
    ]
    return removals + [
        {"op": change.kind, "path": pointer.format(change.path), "value": change.new}
        for change in found
        if change.kind != "remove"
    ]


# --------------------------------------------------------- shared with the field transforms


def copied(value: Any) -> Any:
    """A deep copy; ``InvalidValue`` where it is not JSON.  ``ABSENT`` stays absent."""
    return value if value is ABSENT else codec.decode(codec.encode(value))


def check_operations(operations: object) -> None:
    """Operations are a list, and not an endless one."""
    if not isinstance(operations, list | tuple):
        raise InvalidPatch(f"expected a list of operations, found {pointer.describe(operations)}")
    if len(operations) > MAX_OPS:
        raise LimitExceeded(
            f"expected at most {MAX_OPS} operations in a patch, found {len(operations)}"
        )


def head(at: int, operation: Any, known: Iterable[str]) -> tuple[str, str]:
    """(op, path) of an operation, both checked to be there and to be text."""
    if not isinstance(operation, dict):
        raise InvalidPatch(
            f"operation {at}: expected an object, found {pointer.describe(operation)}", at=at
        )
    op, path = operation.get("op"), operation.get("path")
    if op not in list(known):
        raise InvalidPatch(
            f"operation {at}: expected op to be one of {', '.join(known)}; found {op!r}",
            at=at,
            unknown=op,
        )
    if not isinstance(path, str):
        raise InvalidPatch(f"operation {at} ({op}): expected a path, found {path!r}", at=at, op=op)
    return str(op), path


def refused(at: int, op: str, path: str, error: Exception) -> InvalidPatch:
    """The error for an operation that does not apply."""
    return InvalidPatch(
        f"operation {at} ({op} {pointer.shown(path)}): {error}; nothing was changed",
        at=at,
        op=op,
        path=path,
    )


# ---------------------------------------------------------------------- the six operations


class _Patched:
    """The copy that is being patched.  Paths are tokens; the empty one is the whole value."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self._may_copy = MAX_COPIED

    def add(self, operation: dict[str, Any], path: pointer.Path) -> None:
        self._insert(path, _operand(operation))

    def remove(self, operation: dict[str, Any], path: pointer.Path) -> None:
        self._take(path)

    def replace(self, operation: dict[str, Any], path: pointer.Path) -> None:
        pointer.get(self.value, path)
        item = _operand(operation)
        if not path:
            self.value = item
            return
        parent = pointer.get(self.value, path[:-1])
        parent[_place(parent, path[-1])] = item

    def move(self, operation: dict[str, Any], path: pointer.Path) -> None:
        source = _path(operation.get("from"))
        if source == path:
            pointer.get(self.value, path)
            return
        if path[: len(source)] == source:
            raise UsageError("a value cannot be moved into itself")
        self._insert(path, self._take(source))

    def copy(self, operation: dict[str, Any], path: pointer.Path) -> None:
        body = codec.encode(pointer.get(self.value, _path(operation.get("from"))))
        self._may_copy -= len(body)
        if self._may_copy < 0:
            raise LimitExceeded(
                f"expected a patch to copy at most {MAX_COPIED} bytes, "
                f"found at least {MAX_COPIED - self._may_copy}"
            )
        self._insert(path, codec.decode(body))

    def test(self, operation: dict[str, Any], path: pointer.Path) -> None:
        if not equal(pointer.get(self.value, path), _operand(operation)):
            raise UsageError("the value there is another one")

    def _insert(self, path: pointer.Path, item: Any) -> None:
        if not path:
            self.value = item
            return
        parent, last = pointer.get(self.value, path[:-1]), path[-1]
        if isinstance(parent, dict):
            parent[str(last)] = item
        elif isinstance(parent, list):
            at = len(parent) if last == "-" else pointer.index(last, len(parent) + 1)
            if at is None:
                raise UsageError(f"expected an index from 0 to {len(parent)} or '-'")
            parent.insert(at, item)
        else:
            raise UsageError(f"nothing can be put into {pointer.describe(parent)}")

    def _take(self, path: pointer.Path) -> Any:
        item = pointer.get(self.value, path)
        if not path:
            raise UsageError("the whole value cannot be removed by a patch; delete the document")
        parent = pointer.get(self.value, path[:-1])
        del parent[_place(parent, path[-1])]
        return item


_APPLY = {
    "add": _Patched.add,
    "remove": _Patched.remove,
    "replace": _Patched.replace,
    "move": _Patched.move,
    "copy": _Patched.copy,
    "test": _Patched.test,
}


def _path(text: object) -> pointer.Path:
    if not isinstance(text, str):
        raise UsageError(f"expected 'from' to be a JSON Pointer, found {text!r}")
    return pointer.parse(text)


def _operand(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise UsageError("expected a 'value'; give null where null is meant")
    return copied(operation["value"])


def _place(parent: Any, token: str | int) -> Any:
    return token if isinstance(parent, dict) else int(token)


def equal(a: Any, b: Any) -> bool:
    """Equality of JSON values as RFC 6902, section 4.6, has it: 1 and 1.0 are equal, but no
    number equals a boolean."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b) and isinstance(a, bool) is isinstance(b, bool)
