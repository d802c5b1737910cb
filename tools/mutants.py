"""Mutation testing of flows/, locks/ and engine/: ``make mutants MUTANTS_ARGS="--sample 60"``.

    python tools/mutants.py [--sample N] [--seed S] [--seconds T] [--only flows/merge.py,locks]

Changes one place of one module at a time (a comparison, a branch, a number, a call left out)
and runs the quick tests of that module.  A mutant *survives* when they all pass.  The places are
drawn with a seed; the score is that of the sample.  Survivors that were looked at are explained
in ``tools/mutants.md``.  Each mutant is a forked process; the source on disk is never touched.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"

ENGINE = ["tests/engine/test_engine.py", "tests/engine/test_instances.py",
          "tests/engine/test_messages.py", "tests/engine/test_durable.py"]  # fmt: skip
LOCKS = ["tests/unit/locks/test_keyed_threads.py", "tests/unit/locks/test_keyed_tasks.py",
         "tests/unit/locks/test_sections.py", "tests/unit/locks/test_shared.py"]  # fmt: skip
DOCUMENTS = ["tests/unit/test_documents.py", "tests/unit/test_documents_model.py"]
FLOWS = {
    "align": ["tests/unit/flows/test_align.py", "tests/unit/flows/test_merge.py"],
    "arguments": ["tests/unit/test_arguments.py"],
    "blame": ["tests/unit/flows/test_blame.py"],
    "board": ["tests/unit/test_board.py"],
    "diff": ["tests/unit/flows/test_diff.py"],
    "documents": DOCUMENTS,
    "leases": ["tests/unit/test_leases.py"],
    "merge": ["tests/unit/flows/test_merge.py", "tests/unit/flows/test_merge_page.py"],
    "merging": ["tests/unit/test_document_merging.py"],
    "patching": ["tests/unit/flows/test_patching.py"],
    "pointer": ["tests/unit/flows/test_pointer.py"],
    "publishing": ["tests/unit/publishing/test_publisher.py"],
    "records": [
        *DOCUMENTS,
        "tests/unit/store/test_hooks.py",
        "tests/unit/test_store_delete.py",
        "tests/unit/once/test_atomic.py",
    ],
    "rules": ["tests/unit/flows/test_rules.py", "tests/unit/test_document_rules.py"],
    "tasklist": ["tests/unit/test_board.py"],
    "transforms": ["tests/unit/flows/test_transforms.py"],
}
"""The quick tests of each module of flows/; a module that is not here is not mutated."""


def tests_of(module: str) -> list[str]:
    """The quick tests of ``flows/merge.py`` and the like; none: it is not mutated."""
    room, _, name = module.partition("/")
    if room == "flows":
        return FLOWS.get(name.removesuffix(".py"), [])
    return {"locks": LOCKS, "engine": ENGINE}.get(room, [])


# ------------------------------------------------------------ what is changed

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

    def __str__(self) -> str:
        text = (SRC / "perkey" / self.module).read_text("utf-8").splitlines()[self.line - 1]
        return f"{self.module}:{self.line}  {self.kind}  |  {text.strip()}"


def mutants(module: str, source: str) -> list[Mutant]:
    """Every change of a module that is tried."""
    tree = ast.parse(source)
    aside = set(_aside(tree))
    return [
        Mutant(module, number, kind, getattr(node, "lineno", 0))
        for number, node in enumerate(ast.walk(tree))
        if node not in aside
        for kind in kinds(node)
    ]


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


# ------------------------------------------------------------ running

KILLED, SURVIVED, TIMED_OUT = "killed", "SURVIVED", "timed out"


def judged(module: str, tests: Sequence[str], mutant: Mutant | None, seconds: float) -> str:
    """Run the tests of ``module`` in a child, with the change or without one."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os._exit(_in_child(module, tests, mutant))
    with contextlib.suppress(OSError):
        os.setpgid(child, child)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            return SURVIVED if os.waitstatus_to_exitcode(status) == 0 else KILLED
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return TIMED_OUT


def _in_child(module: str, tests: Sequence[str], mutant: Mutant | None) -> int:
    import pytest

    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    if mutant is not None:
        path = SRC / "perkey" / module
        code = compile(mutated(path.read_text("utf-8"), mutant), str(path), "exec")
        name = "perkey." + module.removesuffix(".py").replace("/", ".")
        sys.meta_path.insert(0, Finder(name.removesuffix(".__init__"), code, path))
    arguments = ["-x", "-q", "-p", "no:cacheprovider", "--timeout=60", *tests]
    return int(pytest.main(arguments, plugins=["pytest_asyncio.plugin", "pytest_timeout"]))


def chosen(only: Sequence[str]) -> list[Mutant]:
    """All mutants of the rooms or modules named."""
    found = []
    for path in sorted((SRC / "perkey").glob("*/*.py")):
        module = path.relative_to(SRC / "perkey").as_posix()
        if tests_of(module) and any(module.startswith(each) for each in only):
            found += mutants(module, path.read_text("utf-8"))
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print one line a survivor, and the score of each room."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no mutant after these")
    parser.add_argument("--only", default="flows,locks,engine")
    asked = parser.parse_args(arguments)
    os.chdir(ROOT)
    sys.path[:0] = [str(SRC), str(ROOT)]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import hypothesis  # noqa: F401  # what a child would import again each time
    import pytest_asyncio  # noqa: F401

    every = chosen(asked.only.split(","))
    drawn = random.Random(asked.seed).sample(every, min(asked.sample, len(every)))
    print(f"{len(every):,} mutants, {len(drawn)} drawn with seed {asked.seed}", flush=True)
    score: dict[str, list[int]] = {}
    usual: dict[str, float] = {}
    start = time.monotonic()
    for mutant in drawn:
        if time.monotonic() - start > asked.seconds:
            print("the time is up: the rest of the sample was not tried")
            break
        tests = tests_of(mutant.module)
        key = " ".join(tests)
        if key not in usual:
            began = time.monotonic()
            if judged(mutant.module, tests, None, 600) != SURVIVED:
                print(f"{mutant.module}: its tests fail without any change: {key}")
                return 2
            usual[key] = time.monotonic() - began
        verdict = judged(mutant.module, tests, mutant, 20 + 4 * usual[key])
        tally = score.setdefault(mutant.module.partition("/")[0], [0, 0])
        tally[0] += verdict != SURVIVED
        tally[1] += 1
        print(f"{verdict:<9} {mutant}", flush=True)
    for room, (killed, tried) in sorted(score.items()):
        print(f"{room}: {killed} of {tried} killed, {killed / tried:.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
