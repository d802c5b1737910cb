"""``Board`` and ``AsyncBoard``: a run of named tasks, worked off by whoever has time.

    board = Board(store, "audit-7")
    board.create(["inventory", "links"])
    while claim := board.claim("worker-1", lease=60, wait=600):
        board.finish(claim, work(claim.task))
    board.complete()

A dead worker's task can be claimed when its lease runs out, its late ``finish`` is refused,
and ``complete`` names what is missing instead of reporting a success.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from perkey.flows import board, records
from perkey.flows.board import Also, Outputs, Status
from perkey.flows.tasklist import Claim
from perkey.store.views import Document
from perkey.stores import AsyncStore, Store

ATTEMPTS = 5


class Board:
    """One run's board, for threads and processes."""

    def __init__(self, store: Store, run: str) -> None:
        self._store = store
        self.run = run
        """The run's name."""

    def create(
        self,
        tasks: Iterable[str] | Mapping[str, Any],
        *,
        attempts: int = ATTEMPTS,
        by: str = "",
    ) -> Status:
        """Dispatch these tasks: names, or names with what their workers need to know.

        A task fails for good after ``attempts`` claims.  The same call again changes nothing;
        another one for this run raises ``Conflict``.
        """
        made: Status = self._store.run(board.create(self.run, tasks, attempts, by))
        return made

    def claim(
        self, worker: str, *, lease: float, task: str | None = None, wait: float = 0.0
    ) -> Claim | None:
        """The next task (or that ``task``) for ``lease`` seconds; None when all are finished.

        ``worker`` is a name of 1 to 200 characters: others are told who is at work.

        While the unfinished tasks are at work elsewhere, polls for up to ``wait`` seconds,
        then raises ``LeaseHeld`` with ``retry_after_ms``.
        """
        found: Claim | None = self._store.run(board.claim(self.run, worker, lease, task, wait))
        return found

    def heartbeat(self, claim: Claim, *, lease: float) -> Claim:
        """Extend the claim to ``lease`` seconds from now; ``LeaseLost`` when it is too late."""
        longer: Claim = self._store.run(board.heartbeat(claim, lease))
        return longer

    def finish(self, claim: Claim, output: Any, *, also: Also | None = None) -> Any:
        """Record the task's output; ``LeaseLost`` when the claim ran out or passed on.

        ``also=(keys, fn)`` commits a further change with it, or neither; returns what ``fn``
        returned.  Repeating the same finish is harmless and runs nothing.
        """
        return self._store.run(board.finish(claim, output, also))

    def fail(self, claim: Claim, reason: str, *, retry: bool = False) -> bool:
        """Give up this attempt; True when the task is open again (``retry``, attempts left)."""
        again: bool = self._store.run(board.fail(claim, reason, retry))
        return again

    def release(self, claim: Claim) -> None:
        """Hand the task back; the attempt does not count."""
        self._store.run(board.release(claim))

    def status(self) -> Status:
        """How the run stands; a look, not a promise."""
        found: Status = self._store.run(board.status(self.run))
        return found

    def complete(self, *, outputs: Outputs | None = None, by: str = "") -> Status:
        """Declare the run a success, or raise ``IncompleteRun``.

        Compares the tasks dispatched, the tasks done and the outputs present (null and empty
        texts, lists and objects count as missing) and names each that is not there.
        ``outputs={task: (document, "/json/pointer")}`` looks for them in documents too, in the
        same commit.
        """
        found: Status = self._store.run(board.complete(self.run, by, outputs))
        return found

    def work(
        self, worker: str, handler: Callable[[Claim], Any], *, lease: float, wait: float = 0.0
    ) -> int:
        """Claim, call ``handler(claim)`` and finish with its result, until all is finished.

        Returns how many tasks this worker finished.  The claim is extended while the handler
        runs.  What it raises fails that attempt; a result that comes after the claim ran out
        all the same is dropped.
        """
        done: int = self._store.run(board.work(self.run, worker, handler, lease, wait))
        return done

    def history(self, *, after: int = 0, limit: int = 1000) -> list[Document]:
        """Every kept version of the board, ascending: who did what, when."""
        key = board.board_key(self.run)
        versions: list[Document] = self._store.run(records.history(key, after, limit))
        return versions


class AsyncBoard:
    """One run's board, for asyncio."""

    def __init__(self, store: AsyncStore, run: str) -> None:
        self._store = store
        self.run = run
        """The run's name."""

    async def create(
        self,
        tasks: Iterable[str] | Mapping[str, Any],
        *,
        attempts: int = ATTEMPTS,
        by: str = "",
    ) -> Status:
        """Like ``Board.create``."""
        made: Status = await self._store.run(board.create(self.run, tasks, attempts, by))
        return made

    async def claim(
        self, worker: str, *, lease: float, task: str | None = None, wait: float = 0.0
    ) -> Claim | None:
        """Like ``Board.claim``."""
        flow = board.claim(self.run, worker, lease, task, wait)
        found: Claim | None = await self._store.run(flow)
        return found

    async def heartbeat(self, claim: Claim, *, lease: float) -> Claim:
        """Like ``Board.heartbeat``."""
        longer: Claim = await self._store.run(board.heartbeat(claim, lease))
        return longer

    async def finish(self, claim: Claim, output: Any, *, also: Also | None = None) -> Any:
        """Like ``Board.finish``."""
        return await self._store.run(board.finish(claim, output, also))

    async def fail(self, claim: Claim, reason: str, *, retry: bool = False) -> bool:
        """Like ``Board.fail``."""
        again: bool = await self._store.run(board.fail(claim, reason, retry))
        return again

    async def release(self, claim: Claim) -> None:
        """Like ``Board.release``."""
        await self._store.run(board.release(claim))

    async def status(self) -> Status:
        """Like ``Board.status``."""
        found: Status = await self._store.run(board.status(self.run))
        return found

    async def complete(self, *, outputs: Outputs | None = None, by: str = "") -> Status:
        """Like ``Board.complete``."""
        found: Status = await self._store.run(board.complete(self.run, by, outputs))
        return found

    async def work(
        self, worker: str, handler: Callable[[Claim], Any], *, lease: float, wait: float = 0.0
    ) -> int:
        """Like ``Board.work``; the handler may be ``async def``."""
        done: int = await self._store.run(board.work(self.run, worker, handler, lease, wait))
        return done

    async def history(self, *, after: int = 0, limit: int = 1000) -> list[Document]:
        """Like ``Board.history``."""
        key = board.board_key(self.run)
        versions: list[Document] = await self._store.run(records.history(key, after, limit))
        return versions
