"""A pool of worker processes over PostgreSQL, or any other store: one of them is killed.

    python examples/worker_pool.py postgresql://app:secret@db.example/work
    python examples/worker_pool.py            # on an SQLite file, to try it

The workers know nothing of each other.  They claim tasks from a board in the store; the claim
of the one that is killed runs out, another takes its task over, and nothing is done twice.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import perkey
from perkey import Board, Documents
from perkey.board import Claim

WORKERS = 3
TASKS = [f"invoice-{number}" for number in range(12)]
RUN = "invoices"


def worker(url: str, name: str, pipe: Connection) -> None:
    """Work until every task is finished.  The first task of worker-1 takes for ever."""
    with perkey.open(url) as store:
        board, docs = Board(store, RUN), Documents(store)

        def handle(claim: Claim) -> str:
            if name == "worker-1":
                pipe.send(claim.task)
                time.sleep(3600)
            docs.update("totals", lambda totals: {**totals, claim.task: name})
            return f"sent by {name}"

        done = board.work(name, handle, lease=2, wait=60)
        pipe.send(f"{name} finished {done} tasks")


def main(url: str) -> None:
    with perkey.open(url) as store:
        board, docs = Board(store, RUN), Documents(store)
        docs.put("totals", {}, create=True)
        board.create(TASKS)

        spawn = multiprocessing.get_context("spawn")  # as if they ran on other machines

        def hire(number: int) -> tuple[BaseProcess, Connection]:
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=worker, args=(url, f"worker-{number}", theirs))
            process.start()
            return process, ours

        victim, pipe = hire(1)
        task = pipe.recv()  # it has claimed one
        crew = [hire(number) for number in range(2, WORKERS + 1)]
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        victim.join()
        print(f"worker-1 is killed in the middle of {task}")

        for process, ours in crew:
            print(ours.recv())
            process.join()
        board.complete()
        print(f"complete: {task} was taken over by {docs.get('totals').value[task]}")
        assert sorted(docs.get("totals").value) == sorted(TASKS)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(f"sqlite:///{folder}/work.db")
