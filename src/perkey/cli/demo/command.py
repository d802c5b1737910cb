"""``perkey demo``: worker processes write one audit report together, with perkey or without."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from cyclopts import App, Parameter

import perkey
from perkey.cli import exits, output
from perkey.cli.audit import SECTIONS, render
from perkey.cli.demo import page as pages
from perkey.cli.demo import plan as plans
from perkey.cli.demo import results, supervise, view
from perkey.cli.options import Json
from perkey.clock import SYSTEM
from perkey.errors import UsageError

app = App(name="demo", help_format="plaintext")

Paths = Annotated[
    str, Parameter(name="PATH", help="Text files or folders; default: perkey's own pages.")
]
Workers = Annotated[int, Parameter(metavar="N", help="How many worker processes.")]
Blind = Annotated[bool, Parameter(negative="", help="Write whole documents, blindly.")]
Kill = Annotated[bool, Parameter(negative="", help="Kill one worker in the middle of its turn.")]
Think = Annotated[float, Parameter(metavar="S", help="Seconds a worker holds what it read.")]
Lease = Annotated[float, Parameter(metavar="S", help="Seconds a claim holds without a heartbeat.")]
Where = Annotated[
    str, Parameter(metavar="URL", help="The store; default: a file beside the report.")
]
Out = Annotated[
    str,
    Parameter(
        name="--out", metavar="FILE", help="Where the report goes; default: report/audit.md."
    ),
]
Serve = Annotated[
    bool | None,
    Parameter(help="Show the run on a page until Ctrl-C, or not; default: at a terminal."),
]

DEFAULT_FOLDER = "report"
DEADLINE_S = 300.0


@app.default
def demo(
    *paths: Paths,
    workers: Workers = 6,
    blind: Blind = False,
    kill: Kill = False,
    think: Think = 1.0,
    lease: Lease = 3.0,
    store: Where = "",
    out: Out = "",
    serve: Serve = None,
    json: Json = False,
) -> int:
    """Let worker processes write one audit report together, with perkey or (--blind) without.

    Each claims a section of an audit of the given text files, does the analysis, waits as it
    would for a language model, and adds its section to the one report document in the store.

    Without --blind it adds its section by a small pure change, committed together with the
    end of its task: nothing is lost, and the exit code is 0 only if the run is complete.

    With --blind the same workers read the whole report early, and write the whole report back
    late, as programs do that have no versions.  What vanished is shown, and that the completion
    check refuses to call the run complete.  That is what was asked for, so the exit code is 0.

    With --kill one worker is killed while it holds a section; another takes over when its lease
    has run out, and the run completes.

    At a terminal the run can be watched on a page, which stays up at the end until Ctrl-C;
    --no-serve leaves it out, and --serve has it elsewhere, too.

    For example:

        perkey demo
        perkey demo --kill
        perkey demo --blind --no-serve
        perkey demo docs/ notes.md --out notes-audit.md
    """
    if serve:
        pages.check()
    path = Path(out or Path(DEFAULT_FOLDER, "audit-blind.md" if blind else "audit.md"))
    plan = plans.check(
        plans.Plan(
            run=SYSTEM.token()[-10:],
            paths=tuple(os.path.abspath(p) for p in paths or plans.own_documentation()),
            workers=workers,
            blind=blind,
            think_s=think,
            lease_s=lease,
            deadline_s=DEADLINE_S,
        ),
        kill=kill,
    )
    url = _shared(store) if store else _beside(path)
    wanted = sys.stdout.isatty() and not json if serve is None else serve
    place = pages.path(plan.key("board"))
    with perkey.open(url) as opened, pages.Page(url, wanted=wanted) as page:
        if page.address:
            _say(f"watch it: {page.address}{place}", json=json)
        supervise.prepare(opened, plan, list(SECTIONS), _title(paths))
        ended = supervise.supervise(opened, url, plan, view.chosen(json), kill=kill)
        result = results.judge(opened, plan, ended)
        _save(path, render(result.report, list(SECTIONS)))
        own = "" if store else url
        if json:
            facts = {"path": str(path), "store": own, "page": f"{page.address}{place}"}
            output.as_json({**results.facts(result), **facts})
        else:
            results.tell(result, str(path), own)
            _tell_page(page.address, place, own)
        page.stay()
    if ended.timed_out:
        return exits.BUSY
    return exits.DONE if blind or not result.reason else exits.REFUSED


def _say(text: str, *, json: bool) -> None:
    if not json:
        output.say(text)


def _tell_page(address: str, place: str, url: str) -> None:
    """Where the run is shown, or how to have it shown."""
    if address:
        output.say(f"page: {address}{place}  (Ctrl-C ends it)")
    else:
        store = f"'{url}'" if url else "STORE"
        served = f"{output.program()} serve {store}"
        output.say(f"page: {served}  then open http://127.0.0.1:8420{place}")


def _shared(url: str) -> str:
    """A store that several processes can open."""
    if url.startswith("memory:"):
        raise UsageError("worker processes cannot share a memory:// store; use sqlite:///FILE")
    return url


def _beside(path: Path) -> str:
    """A SQLite file beside the report; it is kept, so its history can be read afterwards."""
    folder = path.parent
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{quote(str(folder / 'audit.db'))}"


def _title(paths: Sequence[str]) -> str:
    return f"Audit of {', '.join(paths)}" if paths else "Audit of perkey's own pages"


def _save(path: Path, text: str) -> None:
    """Write the report whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)
