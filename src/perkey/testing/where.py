"""Where a task stands, in source lines of the code under test."""

from __future__ import annotations

import functools
import inspect
import linecache
import os
import re
import sysconfig
from collections.abc import Sequence
from types import FrameType
from typing import Any

_EXPLORER = os.path.join(os.path.dirname(__file__), "")
_PERKEY = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_LAB = os.path.join(_PERKEY, "lab", "")
"""Its variants are what the lab explores: code like a user's."""
_STANDARD = os.path.join(sysconfig.get_path("stdlib"), "")
_INSTALLED = tuple(
    os.path.join(path, "")
    for path in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
)
_RUNNERS = tuple(
    path + name + os.sep for path in _INSTALLED for name in ("_pytest", "pluggy", "pytest_asyncio")
)


USERS, PERKEYS, OURS = range(3)
"""How far a line is from what a reader looks for: nearest first."""


@functools.cache
def whose(filename: str) -> int:
    """``USERS``; ``PERKEYS``, told where no user's code is there; ``OURS``, which nobody needs:
    the explorer, the standard library and the test runner."""
    if filename.startswith(_PERKEY):
        if filename.startswith(_EXPLORER):
            return OURS
        return USERS if filename.startswith(_LAB) else PERKEYS
    if filename.startswith(_INSTALLED):  # which may lie within the standard library's folder
        return OURS if filename.startswith(_RUNNERS) else USERS
    return OURS if filename.startswith((_STANDARD, "<frozen", "<string>")) else USERS


def innermost(files: Sequence[str]) -> int:
    """Of a stack's files, outermost first, the place of the frame to tell: the last of the
    user's or, where there is none, of perkey's, or of all."""
    kinds = [whose(each) for each in files]
    return len(kinds) - 1 - kinds[::-1].index(min(kinds))


def chain(coro: Any) -> list[FrameType]:
    """The frames of a suspended coroutine, outermost first."""
    frames = []
    while coro is not None:
        frame = getattr(coro, "cr_frame", None) or getattr(coro, "gi_frame", None)
        if frame is None:
            break
        frames.append(frame)
        coro = getattr(coro, "cr_await", None) or getattr(coro, "gi_yieldfrom", None)
    return frames


def line(filename: str, number: int) -> str:
    """``file.py:12  source text``."""
    text = linecache.getline(filename, number).strip()
    return f"{os.path.basename(filename)}:{number}  {text}".rstrip()


_SEEN: dict[tuple[Any, int], str] = {}


def in_users_code(task: Any) -> bool:
    """Whether ``task`` is suspended, anywhere on its stack, in a line of the user's."""
    return any(whose(frame.f_code.co_filename) == USERS for frame in chain(task.get_coro()))


def stands(task: Any) -> str:
    """The innermost line of the user's own code that ``task`` is suspended at."""
    coro = task.get_coro()
    frames = chain(coro)
    if not frames:
        return "finished"
    if inspect.iscoroutine(coro) and inspect.getcoroutinestate(coro) == inspect.CORO_CREATED:
        return f"{coro.__name__}: not started"
    frame = frames[innermost([each.f_code.co_filename for each in frames])]
    key = (frame.f_code, frame.f_lasti)
    if key not in _SEEN:
        _SEEN[key] = line(frame.f_code.co_filename, frame.f_lineno or 0)
    return _SEEN[key]


def waits_for(task: Any) -> str:
    """What ``task`` waits for: the asyncio object whose method it is in, or its future."""
    for frame in reversed(chain(task.get_coro())):
        owner = frame.f_locals.get("self")
        if owner is not None and type(owner).__module__.startswith("asyncio."):
            return _plain(owner)
    return _plain(task._fut_waiter)


def _plain(thing: Any) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", repr(thing))
