"""Pruned and unpruned searches of random programs reach the same outcomes; broken ones do not.

``PERKEY_FUZZ=2000`` tries that many programs instead of a few hundred.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from perkey.testing import Fingerprint, explore
from perkey.testing.parts import frame
from tests.explore import programs

PROGRAMS = int(os.environ.get("PERKEY_FUZZ", "240"))
BATCHES = 12
LARGEST = 300
"""States of an unpruned search; larger programs are skipped."""


def outcomes(program: programs.RandomProgram, **options: Any) -> set[Any] | None:
    """Every outcome of ``program``, or None when that takes too long."""
    result = explore(
        programs.Shared, program.callers, outcome=programs.outcome, raises=(Exception,),
        stop_at_failure=False, limit=LARGEST, **program.budgets, **options,
    )  # fmt: skip
    return None if result.incomplete else set(result.outcomes)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_pruning_and_symmetry_change_no_outcome(batch: int) -> None:
    tried = 0
    for seed in range(batch, PROGRAMS, BATCHES):
        program = programs.make(seed)
        full = outcomes(program, prune="none", symmetric=False)
        if full is None:
            continue
        tried += 1
        for symmetric in (False, True):
            found = outcomes(program, symmetric=symmetric)
            assert found == full, f"seed {seed}, symmetric={symmetric}\n{program.source}"
    assert tried > PROGRAMS / BATCHES / 3


class OnlyLocals(Fingerprint):
    """Broken: it doesn't see what waits on the value stack."""

    def frame(self, coro: Any) -> list[Any]:
        where = getattr(coro, "cr_frame", None)
        if where is None:
            return frame(coro)
        return [type(coro), where.f_code, where.f_lasti, coro.cr_await, *where.f_locals.values()]


class NoPosition(Fingerprint):
    """Broken: it doesn't see which ``await`` a coroutine stands at."""

    def frame(self, coro: Any) -> list[Any]:
        kind, *rest = frame(coro)
        if len(rest) == 1:
            return [kind, *rest]
        code, _, *values = rest
        return [kind, code, *values]


@pytest.mark.parametrize("broken", [OnlyLocals, NoPosition])
def test_a_broken_fingerprint_is_caught(broken: type[Fingerprint]) -> None:
    for seed in range(400):
        program = programs.make(seed)
        full = outcomes(program, prune="none", symmetric=False)
        if full is not None and outcomes(program, prune=broken()) != full:
            return
    pytest.fail("the fuzz is too weak: it did not notice")
