"""What a search found: a certificate, or a failing schedule."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any


class ExplorationFailed(AssertionError):
    """The exploration found a failing schedule, or could not finish; ``result`` has it all."""

    def __init__(self, message: str, result: Result | None = None) -> None:
        super().__init__(message)
        self.result = result


@dataclass(frozen=True)
class Failure:
    """One schedule under which the scenario does the wrong thing."""

    kind: str
    """``check``, ``always``, ``deadlock``, ``raised``, ``error`` or ``endless``."""
    message: str
    replay: str
    """Give it to ``explore(..., replay=...)`` to run this schedule again."""
    story: str
    error: BaseException | None = None

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}\n\n{self.story}\n\nreplay={self.replay!r}"


@dataclass
class Result:
    """What was searched, how far, and what came out."""

    callers: list[str]
    budgets: dict[str, int]
    mode: str = "all"
    pruned: bool = True
    states: int = 0
    """Distinct states in which there was a choice."""
    schedules: int = 0
    """Runs from the start, most of them abandoned at a state already searched."""
    moves: int = 0
    """Steps taken in all these runs together."""
    longest: int = 0
    seconds: float = 0.0
    incomplete: str = ""
    """Why the search stopped early; empty when it did not."""
    unseen: list[str] = field(default_factory=list)
    """What the scenario was expected to do and never did."""
    failure: Failure | None = None
    outcomes: dict[Hashable, str] = field(default_factory=dict)
    """Every distinct outcome, each with a schedule that leads to it."""
    cancel_points: list[str] = field(default_factory=list)
    step_points: list[str] = field(default_factory=list)

    @property
    def exhausted(self) -> bool:
        """Whether every schedule within the budgets was covered."""
        return self.mode == "all" and not self.incomplete and self.failure is None

    @property
    def holds(self) -> bool:
        """Exhausted, nothing failed, and the scenario did what it was expected to do."""
        return self.exhausted and not self.unseen

    def assert_holds(self) -> Result:
        """Return self; raise ``ExplorationFailed`` unless every schedule was seen to be right."""
        if not self.holds:
            raise ExplorationFailed(str(self), self)
        return self

    def assert_nothing_found(self) -> Result:
        """For random modes: raise if a schedule failed or the scenario was not exercised."""
        if self.failure is not None or self.unseen or (self.mode == "all" and self.incomplete):
            raise ExplorationFailed(str(self), self)
        return self

    def assert_fails(self, kind: str | None = None) -> Failure:
        """Return the failure; raise ``ExplorationFailed`` if none (of this kind) was found."""
        if self.failure is None or kind not in (None, self.failure.kind):
            raise ExplorationFailed(f"expected a failing schedule, found none\n{self}", self)
        return self.failure

    @property
    def verdict(self) -> str:
        """In a few words: ``exhausted``, ``fails``, or why it is neither."""
        if self.failure is not None:
            return "fails"
        if self.mode == "replay":
            return "replayed: nothing failed"
        if self.unseen:
            return "not exercised: " + "; ".join(self.unseen)
        if self.incomplete:
            return f"incomplete: {self.incomplete}"
        return "exhausted" if self.mode == "all" else f"sampled ({self.mode}): no proof"

    def __str__(self) -> str:
        budgets = ", ".join(f"{n} {name}" for name, n in self.budgets.items() if n)
        how = "pruned by fingerprint" if self.pruned else "unpruned"
        lines = [
            self.verdict,
            f"  callers       {', '.join(self.callers)}",
            f"  injections    {budgets or 'none'}",
            f"  states        {self.states:,} ({how})",
            f"  schedules     {self.schedules:,} in {self.seconds:.2f} s, "
            f"the longest {self.longest} moves",
        ]
        if self.step_points:
            lines.append(f"  step points   {', '.join(self.step_points)}")
        if self.cancel_points:
            lines.append(f"  cancelled at  {', '.join(self.cancel_points)}")
        if self.outcomes:
            lines.append(f"  outcomes      {', '.join(map(repr, self.outcomes))}")
        if self.failure is not None:
            lines += ["", str(self.failure)]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The figures, for JSON."""
        return {
            "verdict": self.verdict, "callers": self.callers, "budgets": self.budgets,
            "states": self.states, "schedules": self.schedules, "moves": self.moves,
            "seconds": self.seconds, "cancel_points": self.cancel_points,
            "step_points": self.step_points,
        }  # fmt: skip
