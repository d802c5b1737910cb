"""What the benches measured, besides what they print: one JSON line a figure.

``python -m benchmarks.all`` names a file in ``PERKEY_BENCH_RECORDS``; without it, nothing is
written.  ``PERKEY_BENCH_QUICK=1`` asks for fewer rounds, to try a bench and not to quote it.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "PERKEY_BENCH_RECORDS"
QUICK = "PERKEY_BENCH_QUICK"


@dataclass(frozen=True)
class Record:
    """One figure.  ``ratio`` is ours to theirs; ``low`` and ``high`` are its quartiles."""

    what: str
    value: float
    unit: str
    theirs: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    goal: str = ""


def record(
    what: str,
    value: float,
    unit: str,
    *,
    theirs: float | None = None,
    ratios: Sequence[float] = (),
    goal: str = "",
) -> None:
    """Keep one figure: a median, and the ratios of its pairs where there was another side."""
    path = os.environ.get(FILE)
    if path is None:
        return
    low, high = quartiles(ratios)
    ratio = statistics.median(ratios) if ratios else None
    made = Record(what.strip(), value, unit, theirs, ratio, low, high, goal)
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(made)) + "\n")


def quartiles(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The first and the third; of one value, that value twice."""
    if len(values) < 2:
        return (values[0], values[0]) if values else (None, None)
    cuts = statistics.quantiles(values, n=4, method="inclusive")
    return cuts[0], cuts[2]


def rounds(usual: int) -> int:
    """How often to repeat: ``usual``, or a fifth of it where quickness is asked for."""
    return max(2, usual // 5) if os.environ.get(QUICK) else usual


def read(path: Path) -> list[Record]:
    """The figures in ``path``, which may be missing."""
    if not path.exists():
        return []
    return [Record(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]
