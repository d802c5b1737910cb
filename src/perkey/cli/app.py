"""The command tree and the one place that turns errors into exit codes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from cyclopts import App, CycloptsError

import perkey
from perkey.cli import exits, output
from perkey.errors import PerkeyError

HELP = f"""One at a time per key; never on a stale read; never twice.

Exit codes:

{exits.table()}

PERKEY_STORE names the store where --store is left out.  NO_COLOR is honoured.
"""


def build() -> App:
    """The whole command; each group of commands is a module of its own."""
    from perkey.cli import copying, doc, doctor, ledger, serve
    from perkey.cli.demo import command as demo
    from perkey.cli.run import command as run_engine

    app = App(
        name="perkey",
        help=HELP,
        help_format="plaintext",
        version=perkey.__version__,
        version_flags=["--version"],
        result_action="return_value",
    )
    app.command(doc.app)
    app.command(ledger.app)
    app.command(doctor.doctor)
    app.command(copying.copy)
    app.command(demo.app)
    app.command(serve.serve)
    app.command(serve.token)
    app.command(run_engine.app)
    return app


def run(arguments: Sequence[str]) -> int:
    """Parse, run, report.  Commands return an exit code or None, and raise ``PerkeyError``."""
    as_json = "--json" in arguments
    output.lenient()
    try:
        result: Any = build()(list(arguments), exit_on_error=False, print_error=False)
        if sys.stdout is not None:
            sys.stdout.flush()
        return result if isinstance(result, int) else exits.DONE
    except CycloptsError as error:
        output.complain(" ".join(str(error).split()), "perkey --help, or --help after a command")
        return exits.USAGE
    except PerkeyError as error:
        _report(error, as_json)
        return exits.code_of(error)
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        # The reader went away (``| head``); without this Python complains once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.DONE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else "the output cannot be written: "
        output.complain(f"{where}{error.strerror or error}")
        with suppress(OSError, AttributeError):  # or Python complains once more at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.STORE


def _report(error: PerkeyError, as_json: bool) -> None:
    hint = exits.hint_for(error)
    if as_json:
        said = {"code": error.code, "message": error.message, "hint": hint}
        facts = {**said, "details": error.details}
        print(json.dumps({"error": facts}, ensure_ascii=False, default=str), file=sys.stderr)
    else:
        output.complain(f"{error.code}: {error.message}", hint)
