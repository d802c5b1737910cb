"""What ``make test`` makes ready: only what the tests that were asked for need."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WHOLE = ["azurite", "chromium", "pgbouncer", "pytest"]

ASKED: dict[str, list[str]] = {
    "tests": WHOLE,
    "./tests/": WHOLE,
    ".": WHOLE,
    "": WHOLE,
    "-k nobody -x": WHOLE,
    "tests/unit": [],
    "tests/unit tests/cli": [],
    "tests/server/test_feed.py": [],
    "tests/server": ["chromium"],
    "tests/server/pages/test_browser.py::test_it": ["chromium"],
    "tests/server/pages -k menu": ["chromium"],
    "tests/backends": ["azurite", "pgbouncer"],
    "tests/backends/test_redis.py": ["azurite"],
    "tests/backends/test_pgbouncer.py": ["azurite", "pgbouncer"],
    "tests/unit tests/server tests/backends/": ["azurite", "chromium", "pgbouncer"],
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A checkout in which every way to make something ready only says that it was gone."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "ready.sh", tmp_path / "tools")
    for name in ("azurite", "chromium", "pgbouncer"):
        (tmp_path / "tools" / f"{name}.sh").write_text(f"echo {name}; echo {name} >>gone\n")
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$2" >>gone\n')
    python.chmod(0o755)
    for asked in ASKED:
        for word in asked.split():
            if word.startswith("tests/") and word.partition("::")[0].endswith(".py"):
                path = tmp_path / word.partition("::")[0]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
    for folder in ("unit", "cli"):
        (tmp_path / "tests" / folder).mkdir()
    return tmp_path


def ready(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "tools/ready.sh", "venv", *words],
        cwd=place, capture_output=True, text=True, check=False,
    )  # fmt: skip


def gone(place: Path) -> list[str]:
    """Which ways were gone, since the last time this was asked."""
    path = place / "gone"
    found = sorted(path.read_text().split()) if path.exists() else []
    path.unlink(missing_ok=True)
    return found


@pytest.mark.parametrize("asked", ASKED)
def test_only_what_is_asked_for_is_made_ready(place: Path, asked: str) -> None:
    assert ready(place, *asked.split()).returncode == 0
    assert gone(place) == ASKED[asked]


def test_the_tests_are_compiled_once(place: Path) -> None:
    ready(place, "tests")
    gone(place)
    ready(place, "tests")
    assert gone(place) == ["azurite", "chromium", "pgbouncer"]


def test_what_was_said_is_shown_whole_and_in_order(place: Path) -> None:
    (place / "tools" / "pgbouncer.sh").write_text("echo to nobody >&2\n")
    assert ready(place, "tests").stdout.splitlines() == ["chromium", "to nobody", "azurite"]


@pytest.mark.parametrize("name", ["azurite", "chromium"])
def test_what_fails_fails_all_after_the_others_are_done(place: Path, name: str) -> None:
    (place / "tools" / f"{name}.sh").write_text("echo no network; exit 3\n")
    done = ready(place, "tests")
    assert done.returncode == 1
    assert "no network" in done.stdout
    assert (place / "venv" / ".collected").exists()


def test_tests_that_cannot_be_collected_are_for_the_run_to_tell(place: Path) -> None:
    (place / "venv" / "bin" / "python").write_text("#!/bin/sh\nexit 2\n")
    assert ready(place, "tests").returncode == 0
