"""What a board's record says, and the pure rules for changing it.

The whole run is one value, so any store that can commit one key can keep a board.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from perkey.errors import IncompleteRun, InvalidState, LeaseHeld, LeaseLost, NotFound, UsageError
from perkey.flows import arguments
from perkey.store import codec
from perkey.store.keys import check_name
from perkey.store.record import Record

OPEN, RUNNING, DONE, FAILED = "open", "running", "done", "failed"
NOTHING = msgspec.Raw(b"null")
MAX_TASKS = 10_000
MAX_REASON = 1_000


class Task(msgspec.Struct, omit_defaults=True):
    """One task of a run, as its record keeps it."""

    spec: msgspec.Raw = NOTHING
    """What the worker needs to know, as given to ``create``."""
    state: str = OPEN
    worker: str = ""
    token: int = 0
    """The token of its latest claim."""
    expires: int = 0
    """When that claim runs out, in milliseconds of store time."""
    attempts: int = 0
    output: msgspec.Raw = NOTHING
    reason: str = ""


class Run(msgspec.Struct):
    """The value of a board's record."""

    tasks: dict[str, Task]
    attempts: int
    """How often a task may be claimed before it counts as failed."""
    token: int = 0
    """The latest token given out on this board; only grows."""
    completed: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker's right to one task until it runs out."""

    run: str
    task: str
    worker: str
    token: int
    """Larger than that of every earlier claim on this board."""
    expires: int
    """When it runs out, in milliseconds of store time."""
    attempt: int
    """1 for the task's first claim."""
    spec: Any
    """What ``create`` said about the task."""


_decoder = msgspec.json.Decoder(Run)
_encoder = msgspec.json.Encoder()


def decode(name: str, record: Record | None) -> Run:
    """The run in a record; ``NotFound`` where none was created."""
    if record is None or record.body is None:
        raise NotFound(f"there is no board {name!r}; create(tasks) makes one", key=name)
    return _decoder.decode(record.body)


def encode(run: Run) -> bytes:
    """The value to store for ``run``."""
    return _encoder.encode(run)


def dispatched(tasks: Iterable[str] | Mapping[str, Any], attempts: int) -> Run:
    """A fresh run: names alone, or names with what their workers need to know."""
    arguments.several("the tasks", tasks, "names; use [name] for one")
    names = list(tasks)
    specs = dict(tasks) if isinstance(tasks, Mapping) else dict.fromkeys(names)
    if len(specs) != len(names):
        raise UsageError("expected each task once, found a name twice")
    if not 1 <= len(specs) <= MAX_TASKS:
        raise UsageError(f"expected 1 to {MAX_TASKS} tasks, found {len(specs)}")
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
        raise UsageError(f"expected attempts from 1 up, found {attempts!r}")
    for name in specs:
        check_name(name)
    return Run(
        {name: Task(msgspec.Raw(codec.encode(spec))) for name, spec in specs.items()}, attempts
    )


def same_dispatch(one: Run, other: Run) -> bool:
    """Whether two runs were created from the same tasks, whatever became of them."""
    if list(one.tasks) != list(other.tasks) or one.attempts != other.attempts:
        return False
    return all(bytes(one.tasks[name].spec) == bytes(other.tasks[name].spec) for name in one.tasks)


def claimable(task: Task, now: int) -> bool:
    """Open, or its worker's time is over."""
    return task.state == OPEN or (task.state == RUNNING and now >= task.expires)


def finished(task: Task) -> bool:
    """Nothing more will happen to it."""
    return task.state in {DONE, FAILED}


def give_up_spent(run: Run, now: int) -> list[tuple[str, str, int]]:
    """Fail the tasks whose last allowed worker ran out of time; (task, worker, token) of each."""
    spent = []
    for name, task in run.tasks.items():
        over = task.state == RUNNING and now >= task.expires
        if over and task.attempts >= run.attempts:
            task.state = FAILED
            task.reason = f"attempt {task.attempts}, the last, by {task.worker!r} ran out of time"
            spent.append((name, task.worker, task.token))
    return spent


