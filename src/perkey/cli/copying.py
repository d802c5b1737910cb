"""``perkey copy``: move a whole store into another one, resumable and compared at the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from perkey.cli import exits, output
from perkey.cli.options import Json
from perkey.clock import SYSTEM
from perkey.errors import UsageError
from perkey.store import examine, transfer
from perkey.store.abc import Backend
from perkey.store.url import open_backend, parse

From = Annotated[str, Parameter(name="FROM", help="The store to read, like sqlite:///work.db.")]
To = Annotated[str, Parameter(name="TO", help="The store to fill: a new or an empty one.")]
VerifyOnly = Annotated[bool, Parameter(negative="", help="Compare the two; write nothing.")]


def copy(
    source: From, target: To, /, *, verify_only: VerifyOnly = False, json: Json = False
) -> int:
    """Copy every record of one store into another, and compare the two.

    Documents with their whole history, boards, leases, receipts, accounts, engine state, deleted
    keys; versions, authors and times as they are.

    A copy that was stopped goes on when it is started again.  TO must be empty or a copy of
    FROM.  Stop the writers of FROM before the last run: while they write, the copy is some way
    behind, and says so with exit code 4.

    For example:

        perkey copy sqlite:///work.db postgresql://app@db/work
        perkey copy sqlite:///work.db postgresql://app@db/work --verify-only
    """
    for url in (source, target):
        _check_kept(url)
    here, there = _place(source), _place(target)
    if here == there:
        raise UsageError(f"both are the same store, {here}")
    examine.must_exist(source, transfer.LIMITS, SYSTEM)
    if verify_only:
        examine.must_exist(target, transfer.LIMITS, SYSTEM)
    with ExitStack() as stack:
        ours, theirs = (stack.enter_context(_opened(url)) for url in (source, target))
        tell = stack.enter_context(_telling(quiet=json))
        if verify_only:
            report = transfer.compare(ours, theirs, tell)
        else:
            report = transfer.move(ours, theirs, here, SYSTEM, tell)
    if json:
        facts = {"from": here, "to": there, "same": report.same, "verify_only": verify_only}
        output.as_json({**facts, **asdict(report)})
    else:
        _show(report, here, there, verify_only)
    return _code(report)


def _check_kept(url: str) -> None:
    location = parse(url)
    if location.scheme == "memory" or location.path == ":memory:":
        raise UsageError("a store in memory is gone with this command; name one that is kept")


def _place(url: str) -> str:
    """What tells stores apart: a file by its real path."""
    location = parse(url)
    if location.scheme == "sqlite":
        return f"sqlite:///{os.path.realpath(location.path)}"
    if location.scheme == "file":
        return f"file://{os.path.realpath('/' + location.path)}"
    return examine.place(url)


@contextmanager
def _opened(url: str) -> Iterator[Backend]:
    backend = open_backend(url, transfer.LIMITS, SYSTEM)
    try:
        yield backend
    finally:
        backend.close()


@contextmanager
def _telling(quiet: bool) -> Iterator[Callable[[transfer.Progress], None]]:
    """A bar on standard error, where that is a terminal."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda progress: None
        return
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    with Progress(*columns, TextColumn("keys"), TimeElapsedColumn(), console=console) as bars:
        tasks = {}

        def tell(progress: transfer.Progress) -> None:
            phase = progress.phase
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase, total=progress.total)
            # A total that was told is an estimate: it knows nothing of what came meanwhile.
            total = None if progress.total is None else max(progress.total, progress.keys)
            bars.update(tasks[phase], completed=progress.keys, total=total)

        yield tell


def _show(report: transfer.Report, here: str, there: str, verify_only: bool) -> None:
    output.say(f"{here} -> {there}")
    if verify_only:
        output.say("verified only, nothing was written")
    else:
        output.say(f"copied   {_counted(report.copied, 'version')} in this run")
    output.say(
        f"compared {_counted(report.keys, 'key')}: {report.records:,} records, each key's current "
        "one and every kept version"
    )
    if report.same:
        output.say(f"the same, digest {report.digest}", style="green")
        return
    for count, what in (
        (
            report.behind,
            "went on in the source: stop its writers and run this again",
        ),
        (report.different, "not the same in both"),
        (report.extra, "only in the target"),
    ):
        if count:
            output.say(f"{_counted(count, 'key')} {what}", style="red")
    output.say("for example " + ", ".join(map(repr, report.named)))


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _code(report: transfer.Report) -> int:
    if report.same:
        return exits.DONE
    return exits.REFUSED if report.different or report.extra else exits.BUSY
