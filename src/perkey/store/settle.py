"""Apply a batch until its fate is known: the loop around a commit whose reply may be lost."""

from __future__ import annotations

from collections.abc import Callable

from perkey.clock import Clock
from perkey.errors import OutcomeUnknown
from perkey.store.evaluate import Batch, unknown
from perkey.store.limits import Limits, backoff
from perkey.store.transaction import Outcome

Apply = Callable[[Batch], list[Outcome]]


def settled(
    apply: Apply, batch: Batch, limits: Limits, clock: Clock
) -> tuple[list[Outcome], BaseException | None]:
    """(outcomes, the interrupt that must still be raised).

    Without a doubt an exception passes through: nothing was written.  With one the batch is
    applied again, and its evaluation finds out whether the earlier attempt landed; so a
    landed commit is reported as a success, and never done twice.  Raises ``OutcomeUnknown``
    after ``limits.doubt_attempts``.

    An interrupt may still get out, between two attempts.  Then ``batch.in_doubt`` says whether
    the same batch has to be settled again.
    """
    interrupt: BaseException | None = None
    for attempt in range(1, limits.doubt_attempts + 1):
        if batch.committing is not None:
            batch.doubt()
        try:
            outcomes = apply(batch)
            return outcomes, interrupt or batch.interrupt
        except OutcomeUnknown:
            raise
        except BaseException as error:
            if not batch.in_doubt:
                raise
            if attempt == limits.doubt_attempts:
                batch.doubt()
                raise unknown(batch.doubts[0]) from error
            if not isinstance(error, Exception):
                interrupt = error
        if attempt > 1:
            clock.sleep(backoff(attempt - 1, limits, clock.random()))
    raise AssertionError("the loop above returns or raises")
