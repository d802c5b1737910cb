"""Rules on the source: one clock, one spelling, no loose ends, nothing of anyone's machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.tidy import repo

CLOCKED = {"time", "random", "uuid", "secrets"}
CLOCKED_ATTRIBUTES = {
    ("os", "urandom"),
    ("os", "getrandom"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
}


def may_read_the_clock(name: str) -> bool:
    return name == "src/perkey/clock.py" or name.startswith("src/perkey/testing/")


def clock_uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every place that reads a clock or draws a random number past the clock module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in CLOCKED:
                    yield node.lineno, f"import {alias.name}"
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if node.level == 0 and (
                    node.module in CLOCKED or (node.module, alias.name) in CLOCKED_ATTRIBUTES
                ):
                    yield node.lineno, f"from {node.module} import {alias.name}"
        elif isinstance(node, ast.Attribute):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else None
            owner = node.value.id if isinstance(node.value, ast.Name) else owner
            if (owner, node.attr) in CLOCKED_ATTRIBUTES:
                yield node.lineno, f"{owner}.{node.attr}"


def test_only_the_clock_module_reads_a_clock_or_draws_random_numbers() -> None:
    found = [
        f"{source.name}:{line} {what}"
        for source in repo.sources("src")
        if not may_read_the_clock(source.name)
        for line, what in clock_uses(source.tree)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "import uuid as u",
        "from time import monotonic",
        "from os import urandom",
        "import os\nos.urandom(3)",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import date\ndate.today()",
    ],
)
def test_the_clock_rule_sees(text: str) -> None:
    assert list(clock_uses(ast.parse(text)))


def test_no_bare_except() -> None:
    found = [
        f"{source.name}:{node.lineno}"
        for source in repo.sources("src", "tests", "examples", "benchmarks")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    assert found == []


# Assembled, so that this file does not find itself.
LOOSE_ENDS = re.compile(
    r"\b(TO"
    r"DO|FIX"
    r"ME|XX"
    r"X)\b|mark\.(sk"
    r"ip|xf"
    r"ail)|pytest\.(sk"
    r"ip|xf"
    r"ail)"
    r"|NotImpl"
    r"ementedError"
)


def test_no_loose_ends() -> None:
    assert matches(LOOSE_ENDS, "src", "tests", "examples", "benchmarks") == []


MACHINE = re.compile(r"/(work|root|tm" r"p|home/\w+)/|/tm" r"p\b|local" r"host:\d")


def test_no_machine_paths() -> None:
    assert matches(MACHINE, "src", "tests", "examples", "benchmarks", "docs", "tools") == []


def matches(pattern: re.Pattern[str], *folders: str) -> list[str]:
    """``name:line: match`` for every match in the project's text files in these folders."""
    return [
        f"{name}:{number}: {match.group()}"
        for name, text in repo.texts()
        if name.partition("/")[0] in folders
        for number, line in enumerate(text.splitlines(), 1)
        for match in pattern.finditer(line)
    ]


def test_every_module_has_a_docstring() -> None:
    modules = [s for s in repo.sources("src", "tests") if s.text.strip()]
    assert [s.name for s in modules if ast.get_docstring(s.tree) is None] == []


def test_every_module_postpones_annotations() -> None:
    found = [
        source.name
        for source in repo.sources("src", "tests", "examples", "benchmarks")
        if any(isinstance(node, ast.ImportFrom | ast.FunctionDef) for node in source.tree.body)
        and "from __future__ import annotations" not in source.text
    ]
    assert found == []


AMERICAN = {
    "analyz": "analys",
    "behavior": "behaviour",
    "canceled": "cancelled",
    "canceling": "cancelling",
    "catalog ": "catalogue",
    "center": "centre",
    "favor": "favour",
    "honor": "honour",
    "initializ": "initialis",
    "labeled": "labelled",
    "modeling": "modelling",
    "neighbor": "neighbour",
    "normaliz": "normalis",
    "optimiz": "optimis",
    "organiz": "organis",
    "recogniz": "recognis",
    "serializ": "serialis",
    "summariz": "summaris",
    "synchroniz": "synchronis",
}
SPELT = re.compile("|".join([*AMERICAN, r"\bcolor(?!ama)"]), re.IGNORECASE)


def prose(source: repo.Source) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a file: what we wrote for people, by line."""
    for number, line in enumerate(source.text.splitlines(), 1):
        _, mark, comment = line.partition("# ")
        if mark:
            yield number, comment
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Module | ast.ClassDef | repo.Function):
            yield getattr(node, "lineno", 1), ast.get_docstring(node) or ""


def test_one_spelling() -> None:
    """UK English in prose; names that a library or a standard chose are written in ``code``."""
    found = [
        f"{source.name}:{line}: {match.group()}"
        for source in repo.sources("src")
        for line, text in prose(source)
        for match in SPELT.finditer(re.sub(r"``[^`]*``|`[^`]*`|\"[^\"]*\"", "", text))
    ]
    for name, text in repo.texts():
        if name.endswith(".md") and name.partition("/")[0] != "tests":
            plain = re.sub(r"```.*?```|`[^`]*`|<[^>]*>|\([^)]*\)", "", text, flags=re.DOTALL)
            found += [f"{name}: {match.group()}" for match in SPELT.finditer(plain)]
    assert found == []
