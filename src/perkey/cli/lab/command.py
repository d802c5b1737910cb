"""``perkey lab``: each failure made to happen, and made not to happen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from perkey.cli import exits, output
from perkey.cli.lab import conflicts, files, view
from perkey.cli.options import Json
from perkey.errors import UsageError
from perkey.lab import catalogue, running, stress

app = App(name="lab", help_format="plaintext")
app.command(conflicts.conflicts)

MOST_ROUNDS = 1_000_000


@app.default
def lab(
    *names: Annotated[
        str, Parameter(name="NAME", help="A failure, or one way, like double-move/delete.")
    ],
    rounds: Annotated[
        int, Parameter(metavar="N", help="Rounds of each stress test.")
    ] = stress.ROUNDS,
    jobs: Annotated[
        int,
        Parameter(metavar="N", show_default=False, help="Worker processes; default: one a core."),
    ] = 0,
    out: Annotated[
        str, Parameter(metavar="DIR", help="Folder for the drawings, as SVG and Mermaid.")
    ] = "",
    json: Json = False,
) -> int:
    """Find the four failures in the code that people write first, and not in perkey's.

    lost-update, double-move, backwards-view and half-open: for each, several ways to do the
    work, as real code.  perkey.testing runs every schedule of each; the smallest that fails is
    drawn, one column a caller and one row a step.  Beside it: how many of all schedules fail,
    and in how many rounds an ordinary stress test on asyncio and on threads saw it.

    Exit code 0: every wrong way was found, and no right one ever failed.

    For example:

        perkey lab
        perkey lab double-move
        perkey lab double-move/delete --rounds 1000 --out drawings
    """
    if not 1 <= rounds <= MOST_ROUNDS:
        raise UsageError(f"expected --rounds from 1 to {MOST_ROUNDS:,}, found {rounds}")
    if jobs < 0:
        raise UsageError(f"expected --jobs from 1, or 0 for one a core, found {jobs}")
    chosen = catalogue.choose(names)
    if out:
        files.make(Path(out))
    with view.progress(len(chosen), as_json=json) as done:
        reports = running.everything(chosen, rounds, jobs=jobs, done=done)
    written = files.write(Path(out), reports) if out else []
    good = all(report.as_expected for report in reports)
    if json:
        output.as_json(view.facts(reports, written))
    else:
        view.tell(reports, written)
    return exits.DONE if good else exits.REFUSED
