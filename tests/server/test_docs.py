"""The commands in ``docs/server.md`` run in order, and print what the page says."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.perkey_http import PerkeyHttp

PAGE = Path(__file__).parents[2] / "docs" / "server.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROCESSES = re.compile(r"^```python\n(from perkey.engine.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = "127.0.0.1:8420"


def commands() -> Iterator[tuple[str, str]]:
    """Each command, and what it is to print."""
    for block in BLOCK.findall(PAGE.read_text("utf-8")):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = step.splitlines(keepends=True)
            length = next(n for n, line in enumerate(lines, 1) if not line.endswith("\\\n"))
            yield "".join(lines[:length]), "".join(lines[length:])


def as_pattern(expected: str) -> str:
    """``...`` stands for anything on a line."""
    return ".*".join(re.escape(part) for part in expected.strip().split("..."))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PerkeyHttp]:
    """With the processes that the page shows."""
    (shown,) = PROCESSES.findall(PAGE.read_text("utf-8"))
    (tmp_path / "processes.py").write_text(shown)
    with PerkeyHttp("--engine", str(tmp_path / "processes.py")) as server:
        yield server


def test_the_page_tells_the_truth(server: PerkeyHttp, tmp_path: Path) -> None:
    done = 0
    for command, expected in commands():
        assert SHOWN in command
        ran = subprocess.run(
            ["sh", "-c", command.replace(SHOWN, f"127.0.0.1:{server.port}")],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
        )
        printed = ran.stdout.replace("\r", "").strip()
        assert re.fullmatch(as_pattern(expected), printed), f"{command}{printed}{ran.stderr}"
        done += 1
    assert done >= 15
