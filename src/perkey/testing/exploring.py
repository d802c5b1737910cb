"""``explore``: the door to the search."""

from __future__ import annotations

import contextvars
import gc
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict, Unpack, overload

from perkey.errors import UsageError
from perkey.locks import Sections
from perkey.stores import AsyncStore, Store
from perkey.testing import scenario as scenarios
from perkey.testing import session, story
from perkey.testing import shrink as shrinking
from perkey.testing.certificate import Failure, Result
from perkey.testing.fingerprint import Fingerprint
from perkey.testing.loop import Diverged
from perkey.testing.moves import Move
from perkey.testing.parts import CannotFingerprint, register_fingerprint
from perkey.testing.runner import Program, Run, Violation
from perkey.testing.sample import Mode, Sample
from perkey.testing.search import Search, notation, schedule


def _no_steps(store: Any) -> list[Any]:
    kind = type(store).__name__
    raise CannotFingerprint(
        f"expected a store whose steps an exploration can see, found {kind} over "
        f"{type(store.backend).__name__}; use perkey.testing.SteppedStore() in its place: the same "
        "methods, in memory, with a step at each read and commit"
    )


register_fingerprint(AsyncStore, _no_steps)  # its state could be seen, but not its steps
register_fingerprint(Store, _no_steps)
# An array finds its entries through a cache in C, which says nothing about its future.
register_fingerprint(Sections, lambda array: [array._table, array.sections, array.inside])


class Options(TypedDict, total=False):
    """The keyword arguments of ``explore`` that a scenario in one function leaves open."""

    failures: int
    lost_replies: int
    cancellations: int
    crashes: int
    early_timers: int
    processes: Sequence[int] | None
    raises: tuple[type[BaseException], ...]
    steps: Sequence[str]
    symmetric: bool
    prune: Literal["state", "none"] | Fingerprint
    limit: int
    seconds: float
    max_moves: int
    stop_at_failure: bool
    replay: str | None
    mode: Mode
    runs: int
    seed: int


class AllOptions(Options, total=False):
    """All keyword arguments of ``explore``."""

    check: Callable[..., Any] | None
    always: Callable[..., Any] | None
    outcome: Callable[..., Any] | None
    restart: Callable[..., Any] | None


@overload
def explore(
    setup: Callable[..., Any] | None,
    callers: Sequence[Callable[..., Any]] | None = None,
    **options: Unpack[AllOptions],
) -> Result: ...
@overload
def explore(
    *, expect: str = ..., **options: Unpack[Options]
) -> Callable[[Callable[..., Any]], Callable[..., None]]: ...
def explore(
    setup: Callable[..., Any] | None = None,
    callers: Sequence[Callable[..., Any]] | None = None,
    *,
    check: Callable[..., Any] | None = None,
    always: Callable[..., Any] | None = None,
    outcome: Callable[..., Any] | None = None,
    failures: int = 0,
    lost_replies: int = 0,
    cancellations: int = 0,
    crashes: int = 0,
    early_timers: int = 0,
    processes: Sequence[int] | None = None,
    restart: Callable[..., Any] | None = None,
    raises: tuple[type[BaseException], ...] = (),
    steps: Sequence[str] = (),
    symmetric: bool = True,
    prune: Literal["state", "none"] | Fingerprint = "state",
    limit: int = 1_000_000,
    seconds: float = 60.0,
    max_moves: int = 10_000,
    stop_at_failure: bool = True,
    replay: str | None = None,
    mode: Mode = "all",
    runs: int = 1000,
    seed: int = 0,
    expect: str = scenarios.EXPECTED[0],
) -> Any:
    """Run the scenario under every schedule within the budgets; see ``perkey.testing``.

    The search stops, and is not green, after ``seconds`` of processor time or ``limit`` states.
    ``mode="random"`` or ``"pct"`` draws ``runs`` random schedules from ``seed`` instead.

    Without a scenario it is a decorator, ``@explore(failures=1)``, that makes a test of one;
    ``expect="fails"`` (or a kind of failure) is for planted bugs.
    """
    options = dict(locals())  # all that was given, under its own name
    del options["setup"], options["callers"], options["expect"]
    if setup is None and callers is None:
        return scenarios.as_test(lambda test: _again(test, options), expect, "tasks")
    if callers is None and scenarios.is_scenario(setup):
        if any(judge is not None for judge in (check, always, outcome, restart)):
            raise UsageError(
                "expected no check=, always=, outcome= or restart= with a scenario that yields its "
                "callers and checks after its yield; give explore() a setup and callers for these"
            )
        setup, callers, check = scenarios.take_apart(_required(setup), "tasks", _made)
    elif callers is None:
        setup, callers = None, [_required(setup)]
    program = Program(
        setup, tuple(callers), check, always, outcome, raises,
        (failures, lost_replies, cancellations, crashes, early_timers),
        tuple(range(len(callers)) if processes is None else processes),
        restart, symmetric, max_moves,
    )  # fmt: skip
    fingerprint = prune if isinstance(prune, Fingerprint) else None
    result = _result(program, prune != "none")
    if prune == "state":
        fingerprint = Fingerprint()
    search = Search(program, fingerprint, limit, seconds, result, stop_at_failure)
    if mode != "all":
        result.pruned = False
        search = Sample(
            program, None, limit, seconds, result, stop_at_failure, mode=mode, runs=runs, seed=seed
        )
    with Quiet():
        # What surrounds the call is no part of the scenario, so its context starts empty.
        contextvars.Context().run(_run, search, steps, replay)
    session.note(result)
    return result


