"""``perkey lab`` as it is typed."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perkey.cli.lab import view
from perkey.lab import catalogue, double_move
from tests.cli.run import Command

QUICK = ("--rounds", "5", "--jobs", "1")


def test_a_failure_is_drawn_and_the_exit_code_is_0(perkey: Command) -> None:
    ran = perkey("lab", "double-move/delete", "double-move/counted", *QUICK)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == "Done twice (double-move)"
    (row,) = [line for line in lines if line.startswith("delete the lock on leave  ")]
    assert "24 of 78 (31%)" in row
    assert "  => one payment moved the money 2 times" in lines
    heads = next(line for line in lines if line.split()[:3] == ["A", "B", "C"])
    first = next(line for line in lines if "makes lock 1" in line)
    assert first.split()[0] == "1"
    assert first.index("makes lock 1") == heads.index("A")
    late = next(line for line in lines if "makes lock 2" in line)
    assert late.index("makes lock 2") == heads.index("C")
    assert any("exhausted: 3 callers, 1 failure, 1 cancellation" in line for line in lines)
    assert "1 of 1 wrong ways found to fail; 1 of 1 others searched through" in ran.out
    assert [line for line in lines if line != line.rstrip()] == []
    assert "\x1b" not in ran.out


def test_json_has_everything(perkey: Command) -> None:
    ran = perkey("lab", "half-open/check-then-set", "half-open/compare-and-swap", *QUICK, "--json")
    assert ran.code == 0
    assert ran.json["as_expected"] is True
    wrong, right = ran.json["variants"]
    assert wrong["kind"] == "wrong"
    assert wrong["schedules"]["failing"] == 588
    assert wrong["stress"]["threads"] <= wrong["stress"]["rounds"] == 5
    assert wrong["failure"]["kind"] == "check"
    assert wrong["drawing"]["verdict"] == "it was started 2 times"
    assert right["search"]["verdict"] == "exhausted"
    assert right["schedules"]["failing"] == 0
    assert right["drawing"] is None
    assert ran.err == ""


def test_drawings_are_written_as_svg_and_mermaid(perkey: Command, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "drawings"
    ran = perkey("lab", "double-move/delete-if-mine", "double-move/keep", *QUICK, "--out", str(out))
    assert sorted(path.name for path in out.iterdir()) == [
        "double-move-delete-if-mine.mmd",
        "double-move-delete-if-mine.svg",
    ]
    ET.fromstring((out / "double-move-delete-if-mine.svg").read_text(encoding="utf-8"))
    text = (out / "double-move-delete-if-mine.mmd").read_text(encoding="utf-8")
    assert text.startswith("sequenceDiagram\n")
    assert f"written: {out / 'double-move-delete-if-mine.svg'}" in ran.out


def test_the_costs_of_a_right_way_are_told(perkey: Command) -> None:
    ran = perkey("lab", "lost-update/turn-lock", "double-move/keep", *QUICK)
    assert "costs: 6 agents, turns of 4 minutes: 24 min instead of 6" in ran.out
    assert "costs: 5,000 keys ever used: 5,000 locks and " in ran.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "found 'nothing'; there are lost-update"),
        (["double-move/nothing"], "the variants of double-move are delete"),
        (["--rounds", "0"], "expected --rounds from 1 to 1,000,000, found 0"),
        (["--rounds", "many"], "rounds"),
        (["--jobs", "-1"], "expected --jobs from 1"),
    ],
)
def test_what_makes_no_sense_is_refused(perkey: Command, arguments: list[str], said: str) -> None:
    ran = perkey("lab", *arguments)
    assert ran.code == 2
    assert said in ran.err
    assert ran.out == ""


def test_a_way_that_turns_out_otherwise_is_exit_code_1(
    perkey: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(variant: Any) -> Any:
        if variant.name == "counted":
            return replace(variant, callers=(double_move.delete,) * 3)
        if variant.name == "delete":
            return replace(variant, callers=(double_move.keep,) * 3)
        return variant

    scenario = double_move.SCENARIO
    broken = replace(scenario, variants=[changed(each) for each in scenario.variants])
    monkeypatch.setitem(catalogue.SCENARIOS, "double-move", broken)
    ran = perkey("lab", "double-move/delete", "double-move/counted", *QUICK)
    assert ran.code == 1
    assert "NOT FOUND" in ran.out
    assert "FAILS" in ran.out
    assert "0 of 1 wrong ways found to fail; 0 of 1 others" in ran.out
    as_json = perkey("lab", "double-move/delete", *QUICK, "--json")
    assert as_json.code == 1
    assert as_json.json["as_expected"] is False


def test_the_bar_is_for_terminals_only(capsys: pytest.CaptureFixture[str]) -> None:
    for as_json in (True, False):
        with view.progress(1, as_json=as_json) as done:
            done(None)  # type: ignore[arg-type]
    assert capsys.readouterr() == ("", "")


def test_the_bar_counts_what_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from perkey.lab.examine import examine

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    report = examine(double_move.SCENARIO, double_move.SCENARIO.variant("delete"), 1)
    with view.progress(1, as_json=False) as done:
        done(report)
    assert "double-move/delete" in capsys.readouterr().err


def test_it_fits_a_terminal_of_80_columns() -> None:
    from rich.console import Console

    from perkey.lab.examine import examine

    scenario = double_move.SCENARIO
    reports = [examine(scenario, scenario.variant(name), 1) for name in ("delete", "counted")]
    console = Console(width=80, record=True, force_terminal=False)
    with console.capture() as caught:
        console.print(view._summary(reports))
        console.print(view.drawn(reports[0].drawing))  # type: ignore[arg-type]
    shown = caught.get()
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert "24 of 78 (31%)" in shown
    assert "…" not in shown
