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
from collections.abc import Callable, Iterator
from types import CodeType, CoroutineType, FrameType, MethodType
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
    running = [frame for top in sys._current_frames().values() for frame in stack(top)]
    entering = sum(
        frame.f_code.co_name in _ENTERS and frame.f_locals.get("self") is guard
        for frame in running
        if is_ours(frame.f_code)
    )
    exits = 0
    for holder in gc.get_referrers(guard):
        if isinstance(holder, FrameType):
            if not is_ours(holder.f_code):
                return False
        elif isinstance(holder, CoroutineType) and is_ours(holder.cr_code):
            entering += 1
        elif isinstance(holder, MethodType) and holder.__func__.__name__ in _EXITS:
            exits += 1
        elif not known(holder):
            return False
    # Whoever waits with this very guard has looked up its exit method already.
    return exits <= entering and not any(
        value is guard
        for frame in running
        if not is_ours(frame.f_code)
        for value in frame.f_locals.values()
    )
