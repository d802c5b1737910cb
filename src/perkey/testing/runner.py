"""One run of a scenario under one schedule."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from perkey.testing.loop import Loop
from perkey.testing.moves import CANCEL, CRASH, EARLY, FAIL, LOSE, STEP, TIMER, Move
from perkey.testing.points import InjectedFailure

INJECTIONS = (FAIL, LOSE, CANCEL, CRASH, EARLY)


@dataclass(frozen=True)
class Program:
    """What is explored: the scenario, what must hold, and the budgets of injections."""

    setup: Callable[[], Any] | None
    callers: Sequence[Callable[..., Any]]
    check: Callable[..., Any] | None = None
    always: Callable[..., Any] | None = None
    outcome: Callable[..., Any] | None = None
    raises: tuple[type[BaseException], ...] = ()
    budgets: tuple[int, ...] = (0,) * len(INJECTIONS)
    processes: Sequence[int] = ()
    restart: Callable[..., Any] | None = None
    symmetric: bool = True
    max_moves: int = 10_000

    @functools.cached_property
    def names(self) -> list[str]:
        """What the callers are called in stories: their function, numbered when shared."""
        plain = [_name(caller) for caller in self.callers]
        return [
            name if plain.count(name) == 1 else f"{name}#{plain[: index + 1].count(name)}"
            for index, name in enumerate(plain)
        ]

    @functools.cached_property
    def groups(self) -> list[int]:
        """Callers with one number are interchangeable: the same function, and the same process
        or each alone in its own."""
        kinds = [
            (caller, self.processes[index] if self.shared(index) else None)
            for index, caller in enumerate(self.callers)
        ]
        if not self.symmetric:
            return list(range(len(kinds)))
        return [
            next(i for i, other in enumerate(kinds) if other[0] is mine[0] and other[1] == mine[1])
            for mine in kinds
        ]

    @functools.cached_property
    def _arities(self) -> dict[Any, int]:
        given = (self.check, self.always, self.outcome)
        return {judge: _arity(judge) for judge in given if judge is not None}

    def arity(self, judge: Callable[..., Any]) -> int:
        """How many of (state, ended) one of the user's functions takes."""
        return self._arities[judge]

    def shared(self, caller: int) -> bool:
        """Whether other callers are in this caller's process."""
        return list(self.processes).count(self.processes[caller]) > 1


def _name(caller: Any) -> str:
    while hasattr(caller, "func"):
        caller = caller.func
    return str(getattr(caller, "__name__", type(caller).__name__)).strip("<>")


@dataclass(frozen=True)
class Violation:
    """What went wrong in a run: a kind for programs, a message for people."""

    kind: str
    message: str
    error: BaseException | None = field(default=None, compare=False)


@dataclass
class Ended:
    """How the callers of a finished run ended; one entry each, in the order they were given."""

    results: list[Any]
    errors: list[BaseException | None]
    crashed: list[bool]
    """Whether a crash struck this caller before it was done."""
    cancelled: list[bool]
    failed: list[bool]
    """Whether a step of this caller was failed, or lost its reply."""
    waiting: list[bool]
    """Whether this caller waits for ever: the run is a deadlock."""


