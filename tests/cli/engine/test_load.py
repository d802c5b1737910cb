"""What ``perkey run`` reads from a Python file, and what it says about a bad one."""

from __future__ import annotations

from pathlib import Path

import pytest

from perkey import UsageError
from perkey.cli.run.load import load
from tests.cli.run import Command

HEAD = "from perkey.engine import define, message, process\n"


def file(folder: Path, text: str) -> Path:
    path = folder / "work.py"
    path.write_text(HEAD + text, encoding="utf-8")
    return path


def test_definitions_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """
@process("b")
async def one(ctx): pass
two = define("a", lambda ctx: 1)
again = two
three = define("b", lambda ctx: 2)
async def main(engine): pass
"""
    found = load(file(tmp_path, text))
    assert [each.key for each in found.definitions] == ["b", "a", "b"]
    assert found.main is not None


def test_a_file_may_import_what_lies_beside_it_and_stays_quiet(tmp_path: Path) -> None:
    (tmp_path / "beside_the_file.py").write_text("KEY = 'order'\n")
    text = """
from beside_the_file import KEY
order = define(KEY, lambda ctx: None)
if __name__ == "__main__":
    raise SystemExit("it was run as a script")
"""
    found = load(file(tmp_path, text))
    assert [each.key for each in found.definitions] == ["order"]
    assert found.main is None


def test_a_file_is_read_again_when_it_changed(tmp_path: Path) -> None:
    first = load(file(tmp_path, "@process('a')\ndef body(ctx):\n    return 1\n"))
    second = load(file(tmp_path, "@process('a')\ndef body(ctx):\n    return 2\n"))
    same = load(file(tmp_path, "@process('a')\ndef body(ctx):\n    return 2\n"))
    digests = [each.definitions[0].digest for each in (first, second, same)]
    assert digests[0] != digests[1] == digests[2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "defines no process"),
        ("x = (", "SyntaxError"),
        ("1 / 0", r"ZeroDivisionError.*\(line 2\)"),
        ("def main(engine): pass", "async def main"),
        ("main = 5\nx = define('a', lambda ctx: 1)", "async def main"),
        ("define('', lambda ctx: 1)", "key of 1 to 512 bytes"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load(file(tmp_path, text))


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "no.py", tmp_path):
        with pytest.raises(UsageError, match="cannot read"):
            load(path)


def test_the_command_reports_it_with_exit_code_2(perkey: Command, tmp_path: Path) -> None:
    ran = perkey("run", str(tmp_path / "no.py"))
    assert (ran.code, ran.out) == (2, "")
    assert "cannot read" in ran.err
    for drain in ("-1", "inf", "nan"):
        ran = perkey("run", str(file(tmp_path, "x = define('a', print)")), "--drain", drain)
        assert ran.code == 2, ran