def _again(test: Callable[[], Any], options: dict[str, Any]) -> Result:
    """The search of a decorated test, or the schedule that the runner asks for."""
    wanted = session.REPLAY.get()
    return explore(test, **(options if wanted is None else options | {"replay": wanted}))


def _made(setup: Callable[[], Any]) -> Any:
    """One state, on a loop of its own that is thrown away."""
    run = Run(Program(setup, ()))
    try:
        return run.state
    finally:
        run.close()


def _result(program: Program, pruned: bool) -> Result:
    names = ("failures", "lost replies", "cancellations", "crashes", "early timers")
    return Result(program.names, dict(zip(names, program.budgets, strict=True)), pruned=pruned)


def _run(search: Search, steps: Sequence[str], replay: str | None) -> None:
    start = time.monotonic()
    if replay is not None:
        _replay(search.program, replay, search.result)
        return
    search.explore()
    search.result.seconds = time.monotonic() - start
    _conclude(search, steps)


def _required(scenario: Callable[..., Any] | None) -> Callable[..., Any]:
    if scenario is None:
        raise TypeError("explore() needs a scenario, or a setup and callers")
    return scenario


def _replay(program: Program, text: str, result: Result) -> None:
    try:
        moves = schedule(text)
    except ValueError:
        raise UsageError(f"expected replay= as a story gives it, found {text!r}") from None
    result.mode = "replay"
    try:
        told, violation = story.tell(program, moves)
    except Diverged as error:
        raise Diverged(
            f"expected a schedule of this scenario, found a move not possible there: {error}; if "
            "the code was changed since, search again"
        ) from None
    result.schedules, result.moves = 1, len(moves)
    if violation is not None:
        result.failure = _failure(violation, moves, told)


def _failure(violation: Violation, moves: list[Move], told: str) -> Failure:
    return Failure(violation.kind, violation.message, notation(moves), told, violation.error)


def _conclude(search: Search, steps: Sequence[str]) -> None:
    result, program = search.result, search.program
    if search.found is not None:
        moves, violation = search.found
        moves = shrinking.shrink(program, moves, violation)
        told, again = story.tell(program, moves)
        result.failure = _failure(again or violation, moves, told)
    result.step_points = sorted(search.steps_seen)
    result.cancel_points = sorted(search.cancels_seen)
    result.unseen = _unseen(search, steps)


def _unseen(search: Search, steps: Sequence[str]) -> list[str]:
    """What was declared or budgeted for and never came up: then the search proves nothing."""
    program, budgets = search.program, search.result.budgets
    if search.found is not None:
        return []
    names = program.names
    found = [f"{names[n]} never ran" for n in range(len(names)) if n not in search.ran]
    found += [f"step {name!r} was never reached" for name in steps if name not in search.steps_seen]
    if budgets["failures"] and not search.steps_seen:
        found.append("failures were budgeted, and no step() was reached")
    if budgets["lost replies"] and not search.effects_seen:
        found.append(
            "lost replies were budgeted, and no step() with an effect was reached "
            "(a commit of SteppedStore(replies=True) is one)"
        )
    if len(names) > 1 and not search.interleaved:
        found.append("the callers never interleaved: each ran to its end without an await")
    return found


class Quiet:
    """Garbage collection only between runs, and no warnings about what is abandoned."""

    def __enter__(self) -> None:
        self._enabled = gc.isenabled()
        gc.freeze()  # what was there before is not looked through again and again
        gc.disable()
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)

    def __exit__(self, *exc: object) -> None:
        gc.collect()
        self._warnings.__exit__(None, None, None)
        gc.unfreeze()
        if self._enabled:
            gc.enable()
