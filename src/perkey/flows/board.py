"""A board as flows: a run of named tasks that cannot report a false success."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from perkey.errors import Conflict, IncompleteRun, LeaseLost, NotFound, UsageError
from perkey.flows import arguments, pointer, steps, tasklist
from perkey.flows.leases import milliseconds, polling
from perkey.flows.records import check_by
from perkey.flows.tasklist import DONE, FAILED, MAX_REASON, OPEN, RUNNING, Claim, Run
from perkey.observe import events
from perkey.store import codec
from perkey.store.keys import BOARDS, DOCUMENTS, Key, check_name, in_space
from perkey.store.record import signed
from perkey.store.transaction import Fn, Outcome, Tx, check_fn, declared

Also = tuple[str | Sequence[str], Fn]
"""(keys, fn): a further change, committed together with the task's end or not at all."""

Outputs = Mapping[str, tuple[str, str]]
"""Task -> (document key, JSON pointer): where its output must be."""


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """How one task stood."""

    name: str
    state: str
    """open | running | done | failed"""
    worker: str
    """Who had it last."""
    attempts: int
    remaining_ms: int
    """How long its worker still has; 0 for a running task: it may be claimed by another."""
    output: Any
    reason: str
    """Why its last attempt failed."""


@dataclass(frozen=True, slots=True)
class Status:
    """How a run stood when the store was asked."""

    run: str
    version: int
    completed: bool
    tasks: tuple[TaskStatus, ...]

    def names(self, state: str) -> list[str]:
        """The tasks in that state, in the order of ``create``."""
        return [each.name for each in self.tasks if each.state == state]


def board_key(run: str) -> Key:
    """The stored key of a run's record."""
    return in_space(BOARDS, run)


def create(
    run: str, tasks: Iterable[str] | Mapping[str, Any], attempts: int, by: str
) -> steps.Flow[Status]:
    """Dispatch a run once; the same call again changes nothing, another one is a ``Conflict``."""
    key = board_key(run)
    check_by(by)
    fresh = tasklist.dispatched(tasks, attempts)

    def write(tx: Tx) -> None:
        head = tx.record(key)
        if head is None or head.deleted:
            tx.put_body(key, tasklist.encode(fresh))
        elif not tasklist.same_dispatch(fresh, tasklist.decode(run, head)):
            raise Conflict(
                f"board {run!r} exists with other tasks{signed(head.by)}; use another run name",
                key=run,
                expected=0,
                found=head.version,
                by=head.by,
            )

    yield steps.Transact((key,), write, by)
    return (yield from status(run))


def claim(
    run: str, worker: str, lease: float, task: str | None, wait: float
) -> steps.Flow[Claim | None]:
    """The next task for ``lease`` seconds; None when all are finished.

    Raises ``LeaseHeld`` when the unfinished ones are at work elsewhere for longer than
    ``wait`` seconds.
    """
    return (yield from polling(lambda: _claim_once(run, worker, lease, task), wait))


def _claim_once(run: str, worker: str, lease: float, task: str | None) -> steps.Flow[Claim | None]:
    key = board_key(run)
    check_by(worker)
    if not worker:
        raise UsageError("expected the worker's name, found an empty text: who holds the task?")
    if task is not None:
        check_name(task)
    length = milliseconds(lease)

    def take(tx: Tx) -> tuple[Claim | None, list[tuple[str, str, int]]]:
        board = tasklist.decode(run, tx.record(key))
        # Raising LeaseHeld below forgets what was given up here; the next claim sees it again.
        spent = tasklist.give_up_spent(board, tx.now)
        chosen = tasklist.choose(run, board, task, tx.now)
        taken = chosen and tasklist.claim(run, board, chosen, worker, tx.now + length)
        _write(tx, key, board)
        return taken or None, spent

    outcome: Outcome = yield steps.Transact((key,), take, worker)
    taken: Claim | None
    taken, spent = outcome.result
    for task_given_up, late, token in spent:
        yield steps.Emit(events.TaskChanged(run, task_given_up, late, token, "given up"))
    if taken is not None:
        yield steps.Emit(events.TaskChanged(run, taken.task, worker, taken.token, "claimed"))
    return taken


def _write(tx: Tx, key: Key, board: Run) -> None:
    body = tasklist.encode(board)
    if body != tx.body(key):
        tx.put_body(key, body)


def heartbeat(mine: Claim, lease: float) -> steps.Flow[Claim]:
    """Extend the claim to ``lease`` seconds from now; ``LeaseLost`` when it is too late."""
    length = milliseconds(lease)

    def extend(board: Run, tx: Tx) -> int:
        task = tasklist.held(board, mine, tx.now)
        task.expires = max(task.expires, tx.now + length)
        return task.expires

    return replace(mine, expires=(yield from _change(mine, extend, "extended")))


def finish(mine: Claim, output: Any, also: Also | None) -> steps.Flow[Any]:
    """Record the output, and ``also`` in the same commit; ``LeaseLost`` when it is too late.

    The same finish again is harmless and runs nothing.
    """
    raw = msgspec.Raw(codec.encode(output))
    keys, fn = _further(also)

    def end(board: Run, tx: Tx) -> Any:
        task = tasklist.find(mine.run, board, mine.task)
        if task.state == DONE and task.token == mine.token and bytes(task.output) == bytes(raw):
            return None
        task = tasklist.held(board, mine, tx.now)
        task.state, task.output = DONE, raw
        return None if fn is None else fn(tx)

    return (yield from _change(mine, end, "finished", keys))


