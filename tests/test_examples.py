"""Every file in ``examples/`` runs as it stands, in a process and a directory of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.servers.postgres import Postgres

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

TIMEOUT_S = 240


def run(example: Path, folder: Path, *arguments: str) -> str:
    """What it prints, run by itself in ``folder``."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, str(example), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(folder.iterdir()), "it leaves a file behind, and fails the second time"
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_it_runs(example: Path, tmp_path: Path) -> None:
    assert run(example, tmp_path).strip(), "an example shows something"


def test_the_worker_pool_runs_on_postgresql(tmp_path: Path, postgres_server: Postgres) -> None:
    said = run(ROOT / "examples" / "worker_pool.py", tmp_path, postgres_server.url)
    assert "complete" in said
