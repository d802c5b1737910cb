"""The tables of the page on merging hold, row by row, order of keys included."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from perkey.flows.merge import merge

PAGE = Path(__file__).resolve().parents[3] / "docs" / "concepts" / "merging.md"


def rows() -> list[list[str]]:
    """The cells of each row that begins with a value: base, ours, theirs, result."""
    lines = PAGE.read_text("utf-8").splitlines()
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [cells for cells in found if len(cells) == 4 and cells[0].startswith("`")]


def code(cell: str) -> str:
    found = re.search(r"`(.*?)`", cell)
    assert found is not None, cell
    return found.group(1)


@pytest.mark.parametrize("cells", rows(), ids=lambda cells: " ".join(map(code, cells)))
def test_a_row_of_the_page(cells: list[str]) -> None:
    base, ours, theirs = (json.loads(code(cell)) for cell in cells[:3])
    merged = merge(base, ours, theirs)
    if cells[3].startswith("overlap"):
        assert [each.as_json()["path"] for each in merged.overlaps] == [code(cells[3])]
    else:
        assert merged.overlaps == []
        assert json.dumps(merged.value) == json.dumps(json.loads(code(cells[3])))


def test_the_page_has_both_kinds_of_rows() -> None:
    results: list[Any] = [cells[3].startswith("overlap") for cells in rows()]
    assert results.count(True) >= 4
    assert results.count(False) >= 8
