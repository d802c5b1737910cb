"""Where a task stands, in source lines of the code under test."""

from __future__ import annotations

import functools
import inspect
import linecache
import os
import re
import sysconfig
from types import FrameType
from typing import Any

_OWN = os.path.dirname(__file__)
_STANDARD = os.path.join(sysconfig.get_path("stdlib"), "")
_INSTALLED = tuple(
    os.path.join(path, "")
    for path in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
)
_RUNNERS = tuple(
    path + name + os.sep for path in _INSTALLED for name in ("_pytest", "pluggy", "pytest_asyncio")
)


@functools.cache
def is_ours(filename: str) -> bool:
    """Whether a file belongs to the standard library, the test runner or the explorer."""
    if filename.startswith(_INSTALLED):  # which may lie within the standard library's folder
        return filename.startswith((_OWN, *_RUNNERS))
    return filename.startswith((_OWN, _STANDARD, "<frozen", "<string>"))


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


def stands(task: Any) -> str:
    """The innermost line of the user's own code that ``task`` is suspended at."""
    coro = task.get_coro()
    frames = chain(coro)
    if not frames:
        return "finished"
    if inspect.iscoroutine(coro) and inspect.getcoroutinestate(coro) == inspect.CORO_CREATED:
        return f"{coro.__name__}: not started"
    own = [frame for frame in frames if not is_ours(frame.f_code.co_filename)]
    frame = (own or frames)[-1]
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
