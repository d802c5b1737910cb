"""Runs code as if one extra of perkey were the only thing installed beside it.

    python -m tests.release.alone EXTRA 'CODE'

What no distribution of the extra's closure brings cannot be imported: a module that leans on a
package of another extra fails here, although everything is installed.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import re
import sys
import tomllib
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def requirements(extra: str | None) -> list[str]:
    """What perkey asks for with this extra, or with none."""
    asked: list[str] = list(PROJECT["dependencies"])
    if extra is not None:
        asked += PROJECT["optional-dependencies"][extra]
    return asked


def closure(asked: Iterable[str]) -> set[str]:
    """The names of all distributions that ``asked`` brings, as they are installed here."""
    found: set[str] = set()
    todo = list(asked)
    while todo:
        requirement = todo.pop()
        name = _name(requirement)
        if name in found:
            continue
        found.add(name)
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        inside = re.match(r"[\w.-]+\[([\w,-]+)\]", requirement)
        extras = inside.group(1).split(",") if inside else []
        todo += [each for each in needs if _wanted(each, extras)]
    return found


def _name(requirement: str) -> str:
    matched = re.match(r"[\w.-]+", requirement)
    assert matched is not None, requirement
    return re.sub(r"[-_.]+", "-", matched.group()).lower()


def _wanted(requirement: str, extras: Sequence[str]) -> bool:
    """Whether a dependency applies: those of another extra do not."""
    extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", requirement)
    return extra is None or extra.group(1) in extras


class Blocked(importlib.abc.MetaPathFinder):
    """Refuses what belongs to other distributions."""

    def __init__(self, allowed: set[str]) -> None:
        self.owners = {
            top: {_name(each) for each in owners}
            for top, owners in metadata.packages_distributions().items()
        }
        self.allowed = allowed | {"perkey"}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        top = name.partition(".")[0]
        owners = self.owners.get(top)
        if owners is not None and not owners & self.allowed:
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)
        return None


def main(extra: str, code: str) -> None:
    sys.meta_path.insert(0, Blocked(closure(requirements(None if extra == "none" else extra))))
    exec(compile(code, f"<with {extra} alone>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main(*sys.argv[1:])
