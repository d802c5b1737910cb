"""The commands that pages and help show: every one is a command, and what can be run here runs."""

from __future__ import annotations

import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import perkey as library
from perkey import Documents, Ledger
from perkey.cli import app, exits, main
from tests.cli.run import Command
from tests.cli.test_help import COMMANDS, LEAVES, examples
from tests.tidy import repo

ROOT = app.build()
SYNOPSES = re.compile(r"^<!-- perkey .*?^<!-- -->$", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```(?:python|py)\n.*?^```$", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"^(?:    |\$ )(?:[A-Z_]+=\S+ )*((?:perkey|make|pip install) .*)$", re.MULTILINE)
PROSE = re.compile(r"`((?:perkey|make|pip install) [^`]+)`")
WORKED = ("doc", "ledger", "token")
"""The commands whose examples need no server, no browser and no minute."""
ENDLESS = ["doc", "watch", "orders/"]


# --------------------------------------------------------------------------- on the pages


def shown() -> Iterator[tuple[str, str]]:
    """(page, command) of every command that stands on a line of its own."""
    for name, text in repo.texts():
        if not name.endswith(".md") or name.endswith("reference/command-line.md"):
            continue  # that page is the help itself
        plain = PYTHON.sub("", SYNOPSES.sub("", text)).replace("\\\n", " ")
        for line in LINE.findall(plain):
            yield name, re.split(r"\s+#\s", line)[0].strip()


def in_prose() -> Iterator[tuple[str, str]]:
    """(page, command) of every command in the middle of a sentence."""
    for name, text in repo.texts():
        if name.endswith(".md"):
            plain = PYTHON.sub("", SYNOPSES.sub("", text))
            for command in PROSE.findall(plain):
                yield name, " ".join(command.split())


def words_of(command: str) -> list[str]:
    return shlex.split(re.split(r" [>|] ", command)[0])


def test_every_command_on_a_page_is_one() -> None:
    wrong, looked_at = [], 0
    for page, command in shown():
        program, *words = words_of(command)
        if program == "perkey":
            looked_at += 1
            try:
                ROOT.parse_args(words, exit_on_error=False, print_error=False)
            except Exception as error:
                wrong.append((page, command, str(error)))
    assert wrong == []
    assert looked_at > 10


def named(command: str) -> bool:
    """Whether it names a command, or one and the options of it, as prose does without arguments."""
    _, *words = words_of(command)
    chain: tuple[str, ...] = ()
    while words and (*chain, words[0]) in COMMANDS:
        chain = (*chain, words.pop(0))
    if not chain:
        return words in (["--help"], ["--version"])
    flags = {word.partition("=")[0] for word in words if word.startswith("--")} - {"--help"}
    has = COMMANDS[chain].assemble_argument_collection() if chain in LEAVES else []
    return flags <= {name for argument in has for name in argument.names}


def test_every_command_in_a_sentence_is_one() -> None:
    commands = [(page, each) for page, each in in_prose() if each.startswith("perkey ")]
    assert [(page, each) for page, each in commands if not named(each)] == []
    assert len(commands) > 50


def test_every_make_on_a_page_makes_something() -> None:
    makefile = (repo.ROOT / "Makefile").read_text("utf-8")
    wrong, looked_at = [], 0
    for page, command in (*shown(), *in_prose()):
        program, *words = words_of(command)
        if program != "make":
            continue
        looked_at += 1
        settings = dict(word.split("=", 1) for word in words if "=" in word)
        target = words[0]
        places = [part for part in settings.get("TESTS", "").split() if part.startswith("tests")]
        benchmark = settings.get("NAME", "all")
        if (
            not re.search(rf"^{target}:", makefile, re.MULTILINE)
            or not all((repo.ROOT / place).exists() for place in places)
            or not (repo.ROOT / "benchmarks" / f"{benchmark}.py").exists()
        ):
            wrong.append((page, command))
    assert wrong == []
    assert looked_at > 10


def test_every_extra_that_is_to_be_installed_exists() -> None:
    project = tomllib.loads((repo.ROOT / "pyproject.toml").read_text("utf-8"))
    extras = set(project["project"]["optional-dependencies"])
    wanted = {
        extra
        for _, text in repo.texts()
        for found in re.findall(r"pip install ['\"]?perkey\[([\w,]+)\]", text)
        for extra in found.split(",")
    }
    assert wanted <= extras
    assert len(wanted) > 5


# --------------------------------------------------------------------------- in the help


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the examples speak of."""
    folder = tmp_path_factory.mktemp("prepared")
    with library.open(f"sqlite:///{folder / 'work.db'}") as store:
        docs, ledger = Documents(store), Ledger(store)
        docs.put("report", {"title": "Audit", "sections": {"links": "none broken"}}, create=True)
        for _ in range(6):
            docs.update("report", lambda report: {**report, "runs": report.get("runs", 0) + 1})
        ledger.open_account("bank", "EUR", floor=None)
        for name in ("alice", "shop"):
            ledger.open_account(name, "EUR")
        ledger.transfer("bank", "alice", 10_000, key="salary")
        ledger.transfer("bank", "alice", 1250, key="pay/1", memo="May")
        ledger.hold("alice", "shop", 2000, key="order/7", expires_in=3600)
    (folder / "report.json").write_text('{"title": "Audit", "sections": {}, "runs": 6}')
    (folder / "may.csv").write_text("source,target,amount\nbank,alice,1.50\n")
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in which the command runs."""
    place = tmp_path / "here"
    shutil.copytree(prepared, place)
    monkeypatch.chdir(place)
    monkeypatch.setenv("PERKEY_STORE", "sqlite:///work.db")
    return place


@pytest.mark.parametrize("chain", [c for c in LEAVES if c[0] in WORKED], ids=" ".join)
def test_the_examples_of_a_command_run(
    chain: tuple[str, ...], folder: Path, prepared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each by itself; one that begins something, where there is nothing yet."""
    for words in examples(COMMANDS[chain]):
        if words == ENDLESS:
            continue
        if "--create" in words:
            (folder / "work.db").unlink()
        assert main(words) == exits.DONE, (words, capsys.readouterr().err)
        shutil.copytree(prepared, folder, dirs_exist_ok=True)


@pytest.mark.parametrize("chain", [("doc",), ("ledger",)], ids=" ".join)
def test_the_examples_of_a_group_run_one_after_the_other(
    chain: tuple[str, ...], perkey: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERKEY_STORE", f"sqlite:///{tmp_path / 'work.db'}")
    for words in examples(COMMANDS[chain]):
        ran = perkey(*words)
        assert ran.code == exits.DONE, (words, ran.err)
