"""What cannot be written or read at the end is refused at the beginning, before the work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perkey.cli import exits
from perkey.cli.lab import conflicts
from perkey.lab import running
from tests.cli.run import Command


@pytest.fixture
def taken(tmp_path: Path) -> Path:
    """A file where a folder is wanted."""
    taken = tmp_path / "taken"
    taken.write_text("mine")
    return taken


def never(*arguments: Any, **options: Any) -> Any:
    raise AssertionError("the work was done before")


def test_drawings_that_have_no_place(
    perkey: Command, taken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "everything", never)
    ran = perkey("lab", "double-move", "--out", str(taken / "drawings"))
    assert (ran.code, ran.out) == (exits.USAGE, "")
    assert f"cannot make the folder {taken}/drawings" in ran.err
    assert taken.read_text() == "mine"


def test_a_plot_that_has_no_place(
    perkey: Command, taken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conflicts, "simulate", never)
    ran = perkey("lab", "conflicts", "--svg", str(taken / "plot.svg"))
    assert (ran.code, ran.out) == (exits.USAGE, "")
    assert f"cannot write {taken}/plot.svg" in ran.err


def test_a_token_file_that_is_not_there(perkey: Command, url: str, tmp_path: Path) -> None:
    ran = perkey("serve", url, "--port", "0", "--tokens", str(tmp_path / "none.toml"))
    assert (ran.code, ran.out) == (exits.USAGE, ""), "nothing is served, and nothing says so"
    assert f"cannot read the token file {tmp_path}/none.toml: No such file" in ran.err
    assert f"perkey token NAME --file {tmp_path}/none.toml makes one" in ran.err