class Run:
    """A fresh scenario on a fresh loop.  ``close`` must be called."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.loop = Loop(len(program.callers))
        self.spent = [0] * len(INJECTIONS)
        self._budgets = list(program.budgets)
        self.flags = [0] * len(program.callers)
        self.started: set[int] = set()
        self.depth = 0
        self._before = asyncio._get_running_loop()
        asyncio._set_running_loop(self.loop)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        program, loop = self.program, self.loop
        arguments: tuple[Any, ...] = ()
        self.state: Any = None
        if program.setup is not None:
            self.state = self.drive(program.setup())
            arguments = (self.state,)
        names = program.names
        for index, caller in enumerate(program.callers):
            loop.start(caller(*arguments), names[index], program.processes[index], index)
        loop.clock_was_read = False
        loop.last = None

    def drive(self, result: Any) -> Any:
        """The value of ``result``; a coroutine is run to its end, in plain asyncio order."""
        if not inspect.iscoroutine(result):
            return result
        task = self.loop.start(result, "setup")
        while not task.done():
            move = self.loop.next_in_order()
            if move is None:
                raise RuntimeError("the setup or the check waits for something that never comes")
            self.loop.make(move)
        return task.result()

    # ------------------------------------------------------------ what may happen

    def moves(self) -> list[Move]:
        """All that may happen now; injections last.  Empty when the run is at its end."""
        loop = self.loop
        found = loop.moves()
        live = [n for n in range(len(self.flags)) if self.runs(n)]
        if not live and not loop.ready and not loop.callbacks:
            return []
        if self.spent != self._budgets:
            found += self._injections(self.left(), live, found)
        return found

    def left(self) -> list[int]:
        """What is left of each budget."""
        return [all_ - gone for all_, gone in zip(self.program.budgets, self.spent, strict=True)]

    def root(self) -> tuple[Any, ...]:
        """What the scenario's own state can be reached from."""
        return (self.state, *self.program.callers)

    def _injections(self, left: list[int], live: list[int], found: list[Move]) -> list[Move]:
        loop = self.loop
        extra: list[Move] = []
        for number in sorted(loop.points):
            if number in loop.ready and not loop.tasks[number]._must_cancel:
                point = loop.points[number]
                if left[0] and point.error is not None:
                    extra.append(Move(FAIL, number))
                if left[1] and point.lost is not None:
                    extra.append(Move(LOSE, number))
        if left[2]:
            extra += [Move(CANCEL, number) for number in live]
        if left[3]:
            processes = self.program.processes
            extra += [Move(CRASH, p) for p in sorted({processes[number] for number in live})]
        if left[4] and found and all(move.kind != TIMER for move in found):
            extra += [Move(EARLY, index) for index in range(len(loop.due()))]
        return extra

    def runs(self, caller: int) -> bool:
        """Whether a caller is neither done nor dead."""
        return not (self.loop.tasks[caller].done() or self.loop.is_dead(caller))

    def follow(self, moves: Sequence[Move]) -> None:
        """``make`` each of ``moves``, faster; for schedules that were run before."""
        first = 0
        for index, (kind, number) in enumerate(moves):
            if kind == STEP:
                self.started.add(number)
            elif kind >= FAIL:
                self.loop.follow(moves[first:index])
                self.make(moves[index])
                self.depth -= 1
                first = index + 1
        self.loop.follow(moves[first:])
        self.depth += len(moves)

    def make(self, move: Move) -> None:
        """Let ``move`` happen."""
        kind, number = move
        self.depth += 1
        if kind == STEP:
            self.started.add(number)
        if kind >= FAIL:
            self.spent[kind - FAIL] += 1
            if kind in (FAIL, LOSE, CANCEL) and number < len(self.flags):
                self.flags[number] |= 2 if kind == CANCEL else 1
        self.loop.make(move)
        if kind == CRASH and self.program.restart is not None:
            self._restart(number)

    def _restart(self, process: int) -> None:
        restart = self.program.restart
        assert restart is not None
        arguments = () if self.program.setup is None else (self.state,)
        self.loop.start(restart(*arguments), "restart", -1 - process)

    # ------------------------------------------------------------ what went wrong

    def violation(self) -> Violation | None:
        """What is wrong right now, in the middle of a run."""
        if self.loop.problems:
            problem = self.loop.problems[0]
            return Violation("error", str(problem.get("message")), problem.get("exception"))
        if self.depth > self.program.max_moves:
            return Violation("endless", f"still running after {self.program.max_moves} moves")
        if self.program.always is not None:
            return self._judge("always", self.program.always, False)
        return None

    def verdict(self) -> Violation | None:
        """What is wrong at the end of a run: the caller's errors, a deadlock, the check."""
        waiting = [n for n in range(len(self.flags)) if self.runs(n)]
        waiting += [n for n in self._restarted() if not self.loop.tasks[n].done()]
        if waiting:
            return Violation("deadlock", f"{len(waiting)} wait for ever")
        for number in [*range(len(self.flags)), *self._restarted()]:
            unexpected = self._unexpected(number)
            if unexpected is not None:
                name = self.loop.tasks[number].get_name()
                return Violation("raised", f"{name} raised {unexpected!r}", unexpected)
        if self.program.check is not None:
            return self._judge("check", self.program.check, True)
        return None

    def _restarted(self) -> list[int]:
        return [n for n, p in enumerate(self.loop.processes) if p is not None and p < 0]

    def _unexpected(self, number: int) -> BaseException | None:
        task = self.loop.tasks[number]
        if not task.done():
            return None
        if task.cancelled():
            cancelled = number < len(self.flags) and self.flags[number] & 2
            return None if cancelled else asyncio.CancelledError()
        error: BaseException | None = task.exception()
        if error is None or isinstance(error, (InjectedFailure, *self.program.raises)):
            return None
        return error

    def _judge(self, kind: str, judge: Callable[..., Any], may_wait: bool) -> Violation | None:
        try:
            verdict = self.call(judge)
            if may_wait:
                verdict = self.drive(verdict)
        except Exception as error:
            text = str(error) or type(error).__name__
            if not isinstance(error, AssertionError):
                text = f"{type(error).__name__}: {text}"
            return Violation(kind, text.strip(), error)
        if verdict is False:
            return Violation(kind, f"{_name(judge)} is false")
        return None

    def call(self, judge: Callable[..., Any]) -> Any:
        """Call a user's function with as many of (state, ended) as it takes."""
        takes = self.program.arity(judge)
        if self.program.setup is None:
            return judge(self.ended()) if takes else judge()
        return judge(self.state, self.ended()) if takes > 1 else judge(*(self.state,)[:takes])

    def ended(self) -> Ended:
        callers = range(len(self.flags))
        tasks = self.loop.tasks
        over = [tasks[n].done() and not tasks[n].cancelled() for n in callers]
        errors = [tasks[n].exception() if over[n] else None for n in callers]
        return Ended(
            [tasks[n].result() if over[n] and errors[n] is None else None for n in callers],
            errors,
            [not tasks[n].done() and self.loop.is_dead(n) for n in callers],
            [tasks[n].cancelled() for n in callers],
            [bool(self.flags[n] & 1) for n in callers],
            [self.runs(n) for n in callers],
        )

    def close(self) -> None:
        """Dispose of what is left."""
        try:
            self.loop.dispose()
            self.state = None
        finally:
            asyncio._set_running_loop(self._before)


def _arity(function: Callable[..., Any]) -> int:
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 2
    positional = [p for p in parameters if p.kind <= p.POSITIONAL_OR_KEYWORD]
    return max(sum(p.default is p.empty for p in positional), min(1, len(positional)))
