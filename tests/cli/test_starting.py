"""How a command starts: it imports what it needs, and Ctrl-C ends it quietly even then."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import perkey as library
from perkey.cli import app, exits
from tests.cli.run import Command
from tests.tidy import repo

LOADED = """
import json, sys
from perkey.cli import main
code = main({arguments!r})
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""
INTERRUPTED = """
import os, signal, sys
from perkey.cli import main

class CtrlC:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, CtrlC)
sys.exit(main({arguments!r}))
"""


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=repo.ROOT / "src",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def loaded(*arguments: str) -> set[str]:
    """The modules that are in memory when this command has been run."""
    ran = python(LOADED.format(arguments=list(arguments)))
    code, modules = json.loads(ran.stderr)
    assert code == exits.DONE
    return set(modules)


def unwanted(modules: set[str], *names: str) -> list[str]:
    return sorted(each for each in modules for name in names if f"{each}.".startswith(f"{name}."))


OTHERS = ("perkey.lab", "perkey.testing", "perkey.engine", "perkey.server", "perkey.ledger",
          "perkey.cli.audit", "starlette", "uvicorn", "multiprocessing")  # fmt: skip


def test_the_version_needs_nothing() -> None:
    modules = loaded("--version")
    assert "perkey.cli" in modules
    assert unwanted(modules, "cyclopts", "rich", "asyncio", "sqlite3", *OTHERS) == []


def test_a_command_imports_its_own_module_only(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/work.db"
    library.open(url).close()
    modules = loaded("doc", "list", "--store", url)
    assert "perkey.cli.doc" in modules
    assert unwanted(modules, *OTHERS) == []


def test_the_first_page_says_what_every_command_does(perkey: Command) -> None:
    lines = perkey("--help").out.splitlines()
    for name in app.COMMANDS:
        (line,) = (line for line in lines if line.split()[:1] == [name] and line.startswith("  "))
        assert len(line.split()) > 3, line


def test_a_command_is_called_what_the_table_says() -> None:
    assert [each for each in app.build() if not each.startswith("-")] == [
        *app.COMMANDS,
        "completion",
    ]


@pytest.mark.parametrize("module", ["cyclopts", "perkey.cli.app", "perkey.cli.ledger"])
def test_ctrl_c_while_a_command_starts_is_quiet(module: str) -> None:
    arguments = ["ledger", "accounts", "--store", "memory://"]
    ran = python(INTERRUPTED.format(module=module, arguments=arguments))
    assert (ran.returncode, ran.stdout, ran.stderr) == (exits.INTERRUPTED, "", "")
