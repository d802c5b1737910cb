"""The steps a flow may yield.  A flow is a generator; it performs no I/O of its own.

A flow yields one of these, is sent the answer, and returns its result.  What a step raises
is thrown into the flow at the ``yield``, so plain ``try`` statements work.  Three drivers run
flows: blocking (``drivers.threads``), asyncio (``drivers.tasks``), and asyncio on the
simulator's loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from perkey.store.keys import Key
from perkey.store.transaction import Transaction

T = TypeVar("T")

Flow = Generator["Step", Any, T]


class Transact(Transaction):
    """Commit ``fn`` over ``keys``; the answer is the ``Outcome`` (its error is raised)."""


@dataclass(frozen=True, slots=True)
class Read:
    """The heads of ``keys`` in one consistent look: ``list[Record | None]``."""

    keys: Sequence[Key]


@dataclass(frozen=True, slots=True)
class Scan:
    """Up to ``limit`` live heads under ``prefix`` above ``after``: ``list[Record]``."""

    prefix: str
    after: str = ""
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class History:
    """Up to ``limit`` kept versions of ``key`` above ``after``, ascending: ``list[Record]``."""

    key: Key
    after: int = 0
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class Call:
    """Call the user's effect; on asyncio an awaitable result is awaited."""

    fn: Callable[..., Any] | Callable[..., Awaitable[Any]]
    args: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Attend:
    """Like ``Call``, and meanwhile run a fresh ``beat()`` flow every ``every`` seconds.

    A beat that raises ends the beating and goes no further: what it was renewing is checked
    again by whoever relies on it.
    """

    fn: Callable[..., Any] | Callable[..., Awaitable[Any]]
    args: tuple[Any, ...]
    every: float
    beat: Callable[[], Flow[None]]


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait ``seconds``."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Now:
    """The store's time, in milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Random:
    """A float in [0, 1), for jitter."""


@dataclass(frozen=True, slots=True)
class Token:
    """A text that nobody else ever gets."""


@dataclass(frozen=True, slots=True)
class Emit:
    """Tell the store's observers a fact (a frozen dataclass of ``perkey.observe.events``)."""

    event: Any


Step = Transact | Read | Scan | History | Call | Attend | Sleep | Now | Random | Token | Emit


def alone(step: Step) -> Flow[Any]:
    """The flow of one step; its result is the step's answer."""
    return (yield step)


def through(flow: Flow[T], perform: Callable[[Step], Flow[Any]]) -> Flow[T]:
    """The same flow, each of whose steps is done by ``perform(step)``: what that returns is the
    step's answer, and what it raises is raised in the flow."""
    send: Callable[[Any], Step] = flow.send
    answer: Any = None
    while True:
        try:
            step = send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        try:
            answer, send = (yield from perform(step)), flow.send
        except BaseException as error:
            answer, send = error, flow.throw
