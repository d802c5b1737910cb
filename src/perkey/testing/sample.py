"""Random schedules, for scenarios that are too large to search.  Seeded, so repeatable.

``random`` picks any of the tasks that may step.  ``pct`` gives every task a random priority,
lets the highest one step, and lowers it at ``DEPTH - 1`` random moves: a bug that needs few
ordering constraints is found with a known probability (Burckhardt, Kothari, Musuvathi and
Nagarakatte, "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", 2010).
Neither proves anything: the verdict says "sampled".
"""

from __future__ import annotations

import gc
import random
import time
from dataclasses import dataclass, field
from typing import Literal

from perkey.testing.moves import FAIL, Move
from perkey.testing.runner import Run
from perkey.testing.search import COLLECT_EVERY, Node, Search

DEPTH = 3
"""How many ordering constraints a PCT schedule can meet; most bugs need two or three."""

INJECT = 0.1
"""How often a move is one of the failures, cancellations, ... that are still in the budget."""

Mode = Literal["all", "random", "pct"]


@dataclass
class Sample(Search):
    """``runs`` random schedules instead of all of them."""

    mode: Mode = "random"
    runs: int = 1000
    seed: int = 0
    _priorities: dict[int, float] = field(default_factory=dict)
    _drops: set[int] = field(default_factory=set)

    def explore(self) -> None:
        """Draw schedules until one fails, the runs are done, or the time is up."""
        deadline = time.process_time() + self.seconds
        self.result.mode = f"{self.mode}, seed {self.seed}"
        length = 20
        for number in range(self.runs):
            if time.process_time() > deadline:
                self.result.incomplete = (
                    f"only {number} runs in {self.seconds:g} s of processor time"
                )
                return
            chance = random.Random(f"{self.seed}/{number}")
            self._priorities = {}
            self._drops = {chance.randrange(length) for _ in range(DEPTH - 1)}
            self._draw(chance)
            length = max(length, self.result.longest)
            self.result.schedules += 1
            if self.found is not None and self.stop_at_failure:
                return
            if number % COLLECT_EVERY == 0:
                gc.collect()

    def _draw(self, chance: random.Random) -> None:
        self.path.clear()
        run = Run(self.program)
        try:
            while (violation := run.violation()) is None:
                moves = run.moves()
                self._note(run, moves)
                if not moves:
                    violation = self._end(run)
                    break
                move = self._choose(moves, len(self.path), chance)
                self.path.append(Node([move]))
                run.make(move)
            self.result.moves += run.depth
            self.result.longest = max(self.result.longest, run.depth)
            if violation is not None and self.found is None:
                self.found = (self._schedule(), violation)
        finally:
            run.close()

    def _choose(self, moves: list[Move], depth: int, chance: random.Random) -> Move:
        plain = [move for move in moves if move.kind < FAIL]
        injections = moves[len(plain) :]
        if injections and (not plain or chance.random() < INJECT):
            return chance.choice(injections)
        if self.mode == "random":
            return chance.choice(plain)
        best = max(plain, key=lambda move: self._priority(move, chance))
        if depth in self._drops:
            self._priorities[best.number] = -1.0 - depth
            best = max(plain, key=lambda move: self._priority(move, chance))
        return best

    def _priority(self, move: Move, chance: random.Random) -> float:
        return self._priorities.setdefault(move.number, chance.random())
