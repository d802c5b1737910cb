"""What the tidy tests look at: the repository's files, read and parsed once."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "perkey"
TESTS = ROOT / "tests"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One Python file."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """Its path from the root, as a person would write it."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def filled(self) -> int:
        """Lines that are not blank."""
        return sum(1 for line in self.text.splitlines() if line.strip())

    def functions(self) -> Iterator[Function]:
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))


@functools.cache
def parse(path: Path) -> Source:
    text = path.read_text("utf-8")
    return Source(path, text, ast.parse(text, str(path)))


@functools.cache
def sources(*folders: str) -> tuple[Source, ...]:
    """Every Python file in these folders of the repository; a missing folder has none."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return tuple(parse(path) for path in paths)


def body_lines(function: Function) -> int:
    """How many lines a function has, its docstring not counted."""
    last = function.end_lineno or function.lineno
    total = last - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        total -= (first.end_lineno or first.lineno) - first.lineno + 1
    return total


@functools.cache
def texts() -> tuple[tuple[str, str], ...]:
    """Every text file that belongs to the project: (name, text)."""
    suffixes = {".py", ".md", ".toml", ".sql", ".sh", ".html", ".css", ".js", ".txt", ".yml"}
    found = [ROOT / "Makefile", ROOT / ".ci" / "run", ROOT / "pyproject.toml", *ROOT.glob("*.md")]
    for folder in ("src", "tests", "docs", "examples", "benchmarks", "tools"):
        found += [p for p in sorted((ROOT / folder).rglob("*")) if p.suffix in suffixes]
    built = ROOT / "docs" / "_build"
    ours = (p for p in found if not p.is_relative_to(built) and "vendored" not in p.parts)
    kept = [p for p in ours if p.is_file()]
    return tuple((p.relative_to(ROOT).as_posix(), p.read_text("utf-8")) for p in kept)
