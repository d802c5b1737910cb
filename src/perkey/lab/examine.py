"""Everything about one variant: the search, the count, the stress test, the drawing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from perkey.lab import stress
from perkey.lab.counting import Count, count
from perkey.lab.drawing import Drawing, draw
from perkey.lab.scenario import Scenario, Variant
from perkey.testing import Result, explore
from perkey.testing.runner import Program
from perkey.testing.search import schedule

SECONDS = 600.0
"""A search that takes longer is incomplete, which is never taken for a proof."""


@dataclass(frozen=True)
class Stress:
    """In how many rounds an ordinary stress test saw it; None where the code has no such form."""

    rounds: int
    jittered: int
    """On asyncio, callers arriving and being served at random times."""
    threads: int | None
    orderly_rounds: int
    orderly: int
    """On asyncio as it comes: all callers gathered at once, first come, first served."""

    @property
    def found(self) -> int:
        """Over all kinds of rounds."""
        return self.jittered + self.orderly + (self.threads or 0)


@dataclass(frozen=True)
class Report:
    """What was found about a variant."""

    scenario: str
    variant: Variant
    result: Result
    """The search over all callers; for a wrong variant over the fewest that fail."""
    count: Count
    """Over all callers."""
    stress: Stress
    drawing: Drawing | None
    cost: str

    @property
    def as_expected(self) -> bool:
        """A wrong variant was found, any other is exhausted and never fails."""
        if self.variant.kind == "wrong":
            return self.result.failure is not None and self.count.failing > 0
        return self.result.holds and not self.count.failing and not self.stress.found

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        variant, failure = self.variant, self.result.failure
        return {
            "scenario": self.scenario, "variant": variant.name, "title": variant.title,
            "kind": variant.kind, "as_expected": self.as_expected, "why": variant.why,
            "cost": self.cost, "search": self.result.as_dict(),
            "schedules": {
                "all": self.count.schedules, "failing": self.count.failing,
                "counted": "every schedule of the unpruned tree",
            },
            "stress": asdict(self.stress),
            "failure": failure and {
                "kind": failure.kind, "message": failure.message, "replay": failure.replay,
            },
            "drawing": self.drawing and self.drawing.as_dict(),
        }  # fmt: skip


def examine(scenario: Scenario, variant: Variant, rounds: int = stress.ROUNDS) -> Report:
    """Search, count, stress and draw one variant."""
    result, crew = search(variant)
    drawing = None
    if result.failure is not None:
        names = [variant.names[number] for number in crew]
        moves = schedule(result.failure.replay)
        drawing = draw(program(variant, crew), moves, names, scenario.shared)
    orderly = min(rounds, stress.ORDERLY)
    seen = Stress(
        rounds,
        stress.on_asyncio(variant, rounds, jitter=True),
        stress.on_threads(variant, rounds) if variant.threaded else None,
        orderly,
        stress.on_asyncio(variant, orderly, jitter=False),
    )
    everybody = tuple(range(len(variant.callers)))
    counted = count(program(variant, everybody))
    cost = variant.cost() if variant.cost is not None else ""
    return Report(scenario.name, variant, result, counted, seen, drawing, cost)


def search(variant: Variant) -> tuple[Result, tuple[int, ...]]:
    """The smallest failing schedule among the fewest callers, or the search over all of them.

    Returns also which callers took part.
    """
    crew: tuple[int, ...] = ()
    for crew in _crews(len(variant.callers), variant.kind == "wrong"):
        found = explore(
            variant.setup,
            [variant.callers[number] for number in crew],
            check=variant.judge,
            raises=variant.raises,
            processes=_processes(variant, crew),
            seconds=SECONDS,
            failures=variant.failures,
            cancellations=variant.cancellations,
            crashes=variant.crashes,
        )
        if found.failure is not None:
            break
    return found, crew


def _crews(callers: int, smaller: bool) -> Iterator[tuple[int, ...]]:
    """Which callers take part: all of them, or first every choice of fewer."""
    for size in range(1, callers) if smaller else ():
        yield from itertools.combinations(range(callers), size)
    yield tuple(range(callers))


def _processes(variant: Variant, crew: tuple[int, ...]) -> tuple[int, ...]:
    if variant.processes is None:
        return tuple(range(len(crew)))
    return tuple(variant.processes[number] for number in crew)


def program(variant: Variant, crew: tuple[int, ...]) -> Program:
    """The variant as the explorer runs it, with these callers."""
    return Program(
        variant.setup,
        tuple(variant.callers[number] for number in crew),
        variant.judge,
        raises=variant.raises,
        budgets=(variant.failures, 0, variant.cancellations, variant.crashes, 0),
        processes=_processes(variant, crew),
    )
