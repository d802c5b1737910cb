"""One caller's place in the committer's queue, and how it is told what became of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import msgspec

from perkey.errors import PerkeyError, Timeout
from perkey.store.transaction import Outcome, Transaction

QUEUED, TAKEN, DONE, WITHDRAWN = range(4)


class Request(msgspec.Struct, eq=False):
    """One caller waiting for one transaction."""

    transaction: Transaction
    deadline: float
    state: int = QUEUED
    outcome: Outcome | None = None
    error: BaseException | None = None
    wake: threading.Lock | None = None
    """A thread waits for this; released when it is answered or is to lead."""
    loop: asyncio.AbstractEventLoop | None = None
    future: asyncio.Future[None] | None = None

    def __post_init__(self) -> None:
        self.transaction.deadline = self.deadline

    def answer(self) -> Outcome:
        """What became of it, once it is done; raises its error."""
        if self.error is not None:
            raise self.error
        assert self.outcome is not None
        return self.outcome


def locked() -> threading.Lock:
    """A lock that a thread can wait for, to be released by another."""
    lock = threading.Lock()
    lock.acquire()
    return lock


def tell(requests: Sequence[Request]) -> None:
    """Tell the callers of these that they are answered; may be repeated."""
    loops: dict[asyncio.AbstractEventLoop, list[Request]] = {}
    for request in requests:
        wake = request.wake
        if wake is not None:
            if wake.locked():
                wake.release()
        elif request.loop is not None:
            loops.setdefault(request.loop, []).append(request)
    for loop, group in loops.items():
        try:
            loop.call_soon_threadsafe(resolve, group)
        except RuntimeError:  # that loop is closed: nobody waits there any more
            continue


def resolve(requests: list[Request]) -> None:
    """Wake the tasks of these, on their own loop."""
    for request in requests:
        if request.future is not None and not request.future.done():
            request.future.set_result(None)


def own_copy(error: Exception | None) -> Exception | None:
    """One exception object a caller: a shared one would collect everybody's tracebacks."""
    if isinstance(error, PerkeyError):
        copy = type(error)(error.message, **error.details)
        copy.__cause__ = error.__cause__ or error
        return copy
    return error


def too_late(timeout: float) -> Timeout:
    """The error of a caller whose time was up before its turn."""
    return Timeout(
        f"the store did not get to this transaction within {timeout:g} s; nothing was done"
    )
