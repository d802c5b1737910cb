"""The ``perkey`` command.  ``main`` is the entry point; everything else is imported by it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

import perkey

NEEDED = ("cyclopts", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``perkey`` with these arguments (default: the process's); returns the exit code."""
    try:
        return _main(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        return 130  # Ctrl-C while the modules of a command are imported


def _main(given: list[str]) -> int:
    if given == ["--version"]:
        with suppress(OSError):  # then app.run says what is wrong with the output
            print(perkey.__version__, flush=True)
            return 0
    try:
        from perkey.cli import app
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in NEEDED:
            raise
        print(
            f"perkey: missing-extra: the command line needs the package {package!r}\n"
            "hint: pip install 'perkey[cli]'",
            file=sys.stderr,
        )
        return 3
    return app.run(given)
