"""Plain SVG: horizontal bars with their spread, no library and no script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

LEFT, WIDTH, RIGHT, STEP, TOP = 390, 420, 110, 22, 56


@dataclass(frozen=True)
class Bar:
    """A label, its median, and the quartiles where there are any."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None


def bars(title: str, unit: str, rows: Sequence[Bar], line: float | None = None) -> str:
    """The picture; ``line`` is a value to compare with.  The scale is logarithmic if it must be."""
    values = [v for row in rows for v in (row.value, row.low, row.high) if v is not None and v > 0]
    largest = max([*values, line or 0.0]) or 1.0
    smallest = min(values, default=1.0)
    logarithmic = largest / smallest > 50

    def place(value: float) -> float:
        if not logarithmic:
            return LEFT + WIDTH * value / largest
        bottom = math.log10(smallest) - 0.3
        return LEFT + WIDTH * (math.log10(max(value, smallest)) - bottom) / (
            math.log10(largest) - bottom
        )

    height = TOP + STEP * len(rows) + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + RIGHT}" '
        f'height="{height}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="12" y="22" font-size="15">{escape(title)}</text>',
        f'<text x="12" y="40" fill="#555">{escape(unit)}'
        f"{', logarithmic' if logarithmic else ''}; the thin line is the middle half</text>",
    ]
    for number, row in enumerate(rows):
        parts += _bar(row, TOP + number * STEP, place)
    if line is not None:
        at = place(line)
        parts.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP - 8}" y2="{height - 10}" '
            'stroke="#b00" stroke-dasharray="4 3"/>'
        )
    return "\n".join([*parts, "</svg>\n"])


def _bar(row: Bar, top: float, place: object) -> list[str]:
    assert callable(place)
    end = place(row.value)
    label = row.label if len(row.label) <= 58 else row.label[:57] + "…"
    last = end
    found = [
        f'<text x="{LEFT - 8}" y="{top + 12}" text-anchor="end">{escape(label)}</text>',
        f'<rect x="{LEFT}" y="{top + 2}" width="{max(end - LEFT, 0.5):.1f}" height="13" '
        'fill="#4a7fb5"/>',
    ]
    if row.low is not None and row.high is not None:
        last = place(row.high)
        found.append(
            f'<line x1="{place(row.low):.1f}" x2="{last:.1f}" y1="{top + 8.5}" y2="{top + 8.5}" '
            'stroke="#222"/>'
        )
    found.append(f'<text x="{max(end, last) + 6:.1f}" y="{top + 12}">{amount(row.value)}</text>')
    return found


def amount(value: float) -> str:
    """A figure for people: three digits that count."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
