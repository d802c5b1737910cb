"""The pytest plugin: found by its entry point, so installing perkey is enough.

A failing ``@explore`` or ``@explore_threads`` test is reported by the story of its schedule and
the command that runs that schedule again, ``pytest ... --perkey-replay STRING``.  What each
exploration covered is in the test's report (``-rP`` shows those that passed) and, summed up, at
the end.  ``pytest -m explore`` runs these tests alone.

The fixtures ``faulty_store``, ``virtual_clock`` and ``sequencer`` serve every test; an explored
one gets a fresh one for each schedule.  Nothing of perkey is imported before it is used.
"""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from _pytest._code.code import (
    ReprEntryNative,
    ReprExceptionInfo,
    ReprFileLocation,
    ReprTraceback,
)

from perkey.testing import session

if TYPE_CHECKING:
    from perkey.stores import AsyncStore, Store
    from perkey.testing import (
        AsyncFaultyStore,
        ExplorationFailed,
        FaultyStore,
        Result,
        Sequencer,
        VirtualClock,
    )

T = TypeVar("T")

_RESULTS = pytest.StashKey[list[Any]]()
PROPERTY = "perkey explored"
"""The name of the user property in which a report carries (schedules, states) of each result."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("perkey").addoption(
        "--perkey-replay",
        metavar="STRING",
        help="run the one @explore test that is selected under this schedule, as its report says",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "explore: runs under every schedule (perkey.testing)")


def pytest_itemcollected(item: pytest.Item) -> None:
    if is_explored(item):
        item.add_marker("explore")


def is_explored(item: pytest.Item) -> bool:
    """Whether one of perkey's decorators made this test."""
    module = sys.modules.get("perkey.testing.scenario")
    function = getattr(item, "function", None)
    if module is None or function is None:
        return False
    return getattr(function, "__func__", function) in module.EXPLORED


