"""The shortest process in other libraries; run by ``benchmarks.engine`` where they are there."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

COUNT = 1024
CROWD = 512


def told(what: str, count: int, began: tuple[float, float]) -> None:
    wall, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
    print(f"{what:<58}{count / wall:>10,.0f}/s {count / cpu:>10,.0f} a CPU second")


def now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def dbos() -> None:
    """Workflows without a step, ``CROWD`` at once, with its own SQLite system database."""
    from dbos import DBOS

    folder = tempfile.TemporaryDirectory(prefix="perkey-bench-")
    url = f"sqlite:///{Path(folder.name) / 'dbos.sqlite'}"
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})

    @DBOS.workflow()  # type: ignore[misc]
    async def body() -> int:
        return 1

    async def crowd() -> None:
        left = [COUNT]

        async def caller() -> None:
            while left[0] > 0:
                left[0] -= 1
                await body()

        began = now()
        await asyncio.gather(*[caller() for _ in range(CROWD)])
        told(f"DBOS on SQLite, {CROWD} at once", COUNT, began)

    DBOS.launch()
    asyncio.run(crowd())
    DBOS.destroy()
    folder.cleanup()


def spiff() -> None:
    """A workflow of one task, started and run to its end, one after the other, in memory."""
    from SpiffWorkflow.specs import WorkflowSpec
    from SpiffWorkflow.specs.Simple import Simple
    from SpiffWorkflow.workflow import Workflow

    spec = WorkflowSpec("bench", addstart=True)
    task = Simple(spec, "body")
    spec.start.connect(task)
    began = now()
    for _ in range(COUNT):
        flow: Any = Workflow(spec)
        flow.run_all()
        assert flow.is_completed()
    told("SpiffWorkflow, in memory, one after the other", COUNT, began)


if __name__ == "__main__":
    {"dbos": dbos, "SpiffWorkflow": spiff}[sys.argv[1]]()
