"""The search: every schedule of a scenario, or a random sample of them."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, field

from perkey.testing import where
from perkey.testing.certificate import Result
from perkey.testing.fingerprint import Fingerprint
from perkey.testing.loop import Diverged
from perkey.testing.moves import CANCEL, Move, describe, parse
from perkey.testing.runner import Program, Run, Violation

COLLECT_EVERY = 400
"""Runs between two garbage collections: abandoned runs are full of cycles."""


@dataclass(slots=True)
class Node:
    """A state on the current path with the choices it offers; ``index`` is being explored."""

    moves: list[Move]
    index: int = 0


@dataclass
class Search:
    """Depth-first, by running the scenario again from its start for every branch."""

    program: Program
    fingerprint: Fingerprint | None
    limit: int
    seconds: float
    result: Result
    stop_at_failure: bool = True
    visited: dict[bytes, list[tuple[int, ...]]] = field(default_factory=dict)
    path: list[Node] = field(default_factory=list)
    found: tuple[list[Move], Violation] | None = None
    interleaved: bool = False
    effects_seen: bool = False
    steps_seen: set[str] = field(default_factory=set)
    cancels_seen: set[str] = field(default_factory=set)
    ran: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.groups = self.program.groups
        self._first: bytes | None = None

    def explore(self) -> None:
        """Search until nothing is left, a schedule fails, or a limit is reached."""
        result, path = self.result, self.path
        deadline = time.process_time() + self.seconds
        while True:
            self._one_run()
            result.schedules += 1
            if self.found is not None and self.stop_at_failure:
                return
            while path and path[-1].index + 1 >= len(path[-1].moves):
                path.pop()
            if not path:
                return
            if result.states > self.limit:
                result.incomplete = f"more than {self.limit:,} states"
                return
            if time.process_time() > deadline:
                result.incomplete = f"not done after {self.seconds:g} s of processor time"
                return
            path[-1].index += 1
            if result.schedules % COLLECT_EVERY == 0:
                gc.collect()

    def _one_run(self) -> None:
        """Run the path again, then go on into new states until the end or a known state."""
        run = Run(self.program)
        try:
            if self.result.schedules < 3:
                self._same_start(run)
            run.follow(self._schedule())
            violation = self._extend(run)
            self.result.moves += run.depth
            self.result.longest = max(self.result.longest, run.depth)
            if violation is not None and self.found is None:
                self.found = (self._schedule(), violation)
        finally:
            run.close()

    def _extend(self, run: Run) -> Violation | None:
        while True:
            violation = run.violation()
            if violation is not None:
                return violation
            moves = run.moves()
            self._note(run, moves)
            if not moves:
                return self._end(run)
            if len(moves) > 1 and self._known(run):
                return None
            self.path.append(Node(moves))
            run.make(moves[0])

    def _end(self, run: Run) -> Violation | None:
        if self.program.outcome is not None:
            outcome = run.call(self.program.outcome)
            if outcome not in self.result.outcomes:
                self.result.outcomes[outcome] = notation(self._schedule())
        return run.verdict()

    def _schedule(self) -> list[Move]:
        return [node.moves[node.index] for node in self.path]

    def _known(self, run: Run) -> bool:
        """Whether this state was searched before with at least the budgets that are left."""
        if self.fingerprint is None:
            self.result.states += 1
            return False
        state = self.fingerprint.of(run.loop, run.root(), self.groups, run.flags)
        left = tuple(run.left())
        before = self.visited.get(state)
        if before is None:
            self.visited[state] = [left]
            self.result.states += 1
            return False
        for other in before:
            if all(a >= b for a, b in zip(other, left, strict=True)):
                return True
        before.append(left)
        return False

    def _same_start(self, run: Run) -> None:
        """A setup that hands out used objects would make the search explore something else."""
        if self.fingerprint is None:
            return
        start = self.fingerprint.of(run.loop, run.root(), self.groups, run.flags)
        if self._first is None:
            self._first = start
        elif self._first != start:
            raise Diverged(
                "expected the same state at the start of every run, found another one: the setup "
                "must make everything anew (no globals, no random numbers, no real clock)"
            )

    def _note(self, run: Run, moves: list[Move]) -> None:
        """Remember what the scenario was seen to do, for the certificate."""
        for point in run.loop.points.values():
            self.steps_seen.add(point.name)
            if point.lost is not None:
                self.effects_seen = True
        for move in moves:
            if move.kind == CANCEL:
                self.cancels_seen.add(where.stands(run.loop.tasks[move.number]))
        if not self.interleaved:
            live = [n for n in range(len(run.flags)) if run.runs(n)]
            self.interleaved = len(live) > 1 and any(n in run.started for n in live)
        self.ran |= run.started


def notation(moves: list[Move]) -> str:
    """A schedule as a short string: words, with ``*n`` for repeats."""
    words: list[str] = []
    for move in moves:
        word = describe(move)
        head, _, times = words[-1].partition("*") if words else ("", "", "")
        if head == word:
            words[-1] = f"{word}*{int(times or 1) + 1}"
        else:
            words.append(word)
    return " ".join(words)


def schedule(text: str) -> list[Move]:
    """The inverse of ``notation``."""
    moves: list[Move] = []
    for word in text.split():
        head, _, times = word.partition("*")
        moves += [parse(head)] * int(times or 1)
    return moves
