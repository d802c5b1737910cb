"""The drawings as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perkey.errors import UsageError
from perkey.lab import svg
from perkey.lab.drawing import mermaid
from perkey.lab.examine import Report


def make(folder: Path) -> None:
    """The folder of the drawings, made before the work is done that would be lost."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror}") from None


def write(folder: Path, reports: Sequence[Report]) -> list[str]:
    """Write ``SCENARIO-VARIANT.svg`` and ``.mmd`` for each drawing; returns the paths."""
    make(folder)
    written = []
    for report in reports:
        if report.drawing is None:
            continue
        name = f"{report.scenario}-{report.variant.name}"
        title = f"{report.variant.title}: {report.drawing.verdict}"
        for ending, text in (
            (".svg", svg.picture(report.drawing, title)),
            (".mmd", mermaid(report.drawing)),
        ):
            path = folder / f"{name}{ending}"
            path.write_text(text, encoding="utf-8")
            written.append(str(path))
    return written
