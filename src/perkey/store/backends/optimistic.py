"""The one ``apply`` of every store that can only compare and swap.

A batch is cut into parts, each the transactions of one commit.  A part reads the heads of its
keys, evaluates, and commits on the condition that none of them has moved; where one has, the
transactions that touch it try again after a jittered pause, and the others go on at once.
A reply that does not come leaves a doubt, which only its own part asks after: a part that has
landed is never applied again because another one failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from perkey.clock import Clock
from perkey.errors import (
    ConflictExhausted,
    NotSupported,
    OutcomeUnknown,
    PerkeyError,
    StoreUnavailable,
    Timeout,
    UsageError,
)
from perkey.store.backends.guesses import Guesses
from perkey.store.backends.parts import Part, cut, moved, share, sub, touching
from perkey.store.backends.port import NothingDone, Port
from perkey.store.backends.turns import Turns
from perkey.store.evaluate import Batch, Unit, may_land, unknown
from perkey.store.keys import Key
from perkey.store.limits import Limits, backoff
from perkey.store.record import Record
from perkey.store.settle import settled
from perkey.store.transaction import Outcome, Transaction

LOST: list[Outcome] = []
"""What an attempt returns that has to be repeated: a part's real outcomes are never none."""
PAUSE = 4
"""The first pause after a conflict, in commits of the store's usual duration."""
MOST_DOUBLINGS = 6
"""The pauses grow no longer after this many conflicts: a turn is what helps then."""
MOST_TURNS = 3
"""How often one attempt asks for a turn before it goes on without."""

Heads = Mapping[Key, Record | None]


class Optimistic:
    """``apply`` for one port."""

    def __init__(self, port: Port, limits: Limits, clock: Clock) -> None:
        self._port = port
        self._limits = limits
        self._clock = clock
        self._turns = Turns(port, clock, limits.backoff_s)
        self._guesses = Guesses(clock)

    def apply(self, batch: Batch) -> list[Outcome]:
        """``Backend.apply``.  With several parts, what fails one is its outcomes' error."""
        run = _Run(self._port, self._limits, self._clock, self._turns, self._guesses, batch)
        while True:
            try:
                return run.answered()
            except Exception:
                raise
            except BaseException as interrupt:
                # Part of the batch may have landed: every caller is told before this goes on.
                if not run.begun:
                    raise
                batch.interrupt = interrupt