def _further(also: Also | None) -> tuple[str | Sequence[str], Fn | None]:
    if also is None:
        return (), None
    if not isinstance(also, tuple) or len(also) != 2:
        raise UsageError(f"expected also=(keys, fn), found {type(also).__name__}")
    check_fn(also[1])
    if not isinstance(also[0], str):
        arguments.several("the keys of also=", also[0], "keys")
    return also


def fail(mine: Claim, reason: str, retry: bool) -> steps.Flow[bool]:
    """Give up this attempt; True when the task is open for another one."""
    arguments.text("a reason", reason)
    arguments.flag("retry=", retry)

    def end(board: Run, tx: Tx) -> bool:
        task = tasklist.held(board, mine, tx.now)
        again = retry and task.attempts < board.attempts
        task.state, task.reason = OPEN if again else FAILED, reason[:MAX_REASON]
        return again

    again: bool = yield from _change(mine, end, "failed")
    return again


def release(mine: Claim) -> steps.Flow[None]:
    """Hand the task back; the attempt does not count."""

    def end(board: Run, tx: Tx) -> None:
        task = tasklist.held(board, mine, tx.now)
        task.state, task.attempts = OPEN, task.attempts - 1

    yield from _change(mine, end, "released")


def _change(
    mine: Claim, edit: Callable[[Run, Tx], Any], change: str, keys: str | Sequence[str] = ()
) -> steps.Flow[Any]:
    if not isinstance(mine, Claim):
        raise UsageError(f"expected what claim() returned, found {type(mine).__name__}")
    key = board_key(mine.run)

    def run(tx: Tx) -> Any:
        board = tasklist.decode(mine.run, tx.record(key))
        result = edit(board, tx)
        _write(tx, key, board)
        return result

    try:
        outcome: Outcome = yield steps.Transact(declared(keys, key), run, mine.worker)
    except LeaseLost:
        yield steps.Emit(events.LateRefused(f"{mine.run}/{mine.task}", mine.worker, mine.token))
        raise
    if outcome.writes:  # a repeat changes nothing, so there is nothing to tell
        yield steps.Emit(events.TaskChanged(mine.run, mine.task, mine.worker, mine.token, change))
    return outcome.result


def status(run: str) -> steps.Flow[Status]:
    """How the run stands; a look, not a promise."""
    (record,) = yield steps.Read([board_key(run)])
    now: int = yield steps.Now()
    board = tasklist.decode(run, record)
    tasks = tuple(
        TaskStatus(
            name,
            task.state,
            task.worker,
            task.attempts,
            max(0, task.expires - now) if task.state == RUNNING else 0,
            codec.decode(bytes(task.output)),
            task.reason,
        )
        for name, task in board.tasks.items()
    )
    return Status(run, record.version, board.completed, tasks)


def complete(run: str, by: str, outputs: Outputs | None) -> steps.Flow[Status]:
    """Declare the run a success, or raise ``IncompleteRun`` that names what is missing.

    Compares the tasks dispatched, the tasks done and the outputs present, in one commit.
    """
    key = board_key(run)
    check_by(by)
    places = _places(outputs)

    def check(tx: Tx) -> None:
        board = tasklist.decode(run, tx.record(key))
        for task in places:
            tasklist.find(run, board, task)
        absent = [task for task, (name, path) in places.items() if not _present(tx, name, path)]
        tasklist.check_complete(run, board, absent)
        board.completed = True
        _write(tx, key, board)

    try:
        yield steps.Transact(declared([name for name, _ in places.values()], key), check, by)
    except IncompleteRun as incomplete:
        yield steps.Emit(events.Incomplete(run, by, tuple(incomplete.missing)))
        raise
    return (yield from status(run))


def _places(outputs: Outputs | None) -> dict[str, tuple[Key, pointer.Path]]:
    if outputs is None:
        return {}
    good = isinstance(outputs, Mapping) and all(
        isinstance(place, tuple | list) and len(place) == 2 for place in outputs.values()
    )
    if not good:
        raise UsageError('expected outputs={task: (document, "/json/pointer")}')
    return {
        task: (in_space(DOCUMENTS, document), pointer.parse(path))
        for task, (document, path) in outputs.items()
    }


def _present(tx: Tx, name: Key, path: pointer.Path) -> bool:
    try:
        return not tasklist.empty(pointer.get(tx.get(name), path))
    except NotFound:
        return False


def work(
    run: str,
    worker: str,
    handler: Callable[[Claim], Any],
    lease: float,
    wait: float,
) -> steps.Flow[int]:
    """Claim, call ``handler``, finish; until every task is finished.  Returns how many it did.

    While the handler runs, its claim is extended every third of ``lease``.  What it raises
    fails that attempt, and another attempt may follow.  A result that comes after the claim
    ran out all the same (the worker was paused) is dropped: another worker has the task.
    """
    every = milliseconds(lease) / 3000
    done = 0
    while (mine := (yield from claim(run, worker, lease, None, wait))) is not None:
        try:
            beat = partial(_beat, mine, lease)
            output = yield steps.Attend(handler, (mine,), every, beat)
        except UsageError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            yield from _unless_lost(fail(mine, reason, retry=True))
            continue
        done += yield from _unless_lost(finish(mine, output, None))
    return done


def _beat(mine: Claim, lease: float) -> steps.Flow[None]:
    yield from heartbeat(mine, lease)


def _unless_lost(flow: steps.Flow[Any]) -> steps.Flow[bool]:
    try:
        yield from flow
    except LeaseLost:
        return False
    return True
