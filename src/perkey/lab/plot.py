"""The costs of ``conflicts`` as a picture: plain SVG, two panels, a line for each way."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perkey.lab.conflicts import TITLES, WAYS, Cost, Way
from perkey.lab.svg import document

WIDTH, HEIGHT = 880, 416
TOP, BOTTOM = 74, 336
PANELS = ((58, 330), (478, 750))
"""Left and right edge of each panel."""
TICKS = (0, 1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
LABEL_GAP = 16

STYLE = """\
<style>
  .line { fill: none; stroke-width: 2.2 } .dot { stroke: none }
  .retry { stroke: #c2571a } .lock { stroke: #7a5195 } .merge { stroke: #1a7f64 }
  circle.retry, text.retry { fill: #c2571a } circle.lock, text.lock { fill: #7a5195 }
  circle.merge, text.merge { fill: #1a7f64 } text.retry, text.lock, text.merge { stroke: none }
  @media (prefers-color-scheme: dark) {
    .retry { stroke: #f0935a } .lock { stroke: #c3a0dc } .merge { stroke: #56c9a6 }
    circle.retry, text.retry { fill: #f0935a } circle.lock, text.lock { fill: #c3a0dc }
    circle.merge, text.merge { fill: #56c9a6 }
  }
</style>"""


@dataclass(frozen=True)
class _Axes:
    """Where a panel's values stand: writers by doublings, minutes by orders of magnitude."""

    left: int
    right: int
    writers: tuple[int, ...]
    most: float

    def x(self, writers: int) -> float:
        low, high = math.log2(self.writers[0]), math.log2(self.writers[-1])
        share = (math.log2(writers) - low) / (high - low) if high > low else 0.5
        return round(self.left + share * (self.right - self.left), 1)

    def y(self, minutes: float) -> float:
        share = math.log10(1 + minutes) / math.log10(1 + self.most)
        return round(BOTTOM - share * (BOTTOM - TOP), 1)


def lost(cost: Cost) -> float:
    """Seconds of all writers that came to nothing: thinking done again, waiting for the lock."""
    return cost.repeated + cost.waited


def picture(costs: Sequence[Cost]) -> str:
    """The costs of every way for every number of writers, as a whole SVG file."""
    turn = costs[0].turn
    title = f"One report, turns of {duration(turn)}: what each way costs as writers become more"
    body = [STYLE, f'<text class="head" x="16" y="26">{title}</text>']
    for edges, heading, value in (
        (PANELS[0], "minutes until all are done", lambda cost: cost.took / 60),
        (PANELS[1], "minutes lost, over all writers", lambda cost: lost(cost) / 60),
    ):
        body += _panel(costs, edges, heading, value)
    foot = "lost: thinking done again (retry), waiting (lock). Both scales are logarithmic."
    body.append(f'<text class="quiet" x="16" y="{HEIGHT - 12}">{foot}</text>')
    return document(WIDTH, HEIGHT, title, body)


def _panel(
    costs: Sequence[Cost], edges: tuple[int, int], heading: str, value: Callable[[Cost], float]
) -> list[str]:
    writers = tuple(sorted({cost.writers for cost in costs}))
    most = max(*map(value, costs), 1.0)
    axes = _Axes(*edges, writers, most)
    body = [f'<text class="head" x="{edges[0]}" y="56">{heading}</text>', *_grid(axes)]
    ends: dict[Way, tuple[float, str]] = {}
    for way in WAYS:
        mine = sorted((cost for cost in costs if cost.way == way), key=lambda cost: cost.writers)
        points = [(axes.x(cost.writers), axes.y(value(cost))) for cost in mine]
        path = " ".join(f"{x},{y}" for x, y in points)
        body.append(f'<polyline class="line {way}" points="{path}"/>')
        body += [f'<circle class="dot {way}" cx="{x}" cy="{y}" r="3.2"/>' for x, y in points]
        ends[way] = (points[-1][1], f"{way} {value(mine[-1]):,.0f}")
    return body + _labels(ends, edges[1])


def _grid(axes: _Axes) -> list[str]:
    body = []
    for tick in TICKS:
        if tick <= axes.most:
            y = axes.y(tick)
            line = f'<line class="rule" x1="{axes.left}" x2="{axes.right}" y1="{y}" y2="{y}"'
            body.append(f'{line} stroke-opacity="0.5"/>')
            text = f'<text class="quiet" x="{axes.left - 8}" y="{y + 4}" text-anchor="end">'
            body.append(f"{text}{tick:,}</text>")
    for number in axes.writers:
        text = f'<text class="quiet" x="{axes.x(number)}" y="{BOTTOM + 20}" text-anchor="middle">'
        body.append(f"{text}{number}</text>")
    middle = (axes.left + axes.right) // 2
    body.append(
        f'<text class="quiet" x="{middle}" y="{BOTTOM + 38}" text-anchor="middle">writers</text>'
    )
    return body


def _labels(ends: dict[Way, tuple[float, str]], right: int) -> list[str]:
    """Each line's name and value at its end, moved apart where two end together."""
    body, above = [], -math.inf
    for way, (y, label) in sorted(ends.items(), key=lambda item: item[1]):
        above = max(y, above + LABEL_GAP)
        text = f'<text class="{way}" x="{right + 10}" y="{above + 4}">'
        body.append(f"{text}<title>{TITLES[way]}</title>{label}</text>")
    return body


def duration(seconds: float) -> str:
    """``4 min``, ``90 s``, ``250 ms``, ``2 h``."""
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1000:g} ms"
