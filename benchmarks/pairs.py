"""Fair comparison on a busy machine: both sides take turns, and each pair gives one ratio."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.records import record, rounds

ROUNDS = rounds(7)


@dataclass(frozen=True)
class Pair:
    """Operations per second of both sides, and ours as a multiple of theirs."""

    ours: float
    theirs: float
    ratio: float
    ratios: tuple[float, ...] = ()
    """Of the single pairs."""


def rate(use: Callable[[int], object], count: int) -> float:
    """Operations per second of ``use(count)``."""
    began = time.perf_counter()
    use(count)
    return count / (time.perf_counter() - began)


def compare(
    ours: Callable[[int], object],
    theirs: Callable[[int], object],
    counts: tuple[int, int],
    rounds: int = ROUNDS,
) -> Pair:
    """Medians over ``rounds`` pairs, the two sides going first in turn."""
    pairs = []
    for turn in range(rounds):
        if turn % 2:
            second = rate(theirs, counts[1])
            first = rate(ours, counts[0])
        else:
            first = rate(ours, counts[0])
            second = rate(theirs, counts[1])
        pairs.append((first, second))
    return Pair(
        ours=statistics.median(first for first, _ in pairs),
        theirs=statistics.median(second for _, second in pairs),
        ratio=statistics.median(first / second for first, second in pairs),
        ratios=tuple(first / second for first, second in pairs),
    )


def show(what: str, pair: Pair, goal: str) -> None:
    """One line a comparison."""
    record(what, pair.ours, "/s", theirs=pair.theirs, ratios=pair.ratios, goal=goal)
    print(f"{what:<58}{pair.ours:>10,.0f}/s {pair.theirs:>10,.0f}/s {pair.ratio:>7.2f}x   {goal}")
