"""Every limit of a store: its name, its default, and one place to change it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields

from perkey.errors import LimitExceeded, UsageError
from perkey.store.codec import MAX_VALUE_BYTES


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one store; give ``perkey.open(url, limits=Limits(...))`` your own."""

    value_bytes: int = MAX_VALUE_BYTES
    """The longest encoded value.  (How deep it may nest is fixed: ``codec.MAX_DEPTH``.)"""
    transaction_keys: int = 1_000
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
    watch_queue: int = 1_000
    """How many changes a watcher may lag behind before it must re-read."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name == "keep_s":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise UsageError(f"expected {field.name} above 0, found {value!r}")


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
