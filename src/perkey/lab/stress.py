"""What an ordinary stress test sees: the same code, thousands of rounds, no explorer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from perkey.lab.scenario import Variant
from perkey.lab.worlds import WEATHER, Weather, drive
from perkey.testing import InjectedFailure

ROUNDS = 5_000
ORDERLY = 100
"""Rounds in asyncio's own order: it hardly changes from round to round."""

PATIENCE = 150
"""After this many turns of the loop without an end a round hangs.  It counts turns, not time:
a busy machine makes no round hang."""


def on_asyncio(variant: Variant, rounds: int, *, jitter: bool) -> int:
    """In how many of ``rounds`` on an ordinary event loop the variant did the wrong thing.

    All callers of a round are gathered; saves that may fail do so in 30 % of the cases.  With
    ``jitter`` they come within a few turns of the loop, and every meeting with the outside takes
    1 to 4 turns, at random.
    """
    return asyncio.run(_rounds(variant, rounds, jitter))


async def _rounds(variant: Variant, rounds: int, jitter: bool) -> int:
    bad = 0
    for number in range(rounds):
        if not number:
            WEATHER.set(Weather(jitter))
        bad += await _round(variant)
    return bad


async def _round(variant: Variant) -> bool:
    """Whether this round went wrong."""
    made = variant.setup()
    world = await made if asyncio.iscoroutine(made) else made
    tasks = [asyncio.ensure_future(_arriving(call, world)) for call in variant.callers]
    for _ in range(PATIENCE):
        if all(task.done() for task in tasks):
            break
        await asyncio.sleep(0)
    hangs = [task for task in tasks if not task.done()]
    for task in hangs:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    wrong = any(isinstance(end, BaseException) and not _expected(variant, end) for end in ends)
    return bool(hangs) or wrong or is_wrong(variant, world)


def _expected(variant: Variant, error: BaseException) -> bool:
    return isinstance(error, (InjectedFailure, *variant.raises))


async def _arriving(call: Callable[[Any], Any], world: Any) -> None:
    """A caller that comes at once, or with jitter at some time."""
    weather = WEATHER.get()
    for _ in range(weather.turns() if weather else 0):
        await asyncio.sleep(0)
    await call(world)


def is_wrong(variant: Variant, world: Any) -> bool:
    """What the judge says."""
    try:
        variant.judge(world)
    except AssertionError:
        return True
    return False


def on_threads(variant: Variant, rounds: int) -> int:
    """The same on one thread a caller; every meeting with the outside gives way to the others."""
    crew = _Crew(variant, rounds)
    return crew.play()


class _Crew:
    """One thread a caller for all rounds; a barrier begins each round and one ends it."""

    def __init__(self, variant: Variant, rounds: int) -> None:
        self.variant = variant
        self.rounds = rounds
        self.world: Any = None
        self.errors: list[BaseException] = []
        parties = len(variant.callers) + 1
        self.begin, self.end = threading.Barrier(parties), threading.Barrier(parties)

    def play(self) -> int:
        threads = [
            threading.Thread(target=self._caller, args=(call, number), daemon=True)
            for number, call in enumerate(self.variant.callers)
        ]
        for thread in threads:
            thread.start()
        bad = 0
        for _ in range(self.rounds):
            made = self.variant.setup()
            self.world = drive(made) if asyncio.iscoroutine(made) else made
            self.errors.clear()
            self.begin.wait()
            self.end.wait()
            bad += bool(self.errors) or is_wrong(self.variant, self.world)
        for thread in threads:
            thread.join()
        return bad

    def _caller(self, call: Callable[[Any], Any], number: int) -> None:
        WEATHER.set(Weather(jitter=False, seed=number))  # or all would fail together
        for _ in range(self.rounds):
            self.begin.wait()
            try:
                with suppress(InjectedFailure, *self.variant.raises):
                    drive(call(self.world))
            except BaseException as error:
                self.errors.append(error)
            self.end.wait()
