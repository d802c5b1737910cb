"""What mutation testing changes: one place of one module, loaded already or imported anew."""

from __future__ import annotations

import ast
import gc
import importlib.abc
import importlib.machinery
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add,
}  # fmt: skip

ASIDE = {"__repr__", "__str__", "__class_getitem__"}
"""Functions that only speak to people."""


@dataclass(frozen=True)
class Mutant:
    """One change: ``kind`` at the ``number``-th node that ``ast.walk`` meets."""

    module: str
    number: int
    kind: str
    line: int
    lines: tuple[int, int]  # of the statement it is in, or of that statement's head

    @property
    def path(self) -> Path:
        return SRC / "perkey" / self.module

    @property
    def name(self) -> str:
        """The module's name as it is imported."""
        name = "perkey." + self.module.removesuffix(".py").replace("/", ".")
        return name.removesuffix(".__init__")

    def code(self) -> CodeType:
        """The whole module with the change."""
        return compile(mutated(self.path.read_text("utf-8"), self), str(self.path), "exec")

    def __str__(self) -> str:
        text = self.path.read_text("utf-8").splitlines()[self.line - 1]
        return f"{self.module}:{self.line}  {self.kind}  |  {text.strip()}"


def mutants(module: str, source: str) -> list[Mutant]:
    """Every change of a module that is tried."""
    tree = ast.parse(source)
    aside = set(_aside(tree))
    heads = _heads(tree)
    return [
        Mutant(module, number, kind, getattr(node, "lineno", 0), heads[node])
        for number, node in enumerate(ast.walk(tree))
        if node not in aside
        for kind in kinds(node)
    ]


def _heads(tree: ast.Module) -> dict[ast.AST, tuple[int, int]]:
    """Of each node the lines that run when its innermost statement does, its body left out."""
    found: dict[ast.AST, tuple[int, int]] = {}

    def visit(node: ast.AST, lines: tuple[int, int]) -> None:
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            lines = (node.lineno, max(node.lineno, last))
        found[node] = lines
        for child in ast.iter_child_nodes(node):
            visit(child, lines)

    visit(tree, (0, 0))
    return found


def _aside(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes that mean nothing at run time, or only text for people."""
    for node in ast.walk(tree):
        left: list[ast.AST | None] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            left = [node.returns, *node.decorator_list]
            if node.name in ASIDE:
                left.append(node)
        elif isinstance(node, ast.ClassDef):
            left = [*node.decorator_list]
        elif isinstance(node, ast.arg | ast.AnnAssign):
            left = [node.annotation]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            left = [node]
        elif isinstance(node, ast.Raise):
            left = [node.exc]
        elif isinstance(node, ast.Assert | ast.JoinedStr):
            left = [node]
        for each in left:
            if each is not None:
                yield from ast.walk(each)


def kinds(node: ast.AST) -> list[str]:
    """The changes that one node allows."""
    if isinstance(node, ast.Compare):
        return ["comparison"] if len(node.ops) == 1 and type(node.ops[0]) in SWAPS else []
    if isinstance(node, ast.BoolOp | ast.BinOp | ast.AugAssign):
        return ["operator"] if type(node.op) in SWAPS else []
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ["not left out"]
    if isinstance(node, ast.Constant) and type(node.value) in (int, bool):
        return ["constant"]
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        return ["condition negated"]
    if isinstance(node, ast.Return) and node.value is not None:
        return [] if isinstance(node.value, ast.Constant) else ["returns None"]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await | ast.YieldFrom):
        return ["call left out"]
    return ["raise left out"] if isinstance(node, ast.Raise) else []


def mutated(source: str, mutant: Mutant) -> ast.Module:
    """The module with that one change."""
    tree = ast.parse(source)
    node = next(each for n, each in enumerate(ast.walk(tree)) if n == mutant.number)
    if isinstance(node, ast.Compare):
        node.ops = [SWAPS[type(node.ops[0])]()]  # type: ignore[list-item]
    elif isinstance(node, ast.BoolOp | ast.BinOp | ast.AugAssign):
        node.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Constant):
        node.value = (not node.value) if type(node.value) is bool else int(str(node.value)) + 1
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Return):
        node.value = ast.Constant(None)
    else:
        tree = _Replaced(node).visit(tree)
    return ast.fix_missing_locations(tree)


class _Replaced(ast.NodeTransformer):
    """One statement by ``pass``, or one ``not x`` by ``x``."""

    def __init__(self, node: ast.AST) -> None:
        self._node = node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if node is not self._node:
            return super().generic_visit(node)
        return node.operand if isinstance(node, ast.UnaryOp) else ast.Pass()


class Finder(importlib.abc.MetaPathFinder):
    """Imports one module from changed code, and leaves all others alone."""

    def __init__(self, name: str, code: CodeType, path: Path) -> None:
        self._name, self._code, self._path = name, code, path

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=_Loader(self._code))


class _Loader(importlib.abc.Loader):
    def __init__(self, code: CodeType) -> None:
        self._code = code

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)


def put_in(mutant: Mutant) -> bool:
    """Change the functions that are loaded; False if the change is not inside one of them.

    What runs once, at import (a constant, a default), is not found, nor is a function that
    closes over other names than before: those need a new process and ``Finder``.
    """
    new = {(code.co_qualname, code.co_firstlineno): code for code in _codes(mutant.code())}
    done = False
    for function in gc.get_objects():
        if type(function) is not FunctionType:
            continue
        code = function.__code__
        if code.co_filename != str(mutant.path):
            continue
        other = new.get((code.co_qualname, code.co_firstlineno), code)
        if other != code:
            if other.co_freevars != code.co_freevars:
                return False
            function.__code__ = other
            done = True
    return done


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)
