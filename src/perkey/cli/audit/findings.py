"""What a section returns, and how its findings are kept few and short."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NotRequired, TypedDict

MAX_FINDINGS = 40
"""Findings kept in a section; ``found`` says how many there were."""
MAX_EXCERPT = 160
"""Characters of the input that one finding quotes."""


class Finding(TypedDict):
    """One thing to look at.  ``line`` counts from 1; 0 stands for the whole file."""

    file: str
    line: int
    text: str


class Section(TypedDict):
    """One section of the report, as it is stored."""

    title: str
    by: NotRequired[str]
    """Which worker wrote it."""
    summary: dict[str, int | float | str]
    findings: list[Finding]
    found: int


def excerpt(text: str, limit: int = MAX_EXCERPT) -> str:
    """``text`` on one line, cut to ``limit`` characters with an ellipsis."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"


def section(
    title: str, summary: Mapping[str, int | float | str], findings: Iterable[Finding]
) -> Section:
    """A section with its first ``MAX_FINDINGS`` findings; bring the weightiest first."""
    every = list(findings)
    return {
        "title": title,
        "summary": dict(summary),
        "findings": every[:MAX_FINDINGS],
        "found": len(every),
    }
