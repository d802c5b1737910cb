"""The help pages: clean at every width, with examples that are commands; pages made of them."""

from __future__ import annotations

import re
import shlex
import subprocess
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from cyclopts import App

from perkey.cli import app, helping
from tests.cli.run import Command
from tools import command_page

ROOT = app.build()
COMMANDS = dict(command_page.commands(ROOT))
LEAVES = [chain for chain, found in COMMANDS.items() if found.default_command is not None]
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@cache
def shown(chain: tuple[str, ...], columns: int, *, colour: bool = False) -> str:
    return command_page.page(ROOT, chain, columns, colour=colour)


def test_all_commands_are_looked_at() -> None:
    assert {("doc", "get"), ("ledger", "import"), ("lab", "conflicts"), ("run",)} <= set(LEAVES)
    assert {(), ("doc",), ("ledger",)} <= set(COMMANDS) - set(LEAVES)


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("chain", COMMANDS, ids=" ".join)
def test_a_page_fits_and_has_no_ragged_end(chain: tuple[str, ...], columns: int) -> None:
    plain = shown(chain, columns)
    coloured = shown(chain, columns, colour=True)
    assert ESCAPES.sub("", coloured) == plain
    assert coloured != plain
    lines = plain.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    assert [line for line in lines if len(line) > columns] == []
    assert not any(one == two == "" for one, two in pairwise(lines))


def paragraphs(page: str) -> list[list[str]]:
    return [each.splitlines() for each in page.split("\n\n")]


@pytest.mark.parametrize("chain", LEAVES, ids=" ".join)
def test_a_paragraph_uses_the_width(chain: tuple[str, ...]) -> None:
    """No line is broken where its next word had room: what was wrapped twice looks ragged."""
    for lines in paragraphs(shown(chain, 80)):
        if any(re.match(r" |Usage|$", line) for line in lines):
            continue
        for one, two in pairwise(lines):
            assert len(one) + 1 + len(re.split(r" (?![^[]*\])", two)[0]) > 80, (one, two)


@pytest.mark.parametrize("columns", [1, 40, 300])
def test_any_width_has_a_page(columns: int) -> None:
    for chain in ((), ("doc", "put"), ("demo",)):
        assert "Usage: perkey" in shown(chain, columns)


@pytest.mark.parametrize("chain", COMMANDS, ids=" ".join)
def test_nothing_is_told_that_tells_nothing(chain: tuple[str, ...]) -> None:
    page = shown(chain, 120)
    assert re.findall(r'default: (?:""|None|False|True|\(\)|\[\])', page) == []
    assert re.findall(r"\b(?:STR|INT|FLOAT|CHOICE)\b", page) == []


@pytest.mark.parametrize("chain", LEAVES, ids=" ".join)
def test_everything_is_described(chain: tuple[str, ...]) -> None:
    bare = []
    for argument in COMMANDS[chain].assemble_argument_collection():
        described = argument.parameter.help or ""
        if argument.show and not described.endswith("."):
            bare.append((argument.name, described))
    assert bare == []
    assert COMMANDS[chain].help.splitlines()[0].endswith(".")


def examples(found: App) -> list[list[str]]:
    """The words of each example on the page of a command."""
    lines = re.findall(r"^ +(perkey .+)$", found.help.replace("\\\n", " "), re.MULTILINE)
    return [shlex.split(line.partition(" > ")[0])[1:] for line in lines]


@pytest.mark.parametrize("chain", [chain for chain in COMMANDS if chain], ids=" ".join)
def test_every_command_has_examples_that_are_commands(chain: tuple[str, ...]) -> None:
    found = examples(COMMANDS[chain])
    assert found
    for words in found:
        assert tuple(words[: len(chain)]) == chain
        ROOT.parse_args(words, exit_on_error=False, print_error=False)


def test_the_first_page_has_examples_that_are_commands() -> None:
    assert len(examples(ROOT)) > 3
    for words in examples(ROOT):
        ROOT.parse_args(words, exit_on_error=False, print_error=False)


def test_what_is_printed_is_the_page(perkey: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    for words in (("doc", "put", "--help"), ("doc", "put", "k", "-h")):
        ran = perkey(*words)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out == shown(("doc", "put"), 80)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one two three", ["one two", "three"]),
        ("a [b c d] e", ["a [b c d]", "e"]),
        ("aaa [b c d]", ["aaa", "[b c d]"]),
        ("one  two", ["one two"]),
        ("unbreakable", ["unbreakable"]),
        ("x --key KEY", ["x", "--key KEY"]),
    ],
)
def test_how_lines_are_filled(text: str, lines: list[str]) -> None:
    assert helping.filled(text, 9) == lines


def test_a_long_label_stands_alone() -> None:
    label = "--" + "x" * 30
    rows = [("--a", "first"), (label, "second")]
    assert [line for line, _ in helping.columns(rows, 40)] == [
        "  --a  first", f"  {label}", "       second",
    ]  # fmt: skip


# -------------------------------------------------------------------------- the pages


def test_the_pages_say_what_the_command_says() -> None:
    hint = "write them anew: python -m tools.command_page"
    guide = command_page.GUIDE.read_text("utf-8")
    assert command_page.guide(guide, ROOT) == guide, hint
    assert command_page.REFERENCE.read_text("utf-8") == command_page.reference(ROOT), hint


def test_the_guide_has_a_section_for_every_command() -> None:
    guide = command_page.GUIDE.read_text("utf-8")
    top = {f"perkey {chain[0]}" for chain in COMMANDS if chain}
    assert top <= set(re.findall(r"^## `(perkey [a-z ]+)`$", guide, re.MULTILINE))
    missing = [" ".join(chain) for chain in LEAVES if f"    perkey {' '.join(chain)}" not in guide]
    assert missing == []


# ------------------------------------------------------------------------- completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell_knows_every_command(perkey: Command, shell: str) -> None:
    ran = perkey("completion", shell)
    assert (ran.code, ran.err) == (0, "")
    words = {word for chain in COMMANDS for word in chain}
    assert {word for word in words if not re.search(rf"\b{word}\b", ran.out)} == set()


def test_another_shell_is_told_which_there_are(perkey: Command) -> None:
    ran = perkey("completion", "tcsh")
    assert ran.code == 2
    assert "bash" in ran.err
    assert "perkey completion --help" in ran.err


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("'doc' ''", "get put patch"),
        ("'ledger' 'transfer' '--k'", "--key"),
        ("'token' 'ana' '--role' 'a'", "admin"),
        ("'completion' ''", "bash zsh fish"),
    ],
)
def test_bash_completes(perkey: Command, tmp_path: Path, typed: str, found: str) -> None:
    script = tmp_path / "perkey.bash"
    script.write_text(
        f"{perkey('completion', 'bash').out}\nCOMP_WORDS=(perkey {typed})\n"
        'COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_perkey\necho "${COMPREPLY[*]}"\n'
    )
    done = subprocess.run(["bash", script], capture_output=True, text=True, check=True, timeout=120)
    assert found in done.stdout
