"""A budget that is charged in the same commit as the task: spent and done, or neither.

Agents do tasks that cost money.  Charging first and noting the result later, or the other way
round, goes wrong when a worker dies in between.  Here both are one commit, and a task that
would overdraw the budget is refused before anything is noted.
"""

from __future__ import annotations

import threading
from typing import Any

import perkey
from perkey import Board, Documents, InsufficientFunds, Tx

TASKS = {"summary": 30, "figures": 25, "links": 10, "translation": 60}  # what each costs, in cents
BUDGET = 100


def charge(task: str, cost: int) -> Any:
    """The change that goes into the commit of the task: pure, and refused where it must be."""

    def fn(tx: Tx) -> int:
        budget = tx["budget"]
        if budget["left"] < cost:
            raise InsufficientFunds(f"{task} costs {cost}, and {budget['left']} are left")
        tx["budget"] = {"left": budget["left"] - cost, "spent": {**budget["spent"], task: cost}}
        return int(budget["left"] - cost)

    return ("budget", fn)


def work(board: Board, worker: str) -> None:
    while (claim := board.claim(worker, lease=30, wait=60)) is not None:
        cost = claim.spec
        text = f"{claim.task} by {worker}"  # the minute of thinking
        try:
            left = board.finish(claim, text, also=charge(claim.task, cost))
            print(f"{worker}: {claim.task} done for {cost}, {left} left")
        except InsufficientFunds as refused:
            board.fail(claim, str(refused))
            print(f"{worker}: {refused}")


def main() -> None:
    with perkey.open("memory://") as store:  # sqlite:///work.db where workers are processes
        docs, board = Documents(store), Board(store, "report-7")
        docs.put("budget", {"left": BUDGET, "spent": {}}, create=True)
        board.create(TASKS)

        dead = board.claim("worker-0", lease=0.2)
        assert dead is not None
        print(f"worker-0: claims {dead.task}, does it, and dies before it can say so")

        threads = [threading.Thread(target=work, args=(board, f"worker-{n}")) for n in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        budget = docs.get("budget").value
        done = {task.name for task in board.status().tasks if task.state == "done"}
        print("spent:", budget["spent"], "left:", budget["left"])
        assert set(budget["spent"]) == done, "charged and done are the same tasks"
        assert budget["left"] == BUDGET - sum(budget["spent"].values()) >= 0
        assert len(done) == len(TASKS) - 1


if __name__ == "__main__":
    main()
