"""In-process locks: ``Sections`` (striped) and ``KeyedLocks`` (exact), on one wait structure."""

from __future__ import annotations

from perkey.locks.keyed import KeyedLocks, LockStatistics
from perkey.locks.sections import Advice, Sections, SectionStatistics

__all__ = ["Advice", "KeyedLocks", "LockStatistics", "SectionStatistics", "Sections"]
