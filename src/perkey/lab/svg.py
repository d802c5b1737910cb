"""Plain SVG, readable on light and on dark pages: drawings of schedules."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape

from perkey.lab.drawing import Drawing, Mark

STYLE = """\
<style>
  :root { color-scheme: light dark }
  text { font: 13px ui-sans-serif, system-ui, sans-serif; fill: #1f2933 }
  .back { fill: #ffffff } .head { font-weight: 600 } .quiet { fill: #5b6770 }
  .number { fill: #8a949c; font-size: 11px }
  .life { stroke: #c3cad0; stroke-dasharray: 3 4 } .rule { stroke: #c3cad0 }
  .box { fill: #e8f0f8; stroke: #a9c0d6 } .strikes { fill: #fde8e6; stroke: #d9534a }
  .waits { fill: #fdf3d8; stroke: #d3a52b } .hangs { fill: #fde8e6; stroke: #d9534a }
  .verdict { fill: #b3261e; font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e8eb } .back { fill: #14191e } .quiet { fill: #9aa5ae }
    .number { fill: #77828b } .life, .rule { stroke: #46525c }
    .box { fill: #1d2f40; stroke: #4a6d8c } .strikes, .hangs { fill: #43201e; stroke: #e0695f }
    .waits { fill: #3d3214; stroke: #c99d2c } .verdict { fill: #ff8a80 }
  }
</style>"""

CHARACTERS = 26
"""How wide a column's text is."""
COLUMN, GAP, LINE, PAD = 190, 14, 17, 8
LEFT = 34
HEAD = 40


def picture(drawing: Drawing, title: str) -> str:
    """A sequence as a whole SVG file."""
    columns = [*drawing.names, drawing.shared]
    width = LEFT + len(columns) * (COLUMN + GAP)
    body, height = _rows(drawing)
    body += _text(LEFT, height + 26, [drawing.verdict], "verdict")
    lives = [
        f'<line class="life" x1="{_middle(n)}" x2="{_middle(n)}" y1="{HEAD}" y2="{height}"/>'
        for n in range(len(drawing.names))
    ]
    names = [
        f'<text class="head" x="{_middle(n)}" y="24" text-anchor="middle">{escape(name)}</text>'
        for n, name in enumerate(columns)
    ]
    rule = f'<line class="rule" x1="{LEFT}" x2="{width - GAP}" y1="34" y2="34"/>'
    return document(width, height + 44, title, [*lives, *names, rule, *body])


def document(width: int, height: int, title: str, body: Sequence[str]) -> str:
    """An SVG file with a background, a title for screen readers and the shared style."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
    )
    back = f'<rect class="back" width="{width}" height="{height}" rx="6"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", STYLE, back, *body, "</svg>\n"])


def _rows(drawing: Drawing) -> tuple[list[str], int]:
    """The boxes, and how far down they reach."""
    body: list[str] = []
    y, before = HEAD + 8, ""
    shared = len(drawing.names)
    for number, row in enumerate(drawing.rows):
        lines = _wrapped(row.text) if row.who >= 0 else []
        beside = _wrapped(row.shared) if row.shared != before else []
        before = row.shared
        height = max(len(lines), len(beside)) * LINE + PAD
        if row.who >= 0:
            body += _text(10, y + LINE, [str(number)], "number")
            body += _box(row.who, y, lines, row.mark)
        body += _text(_left(shared) + PAD, y + LINE, beside, "quiet")
        y += height + 8
    return body, y


def _box(column: int, y: int, lines: Sequence[str], mark: Mark) -> list[str]:
    height = len(lines) * LINE + PAD
    kind = f"box {mark}".strip()
    rect = f'<rect class="{kind}" x="{_left(column)}" y="{y}" width="{COLUMN}" height="{height}"'
    return [f'{rect} rx="4"/>', *_text(_left(column) + PAD, y + LINE, lines)]


def _text(x: int, y: int, lines: Sequence[str], kind: str = "") -> list[str]:
    named = f' class="{kind}"' if kind else ""
    return [
        f'<text{named} x="{x}" y="{y + index * LINE}">{escape(line)}</text>'
        for index, line in enumerate(lines)
    ]


def _wrapped(text: str) -> list[str]:
    """Each thing that is told begins a line of its own."""
    found: list[str] = []
    for part in text.split("; "):
        found += textwrap.wrap(part, CHARACTERS) or [""]
    return found


def _left(column: int) -> int:
    return LEFT + column * (COLUMN + GAP)


def _middle(column: int) -> int:
    return _left(column) + COLUMN // 2
