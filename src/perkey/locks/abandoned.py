"""Is the holder of a claim gone for good?

A release written in Python can be interrupted before its first line: a signal handler that
raises (Ctrl-C) exactly there leaves a claim that nobody will ever release.  Nothing on the
fast path can prevent that, so whoever meets the claim later asks here.  The answer is yes
only when nothing refers to the guard any more but the table and the remains of releases that
were cut off: a running ``with`` block refers to its guard's exit method, and so do an
``ExitStack``, a variable, an attribute.  Looking costs milliseconds; it is done only when the
same owner comes back, or when a thread has waited for a second.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, CoroutineType, FrameType, FunctionType, MethodType
from typing import Any

_HERE = os.path.dirname(__file__) + os.sep
_EXITS = frozenset(("__exit__", "__aexit__"))
_ENTERS = frozenset(("__enter__", "__aenter__"))


def is_ours(code: CodeType) -> bool:
    """Code of this package: its variables prove nothing about who holds a guard."""
    return code.co_filename.startswith(_HERE)


def stack(top: FrameType | None) -> Iterator[FrameType]:
    """A frame and its callers."""
    while top is not None:
        yield top
        top = top.f_back


def abandoned(guard: Any, known: Callable[[Any], bool]) -> bool:
    """True if nobody can release ``guard``.  What is ``known`` to refer to every guard is none."""
    holders = gc.get_referrers(guard)  # first: looking at frames makes new ones
    remains = {id(guard)}  # it may refer to itself; a frame keeps the variables it was asked for
    entering = _running(guard, remains)
    if entering is None:
        return False
    exits, cells = _standing(guard)
    remains.update(cells)
    for holder in holders:
        if isinstance(holder, FrameType):
            if not is_ours(holder.f_code):
                return False
            remains.update(map(id, gc.get_referents(holder)))
        elif isinstance(holder, CoroutineType) and is_ours(holder.cr_code):
            # Bound to it, or only waiting for what it holds?
            names = holder.cr_frame.f_locals if holder.cr_frame else {}
            remains.add(id(names))
            entering += names.get("self") is guard
        elif isinstance(holder, MethodType) and holder.__func__.__name__ in _EXITS:
            exits += 1
    # Whoever waits with this very guard has looked up its methods already.
    return exits <= entering and not any(
        id(holder) not in remains and not _ordinary(holder) and not known(holder)
        for holder in holders
    )


def _standing(guard: Any) -> tuple[int, list[int]]:
    """Of a guard with functions that stand ready: blocks that will call the one that leaves.

    Nobody binds that function to the guard, so it is the function's own references that count:
    all but the guard's and those of releases that were cut off.  And its cells.
    """
    leave = getattr(guard, "__exit__", None)
    if not isinstance(leave, FunctionType):
        return 0, []
    cells = [id(cell) for cell in guard.__enter__.__closure__]
    blocks = sys.getrefcount(leave) - 3  # the guard, this variable, and the argument
    for holder in gc.get_referrers(leave):
        blocks -= isinstance(holder, FrameType) and holder.f_code is leave.__code__
    return blocks, cells


def _ordinary(holder: Any) -> bool:
    """What was counted above, and the other method that ``with`` looked up."""
    if isinstance(holder, MethodType):
        return holder.__func__.__name__ in _EXITS | _ENTERS
    if isinstance(holder, CoroutineType):
        return is_ours(holder.cr_code)
    return isinstance(holder, FrameType)


def _running(guard: Any, remains: set[int]) -> int | None:
    """How many calls are entering with this guard; None if somebody has it in a variable."""
    entering = 0
    top: FrameType | None
    frame: FrameType | None
    try:
        for top in sys._current_frames().values():
            for frame in stack(top):
                if not is_ours(frame.f_code):
                    if _contains(frame.f_locals.values(), guard):
                        return None
                elif frame.f_code.co_name in _ENTERS:
                    remains.add(id(frame.f_locals))
                    entering += frame.f_locals.get("self") is guard
        return entering
    finally:
        top = frame = None  # a frame that refers to itself would stay until the next collection


def _contains(values: Iterable[Any], guard: Any) -> bool:
    # Not any(... for ...): the closure would refer to the guard as well.
    for value in values:  # noqa: SIM110
        if value is guard:
            return True
    return False
