"""Write what the command says about itself into its pages; ``tests/cli/test_pages.py`` compares.

    python -m tools.command_page

``docs/command.md`` has the synopsis of each command between ``<!-- perkey X -->`` and ``<!-- -->``;
``docs/reference/command-line.md`` has the whole help of every command.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

from cyclopts import App
from rich.console import Console

from perkey.cli import app, helping

DOCS = Path(__file__).resolve().parent.parent / "docs"
GUIDE = DOCS / "command.md"
REFERENCE = DOCS / "reference" / "command-line.md"
COLUMNS = 90
HEAD = """# Every command and its options

What `--help` says, of all commands. [The command](../command.md) says more about each; this page
is written by `python -m tools.command_page`.
"""


def commands(app: App, chain: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], App]]:
    """Every command with its words, groups of commands too, in the order of the code."""
    yield chain, app
    for name in app:
        if not name.startswith("-"):
            yield from commands(app[name], (*chain, name))


def page(root: App, chain: tuple[str, ...], columns: int = COLUMNS, *, colour: bool = False) -> str:
    """What ``perkey *chain --help`` prints."""
    console = Console(
        file=io.StringIO(),
        width=columns,
        color_system="standard" if colour else None,
        force_terminal=colour,
        legacy_windows=False,
    )
    root.help_print(list(chain), console=console)
    said = console.file
    assert isinstance(said, io.StringIO)
    return said.getvalue()


def guide(text: str, root: App) -> str:
    """``docs/command.md`` with the synopses as they are now."""

    def block(found: re.Match[str]) -> str:
        lines = []
        for chain, command in commands(root):
            words = " ".join(["perkey", *chain])
            group = " ".join(["perkey", *chain[:-1]])
            mine = words == found[1] or (group == found[1] and f"<!-- {words} -->" not in text)
            if command.default_command is None or not mine:
                continue
            lines += helping.hanging(f"{words} ", helping.synopsis(root, chain)[len(words) + 1 :],
                                     COLUMNS)  # fmt: skip
        return "\n".join([f"<!-- {found[1]} -->", "", *(f"    {each}" for each in lines), "",
                          "<!-- -->"])  # fmt: skip

    return re.sub(r"<!-- (perkey [a-z ]+) -->\n.*?<!-- -->", block, text, flags=re.DOTALL)


def reference(root: App) -> str:
    """``docs/reference/command-line.md``."""
    parts = [HEAD]
    for chain, _ in commands(root):
        words = " ".join(["perkey", *chain])
        parts.append(f"## `{words}`\n\n```text\n{page(root, chain).rstrip()}\n```\n")
    return "\n".join(parts)


def main() -> None:
    """Write both pages."""
    root = app.build()
    GUIDE.write_text(guide(GUIDE.read_text("utf-8"), root), "utf-8")
    REFERENCE.write_text(reference(root), "utf-8")


if __name__ == "__main__":
    main()
