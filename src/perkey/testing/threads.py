"""Threads, one at a time: every schedule of threaded code at its lock operations.

    result = explore_threads(Registry, [Registry.enter] * 3, check=Registry.is_empty)
    result.assert_holds()

The callers are plain functions, run on real threads of which only one moves at a time.  A
switch point is every operation on a lock made while the scenario runs: ``threading.Lock``,
``RLock``, ``Condition``, ``Event``, ``Semaphore`` and ``queue.Queue`` all stand on one, and so
do perkey's own locks, committer and stores.  Your code may add ``switch_point()``.  A schedule
is a choice at each of them, with at most ``preemptions`` switches away from a thread that
could have gone on; most concurrency bugs need two (Musuvathi and Qadeer, "Iterative Context
Bounding for Systematic Testing of Multithreaded Programs", 2007).  Smaller bounds are searched
first, so a failing schedule has as few preemptions as can be.

A wait with a timeout ends when nothing else can happen.  What happens between two switch
points is not interleaved: races on bare memory stay unseen, except in the modules that are
given as ``lines`` or ``opcodes``.  Locks made before ``setup`` ran, at import for instance, are
not switch points.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Sequence
from time import monotonic, process_time
from types import ModuleType
from typing import Any, TypedDict, Unpack, overload

from perkey.errors import UsageError
from perkey.testing import scenario as scenarios
from perkey.testing import session
from perkey.testing.certificate import Failure, Result
from perkey.testing.stage import Grain, Stage, cooperative_locks, names
from perkey.testing.story import table


class Options(TypedDict, total=False):
    """The keyword arguments of ``explore_threads`` that a scenario in one function leaves open."""

    raises: tuple[type[BaseException], ...]
    preemptions: int
    symmetric: bool
    lines: Sequence[ModuleType]
    opcodes: Sequence[ModuleType]
    limit: int
    seconds: float
    max_moves: int
    replay: str | None


class AllOptions(Options, total=False):
    """All keyword arguments of ``explore_threads``."""

    check: Callable[[Any], Any] | None


@overload
def explore_threads(
    setup: Callable[[], Any],
    callers: Sequence[Callable[..., Any]] | None = None,
    **options: Unpack[AllOptions],
) -> Result: ...
@overload
def explore_threads(
    *, expect: str = ..., **options: Unpack[Options]
) -> Callable[[Callable[..., Any]], Callable[..., None]]: ...
def explore_threads(
    setup: Callable[[], Any] | None = None,
    callers: Sequence[Callable[..., Any]] | None = None,
    *,
    check: Callable[[Any], Any] | None = None,
    raises: tuple[type[BaseException], ...] = (),
    preemptions: int = 2,
    symmetric: bool = True,
    lines: Sequence[ModuleType] = (),
    opcodes: Sequence[ModuleType] = (),
    limit: int = 100_000,
    seconds: float = 60.0,
    max_moves: int = 10_000,
    replay: str | None = None,
    expect: str = scenarios.EXPECTED[0],
) -> Any:
    """Run threaded callers under every schedule with at most ``preemptions`` switches.

    ``setup()`` makes the state, with the locks in it; each caller is called with it on a thread
    of its own; ``check(state)`` fails by raising or by returning False.  A caller may end with
    one of ``raises``; any other exception, a deadlock, and a run without end fail too.
    Callers that are the same function are started in one order only; if your check tells them
    apart, pass ``symmetric=False``.  Every line of the modules in ``lines`` is a switch point
    too, and every bytecode of those in ``opcodes``, which finds races on bare memory.
    The search stops, and is not green, after ``seconds`` of processor time or ``limit`` runs.

    Without a setup it is a decorator, ``@explore_threads()``, that makes a test of a scenario
    that yields its callers; ``expect="fails"`` (or a kind of failure) is for planted bugs.
    """
    options = dict(locals())  # all that was given, under its own name
    del options["setup"], options["callers"], options["expect"]
    if setup is None:
        return scenarios.as_test(lambda test: _again(test, options), expect, "threads")
    if callers is None:
        if not scenarios.is_scenario(setup) or check is not None:
            raise UsageError("expected a scenario that yields its callers, or a setup and callers")
        setup, callers, finish = scenarios.take_apart(setup, "threads", _made)
        check = functools.partial(finish, ended=None)
    search = _Search(setup, callers, check, raises, max_moves, symmetric, Grain(lines, opcodes))
    result = Result(names(callers), {"preemptions": preemptions}, pruned=False)
    started, end = monotonic(), process_time() + seconds
    if replay is not None:
        result.mode = "replay"
        if re.fullmatch(r"t\d+\.[\d-]*", replay) is None:
            raise UsageError(f"expected replay= as a story gives it, found {replay!r}")
        most, _, digits = replay.removeprefix("t").partition(".")
        choices = [int(each) for each in digits.split("-") if each]
        search.run(choices, int(most), result)
        session.note(result)
        return result
    for bound in range(preemptions + 1):
        search.exhaust(bound, result, limit, end)
        if result.failure is not None or result.incomplete:
            break
    result.seconds = monotonic() - started
    if result.failure is None and len(callers) > 1 and not search.branched:
        result.unseen.append("no switch point was reached: were the locks made in setup()?")
    session.note(result)
    return result


def _again(test: Callable[[], Any], options: dict[str, Any]) -> Result:
    """The search of a decorated test, or the schedule that the runner asks for."""
    wanted = session.REPLAY.get()
    return explore_threads(test, **(options if wanted is None else options | {"replay": wanted}))


def _made(setup: Callable[[], Any]) -> Any:
    with cooperative_locks():
        return setup()


class _Search:
    def __init__(
        self,
        setup: Callable[[], Any],
        callers: Sequence[Callable[..., Any]],
        check: Callable[[Any], Any] | None,
        raises: tuple[type[BaseException], ...],
        max_moves: int,
        symmetric: bool,
        grain: Grain,
    ) -> None:
        self._symmetric = symmetric
        self._grain = grain
        self._setup = setup
        self._callers = callers
        self._check = check
        self._raises = raises
        self._max_moves = max_moves
        self.branched = False

    def exhaust(self, bound: int, result: Result, limit: int, end: float) -> None:
        """Every schedule with at most ``bound`` preemptions, depth first, by running again."""
        choices: list[int] | None = []
        while choices is not None:
            if result.schedules >= limit:
                result.incomplete = f"the limit of {limit:,} schedules was reached"
                return
            if process_time() > end:
                result.incomplete = "the processor time was up"
                return
            made = self.run(choices, bound, result)
            if result.failure is not None:
                return
            choices = _next(made)

    def run(self, choices: list[int], bound: int, result: Result) -> list[tuple[int, int]]:
        """One schedule; its choices."""
        with cooperative_locks():
            state = self._setup()
            stage = Stage(self._callers, state, choices, self._symmetric, self._grain)
            try:
                wrong = stage.play(bound, self._max_moves)
                wrong, error = self._judge(stage, state, wrong)
            finally:
                stage.close()
        result.schedules += 1
        result.moves += len(stage.rows)
        result.longest = max(result.longest, len(stage.rows))
        self.branched = self.branched or len(stage.rows) > len(stage.actors)
        if wrong:
            result.failure = _failure(stage, bound, wrong, error)
        return stage.made

    def _judge(self, stage: Stage, state: Any, wrong: str) -> tuple[str, BaseException | None]:
        if wrong:
            return wrong, None
        for actor in stage.actors:
            if actor.error is not None and not isinstance(actor.error, self._raises):
                return f"raised: {actor.name} raised {actor.error!r}", actor.error
        try:
            if self._check is not None and self._check(state) is False:
                return "check: it returned False", None
        except Exception as error:
            return f"check: {type(error).__name__}: {error}", error
        return "", None


def _next(made: list[tuple[int, int]]) -> list[int] | None:
    """The choices of the next schedule, or None after the last one."""
    while made:
        choice, count = made.pop()
        if choice + 1 < count:
            return [each for each, _ in made] + [choice + 1]
    return None


def _failure(stage: Stage, bound: int, wrong: str, error: BaseException | None) -> Failure:
    kind, _, message = wrong.partition(": ")
    rows = [row for row, _ in itertools.groupby(stage.rows)]  # one line is many bytecodes
    story = table(rows, [actor.name for actor in stage.actors])
    if kind == "deadlock":
        stuck = [actor for actor in stage.actors if actor.blocked_on is not None]
        message = "; ".join(f"{actor.name} waits at {actor.where}" for actor in stuck)
        message = message or "nobody can go on"
    choices = "-".join(str(choice) for choice, _ in stage.made)
    return Failure(kind, message, f"t{bound}.{choices}", story, error)
