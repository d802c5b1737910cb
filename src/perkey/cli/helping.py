"""The pages of ``--help``: plain lines that fit any width, without boxes and without noise."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from cyclopts import App
from cyclopts.help import HelpEntry, HelpPanel
from rich.console import Console
from rich.text import Text

NARROWEST, WIDEST = 40, 100
"""Columns of a page; longer lines are hard to read."""
INDENT = 2
LABELS = 26
"""A label up to this long has its description beside it, a longer one below it."""
GLUE = "\N{NO-BREAK SPACE}"
NO_NEWS = {None, "", '""', "None", "False", "True", "()", "[]"}
"""Defaults that tell nobody anything."""


class Pages:
    """How cyclopts prints the help pages of ``root`` and of the commands below it."""

    def __init__(self, root: App) -> None:
        self._root = root

    def render_usage(self, console: Console, options: Any, usage: Any) -> None:
        """The synopsis; cyclopts's own says ``[OPTIONS]`` and ``[ARGS]`` only."""
        said = synopsis(self._root, _plain(usage).split()[1:])
        for line in hanging("Usage: ", said, width(console)):
            _line(console, line, "bold")
        _line(console)

    def render_description(self, console: Console, options: Any, description: Any) -> None:
        """What a command does; indented lines stand as they are."""
        for line in flowed(_plain(description), width(console)):
            _line(console, line)

    def __call__(self, console: Console, options: Any, panel: HelpPanel) -> None:
        """A list of commands, arguments or options."""
        flags = [each for each in panel.entries if each.names and each.names[0].startswith("-")]
        others = [each for each in panel.entries if each not in flags]
        title = str(panel.title).replace("Parameters", "Options")
        for heading, entries in ((title, others), ("Options", flags)):
            if not entries:
                continue
            _line(console, f"{heading}:", "bold")
            rows = [(label(each), told(each)) for each in entries]
            for line, headed in columns(rows, width(console)):
                console.print(_headed(line) if headed else Text(line), soft_wrap=True)
            _line(console)


def width(console: Console) -> int:
    """How wide a page is."""
    return min(max(console.width, NARROWEST), WIDEST)


def _line(console: Console, text: str = "", style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=True)


def _headed(line: str) -> Text:
    """A line that begins with a label, which stands out."""
    body = line.lstrip()
    indent = len(line) - len(body)
    end = line.find("  ", indent)
    text = Text(line)
    text.stylize("cyan", indent, len(line) if end < 0 else end)
    return text


def _plain(shown: Any) -> str:
    """What cyclopts wraps for Rich, as the text that it was."""
    wide = Console(width=100_000, color_system=None, highlight=False, markup=False, emoji=False)
    with wide.capture() as capture:
        wide.print(shown, end="")
    return "\n".join(line.rstrip() for line in capture.get().rstrip().splitlines())


# ------------------------------------------------------------------------------ layout


def hanging(first: str, text: str, wide: int) -> list[str]:
    """``text`` after ``first``; a part in brackets is never broken."""
    return [first + line if not n else " " * len(first) + line
            for n, line in enumerate(filled(text, wide - len(first)))]  # fmt: skip


def filled(text: str, wide: int) -> list[str]:
    """``text`` in lines; ``[default: 6]`` and ``--key KEY`` stay on one."""
    single = re.sub(" +", " ", text)
    glued = re.sub(r"\[[^][]*\]|--key KEY", lambda part: part[0].replace(" ", GLUE), single)
    lines = textwrap.wrap(glued, wide, break_long_words=False, break_on_hyphens=False)
    return [line.replace(GLUE, " ") for line in lines]


def flowed(text: str, wide: int) -> Iterator[str]:
    """Paragraphs filled to the width; blank and indented lines as they are."""
    waiting: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line and not line.startswith(" "):
            waiting.append(line)
            continue
        yield from filled(" ".join(waiting), wide)
        waiting = []
        yield line


def columns(rows: Sequence[tuple[str, str]], wide: int) -> Iterator[tuple[str, bool]]:
    """Labels and their descriptions side by side; whether a line begins with a label."""
    beside = max((len(name) for name, _ in rows if len(name) <= LABELS), default=LABELS)
    margin = INDENT + beside + 2
    for name, text in rows:
        lines = filled(text, wide - margin)
        head = " " * INDENT + name
        if len(name) <= beside and lines:
            head = f"{head:<{margin}}{lines.pop(0)}"
        yield head, True
        for line in lines:
            yield " " * margin + line, False


# ----------------------------------------------------------------------------- entries


def label(entry: HelpEntry) -> str:
    """``KEY``, ``--at VERSION``; of a switch that is on, what switches it off."""
    if entry.positional_label:
        return entry.positional_label
    if entry.default == "True" and entry.negative_names:
        return ", ".join(entry.negative_names)
    names = ", ".join(entry.all_options)
    value = "|".join(entry.choices or ()) or entry.metavar
    return f"{names} {value}" if value else names


def told(entry: HelpEntry) -> str:
    """The description, and what it is where it is left out."""
    parts = [_plain(entry.description)]
    if entry.required and not entry.positional_label:
        parts.append("[required]")
    given = [f"${name}" for name in entry.env_var or ()]
    if entry.default not in NO_NEWS:
        assert entry.default is not None
        given.append(entry.default.removesuffix(".0"))
    if given:
        parts.append(f"[default: {', or '.join(given)}]")
    return " ".join(part for part in parts if part)


# ---------------------------------------------------------------------------- synopsis


def synopsis(root: App, tokens: Sequence[str]) -> str:
    """The whole command line of the command that ``tokens`` name, as a manual has it."""
    chain, apps, _ = root.parse_commands(list(tokens))
    app = apps[-1]
    named = [root.name[0], *chain]
    if app.usage:
        return app.usage
    if app.default_command is None:
        return " ".join([*named, "COMMAND ..."])
    shown = [each for each in app.assemble_argument_collection() if each.show]
    shown.sort(key=lambda one: (one.index is None, not one.required))
    return " ".join([*named, *map(argument, shown)])


def argument(each: Any) -> str:
    """An argument as a synopsis has it: ``KEY``, ``[NEW]``, ``[NAME ...]``, ``--key KEY``,
    ``[--at VERSION]``, ``[--json]``."""
    kind = each.field_info.kind
    if each.index is not None:
        name = each.name.lstrip("-").upper()
        many = kind == each.field_info.VAR_POSITIONAL
        return f"[{name} ...]" if many else name if each.required else f"[{name}]"
    positive = [name for name in each.names if name not in each.negatives]
    if each.field_info.default is True and each.negatives:
        return f"[{each.negatives[0]}]"
    said = " | ".join([*positive, *each.negatives])
    value = "|".join(each.get_choices() or ()) or each.parameter.metavar
    if value:
        said = f"{said} {value}"
    if each.field_info.default == ():
        said += " ..."
    return said if each.required else f"[{said}]"
