"""Find the ``with`` statement that entered a section, when an error has to name it.

Recording the place of every entry would cost as much as the entry.  A section that is still
held by a ``with`` has its block on the stack, so the place can be read off there afterwards.
"""

from __future__ import annotations

import dis
import inspect
import os
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

_WITH = ("BEFORE_WITH", "BEFORE_ASYNC_WITH")
_NAMES = ("LOAD_FAST", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME")
_MISSING = object()


def place(frame: FrameType, line: int) -> str:
    """``function (file.py:12)``."""
    code = frame.f_code
    return f"{code.co_qualname} ({os.path.basename(code.co_filename)}:{line})"


def entered_at(
    frames: Iterator[FrameType], owner: Any, ours: Callable[[CodeType], bool]
) -> str | None:
    """Where the innermost ``with owner(...)`` block that is still running was entered."""
    for frame in frames:
        if ours(frame.f_code):
            continue
        for line, names in open_blocks(frame):
            if any(value is owner for value in values(frame, names)):
                return place(frame, line)
    return None


def open_blocks(frame: FrameType) -> Iterator[tuple[int, list[dis.Instruction]]]:
    """The ``with`` blocks in which this frame is now, innermost first: line and expression."""
    code = list(dis.get_instructions(frame.f_code))
    table = dis.Bytecode(frame.f_code).exception_entries  # type: ignore[attr-defined]
    now: int | None = frame.f_lasti
    while now is not None:
        # The handler that guards an instruction is itself guarded by the block around it.
        now = next((entry.target for entry in table if entry.start <= now < entry.end), None)
        if now is None or not _leaves_with(code, now):
            continue
        start = min(entry.start for entry in table if entry.target == now)
        enter = max(
            (i for i in code if i.opname in _WITH and i.offset < start),
            key=lambda i: i.offset,
            default=None,
        )
        if enter is not None and enter.positions and enter.positions.lineno:
            before = [i for i in code if i.offset < enter.offset and _inside(i, enter.positions)]
            yield enter.positions.lineno, before


def _leaves_with(code: list[dis.Instruction], target: int) -> bool:
    after = [i.opname for i in code if i.offset >= target][:3]
    return "WITH_EXCEPT_START" in after


def _inside(instruction: dis.Instruction, span: dis.Positions) -> bool:
    at = instruction.positions
    if at is None or at.lineno is None or span.lineno is None:
        return False
    return (span.lineno, span.col_offset or 0) <= (at.lineno, at.col_offset or 0) and (
        at.end_lineno or 0,
        at.end_col_offset or 0,
    ) <= (span.end_lineno or 0, span.end_col_offset or 0)


def values(frame: FrameType, names: list[dis.Instruction]) -> Iterator[Any]:
    """What the names of an expression stand for, without running any of its code."""
    value: Any = _MISSING
    for instruction in names:
        name = instruction.argval
        if instruction.opname in _NAMES:
            value = frame.f_locals.get(name, frame.f_globals.get(name, _MISSING))
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and value is not _MISSING:
            found = inspect.getattr_static(value, name, _MISSING)
            value = getattr(value, name, _MISSING) if inspect.ismemberdescriptor(found) else found
        else:
            continue
        if value is not _MISSING:
            yield value