class _Run:
    """One batch on its way: parts still to do, in order, and the answers so far."""

    def __init__(
        self,
        port: Port,
        limits: Limits,
        clock: Clock,
        turns: Turns,
        guesses: Guesses,
        batch: Batch,
    ) -> None:
        self._port = port
        self._limits = limits
        self._clock = clock
        self._turns = turns
        self._guesses = guesses
        self._batch = batch
        self._answers: list[Outcome | None] = [None] * len(batch.transactions)
        self._parts = cut(batch, port)

    @property
    def begun(self) -> bool:
        """Whether something of the batch is, or may be, in the store."""
        return any(part.begun for part in self._parts) or any(
            answer is not None and answer.writes for answer in self._answers
        )

    def answered(self) -> list[Outcome]:
        """Work until every transaction has its answer; may be called again after an interrupt."""
        while self._parts:
            part = self._next()
            try:
                self._step(part)
            except Exception as error:
                whole = len(part.places) == len(self._answers)
                if whole and self._batch.interrupt is None:
                    raise
                self._fail(part, error)
        answers = [answer for answer in self._answers if answer is not None]
        assert len(answers) == len(self._answers)
        return answers

    def _next(self) -> Part:
        """The first part that does not pause, nor waits for an earlier one of the same key."""
        while True:
            now = self._clock.monotonic()
            taken: set[Key] = set()
            soonest = self._parts[0].ready
            for part in self._parts:
                if taken.isdisjoint(part.looks):
                    if part.ready <= now:
                        return part
                    soonest = min(soonest, part.ready)
                taken.update(part.looks)
            self._clock.sleep(soonest - now)

    # ------------------------------------------------------------------ one part

    def _step(self, part: Part) -> None:
        """One attempt, with all that it takes to know its fate."""
        outcomes, interrupt = settled(
            partial(self._attempt, part), part.batch, self._limits, self._clock
        )
        self._batch.interrupt = interrupt or self._batch.interrupt
        if outcomes:
            self._answer(part, outcomes)

    def _attempt(self, part: Part, batch: Batch) -> list[Outcome]:
        if part not in self._parts:  # an interrupt struck between its answer and this return
            return LOST
        guess = self._guesses.heads(part) if part.guesses else None
        if guess is not None:
            return self._try(part, *guess)
        heads, now = self._look(part)
        earlier = batch.resolve(dict(heads), self._port.find_op)
        if earlier is not None:
            return earlier.outcomes
        # Once a key has moved on, what has not landed on it never will.
        batch.doubts[:] = [doubt for doubt in batch.doubts if may_land(doubt, heads)]
        if not batch.doubts and self._dismissed(part):
            return LOST
        unit = batch.evaluate(dict(heads), now, self._port.find_op)
        if not unit.writes:
            if batch.doubts:  # nothing that we write keeps it from landing after all
                raise unknown(batch.doubts[0])
            return unit.outcomes
        refusal = _unfit(self._port, part, unit)
        if refusal is not None:
            return self._halve(part, refusal)
        return self._commit(part, unit, {key: heads[key] for key in part.keys})

    def _try(self, part: Part, heads: Heads, now: int) -> list[Outcome]:
        """An attempt without a look; where it does not land, the next one looks."""
        part.guesses = False
        unit = part.batch.evaluate(dict(heads), now, self._port.find_op)
        if not unit.writes or _unfit(self._port, part, unit) is not None:
            return LOST  # nothing would compare what it was told
        return self._commit(part, unit, heads, guessed=True)

    def _look(self, part: Part) -> tuple[Heads, int]:
        """Read the part's heads once nobody else has a turn on them."""
        op = part.batch.transactions[0].op
        asked = 0
        while True:
            asks = self._turns.asks(part.lost)
            keys = [*part.looks, self._turns.key] if asks else part.looks
            records, now = self._port.look(keys)
            heads = dict(zip(part.looks, records, strict=False))
            self._turns.saw(heads, op)
            self._guesses.looked(now)
            if not asks:
                return heads, now
            if self._turns.blocks(records[-1], heads):
                deadline = self._batch.deadline
                if deadline is not None and self._clock.monotonic() >= deadline:
                    raise Timeout("other processes kept writing this key until the deadline")
                self._turns.pause()
            elif asked < MOST_TURNS and self._turns.due(part.lost, op, records[-1]):
                asked += 1
                self._turns.take(records[-1], op, part.keys)
            else:
                return heads, now

    def _commit(
        self, part: Part, unit: Unit, heads: Heads, *, guessed: bool = False
    ) -> list[Outcome]:
        batch = part.batch
        began = self._clock.monotonic()
        batch.committing = unit
        try:
            landed = self._port.commit(heads, unit.writes)
        except UsageError as error:
            batch.committing = None
            return self._halve(part, error)
        except NothingDone:
            batch.committing = None
            raise
        if landed:
            # Answered first, forgotten after: an interrupt in between changes nothing.
            self._answer(part, unit.outcomes)
            batch.committing = None
            self._guesses.landed(part, unit.writes)
            self._turns.took(self._clock.monotonic() - began)
            return LOST
        batch.committing = None
        self._guesses.wrong(heads)
        if not guessed:
            self._conflict(part, heads)
        return LOST

    def _conflict(self, part: Part, heads: Heads) -> None:
        """Separate the transactions that met the conflict from those that can go on at once."""
        lost = part.lost + 1
        ready = self._clock.monotonic() + self._pause(lost)
        if len(part.keys) > 1 and len(part.places) > 1 and not part.batch.doubts:
            records, _ = self._port.look(part.keys)
            apart = touching(moved(heads, dict(zip(part.keys, records, strict=True))), part)
            rest = [place for place in part.places if place not in apart]
            if apart and rest:
                self._replace(part, [rest, apart])
                part = next(each for each in self._parts if each.places == apart)
        part.lost, part.ready = lost, ready

    def _pause(self, lost: int) -> float:
        """Jittered and doubling, in proportion to how fast this store answers."""
        longest = backoff(min(lost, MOST_DOUBLINGS), self._limits, self._clock.random())
        return min(1.0, PAUSE * self._turns.latency / self._limits.backoff_s) * longest

    # ------------------------------------------------------------------ answers

    def _answer(self, part: Part, outcomes: Sequence[Outcome]) -> None:
        for place, outcome in zip(part.places, outcomes, strict=True):
            outcome.attempts = part.lost + 1
            self._answers[place] = outcome
        self._replace(part, [])

    def _fail(self, part: Part, error: Exception) -> None:
        """This part's callers get the error; where the store is gone, so do the later ones."""
        self._answer(part, [Outcome(error=_for_one(error, part, place)) for place in part.places])
        if isinstance(error, StoreUnavailable) or isinstance(error.__cause__, StoreUnavailable):
            for rest in [each for each in self._parts if not each.begun]:
                gone = StoreUnavailable("the store cannot be reached; this was not tried")
                self._answer(rest, [Outcome(error=gone) for _ in rest.places])

    def _dismissed(self, part: Part) -> bool:
        """Answer those that have no attempt or no time left; True when there were some."""
        if not part.lost:
            return False
        now = self._clock.monotonic()
        keep: list[int] = []
        for place, transaction in zip(part.places, part.batch.transactions, strict=True):
            error = _spent(transaction, part.lost, now)
            if error is None:
                keep.append(place)
            else:
                self._answers[place] = Outcome(error=error, attempts=part.lost)
        if len(keep) == len(part.places):
            return False
        self._replace(part, [keep] if keep else [])
        return True

    def _halve(self, part: Part, error: PerkeyError) -> list[Outcome]:
        """Nothing of ``part`` was written: try its halves; one transaction alone is refused."""
        if len(part.places) > 1:
            middle = len(part.places) // 2
            self._replace(part, [part.places[:middle], part.places[middle:]])
        elif part.batch.doubts:
            raise unknown(part.batch.doubts[0]) from error
        else:
            self._answer(part, [Outcome(error=error)])
        return LOST

    def _replace(self, part: Part, groups: Sequence[Sequence[int]]) -> None:
        """Put parts of ``part`` in its place."""
        if part in self._parts:
            at = self._parts.index(part)
            self._parts[at : at + 1] = [sub(part, group, self._port) for group in groups]


