"""The conformance suite: what every backend must do, as named checks that anyone can run.

report = check_backend("sqlite:///work.db")
print(report)
report.raise_if_failed()
"""

from __future__ import annotations

from perkey.testing.conformance import (  # noqa: F401  # their checks join the list
    changes,
    doubts,
    histories,
    moving,
    rules,
    scans,
    together,
    values,
    writes,
)
from perkey.testing.conformance.bench import CheckFailed, Source
from perkey.testing.conformance.suite import CHECKS, Check, Report, Result, check_backend

__all__ = ["CHECKS", "Check", "CheckFailed", "Report", "Result", "Source", "check_backend"]
