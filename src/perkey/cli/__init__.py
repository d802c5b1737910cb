"""The ``perkey`` command.  ``main`` is the entry point; everything else is imported by it."""

from __future__ import annotations

from collections.abc import Sequence

NEEDED = ("cyclopts", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``perkey`` with these arguments (default: the process's); returns the exit code."""
    import sys

    given = list(sys.argv[1:] if arguments is None else arguments)
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
