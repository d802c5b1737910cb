"""The command line under test, on a SQLite file of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

import perkey as library
from tests.cli.run import Command


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def perkey(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, url: str
) -> Command:
    library.open(url).close()
    monkeypatch.setenv("PERKEY_STORE", url)
    monkeypatch.setenv("COLUMNS", "200")
    return Command(capsys)
