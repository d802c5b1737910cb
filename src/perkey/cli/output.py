"""Printing: JSON for programs, tables and colour for people at a terminal."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from perkey.errors import UsageError


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Let the command decide; Rich would exit with 1, as if something had been refused."""
        raise BrokenPipeError


def console() -> Console:
    """Standard output.  Rich itself honours ``NO_COLOR`` and a pipe; a pipe is never wrapped."""
    out = _Console(highlight=False, emoji=False, markup=False)
    if not out.is_terminal:
        out = _Console(highlight=False, emoji=False, markup=False, width=10_000)
    return out


def page() -> Console:
    """Standard output for a page of text, which is as wide as a terminal in a pipe too."""
    return _Console(highlight=False, emoji=False, markup=False)


def writable(path: str) -> None:
    """Refuse, before the work is done, a file that could not be written afterwards."""
    try:
        with open(path, "ab"):
            pass
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def program() -> str:
    """How to call this command from here: ``perkey``, or its path where a shell finds another."""
    called = sys.argv[0]
    if os.path.basename(called) != "perkey" or not os.path.exists(called):
        return "perkey"
    found = shutil.which("perkey")
    if found is not None and os.path.samefile(found, called):
        return "perkey"
    near = os.path.relpath(called)
    if near.startswith(".."):
        return called
    return near if os.sep in near else os.path.join(os.curdir, near)


def as_json(value: Any, *, pretty: bool = True) -> None:
    """Print a value as JSON; one line unless ``pretty``."""
    indent = 2 if pretty else None
    print(json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False), flush=True)


def error_as_json(facts: dict[str, Any]) -> None:
    """Print one line of JSON on standard error: ``{"error": {code, message, hint, details}}``."""
    shown = json.dumps({"error": _plain(facts)}, ensure_ascii=False, allow_nan=False)
    print(shown, file=sys.stderr, flush=True)


def _plain(value: Any) -> Any:
    """``value`` as JSON can say it; what an error carries may be anything."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Print a table; what it shows is text from outside, never markup or escape codes."""
    grid = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for heading in headings:
        grid.add_column(heading, overflow="fold")
    for row in rows:
        grid.add_row(*(Text(safe(str(cell))) for cell in row))
    show(grid)


def show(shown: RenderableType) -> None:
    """Print a table or the like."""
    out = console()
    out.print(trimmed(shown, out), soft_wrap=True)


def trimmed(shown: RenderableType, out: Console) -> Text:
    """How ``out`` shows it, without the spaces that fill the last column: they would be copied
    with it."""
    lines: list[Text] = []
    for line in out.render_lines(shown, pad=False):
        text = Text.assemble(*((part.text, part.style or "") for part in line))
        text.rstrip()
        lines.append(text)
    return Text("\n").join(lines)


def say(text: str = "", *, style: str = "") -> None:
    """Print one line for people, never broken, so that a command in it can be copied."""
    console().print(Text(safe(text), style=style), soft_wrap=True)


def prose(text: str, *, style: str = "") -> None:
    """Print a sentence, broken between words where a terminal would break it within one."""
    show(Text(safe(text), style=style))


def complain(message: str, hint: str = "") -> None:
    """One line of what went wrong and one of what to do next, on standard error."""
    err = _Console(stderr=True, highlight=False, emoji=False, markup=False)
    err.print(Text.assemble(("perkey:", "bold red"), f" {safe(message)}"), soft_wrap=True)
    if hint:
        err.print(Text.assemble(("hint:", "bold"), f" {safe(hint)}"), soft_wrap=True)


def remark(text: str) -> None:
    """One line on standard error, as it is but for control characters."""
    print(safe(text), file=sys.stderr, flush=True)


def lenient() -> None:
    """What a narrow encoding cannot carry is shown escaped, not a crash after the work."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def safe(text: str) -> str:
    """Text on one line without control characters: stored values must not drive a terminal."""
    shown = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return "".join(shown)


def short(value: Any, limit: int = 60) -> str:
    """A JSON value on one line, cut to ``limit`` characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def moment(at: datetime) -> str:
    """A time to the second, in UTC."""
    return at.strftime("%Y-%m-%d %H:%M:%SZ")
