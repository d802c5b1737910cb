"""The command tree and the one place that turns errors into exit codes."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from cyclopts import App, CycloptsError, MissingArgumentError

import perkey
from perkey.cli import completion, exits, helping, output
from perkey.errors import PerkeyError

HELP = f"""One at a time per key; never on a stale read; never twice.

Every command says more with --help. Exit codes:

{exits.table()}

PERKEY_STORE names the store where --store is left out. NO_COLOR is honoured. A shell completes
commands and options after what perkey completion --help says.

For example:

    perkey demo
    export PERKEY_STORE=sqlite:///work.db
    perkey doc put report '{{"title": "Audit"}}' --create
    perkey doc get report
    perkey doctor
"""


COMMANDS = {
    "doc": "perkey.cli.doc:app",
    "ledger": "perkey.cli.ledger:app",
    "doctor": "perkey.cli.doctor:doctor",
    "copy": "perkey.cli.copying:copy",
    "demo": "perkey.cli.demo.command:app",
    "lab": "perkey.cli.lab.command:app",
    "serve": "perkey.cli.serve:serve",
    "token": "perkey.cli.serve:token",
    "run": "perkey.cli.run.command:app",
}
"""Where each command is; importing them all takes a second."""


def build(arguments: Sequence[str] = ()) -> App:
    """The whole command, with all its modules, unless ``arguments`` begin with a command: then
    only that one's is imported, when it is called."""
    app = App(
        name="perkey",
        help=HELP,
        help_format="plaintext",
        version=perkey.__version__,
        version_flags=["--version"],
        result_action="return_value",
        console=output.page(),
    )
    for name, place in COMMANDS.items():
        app.command(place, name=name)
    app.command(completion.command_for(app))
    app.help_formatter = helping.Pages(app)
    if not arguments or arguments[0] not in COMMANDS:
        for name in COMMANDS:
            _ = app[name]  # imports it: the first page says what each command does
    return app


def run(arguments: Sequence[str]) -> int:
    """Parse, run, report.  Commands return an exit code or None, and raise ``PerkeyError``."""
    as_json = _wants(arguments, "--json")
    output.lenient()
    # azure-identity logs a page on what it tried; errors are one line here, and JSON with --json.
    logging.getLogger("azure").setLevel(logging.ERROR)
    try:
        result: Any = build(arguments)(list(arguments), exit_on_error=False, print_error=False)
        if sys.stdout is not None:
            sys.stdout.flush()
        return result if isinstance(result, int) else exits.DONE
    except CycloptsError as error:
        said = _said(error)
        named = " ".join(["perkey", *(error.command_chain or ()), "--help"])
        Problem("usage", said, f"{named} says what it takes").report(as_json=as_json)
        return exits.USAGE
    except PerkeyError as error:
        said = exits.message_of(error)
        hint = exits.hint_for(error, merging=_wants(arguments, "--merge"))
        Problem(error.code, said, hint, error.details, True).report(as_json=as_json)
        return exits.code_of(error)
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        # The reader went away (``| head``); without this Python complains once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.DONE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else "the output cannot be written: "
        facts = {"errno": error.errno, "path": error.filename}
        problem = Problem("io", f"{where}{error.strerror or error}", details=facts)
        problem.report(as_json=as_json)
        with suppress(OSError, AttributeError):  # or Python complains once more at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.STORE


def _said(error: CycloptsError) -> str:
    """What is wrong with the command line; cyclopts says of an option that nobody gave that it
    "requires an argument"."""
    if type(error) is MissingArgumentError and error.keyword is None:
        missing = error.argument
        if missing is not None and not missing.tokens:
            named = " ".join(["perkey", *(error.command_chain or ())])
            return f"{named} needs {helping.argument(missing)}"
    return " ".join(str(error).split())


def _wants(arguments: Sequence[str], flag: str) -> bool:
    """Whether ``flag`` is among the options; what stands behind ``--`` is no option."""
    options = list(arguments)
    return flag in options[: options.index("--") if "--" in options else None]


class Problem(NamedTuple):
    """What went wrong, for programs and for people."""

    code: str
    message: str
    hint: str = ""
    details: dict[str, Any] = {}  # noqa: RUF012, nobody changes it
    labelled: bool = False
    """Whether people are shown the code too."""

    def report(self, *, as_json: bool) -> None:
        """Say it on standard error."""
        if as_json:
            facts = {"code": self.code, "message": self.message, "hint": self.hint}
            output.error_as_json({**facts, "details": self.details})
        else:
            label = f"{self.code}: " if self.labelled else ""
            output.complain(f"{label}{self.message}", self.hint)