def choose(name: str, run: Run, wanted: str | None, now: int) -> str | None:
    """The task to hand out; None when all are finished, ``LeaseHeld`` when one must wait."""
    if wanted is not None:
        return _wanted(name, run, wanted, now)
    for state in (OPEN, RUNNING):
        for each, task in run.tasks.items():
            if task.state == state and claimable(task, now):
                return each
    busy = [task.expires for task in run.tasks.values() if not finished(task)]
    if not busy:
        return None
    raise _held(f"every unfinished task of {name!r} is at work elsewhere", min(busy) - now, now)


def _wanted(name: str, run: Run, wanted: str, now: int) -> str:
    task = find(name, run, wanted)
    if finished(task):
        raise InvalidState(f"task {wanted!r} of {name!r} is {task.state}; it cannot be claimed")
    if not claimable(task, now):
        raise _held(
            f"task {wanted!r} of {name!r} is at work by {task.worker!r}", task.expires - now, now
        )
    return wanted


def _held(what: str, left: int, now: int) -> LeaseHeld:
    return LeaseHeld(
        f"{what}; the next claim runs out in {left} ms, wait for it with wait=SECONDS",
        retry_after_ms=left,
        now=now,
    )


def find(name: str, run: Run, task: str) -> Task:
    """The task of that name."""
    found = run.tasks.get(task)
    if found is None:
        raise NotFound(f"board {name!r} has no task {task!r}", key=name, task=task)
    return found


def claim(name: str, run: Run, task: str, worker: str, expires: int) -> Claim:
    """Give ``task`` to ``worker`` with the board's next token."""
    run.token += 1
    entry = run.tasks[task]
    entry.state, entry.worker, entry.token = RUNNING, worker, run.token
    entry.expires, entry.attempts, entry.reason = expires, entry.attempts + 1, ""
    spec = codec.decode(bytes(entry.spec))
    return Claim(name, task, worker, run.token, expires, entry.attempts, spec)


def held(run: Run, mine: Claim, now: int) -> Task:
    """The claimed task, or ``LeaseLost`` unless this very claim still holds it."""
    task = find(mine.run, run, mine.task)
    if task.state != RUNNING or task.token != mine.token:
        raise LeaseLost(
            f"expected task {mine.task!r} at work under token {mine.token}, found it {task.state} "
            f"under token {task.token} of {task.worker!r}; drop this result",
            key=mine.run,
            task=mine.task,
            token=mine.token,
        )
    if now >= task.expires:
        raise LeaseLost(
            f"the claim on task {mine.task!r} (token {mine.token}) ran out "
            f"{now - task.expires} ms ago; drop this result, or claim the task again",
            key=mine.run,
            task=mine.task,
            token=mine.token,
        )
    return task


def empty(value: Any) -> bool:
    """No output: null, or a text, list or object with nothing in it.  0 and false are some."""
    return value is None or value == "" or value == [] or value == {}


def check_complete(name: str, run: Run, absent: list[str]) -> None:
    """Raise ``IncompleteRun`` unless every task is done and left an output.

    ``absent``: tasks whose output is not in the document where it should be.
    """
    open_tasks = [each for each, task in run.tasks.items() if task.state != DONE]
    lacking = [
        each
        for each, task in run.tasks.items()
        if task.state == DONE and (each in absent or empty(codec.decode(bytes(task.output))))
    ]
    if not open_tasks and not lacking:
        return
    failed = [each for each in open_tasks if run.tasks[each].state == FAILED]
    parts = [
        f"{what}: {', '.join(map(repr, names[:20]))}{', ...' if len(names) > 20 else ''}"
        for what, names in (
            ("not done", [each for each in open_tasks if each not in failed]),
            ("failed", failed),
            ("done without output", lacking),
        )
        if names
    ]
    raise IncompleteRun(
        f"run {name!r} is not complete: {len(run.tasks)} tasks dispatched, "
        f"{len(run.tasks) - len(open_tasks)} done; {'; '.join(parts)}",
        key=name,
        dispatched=len(run.tasks),
        done=len(run.tasks) - len(open_tasks),
        not_done=open_tasks,
        failed=failed,
        no_output=lacking,
        missing=open_tasks + lacking,
    )
