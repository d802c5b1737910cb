"""A run of tasks: one worker dies with its task, another takes over, and success is checked."""

from __future__ import annotations

import perkey
from perkey import Board, IncompleteRun


def main() -> None:
    with perkey.open("memory://") as store:  # sqlite:///work.db where workers are processes
        board = Board(store, "audit-7")
        board.create(["inventory", "links", "questions"])

        dying = board.claim("worker-1", lease=0.1)
        assert dying is not None
        print(f"worker-1 claims {dying.task} and dies")

        board.work("worker-2", lambda claim: f"{claim.task} is done", lease=30, wait=60)
        print("complete:", {task.name: task.worker for task in board.complete().tasks})


def false_success() -> None:
    """Every task is done, none left an output: not a success."""
    with perkey.open("memory://") as store:
        board = Board(store, "audit-8")
        board.create(["inventory", "links"])
        board.work(
            "worker-1", lambda claim: {"pages": 3} if claim.task == "links" else {}, lease=30
        )
        try:
            board.complete()
        except IncompleteRun as incomplete:
            print("refused:", incomplete)


if __name__ == "__main__":
    main()
    false_success()
