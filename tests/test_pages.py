"""The Python on each page of the documentation runs as it stands, in reading order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TIMEOUT_S = 240


def pages() -> list[Path]:
    """The pages that show Python; a block marked otherwise (``text``, ``pycon``) is only shown."""
    found = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    return [page for page in found if SNIPPET.search(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_it_runs(page: Path, tmp_path: Path) -> None:
    """In an empty folder; and once more there, unless the page says what a second run meets."""
    text = page.read_text("utf-8")
    code = "\n".join(SNIPPET.findall(text))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "error"}
    for _ in range(1 if re.search("second (run|time)", text) else 2):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, code + done.stdout + done.stderr
