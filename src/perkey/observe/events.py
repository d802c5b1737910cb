"""What a store tells its observers: frozen facts.  A key may be in them; a value never is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction that wrote something has been committed."""

    keys: tuple[str, ...]
    """What its caller named among what was written; without receipts, so it may be empty."""
    by: str
    op: str
    batch: int
    """How many transactions shared the commit."""
    attempts: int
    """1: no other writer was in the way."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """A transaction was answered with its stored result and not run."""

    op: str
    by: str


@dataclass(frozen=True, slots=True)
class Conflicted:
    """A conditional write was refused because the key had moved on."""

    key: str
    by: str
    expected: int
    found: int


@dataclass(frozen=True, slots=True)
class Merged:
    """A whole-document write from an older version was merged with what came since."""

    key: str
    by: str
    base: int
    head: int


@dataclass(frozen=True, slots=True)
class StaleOverwrite:
    """An overwrite replaced versions that its author had not read."""

    key: str
    by: str
    base: int
    head: int


@dataclass(frozen=True, slots=True)
class Exhausted:
    """Every attempt at a change met a newer version."""

    key: str
    by: str
    attempts: int


@dataclass(frozen=True, slots=True)
class RuleRejected:
    """A rule refused a new value."""

    key: str
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class SlowFunction:
    """A transaction's function ran long while everyone waited; is there a model call in it?"""

    keys: tuple[str, ...]
    by: str
    seconds: float


@dataclass(frozen=True, slots=True)
class LeaseChanged:
    """A lease was acquired, renewed, released, or taken over after it ran out."""

    key: str
    holder: str
    token: int
    change: str


@dataclass(frozen=True, slots=True)
class LateRefused:
    """A writer whose lease or claim was no longer held was refused."""

    key: str
    by: str
    token: int


@dataclass(frozen=True, slots=True)
class TaskChanged:
    """A board's task was claimed, extended, finished, failed or released; or given up, since its
    last allowed worker ran out of time."""

    run: str
    task: str
    worker: str
    token: int
    change: str


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A run was to be declared complete and is not."""

    run: str
    by: str
    missing: tuple[str, ...]
    """Tasks that are not done, and tasks without output."""


@dataclass(frozen=True, slots=True)
class Operated:
    """What became of a call of an operation that runs once."""

    key: str
    by: str
    kind: str
    """ran | replayed | refused | in-progress | unknown | rerun | raised | unstored"""

    @property
    def label(self) -> str:
        """Counted by kind."""
        return f"Operated.{self.kind}"


Event = (
    Committed
    | Replayed
    | Conflicted
    | Merged
    | StaleOverwrite
    | Exhausted
    | RuleRejected
    | SlowFunction
    | LeaseChanged
    | LateRefused
    | TaskChanged
    | Incomplete
    | Operated
)
