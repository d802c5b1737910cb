"""Step points: the places where a scenario meets the outside, and where it may be failed.

    await step("save")                     another caller may run here; it may fail here
    rows = await step("read", self.read)   the effect happens in one piece, at a time of its own;
                                           it may fail (no effect) or lose its reply (effect, error)

Outside an exploration ``step`` yields once and performs the effect, so fakes built on it work
in ordinary tests too.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Generator
from typing import Any, TypeVar, overload

T = TypeVar("T")


class InjectedFailure(Exception):
    """The exploration made this step fail: nothing was done."""


class LostReply(InjectedFailure):
    """The exploration lost this step's reply: it was done, and its caller isn't told so."""


class Point:
    """A task stands at a step point."""

    __slots__ = ("chosen", "error", "lost", "name")

    def __init__(self, name: str, error: Any, lost: Any) -> None:
        self.name = name
        self.error = error
        self.lost = lost
        self.chosen = False


@overload
async def step(name: str, *, error: Any = ...) -> None: ...
@overload
async def step(name: str, effect: Callable[[], T], *, error: Any = ..., lost: Any = ...) -> T: ...
async def step(
    name: str,
    effect: Callable[[], Any] | None = None,
    *,
    error: Any = InjectedFailure,
    lost: Any = LostReply,
) -> Any:
    """Stand at the step point ``name``; then perform ``effect`` and return its result.

    A failing step raises ``error`` (a class, called with a message, or an exception) before
    the effect; a lost reply raises ``lost`` after it.  With an effect there are two
    suspensions: the request is on its way, then the reply is.
    """
    loop: Any = asyncio.get_running_loop()
    number = loop.current() if hasattr(loop, "points") else None
    if number is None:
        await asyncio.sleep(0)
        return effect() if effect is not None else None
    if await _pause(loop, number, Point(name, error, None)):
        raise _made(error, f"step {name!r} fails here")
    if effect is None:
        return None
    result = effect()
    if await _pause(loop, number, Point(name, None, lost)):
        raise _made(lost, f"step {name!r} was done, but its reply is lost here")
    return result


@types.coroutine
def _pause(loop: Any, number: int, point: Point) -> Generator[None, None, bool]:
    """Let others run; True when the exploration chose to inject what the point allows."""
    loop.points[number] = point
    try:
        yield
    finally:
        del loop.points[number]
    return point.chosen


def _made(error: Any, message: str) -> BaseException:
    made: BaseException = error(message) if isinstance(error, type) else error
    return made
