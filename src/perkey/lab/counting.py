"""How many schedules there are, and how many of them fail; counted exactly, not sampled.

A schedule is a whole run: every choice from the start to the end.  States that were met before
are not searched again, but what was counted below them is added again, so the numbers are those
of the whole unpruned tree.  That is sound for the reason for which pruning is: from states
with one fingerprint and the same budgets left, the same can happen.
"""

from __future__ import annotations

import contextvars
import gc
from dataclasses import dataclass, field
from typing import Any

from perkey.testing import Fingerprint
from perkey.testing.exploring import Quiet
from perkey.testing.moves import Move
from perkey.testing.runner import Program, Run
from perkey.testing.search import COLLECT_EVERY


class Endless(Exception):
    """A run came back to a state that it had been in: there is no number of its schedules."""


@dataclass(frozen=True)
class Count:
    """All schedules of a scenario, and those at whose end something is wrong."""

    schedules: int
    failing: int
    states: int
    """Distinct states with a choice; how much work it was."""


@dataclass
class _Node:
    """A state on the current path, and what was counted below it so far."""

    key: Any
    moves: list[Move]
    index: int = 0
    schedules: int = 0
    failing: int = 0


@dataclass
class _Counter:
    program: Program
    fingerprint: Fingerprint | None
    known: dict[Any, tuple[int, int]] = field(default_factory=dict)
    path: list[_Node] = field(default_factory=list)
    on_path: set[Any] = field(default_factory=set)
    runs: int = 0

    def count(self) -> tuple[int, int]:
        """(schedules, failing) of the whole program."""
        while True:
            found = self._run_down()
            while self.path:
                node = self.path[-1]
                node.schedules += found[0]
                node.failing += found[1]
                node.index += 1
                if node.index < len(node.moves):
                    break
                found = (node.schedules, node.failing)
                self.path.pop()
                if node.key is not None:
                    self.known[node.key] = found
                    self.on_path.discard(node.key)
            if not self.path:
                return found

    def _run_down(self) -> tuple[int, int]:
        """Run the path again and go on from its end, to a state that is known or to the end."""
        self.runs += 1
        if self.runs % COLLECT_EVERY == 0:
            gc.collect()
        run = Run(self.program)
        try:
            run.follow([node.moves[node.index] for node in self.path])
            while moves := run.moves():
                key = self._key(run) if len(moves) > 1 else None
                if key is not None:
                    if key in self.known:
                        return self.known[key]
                    if key in self.on_path:
                        raise Endless("expected runs that end, found one that goes in a circle")
                    self.on_path.add(key)
                self.path.append(_Node(key, moves))
                run.make(moves[0])
            return 1, int(run.violation() is not None or run.verdict() is not None)
        finally:
            run.close()

    def _key(self, run: Run) -> Any:
        if self.fingerprint is None:
            return None
        state = self.fingerprint.of(run.loop, run.root(), self.program.groups, run.flags)
        return state, tuple(run.left())


def count(program: Program, *, merge_states: bool = True) -> Count:
    """Count all schedules of ``program``.  Its ``check`` judges, at the end of each run.

    Without ``merge_states`` every schedule is run from end to end, which gives the same numbers
    and takes as long as there are schedules.
    """
    counter = _Counter(program, Fingerprint() if merge_states else None)
    with Quiet():
        schedules, failing = contextvars.Context().run(counter.count)
    return Count(schedules, failing, len(counter.known))
