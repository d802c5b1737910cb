"""Field transforms: small changes that never conflict, because none depends on a read.

They are written as operations, so that they travel as JSON beside JSON Patch::

    transform(value, [increment("/runs"), append_unique("/tags", "new")])

Where nothing stands at a path it is made, its parents too.  Increments by integers, maxima,
minima and removals give the same result in any order; appended items stand in the order of
the commits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from perkey.errors import UsageError
from perkey.flows import pointer
from perkey.flows.align import mark
from perkey.flows.diff import ABSENT
from perkey.flows.patching import check_operations, copied, head, refused
from perkey.store.unfit import LARGEST, SMALLEST

Operation = dict[str, Any]
"""``{"op": ..., "path": ..., "value": ... or "values": [...]}``."""


def increment(path: str, by: float = 1) -> Operation:
    """Add to a number; what is absent counts as 0."""
    return {"op": "increment", "path": path, "value": by}


def set_max(path: str, value: float | str) -> Operation:
    """Keep the larger of two numbers or, by code points, of two texts."""
    return {"op": "set_max", "path": path, "value": value}


def set_min(path: str, value: float | str) -> Operation:
    """Keep the smaller of two numbers or, by code points, of two texts."""
    return {"op": "set_min", "path": path, "value": value}


def append(path: str, *values: Any) -> Operation:
    """Put items at the end of a list."""
    return {"op": "append", "path": path, "values": list(values)}


def append_unique(path: str, *values: Any) -> Operation:
    """Put those items at the end of a list that are not in it yet."""
    return {"op": "append_unique", "path": path, "values": list(values)}


def remove_value(path: str, *values: Any) -> Operation:
    """Take every item equal to one of these out of a list."""
    return {"op": "remove_value", "path": path, "values": list(values)}


def transform(value: Any, operations: Sequence[Any]) -> Any:
    """The value after the operations, all of them or none; ``InvalidPatch`` names the first
    that does not apply.  ``value`` may be ``ABSENT``: the document is made."""
    check_operations(operations)
    root = {"": ABSENT if value is ABSENT else copied(value)}
    for at, operation in enumerate(operations):
        op, path = head(at, operation, _APPLY)
        try:
            holder, token = _holder(root, pointer.parse(path))
            old = _item(holder, token)
            holder[token] = _APPLY[op](old, _operand(op, operation))
        except UsageError as error:
            raise refused(at, op, path, error) from error
    return root[""]


def _operand(op: str, operation: Operation) -> Any:
    name = "value" if op in ("increment", "set_max", "set_min") else "values"
    if name not in operation:
        raise UsageError(f"expected {name!r}")
    operand = copied(operation[name])
    if name == "values" and not isinstance(operand, list):
        raise UsageError(f"expected 'values' to be a list, found {pointer.describe(operand)}")
    return operand


def _holder(root: dict[str, Any], path: tuple[str, ...]) -> tuple[Any, Any]:
    """(dict or list, key or index) of the place at ``path``; makes the dicts on the way."""
    holder, token = root, ""
    for step in path:
        inner = _item(holder, token)
        if inner is ABSENT:
            inner = holder[token] = {}
        token = step
        if isinstance(inner, list):
            token = pointer.index(step, len(inner))  # type: ignore[assignment]
            if token is None:
                raise UsageError(f"expected an index below {len(inner)}, found {step!r}")
        elif not isinstance(inner, dict):
            raise UsageError(f"nothing can be put into {pointer.describe(inner)}")
        holder = inner
    return holder, token


def _item(holder: Any, token: Any) -> Any:
    return holder.get(token, ABSENT) if isinstance(holder, dict) else holder[token]


# --------------------------------------------------- (what stands there, operand) -> result


def _increment(old: Any, by: Any) -> Any:
    total = _number(0 if old is ABSENT else old) + _number(by)
    if isinstance(total, int):
        if not SMALLEST <= total <= LARGEST:
            raise UsageError(f"expected a sum in {SMALLEST}..{LARGEST}, found {total}")
    elif not math.isfinite(total):
        raise UsageError(f"expected a finite sum, found {total}")
    return total


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"expected a number, found {pointer.describe(value)}")
    return value


def _larger(old: Any, value: Any) -> Any:
    return value if _order(old, value) < 0 else old


def _smaller(old: Any, value: Any) -> Any:
    return value if _order(old, value, absent=1) > 0 else old


def _order(old: Any, value: Any, absent: int = -1) -> int:
    """Below, at or above 0 as ``old`` is smaller, equal or larger."""
    other = value if old is ABSENT else old
    if not (isinstance(other, str) and isinstance(value, str)):
        _number(other)
        _number(value)
    return absent if old is ABSENT else (other > value) - (other < value)


def _appended(old: Any, values: list[Any]) -> list[Any]:
    return _list(old) + values


def _appended_unique(old: Any, values: list[Any]) -> list[Any]:
    items = _list(old)
    seen = set(map(mark, items))
    for value in values:
        if mark(value) not in seen:
            seen.add(mark(value))
            items.append(value)
    return items


def _removed(old: Any, values: list[Any]) -> list[Any]:
    gone = set(map(mark, values))
    return [item for item in _list(old) if mark(item) not in gone]


def _list(old: Any) -> list[Any]:
    if old is ABSENT:
        return []
    if not isinstance(old, list):
        raise UsageError(f"expected a list, found {pointer.describe(old)}")
    return old


_APPLY: dict[str, Callable[[Any, Any], Any]] = {
    "increment": _increment,
    "set_max": _larger,
    "set_min": _smaller,
    "append": _appended,
    "append_unique": _appended_unique,
    "remove_value": _removed,
}
