"""The parts of the demo: the plan, the report's change, the view, where things are written."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perkey.cli.audit.corpus import gather
from perkey.cli.demo import command, plan, report, view
from perkey.errors import UsageError

PLAN = plan.Plan("r", (__file__,), 6, False, 1.0, 3.0, 300.0)


def test_a_plan_comes_back_as_it_was_stored() -> None:
    assert plan.from_stored(PLAN.stored()) == PLAN


@pytest.mark.parametrize(
    ("change", "kill", "said"),
    [
        ({"workers": 0}, False, "found 0"),
        ({"workers": 65}, False, "from 1 to 64"),
        ({"workers": 1}, True, "at least 2"),
        ({"think_s": -1.0}, False, "--think"),
        ({"think_s": float("nan")}, False, "--think"),
        ({"lease_s": 0.1}, False, "--lease"),
        ({"paths": (__file__, "/nowhere/\x1b")}, False, r"no file or folder /nowhere/\\x1b"),
    ],
)
def test_a_plan_that_cannot_work_is_refused(change: dict[str, Any], kill: bool, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        plan.check(replace(PLAN, **change), kill=kill)


def test_the_projects_own_pages_are_found() -> None:
    names = [text.name for text in gather(plan.own_documentation()).texts]
    assert "README.md" in names
    assert any(name.startswith("docs/") for name in names)


def test_installed_without_a_checkout_the_pages_come_with_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "site-packages" / "perkey"
    monkeypatch.setattr(plan, "__file__", str(package / "cli" / "demo" / "plan.py"))
    assert plan.own_documentation() == [str(package / "_pages")]


def test_the_change_keeps_what_others_wrote_and_may_run_again() -> None:
    before = {"title": "t", "sections": {"a": {"found": 2}}, "findings": 2, "more": 1}
    change = report.with_section("b", {"found": 3})
    once = change(before)
    assert once["sections"] == {"a": {"found": 2}, "b": {"found": 3}}
    assert (once["findings"], once["more"]) == (5, 1)
    assert change(once) == once
    assert before["sections"] == {"a": {"found": 2}}, "pure: the old value is untouched"


def test_a_store_that_processes_cannot_share_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot share"):
        command.demo(store="memory://")


def test_the_store_beside_a_report_with_an_awkward_name(tmp_path: Path) -> None:
    url = command._beside(tmp_path / "a b?#%" / "audit.md")
    assert url.endswith("/a%20b%3F%23%25/audit.db")
    assert (tmp_path / "a b?#%").is_dir()


ROWS = [
    view.Row("links", "running", "worker-1", 1),
    view.Row("inventory", "open", "", 0),
]


def test_lines_are_printed_when_something_changes(capsys: pytest.CaptureFixture[str]) -> None:
    with view.Lines() as lines:
        lines.show(ROWS)
        lines.show(ROWS, "a note")
        lines.show(ROWS, "a note")
        lines.show([view.Row("links", "done", "worker-2", 2), ROWS[1]], "a note")
    assert capsys.readouterr().out.splitlines() == [
        "links: running by worker-1",
        "a note",
        "links: done by worker-2 (attempt 2)",
    ]


def test_the_view_fits_where_the_output_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(view.chosen(True)) is view.Quiet
    assert type(view.chosen(False)) is view.Lines
    monkeypatch.setenv("FORCE_COLOR", "1")  # as at a terminal
    monkeypatch.setenv("TERM", "xterm")
    assert type(view.chosen(False)) is view.Redrawn


def test_the_table_is_redrawn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with view.Redrawn() as board:
        board.show(ROWS, "a note")
    out = capsys.readouterr().out
    assert all(word in out for word in ("links", "running", "worker-1", "inventory", "a note"))
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out)
    assert [line for line in plain.splitlines() if line != line.rstrip()] == []


def test_a_report_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "audit.md"
    command._save(path, "one")
    command._save(path, "two")
    assert path.read_text() == "two"
    assert [each.name for each in path.parent.iterdir()] == ["audit.md"]
