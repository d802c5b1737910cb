"""The mutation runner: what it changes, that nothing else changes, and that a mutant is noticed."""

from __future__ import annotations

import ast
import importlib
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tidy import repo

TOOL: Any = SimpleNamespace(**runpy.run_path(str(repo.ROOT / "tools" / "mutants.py"), run_name="t"))

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
        (mutant.kind, mutant.line): ast.unparse(TOOL.mutated(SOURCE, mutant))
        for mutant in TOOL.mutants("m.py", SOURCE)
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


def test_every_module_of_the_three_rooms_has_quick_tests_that_exist() -> None:
    modules = {mutant.module for mutant in TOOL.chosen(["flows", "locks", "engine"])}
    assert {"flows/merge.py", "locks/table.py", "engine/runner.py"} <= modules
    missing = [
        t for module in modules for t in TOOL.tests_of(module) if not (repo.ROOT / t).exists()
    ]
    assert missing == []
    assert TOOL.tests_of("store/url.py") == []


def test_the_finder_gives_the_changed_module_and_only_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mutant_one.py").write_text("A = 1\n", "utf-8")
    (tmp_path / "mutant_two.py").write_text("A = 1\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    (mutant,) = TOOL.mutants("mutant_one.py", "A = 1\n")
    code = compile(TOOL.mutated("A = 1\n", mutant), "mutant_one.py", "exec")
    finder = TOOL.Finder("mutant_one", code, tmp_path / "mutant_one.py")
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    try:
        assert importlib.import_module("mutant_one").A == 2
        assert importlib.import_module("mutant_two").A == 1
    finally:
        for name in ("mutant_one", "mutant_two"):
            sys.modules.pop(name, None)
