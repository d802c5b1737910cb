"""Every limit of an engine: its name, its default, and one place to change it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from perkey.errors import UsageError


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The limits of one engine."""

    buffered: int = 10_000
    """How many messages and starts a paused engine holds back."""
    when_full: str = "refuse"
    """What a full buffer does with one more message: ``refuse`` it or ``drop_oldest``."""
    waiting: int = 10_000
    """How many unmatched messages wait for somebody who wants them: in all, and on a store at
    each address."""
    inbox: int = 1_000
    """How many messages one instance may have unread."""
    message_ids: int = 100_000
    """How many message ids are remembered in memory, to tell a redelivery."""
    dead_letters: int = 1_000
    """How many dead letters are kept."""
    finished: int = 10_000
    """How many finished instances stay in memory for their handles."""
    kept_s: float = 30 * 86_400.0
    """How long the record of an ended instance stays on a store, in seconds.  The idempotency
    key or message id it was started with goes on refusing a second start."""
    lease_s: float = 15.0
    """How long a durable engine owns its instances without a sign of life, in seconds."""

    def __post_init__(self) -> None:
        if self.when_full not in ("refuse", "drop_oldest"):
            raise UsageError(f"expected when_full= refuse or drop_oldest, found {self.when_full!r}")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "when_full" and not value > 0:
                raise UsageError(f"expected {field.name} above 0, found {value!r}")
