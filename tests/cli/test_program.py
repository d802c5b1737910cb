"""What is printed to be pasted calls the command that printed it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perkey.cli import output


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command in a folder that the shell does not look into; it is what runs."""
    script = tmp_path / "venv" / "bin" / "perkey"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(script), "demo"])
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.chdir(tmp_path)
    return script


def test_its_path_where_the_shell_does_not_find_it(script: Path) -> None:
    assert output.program() == "venv/bin/perkey"


def test_its_name_where_the_shell_finds_it(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(script.parent))
    assert output.program() == "perkey"


def test_its_path_where_the_shell_finds_another(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "elsewhere" / "perkey"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent))
    assert output.program() == "venv/bin/perkey"


def test_its_whole_path_from_another_folder(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (script.parent.parent / "deep").mkdir()
    monkeypatch.chdir(script.parent.parent / "deep")
    assert output.program() == str(script)
    monkeypatch.chdir(script.parent)
    assert output.program() == "./perkey"


@pytest.mark.parametrize("called", ["/usr/lib/python3/site-packages/perkey/__main__.py", "-c", ""])
def test_its_name_where_it_is_no_command(called: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [called])
    assert output.program() == "perkey"
