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
    """
    interrupt: BaseException | None = None
    for attempt in range(1, limits.doubt_attempts + 1):
        try:
            outcomes = apply(batch)
            return outcomes, interrupt or batch.interrupt
        except OutcomeUnknown:
            raise
        except BaseException as error:
            doubt, batch.committing = batch.committing, None
            if doubt is not None and doubt.writes:
                batch.doubts.append(doubt)
            if not batch.doubts:
                raise
            if attempt == limits.doubt_attempts:
                raise unknown(batch.doubts[0]) from error
            if not isinstance(error, Exception):
                interrupt = error
        if attempt > 1:
            clock.sleep(backoff(attempt - 1, limits, clock.random()))
    raise AssertionError("the loop above returns or raises")
