"""What became of a run, read from the report's history.  Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perkey import Document


@dataclass(frozen=True, slots=True)
class Vanished:
    """A section that was written, and that a later version no longer held."""

    section: str
    by: str
    version: int
    """The version that brought it."""
    gone_by: str
    gone_version: int
    """The first later version without it."""


def sections_of(version: Document) -> dict[str, Any]:
    """The sections that a version of the report holds."""
    value = version.value if isinstance(version.value, dict) else {}
    found = value.get("sections")
    return found if isinstance(found, dict) else {}


def vanished(history: Sequence[Document]) -> list[Vanished]:
    """Sections that the last version does not hold though an earlier one did, oldest first."""
    brought: dict[str, Document] = {}
    lost: dict[str, Vanished] = {}
    before: dict[str, Any] = {}
    for version in history:
        now = sections_of(version)
        for name in now.keys() - before.keys():
            brought[name] = version
            lost.pop(name, None)
        for name in before.keys() - now.keys():
            came = brought[name]
            lost[name] = Vanished(name, came.by, came.version, version.by, version.version)
        before = now
    return sorted(lost.values(), key=lambda each: (each.version, each.section))


def brought_by(history: Sequence[Document]) -> list[tuple[Document, list[str], list[str]]]:
    """Each version with the sections it added and those it dropped."""
    before: dict[str, Any] = {}
    rows = []
    for version in history:
        now = sections_of(version)
        rows.append(
            (version, sorted(now.keys() - before.keys()), sorted(before.keys() - now.keys()))
        )
        before = now
    return rows


@dataclass(frozen=True, slots=True)
class Figures:
    """How much the workers got in each other's way."""

    writes: int
    from_older: int
    """Writers that had begun from a version which was no longer the newest when they wrote."""
    overwrote_unseen: int
    """Of these, the ones that put their whole document over what they had never read."""
    reapplied: int
    """Of these, the ones whose small change was applied to the newest version instead."""


def figures(history: Sequence[Document]) -> Figures:
    """Read from the versions themselves: each section says which version its author began from."""
    writes = from_older = unseen = 0
    for version, added, _ in brought_by(history):
        starts = [sections_of(version)[name].get("began_from", 0) for name in added]
        if not starts:
            continue
        writes += 1
        from_older += min(starts) < version.version - 1
        unseen += version.base < version.version - 1
    return Figures(writes, from_older, unseen, from_older - unseen)
