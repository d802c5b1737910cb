"""``explore``: the door to the search."""

from __future__ import annotations

import contextvars
import gc
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

from perkey.locks import Sections
from perkey.testing import shrink as shrinking
from perkey.testing import story
from perkey.testing.certificate import Failure, Result
from perkey.testing.fingerprint import Fingerprint
from perkey.testing.moves import Move
from perkey.testing.parts import register_fingerprint
from perkey.testing.runner import Program, Violation
from perkey.testing.sample import Mode, Sample
from perkey.testing.search import Search, notation, schedule

# An array finds its entries through a cache in C, which says nothing about its future.
register_fingerprint(Sections, lambda array: [array._table, array.sections, array.inside])


def explore(
    setup: Callable[..., Any] | None,
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
) -> Result:
    """Run the scenario under every schedule within the budgets; see ``perkey.testing``.

    ``mode="random"`` or ``"pct"`` draws ``runs`` random schedules from ``seed`` instead.
    """
    if callers is None:
        setup, callers = None, [_required(setup)]
    program = Program(
        setup, tuple(callers), check, always, outcome, raises,
        (failures, lost_replies, cancellations, crashes, early_timers),
        tuple(range(len(callers)) if processes is None else processes),
        restart, symmetric, max_moves,
    )  # fmt: skip
    result = Result(
        program.names,
        {
            "failures": failures, "lost replies": lost_replies, "cancellations": cancellations,
            "crashes": crashes, "early timers": early_timers,
        },
        pruned=prune != "none",
    )  # fmt: skip
    fingerprint = prune if isinstance(prune, Fingerprint) else None
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
    return result


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
    moves = schedule(text)
    told, violation = story.tell(program, moves)
    result.mode = "replay"
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
        found.append("lost replies were budgeted, and no step() with an effect was reached")
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
