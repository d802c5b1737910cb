"""One worker process: claim a section, do the work, add the result to the one report.

Started as ``python -m perkey.cli.demo.worker RUN NAME`` with the store's URL in
``PERKEY_STORE``: an argument could be read by everyone on the machine.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import perkey
from perkey import Board, Document, Documents, Store
from perkey.cli.audit import SECTIONS, Corpus, gather
from perkey.cli.demo import plan as plans
from perkey.cli.demo import report
from perkey.clock import SYSTEM, Clock
from perkey.flows.tasklist import Claim

POLL_S = 0.02
START_TOGETHER_S = 60.0
"""How long a worker waits for the others before its first claim."""


class Worker:
    """What one process does with a run."""

    def __init__(self, store: Store, plan: plans.Plan, name: str, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._docs = Documents(store)
        self._board = Board(store, plan.key("board"))
        self._plan = plan
        self._name = name
        self._corpus: Corpus | None = None

    def work(self) -> int:
        """Take turns until every task of the run is finished; returns how many were ours.

        The board keeps a claim alive while its turn runs.  A dead worker's task comes back
        when his lease is over; that is what ``wait`` is for.
        """
        self._wait_for_the_others()
        lease, wait = self._plan.lease_s, self._plan.deadline_s
        return self._board.work(self._name, self._turn, lease=lease, wait=wait)

    def _wait_for_the_others(self) -> None:
        """Begin together, so that all of them read the same version of the report."""
        roll, clock = self._plan.key("roll"), self._clock
        end = clock.monotonic() + START_TOGETHER_S
        self._docs.update(roll, lambda names: [*names, self._name], by=self._name, default=[])
        while len(self._docs.get(roll).value) < self._plan.workers and clock.monotonic() < end:
            clock.sleep(POLL_S)

    def _turn(self, claim: Claim) -> dict[str, Any]:
        """Read early, work long, write small; returns the task's output."""
        read: Document = self._docs.get(self._plan.key("report"))
        section = self._section(claim.task, read.version)
        self._clock.sleep(self._plan.think_s)
        output = {"findings": section["found"]}
        key = self._plan.key("report")
        if self._plan.blind:
            report.overwrite_blindly(self._docs, key, claim.task, section, self._name, read)
        else:
            # The section and the end of the task in one commit, or neither of them.
            change = report.adding(key, claim.task, section)
            self._board.finish(claim, output, also=(key, change))
        return output

    def _section(self, name: str, began_from: int) -> dict[str, Any]:
        if self._corpus is None:
            self._corpus = gather(self._plan.paths)
        found = SECTIONS[name](self._corpus)
        return {**found, "by": self._name, "began_from": began_from}


def main(run: str, name: str) -> int:
    """The process: open the store, read the plan, work."""
    with perkey.open(os.environ["PERKEY_STORE"]) as store:
        plan = plans.from_stored(Documents(store).get(plans.key(run, "plan")).value)
        Worker(store, plan, name).work()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