def pytest_collection_finish(session: pytest.Session) -> None:
    """A schedule belongs to one test."""
    if session.config.getoption("--perkey-replay") is None or session.config.option.collectonly:
        return
    found = [item.nodeid for item in session.items if is_explored(item)]
    if len(found) != 1 and not hasattr(session.config, "workerinput"):
        raise pytest.UsageError(
            f"--perkey-replay: expected one @explore test to be selected, found {len(found)}; "
            "name it as in its report, tests/test_x.py::test_y"
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    results: list[Any] = []
    item.stash[_RESULTS] = results
    replay = item.config.getoption("--perkey-replay") if is_explored(item) else None
    tokens = session.RESULTS.set(results), session.REPLAY.set(replay)
    try:
        return (yield)
    finally:
        session.RESULTS.reset(tokens[0])
        session.REPLAY.reset(tokens[1])


# ------------------------------------------------------------ reports


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when != "call":
        return report
    error = None if call.excinfo is None else call.excinfo.value
    told = _failed(error)
    if told is not None and report.outcome == "failed":
        report.longrepr = _representation(item, told, told.result)
    elif _plainly(item, error):
        report.longrepr = _representation(item, error, None)
    for result in item.stash.get(_RESULTS, []):
        report.user_properties.append((PROPERTY, f"{result.schedules} {result.states}"))
        if told is None or result is not told.result:
            report.sections.append(("perkey explored", str(result)))
    return report


def _plainly(item: pytest.Item, error: BaseException | None) -> bool:
    """Whether the explorer's own message says all that a traceback through it could."""
    loop: Any = sys.modules.get("perkey.testing.loop")
    parts: Any = sys.modules.get("perkey.testing.parts")
    return (
        is_explored(item)
        and None not in (loop, parts)
        and isinstance(error, (loop.Diverged, parts.CannotFingerprint))
    )


def _failed(error: BaseException | None) -> ExplorationFailed | None:
    module: Any = sys.modules.get("perkey.testing.certificate")
    if module is None or not isinstance(error, module.ExplorationFailed):
        return None
    found: ExplorationFailed = error
    return found


def _representation(
    item: pytest.Item, error: BaseException | None, result: Result | None
) -> ReprExceptionInfo:
    """The story instead of a traceback through the explorer."""
    path, line, name = item.location
    text = f"{type(error).__name__}: {error}" if result is None else str(error)
    message = text.splitlines()[0]
    if result is not None and result.failure is not None:
        message = f"{result.failure.kind}: {result.failure.message.splitlines()[0]}"
        if is_explored(item):
            text = _story(item, result, name)
    place = ReprFileLocation(path, (line or 0) + 1, message)
    entries = [ReprEntryNative([text + "\n"])]
    return ReprExceptionInfo(ReprTraceback(entries, None, style="native"), place)


def _story(item: pytest.Item, result: Result, name: str) -> str:
    failure = result.failure
    assert failure is not None
    lines = [
        f"{name} fails under a schedule that the search found after {result.schedules:,}"
        if result.mode != "replay"
        else f"{name} fails under the schedule that was given",
        "",
        f"{failure.kind}: {failure.message}",
        *_place(failure.error, str(item.config.invocation_params.dir)),
        "",
        failure.story,
        "",
        "run it again:",
        f"  pytest {shlex.quote(item.nodeid)} --perkey-replay {shlex.quote(failure.replay)}",
    ]
    return "\n".join(lines)


def _place(error: BaseException | None, folder: str) -> list[str]:
    """The line of the user's code that raised, as ``file:line``; below ``folder`` from there."""
    from perkey.testing import where

    if error is None or error.__traceback__ is None:
        return []
    frames = traceback.extract_tb(error.__traceback__)
    files = [frame.filename for frame in frames]
    frame = frames[where.innermost(files)]
    if where.whose(frame.filename) == where.OURS:
        return []
    shown = frame.filename.removeprefix(os.path.join(folder, ""))
    return [f"at {shown}:{frame.lineno}  {frame.line}"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line, if anything was explored."""
    found = [
        [int(number) for number in value.split()]
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == PROPERTY and getattr(report, "when", "") == "call"
    ]
    if found:
        schedules, states = (sum(numbers) for numbers in zip(*found, strict=True))
        terminalreporter.write_line(
            f"perkey: {_count(len(found), 'exploration')}, {_count(schedules, 'schedule')}, "
            f"{_count(states, 'state')}"
        )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


# ------------------------------------------------------------ fixtures


@pytest.fixture
def virtual_clock() -> VirtualClock:
    """A ``perkey.testing.VirtualClock``: time that the test moves."""
    from perkey.testing import VirtualClock

    return _worn_out(VirtualClock)


@pytest.fixture
def sequencer() -> Sequencer:
    """A ``perkey.testing.Sequencer``: blocks of tasks and threads in one order."""
    from perkey.testing import Sequencer

    return _worn_out(Sequencer)


@pytest.fixture
def faulty_store() -> Iterator[FaultyStores]:
    """Opens stores that fail as asked and closes them after the test; see ``FaultyStores``."""
    stores = _worn_out(FaultyStores)
    yield stores
    stores.close()


class FaultyStores:
    """``faulty_store("memory://", fail=0.3, seed=1)`` is an open ``FaultyStore``.

    ``faulty_store.aio(...)`` is an ``AsyncFaultyStore``.  Both take what those classes take.
    """

    def __init__(self) -> None:
        self._opened: list[FaultyStore | AsyncFaultyStore] = []

    def __call__(
        self, source: str | Store | AsyncStore = "memory://", **options: Any
    ) -> FaultyStore:
        """A ``FaultyStore`` over a URL or an open store."""
        from perkey.testing import FaultyStore

        store = FaultyStore(source, **options)
        self._opened.append(store)
        return store

    def aio(
        self, source: str | Store | AsyncStore = "memory://", **options: Any
    ) -> AsyncFaultyStore:
        """An ``AsyncFaultyStore`` over a URL or an open store."""
        from perkey.testing import AsyncFaultyStore

        store = AsyncFaultyStore(source, **options)
        self._opened.append(store)
        return store

    def close(self) -> None:
        """Close every store that was opened here.  More than once is harmless."""
        while self._opened:
            self._opened.pop().core.close()


def _worn_out(make: Callable[[], T]) -> T:
    """A thing that one run uses up: an explored test is handed another for every schedule."""
    made = make()
    session.ANEW[made] = make
    return made
