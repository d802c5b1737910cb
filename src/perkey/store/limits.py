"""Every limit of a store: its name, its default, and one place to change it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields

from perkey.errors import LimitExceeded, UsageError
from perkey.store.codec import MAX_VALUE_BYTES

LARGEST = 2**63 - 1
"""The largest count that every store can keep."""
LONGEST_S = 1e9
"""The longest time that can be waited for, in seconds: some thirty years."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one store; give ``perkey.open(url, limits=Limits(...))`` your own."""

    value_bytes: int = MAX_VALUE_BYTES
    """The longest encoded value.  (How deep it may nest is fixed: ``codec.MAX_DEPTH``.)"""
    transaction_keys: int = 5_000
    """How many keys one transaction may declare."""
    batch: int = 512
    """How many transactions one commit may carry."""
    queue: int = 100_000
    """How many transactions may wait for the committer."""
    attempts: int = 6
    """How often an ``update`` or a merge is tried against a moving key before
    ``ConflictExhausted``.  Any other transaction is tried until its timeout."""
    backoff_s: float = 0.05
    """The first pause between attempts, in seconds; each later one doubles, plus jitter."""
    doubt_attempts: int = 8
    """How often a commit whose reply was lost is asked after before ``OutcomeUnknown``."""
    timeout_s: float = 30.0
    """How long a call may wait for its turn, in seconds, where it names no timeout."""
    slow_fn_s: float = 0.1
    """A transaction function that runs longer is reported, in seconds."""
    keep_versions: int = 10_000
    """How many versions of each document stay in history."""
    keep_s: float | None = None
    """How old a version in history may grow, in seconds; None keeps them all."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "keep_s" and value is None:
                continue
            if field.name.endswith("_s"):
                _check_seconds(field.name, value)
            else:
                _check_count(field.name, value)


def _check_count(name: str, value: object) -> None:
    good = isinstance(value, int) and not isinstance(value, bool)
    if not good or not 0 < value <= LARGEST:  # type: ignore[operator]  # good says it is one
        raise UsageError(
            f"expected {name} as a whole number above 0, found {value!r:.80}; nothing was opened"
        )


def _check_seconds(name: str, value: object) -> None:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not 0 < value <= LONGEST_S:  # type: ignore[operator]  # good says it is one
        raise UsageError(
            f"expected {name} as seconds above 0, at most {LONGEST_S:g}, found {value!r:.80}"
        )


def checked(limits: object) -> Limits:
    """The limits that a caller gave, or the defaults for None; ``UsageError`` for all else."""
    if limits is None:
        return Limits()
    if not isinstance(limits, Limits):
        raise UsageError(
            "expected limits= as perkey.Limits(...), like Limits(keep_versions=100), found "
            f"{type(limits).__name__}"
        )
    return limits


def check_keys(count: int, limits: Limits) -> None:
    """Refuse a transaction over more keys than the limit."""
    if count > limits.transaction_keys:
        raise LimitExceeded(
            f"expected at most {limits.transaction_keys} keys in a transaction, found {count}; "
            "split the work or raise Limits.transaction_keys"
        )


def seconds(timeout: float) -> float:
    """A timeout that the threading module can wait for; ``UsageError`` where it is none."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise UsageError(f"expected timeout= as seconds, 0 or more, found {timeout!r:.80}")
    return min(timeout, threading.TIMEOUT_MAX)


def backoff(attempt: int, limits: Limits, chance: float) -> float:
    """Seconds to pause after the ``attempt``-th failure (1, 2, ...): doubling, full jitter.

    ``chance`` is drawn by the caller from its clock.  Source: "Exponential Backoff And
    Jitter", AWS Architecture Blog, 2015 ("full jitter", plus half so that a pause is never 0).
    """
    ceiling: float = limits.backoff_s * (1 << min(attempt - 1, 10))
    return ceiling * (0.5 + chance) / 1.5
