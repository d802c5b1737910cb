"""Load a Python file and find what it wants an engine to do."""

from __future__ import annotations

import importlib.util
import inspect
import io
import linecache
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from perkey.engine import AsyncEngine, Definition
from perkey.errors import UsageError

Main = Callable[[AsyncEngine], Awaitable[object]]

NAME = "__perkey_run__"
"""What the file's ``__name__`` is, so that its ``if __name__ == "__main__"`` stays quiet."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a file holds."""

    definitions: tuple[Definition, ...]
    """Its process definitions, in the order in which they stand there."""
    main: Main | None
    """``async def main(engine)``: what it does once the engine runs."""
    source: bytes
    """The bytes that were run; other bytes in the file mean that it has changed since."""


def load(path: Path) -> Loaded:
    """Run a Python file; ``UsageError`` says why it cannot be used."""
    return loaded_from(path, source_of(path))


def source_of(path: Path) -> bytes:
    """What the file holds now; ``UsageError`` if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def loaded_from(path: Path, source: bytes) -> Loaded:
    """Run these bytes as the file's; ``UsageError`` says why they cannot be used."""
    module = ModuleType(NAME)
    module.__file__ = str(path)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # so that it may import what lies beside it
    sys.modules[NAME] = module
    try:
        _quote(path, source)
        exec(compile(source, str(path), "exec"), module.__dict__)
    except Exception as error:
        raise UsageError(f"{path} cannot be loaded: {_where(error, path)}") from error
    return _contents(module, path, source)


def _quote(path: Path, source: bytes) -> None:
    """Let tracebacks and a definition's digest quote what was run, not what the file says later."""
    lines = io.StringIO(importlib.util.decode_source(source)).readlines()
    linecache.cache[str(path)] = (len(source), None, lines, str(path))


def _where(error: Exception, path: Path) -> str:
    said = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return f"{said} (line {lines[-1]})" if lines else said


def _contents(module: ModuleType, path: Path, source: bytes) -> Loaded:
    found = [each for each in vars(module).values() if isinstance(each, Definition)]
    definitions = tuple({id(each): each for each in found}.values())
    main = getattr(module, "main", None)
    if main is not None and not inspect.iscoroutinefunction(main):
        raise UsageError(f"expected `async def main(engine)` in {path}, found {main!r:.80}")
    if not definitions and main is None:
        raise UsageError(
            f"{path} defines no process; expected functions marked with "
            "@process(...) of perkey.engine"
        )
    return Loaded(definitions, main, source)