def _unfit(port: Port, part: Part, unit: Unit) -> NotSupported | None:
    """Why the port cannot write this unit in one commit, or None."""
    keys = len({*part.keys, *(record.key for record in unit.writes)})
    atomic, most = port.atomic_keys, port.commit_records
    if (atomic is None or keys <= atomic) and (most is None or len(unit.writes) <= most):
        return None
    return NotSupported(
        f"this store ({port.name}) commits at most {atomic or most} keys at once; this transaction "
        f"needs {keys} keys and writes {len(unit.writes)} records"
    )


def _spent(transaction: Transaction, lost: int, now: float) -> PerkeyError | None:
    """Why a transaction that lost this often is given up, or None while it is not."""
    names = ", ".join(repr(key.name) for key in transaction.keys[:4])
    story = f"{lost} attempts to change {names} all met a newer version"
    if transaction.attempts is not None and lost >= transaction.attempts:
        return ConflictExhausted(
            f"{story}; nothing was written: try again, or allow more attempts",
            key=transaction.keys[0].name,
            attempts=lost,
        )
    if transaction.deadline is not None and now >= transaction.deadline:
        return Timeout(f"{story} until the time was up; nothing was written")
    return None


def _for_one(error: Exception, part: Part, place: int) -> Exception:
    """An exception object of each caller's own, or their tracebacks would pile up in one."""
    if isinstance(error, OutcomeUnknown) and part.batch.doubts:
        own = share(part.batch.doubts[0], part.places, [place])
        if own.writes:
            return unknown(own)
    if not isinstance(error, PerkeyError):
        return error
    copy = type(error)(error.message, **error.details)
    copy.__cause__ = error.__cause__ or error
    return copy
