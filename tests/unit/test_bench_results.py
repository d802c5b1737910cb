"""The command that runs all benches: what fails is named, the others go on, nothing is left."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import psutil
import pytest

from benchmarks import all as everything
from benchmarks import plots, records

RECORDING = """
from benchmarks.records import record
record("one | two", 12345.0, "/s", theirs=100.0, ratios=[1.0, 2.0, 3.0, 4.0], goal="goal 2x")
record("size", 0.5, "KB")
print("said", __import__("os").getcwd())
"""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the repository, with benches to be written into it."""
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    for name in ("__init__.py", "records.py"):
        source = everything.ROOT / "benchmarks" / name
        (folder / name).write_text(source.read_text("utf-8"), "utf-8")
    monkeypatch.setattr(everything, "ROOT", tmp_path)
    return folder


def test_a_bench_leaves_its_figures_and_what_it_said(bench: Path) -> None:
    (bench / "good.py").write_text(RECORDING, "utf-8")
    outcome = everything.run("good", False, 60)
    assert (outcome.wrong, outcome.text) == ("", "said .")
    first, second = outcome.records
    assert (first.ratio, first.low, first.high) == (2.5, 1.75, 3.25)
    assert (second.what, second.ratio) == ("size", None)
    text = everything.page([outcome], False, (1.0, 2.0))
    assert "| one \\| two | 12,345 /s | 100 /s | 2.50 | 1.75 to 3.25 | goal 2x |" in text
    assert "does not count" not in text
    assert [file for file, _, _ in everything.pictures(outcome)] == [
        "good-ratios.svg", "good-KB.svg",
    ]  # fmt: skip


def test_one_that_fails_is_named_and_the_others_go_on(
    bench: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench / "good.py").write_text(RECORDING, "utf-8")
    (bench / "bad.py").write_text("raise SystemExit('no server today')", "utf-8")
    monkeypatch.setattr(everything, "BENCHES", ("bad", "good"))
    into = tmp_path / "into"
    assert everything.main(["--only", "bad,good", "--into", str(into), "--quick"]) == 1
    text = (into / "RESULTS.md").read_text("utf-8")
    assert "**bad does not count**: ended with 1" in text
    assert "no server today" in text
    assert "reduced sizes" in text
    assert "| size | 0.5 KB |" in text
    for picture in (into / "results").iterdir():
        assert ET.fromstring(picture.read_text("utf-8")).tag.endswith("svg")
    assert len(list((into / "results").iterdir())) == 2


def test_one_that_does_not_end_is_interrupted_and_stops_its_server(
    bench: Path, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    (bench / "slow.py").write_text(
        "import pathlib, subprocess, sys\n"
        f"note = pathlib.Path({str(note)!r})\n"
        "server = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "note.write_text(str(server.pid))\n"
        "try:\n    server.wait()\n"
        "finally:\n    note.write_text(note.read_text() + ' stopped')\n",
        "utf-8",
    )
    for most in (2, 10, 60):  # a busy machine may not even have begun
        outcome = everything.run("slow", False, most)
        assert outcome.wrong == f"not done after {most} s"
        if note.exists():
            break
    number, _, stopped = note.read_text("utf-8").partition(" ")
    assert stopped == "stopped"
    if psutil.pid_exists(int(number)):
        psutil.Process(int(number)).wait(60)


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        everything.main(["--only", "nothing"])
    assert "found nothing" in capsys.readouterr().err


def test_every_bench_is_in_the_command() -> None:
    folder = everything.ROOT / "benchmarks"
    runnable = {
        path.stem for path in folder.glob("*.py")
        if 'if __name__ == "__main__"' in path.read_text("utf-8")
    }  # fmt: skip
    # Those that another bench starts, and the command itself.
    assert runnable - {"engine_peers", "ledger_peers", "explore_peers", "all"} == set(
        everything.BENCHES
    )


def test_a_picture_escapes_its_labels_and_scales() -> None:
    rows = [plots.Bar("a <b> & c", 1.0, 0.5, 1.5), plots.Bar("x" * 80, 1000.0), plots.Bar("0", 0.0)]
    picture = plots.bars("t & u", "ms", rows, 1.0)
    assert ET.fromstring(picture).get("width") == "920"
    assert "logarithmic" in picture
    assert "a &lt;b&gt; &amp; c" in picture
    assert "logarithmic" not in plots.bars("t", "ms", rows[:1])


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.1234, "0.123"), (12.34, "12.3"), (12345.6, "12,346")]
)
def test_figures_for_people(value: float, text: str) -> None:
    assert plots.amount(value) == text


def test_without_the_command_nothing_is_written_and_rounds_are_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(records.FILE, raising=False)
    records.record("nothing", 1.0, "s")
    assert records.read(tmp_path / "missing") == []
    assert records.rounds(15) == 15
    monkeypatch.setenv(records.QUICK, "1")
    assert (records.rounds(15), records.rounds(3)) == (3, 2)
    assert records.quartiles([]) == (None, None)
    assert records.quartiles([2.0]) == (2.0, 2.0)
