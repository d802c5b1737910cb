"""The mutation runner: what it changes, that nothing else changes, and that a mutant is noticed."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests.tidy import repo
from tools import mutants, mutating

SOURCE = '''
def f(a: int = 3, b: bool = True) -> int:
    """Text."""
    if not a and b:
        raise ValueError(f"{a + 1}")
    g(a)
    a += 1
    return a if a > 2 else a - 1

class C:
    def __repr__(self):
        return "x" + str(1 + 1)
'''


def changed() -> dict[tuple[str, int], str]:
    """(kind, line) -> the function with that change."""
    return {
        (mutant.kind, mutant.line): ast.unparse(mutating.mutated(SOURCE, mutant))
        for mutant in mutating.mutants("m.py", SOURCE)
    }


def test_each_kind_of_change_is_made_and_no_other() -> None:
    found = changed()
    plain = ast.unparse(ast.parse(SOURCE))
    for text in found.values():
        different = [
            x for x, y in zip(text.splitlines(), plain.splitlines(), strict=True) if x != y
        ]
        assert len(different) == 1, text
    assert "if a and b:" in found["not left out", 4]
    assert "if not a or b:" in found["operator", 4]
    assert "if not (not a and b):" in found["condition negated", 4]
    assert "        pass" in found["raise left out", 5]
    assert "    pass" in found["call left out", 6]
    assert "a -= 1" in found["operator", 7]
    assert "a >= 2" in found["comparison", 8]
    assert "return None" in found["returns None", 8]
    assert "b: bool=False" in found["constant", 2]


def test_what_speaks_only_to_people_is_left_alone() -> None:
    lines = {line for _, line in changed()}
    assert not lines & {3, 10, 11, 12}
    assert ("operator", 5) not in changed()


def test_a_change_is_seen_by_who_runs_the_statement_it_is_in() -> None:
    lines = {(m.kind, m.line): m.lines for m in mutating.mutants("m.py", SOURCE)}
    assert lines["not left out", 4] == (4, 4)  # the head of the branch, not its body
    assert lines["call left out", 6] == (6, 6)
    assert lines["constant", 2] == (2, 2)  # the head of the function


def test_the_rooms_have_quick_tests_that_exist() -> None:
    modules = {mutant.module for mutant in mutants.chosen(["flows", "locks", "engine"])}
    assert {"flows/merge.py", "flows/once/claims.py", "locks/table.py"} <= modules
    assert {module.partition("/")[0] for module in modules} == set(mutants.ROOMS)
    every = [test for tests in mutants.ROOMS.values() for test in tests]
    assert [test for test in every if not (repo.ROOT / test).exists()] == []


LOADED = """
def outer(a):
    def inner():
        return a + 1
    return inner

class C:
    def method(self):
        return self.number > 3
    number = 3 + 1

def other():
    return 1
"""


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """``LOADED``, as a module of a library that lies in a folder of its own."""
    (tmp_path / "perkey").mkdir()
    path = tmp_path / "perkey" / "loaded.py"
    path.write_text(LOADED, "utf-8")
    monkeypatch.setattr(mutating, "SRC", tmp_path)
    module = types.ModuleType("loaded")
    exec(compile(LOADED, str(path), "exec"), module.__dict__)
    return module


def put(kind: str, line: int) -> bool:
    (mutant,) = (
        m for m in mutating.mutants("loaded.py", LOADED) if (m.kind, m.line) == (kind, line)
    )
    return mutating.put_in(mutant)


def test_functions_that_are_loaded_are_changed_where_they_are(loaded: types.ModuleType) -> None:
    bound = loaded.C().method  # somebody holds it already
    made = loaded.outer(3)
    other = loaded.other.__code__
    assert (made(), bound()) == (4, True)
    assert put("operator", 4)
    assert (made(), loaded.outer(3)()) == (2, 2)
    assert put("returns None", 9)
    assert bound() is None
    assert loaded.other.__code__ is other


def test_what_runs_at_import_is_not_changed_in_place(loaded: types.ModuleType) -> None:
    assert not put("operator", 10)
    assert loaded.C.number == 4


def test_a_run_judges_each_change_of_a_module() -> None:
    command = [
        sys.executable, "-m", "tools.mutants", "--only=flows/pointer.py", "--sample=0", "--verbose",
        "--tests=tests/unit/flows/test_pointer.py::test_indexes_of_a_list_of_two",
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, cwd=repo.ROOT)
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    verdicts = {line[:10].strip() for line in lines if "if not _INDEX.fullmatch(" in line}
    assert verdicts == {"killed"}  # executed by that test, which notices each change of it
    verdicts = {line[:10].strip() for line in lines if "condition negated  |  tokens = " in line}
    assert verdicts == {"NOT RUN"}  # in a function that this test does not call
    assert re.match(r"flows/ in all: \d+ of \d+ noticed, \d+% \(0 of them hang\)", lines[-1])


def test_the_finder_gives_the_changed_module_and_only_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mutant_one.py").write_text("A = 1\n", "utf-8")
    (tmp_path / "mutant_two.py").write_text("A = 1\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    (mutant,) = mutating.mutants("mutant_one.py", "A = 1\n")
    code = compile(mutating.mutated("A = 1\n", mutant), "mutant_one.py", "exec")
    finder = mutating.Finder("mutant_one", code, tmp_path / "mutant_one.py")
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    try:
        assert importlib.import_module("mutant_one").A == 2
        assert importlib.import_module("mutant_two").A == 1
    finally:
        for name in ("mutant_one", "mutant_two"):
            sys.modules.pop(name, None)
