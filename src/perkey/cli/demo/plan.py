"""What a run of the demo is to do, and how its keys are named."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perkey.cli.audit.corpus import shown
from perkey.errors import UsageError

MAX_WORKERS = 64
MAX_THINK_S = 600.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One run.  It is stored under ``key("plan")``, and that is all a worker is told."""

    run: str
    paths: tuple[str, ...]
    workers: int
    blind: bool
    think_s: float
    """How long a worker holds what it has read, as it would for a call to a language model."""
    lease_s: float
    """How long a claim holds without a heartbeat."""
    deadline_s: float
    """When the run is given up."""

    def key(self, what: str) -> str:
        """The key of this run's ``plan``, ``roll``, ``report`` or ``board``."""
        return key(self.run, what)

    def stored(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "paths": list(self.paths)}


def key(run: str, what: str) -> str:
    """A key of a run."""
    return f"audit/{run}/{what}"


def from_stored(value: dict[str, Any]) -> Plan:
    """A plan as another process stored it."""
    return Plan(**{**value, "paths": tuple(value["paths"])})


def check(plan: Plan, *, kill: bool) -> Plan:
    """Refuse what cannot work, with both numbers."""
    for path in plan.paths:
        if not os.path.lexists(path):
            raise UsageError(f"there is no file or folder {shown(path)}")
    if not 1 <= plan.workers <= MAX_WORKERS:
        raise UsageError(f"expected --workers from 1 to {MAX_WORKERS}, found {plan.workers}")
    if kill and plan.workers < 2:
        raise UsageError("--kill needs --workers of at least 2: someone has to take over")
    if not 0 <= plan.think_s <= MAX_THINK_S:
        raise UsageError(f"expected --think from 0 to {MAX_THINK_S:g} s, found {plan.think_s:g}")
    if not 0.5 <= plan.lease_s <= MAX_THINK_S:
        raise UsageError(f"expected --lease from 0.5 to {MAX_THINK_S:g} s, found {plan.lease_s:g}")
    return plan


def own_documentation() -> list[str]:
    """The project's own pages: of the checkout, or those that are installed with the package."""
    package = Path(__file__).resolve().parents[2]
    checkout = package.parents[1]
    if (checkout / "pyproject.toml").is_file() and (checkout / "README.md").is_file():
        return [str(page) for page in (*sorted(checkout.glob("*.md")), checkout / "docs")]
    return [str(package / "_pages")]
