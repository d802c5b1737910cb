"""Who is calling: a task of a running event loop, or else a thread."""

from __future__ import annotations

import asyncio
import sys
import threading
from _thread import get_ident
from asyncio.events import _get_running_loop as running_loop
from collections.abc import Callable
from typing import Any

__all__ = ["caller", "describe", "ended", "get_ident", "running_loop", "task_of"]

task_of: Callable[[asyncio.AbstractEventLoop], asyncio.Task[Any] | None]
if sys.version_info >= (3, 12):
    task_of = asyncio.current_task
else:
    # Before 3.12 current_task() is a Python function around this dict in C.
    task_of = asyncio.tasks._current_tasks.get  # type: ignore[attr-defined]


def caller() -> Any:
    """The running task, or this thread's number when no task runs here."""
    loop = running_loop()
    task = None if loop is None else task_of(loop)
    return get_ident() if task is None else task


def ended(owner: Any) -> bool:
    """True for a task that is done; it runs no ``with`` block any more."""
    return isinstance(owner, asyncio.Task) and owner.done()


def may_be_gone(owner: Any) -> bool:
    """Whether its claim is worth a look: signals reach the main thread, the others only end."""
    if isinstance(owner, asyncio.Task):
        return owner.done()
    main = threading.main_thread().ident
    return owner == main or all(thread.ident != owner for thread in threading.enumerate())


def describe(owner: Any) -> str:
    """How an owner is named in an error."""
    if isinstance(owner, asyncio.Task):
        return f"task {owner.get_name()!r}"
    for thread in threading.enumerate():
        if thread.ident == owner:
            return f"thread {thread.name!r}"
    return f"thread {owner}"
