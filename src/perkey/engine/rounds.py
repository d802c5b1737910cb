"""Starts and ends that a crowd asks for in one round of the loop share transactions.

Each alone would cost a request, a transaction and a place in the store's queue, hundreds of
times a round.  A change raises before it writes anything, or not at all, so those that share a
transaction share nothing else: what one of them raises is its own.  Where the store refuses the
whole because of one, such as a value that is too large, each is tried alone.

Whoever asked may go away: before its transaction was handed over nothing is done, and afterwards
it can still be told what became of it; that is what ``drivers.rounds`` cannot do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import msgspec

from perkey.errors import OutcomeUnknown, UsageError
from perkey.store.keys import Key
from perkey.store.requests import own_copy
from perkey.store.transaction import Outcome, Tx

TOGETHER = 16
"""How many changes share a transaction."""
ROOM = 48
"""How many keys they may have in all, where the store has not less room."""

Change = Callable[[Tx], Any]
Submit = Callable[[set[Key], Change], Awaitable[Outcome]]
Answer = tuple[Any, Exception | None]
"""(result, error)."""


class Dropped(Exception):
    """The answer to a change that nobody waited for any more: nothing was done."""


class Asked:
    """One change that was asked for; to be awaited for its result."""

    __slots__ = ("answer", "change", "future", "keys", "left")

    def __init__(self, keys: set[Key], change: Change) -> None:
        self.keys = keys
        self.change = change
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.answer: Answer | None = None
        self.left: Callable[[Answer], None] | None = None

    def __await__(self) -> Generator[Any, None, Any]:
        return self.future.__await__()

    def leave(self, told: Callable[[Answer], None]) -> None:
        """Whoever asked was cancelled; ``told`` is called with what becomes of the change."""
        self.left = told
        if self.answer is not None:
            told(self.answer)

    def be(self, answer: Answer) -> None:
        """Tell whoever waits, or has left."""
        self.answer = answer
        result, error = answer
        if self.future.done():
            if self.left is not None:
                self.left(answer)
        elif error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class Alone:
    """The change of somebody who asks while nobody else does: a transaction of its own, at once."""

    __slots__ = ("_change", "_keys", "_rounds")

    def __init__(self, rounds: Rounds, keys: set[Key], change: Change) -> None:
        self._rounds = rounds
        self._keys = keys
        self._change = change

    def __await__(self) -> Generator[Any, None, Any]:
        return self._commit().__await__()

    async def _commit(self) -> Any:
        try:
            return (await self._rounds.submit(self._keys, self._change)).result
        finally:
            self._rounds.callers -= 1

    def leave(self, told: Callable[[Answer], None]) -> None:
        """Whoever asked was cancelled, and has to look for what became of it."""
        told((None, OutcomeUnknown("its caller went away before it was answered")))


class Together(msgspec.Struct, gc=False):
    """The function of a transaction that several changes share; its result: an answer for each."""

    changes: tuple[Change, ...]

    def __call__(self, tx: Tx) -> list[Answer]:
        answers: list[Answer] = []
        for change in self.changes:
            try:
                answers.append((change(tx), None))
            except Exception as error:
                answers.append((None, error))
        return answers


class Rounds:
    """Lives on the engine's loop."""

    def __init__(self, submit: Submit, atomic_keys: int | None) -> None:
        """``atomic_keys``: what the store commits at once; None if any number."""
        self.submit = submit
        self.callers = 0
        """How many have asked and are not answered."""
        self._room = ROOM if atomic_keys is None else min(ROOM, atomic_keys - 1)
        self._asked: list[Asked] = []
        self._crowd = False
        """Whether several asked in the last round: they were answered together, and come back."""
        self._under_way: set[asyncio.Task[None]] = set()

    def ask(self, keys: set[Key], change: Change) -> Asked | Alone:
        """Have ``change`` committed, with others of this round where others ask; to be awaited
        at once.  It must raise before it writes."""
        self.callers += 1
        if self.callers == 1 and not self._crowd:
            return Alone(self, keys, change)
        asked = Asked(keys, change)
        if not self._asked:
            asyncio.get_running_loop().call_soon(self._depart)
        self._asked.append(asked)
        return asked

    def _depart(self) -> None:
        """All that was ready has asked."""
        everyone, self._asked = self._asked, []
        self._crowd = len(everyone) > 1
        some: list[Asked] = []
        count = 0
        for each in everyone:
            if len(some) == TOGETHER or (some and count + len(each.keys) > self._room):
                self._go(some)
                some, count = [], 0
            some.append(each)
            count += len(each.keys)
        self._go(some)

    def _go(self, some: list[Asked]) -> None:
        task = asyncio.get_running_loop().create_task(self._carry(some))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _carry(self, some: list[Asked]) -> None:
        """Commit these; not those whose callers have gone before it begins."""
        here = [each for each in some if not each.future.cancelled()]
        for each in some:
            if each.future.cancelled():
                self._answer(each, (None, Dropped()))
        try:
            answers = await self._commit(here)
        except asyncio.CancelledError:  # the loop ends
            for each in here:
                self.callers -= 1
                each.future.cancel()
            raise
        except Exception as error:
            if len(here) > 1 and isinstance(error, UsageError):
                await asyncio.gather(*[self._carry([each]) for each in here])
                return
            # One error for each: a shared one would collect everybody's tracebacks.
            answers = [(None, own_copy(error)) for _ in here]
        for each, answer in zip(here, answers, strict=True):
            self._answer(each, answer)

    def _answer(self, asked: Asked, answer: Answer) -> None:
        self.callers -= 1
        asked.be(answer)

    async def _commit(self, here: list[Asked]) -> list[Answer]:
        if not here:
            return []
        if len(here) == 1:
            return [((await self.submit(here[0].keys, here[0].change)).result, None)]
        keys = set[Key]().union(*[each.keys for each in here])
        together = Together(tuple(each.change for each in here))
        answers: list[Answer] = (await self.submit(keys, together)).result
        return answers
