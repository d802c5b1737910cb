"""``perkey lab conflicts`` as it is typed."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from perkey.cli.lab import conflicts
from perkey.errors import UsageError
from tests.cli.run import Command


def test_a_table_and_a_plot(perkey: Command, tmp_path: Path) -> None:
    path = tmp_path / "plot.svg"
    ran = perkey("lab", "conflicts", "--writers", "6", "--no-real", "--svg", str(path))
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == "One report, turns of 4 min, all writers begin together (simulated)"
    row = lines[3].split()
    assert row[0] == "6"
    assert "24.0 min 48.3 min" in lines[3]  # the lock: six turns of four minutes, and the waiting
    assert row[-4:] == ["5.7", "min", "0", "0%"]
    assert f"written: {path}" in lines
    ET.fromstring(path.read_text(encoding="utf-8"))
    assert "\x1b" not in ran.out
    assert [line for line in lines if line != line.rstrip()] == []


def test_the_real_thing_is_measured_beside_it(
    perkey: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conflicts, "REAL_TURN", 0.01)
    monkeypatch.setattr(conflicts, "REAL_WRITERS", (2,))
    ran = perkey("lab", "conflicts", "--writers", "2,3", "--turn", "90s", "--json")
    assert ran.code == 0
    assert [each["writers"] for each in ran.json["simulated"]] == [2, 2, 2, 3, 3, 3]
    assert {each["turn"] for each in ran.json["simulated"]} == {90.0}
    assert [each["way"] for each in ran.json["measured"]] == ["retry", "lock", "merge"]
    assert ran.json["simulated"][0]["conflict_rate"] == 0.3333
    shown = perkey("lab", "conflicts", "--writers", "2")
    assert "The same in real time over SQLite, with turns of 10 ms" in shown.out
    assert "perkey: merge" in shown.out


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("6", [6]), ("8,2,2", [2, 8]), ("2..64", [2, 4, 8, 16, 32, 64]), ("3..7", [3, 6, 7])],
)
def test_how_many(text: str, numbers: list[int]) -> None:
    assert conflicts.how_many(text) == numbers


@pytest.mark.parametrize(
    "text", ["", "0", "-2", "x", "2..", "8..2", "0..4", "2,,4", "257", "1..999"]
)
def test_how_many_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected --writers as"):
        conflicts.how_many(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("4m", 240), ("90s", 90), ("250ms", 0.25), ("1.5h", 5400), ("2 min", 120)],
)
def test_how_long(text: str, seconds: float) -> None:
    assert conflicts.how_long(text) == seconds


@pytest.mark.parametrize("text", ["", "4", "m", "-4m", "0s", "4x", "1e9h", "999999h", "٤m"])
def test_how_long_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected --turn as"):
        conflicts.how_long(text)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0"), (0.25, "250 ms"), (1.5, "1.5 s"), (60, "1.0 min"), (336_648, "5,610.8 min")],
)
def test_spans(seconds: float, shown: str) -> None:
    assert conflicts.span(seconds) == shown


def test_what_makes_no_sense_is_refused(perkey: Command) -> None:
    for arguments in (["--writers", "none"], ["--turn", "soon"]):
        ran = perkey("lab", "conflicts", *arguments)
        assert ran.code == 2
        assert "expected --" in ran.err
    ran = perkey("lab", "conflicts", "--svg", "/no/such/folder/x.svg", "--no-real")
    assert ran.code == 2
    assert "cannot write /no/such/folder/x.svg" in ran.err
