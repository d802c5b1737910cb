"""Budgets: a file of 600 lines or a function of 70 fails; 400 and 50 are printed as an alarm."""

from __future__ import annotations

import ast

import pytest

from tests.tidy import repo

FILE_ALARM, FILE_LIMIT = 400, 600
FUNCTION_ALARM, FUNCTION_LIMIT = 50, 70


def test_no_file_is_too_long() -> None:
    files = repo.sources("src", "tests", "examples", "benchmarks")
    for source in files:
        if source.lines > FILE_ALARM:
            print(f"alarm: {source.name} has {source.lines} lines")
    assert [s.name for s in files if s.lines > FILE_LIMIT] == []


def test_no_function_is_too_long() -> None:
    long = []
    for source in repo.sources("src"):
        for function in source.functions():
            lines = repo.body_lines(function)
            where = f"{source.name}:{function.lineno} {function.name} has {lines} lines"
            if lines > FUNCTION_ALARM:
                print(f"alarm: {where}")
            if lines > FUNCTION_LIMIT:
                long.append(where)
    assert long == []


def test_a_functions_docstring_is_not_counted() -> None:
    function = ast.parse('def f():\n    """One.\n\n    Two.\n    """\n    return 1\n').body[0]
    assert isinstance(function, ast.FunctionDef)
    assert repo.body_lines(function) == 2


@pytest.mark.parametrize("folder", ["src", "tests"])
def test_every_folder_of_python_is_a_package(folder: str) -> None:
    """So that two test files may have one name, and nothing is imported by accident of path."""
    folders = {source.path.parent for source in repo.sources(folder)} - {repo.ROOT / "src"}
    assert [
        str(f.relative_to(repo.ROOT)) for f in folders if not (f / "__init__.py").exists()
    ] == []
