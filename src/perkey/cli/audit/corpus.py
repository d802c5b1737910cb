"""Reading the files to audit: bounded, and never stopped by a bad one.

What cannot be read as text is left out and named with the reason.  Names come from outside:
control characters and bytes that are no UTF-8 are shown escaped.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_FILES = 2_000
MAX_FILE_BYTES = 2 * 1024 * 1024
MAX_TOTAL_BYTES = 16 * 1024 * 1024
MAX_LINE_CHARACTERS = 5_000
"""Longer lines are cut: they are data, not prose."""

SUFFIXES = frozenset({".md", ".markdown", ".rst", ".txt", ".text", ".adoc"})
"""What is read from a folder; a file that is named is read whatever it is called."""
IGNORED_FOLDERS = frozenset({"node_modules", "__pycache__", "_build", "build", "dist"})
_SNIFFED_BYTES = 8_192


@dataclass(frozen=True, slots=True)
class Text:
    """One file that could be read."""

    name: str
    path: Path
    lines: tuple[str, ...]
    size: int
    """Bytes on disk."""
    notes: tuple[str, ...] = ()
    """What was done to read it: replaced bytes, cut lines, a cut end."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """The files of one audit, in order of their names."""

    root: Path
    """The folder that holds them all; links may not lead out of it."""
    texts: tuple[Text, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    """What was not read, and why."""


def gather(paths: Sequence[str | os.PathLike[str]]) -> Corpus:
    """Read the named files and the text files below the named folders."""
    texts: list[Text] = []
    skipped: list[tuple[str, str]] = []
    named = [Path(os.path.abspath(path)) for path in paths]
    root = _common_root(named)
    left = MAX_TOTAL_BYTES
    for path in _unique(named):
        name = shown(os.path.relpath(path, root))
        if len(texts) >= MAX_FILES:
            skipped.append((name, f"more than {MAX_FILES} files"))
        elif left <= 0:
            skipped.append((name, f"more than {MAX_TOTAL_BYTES} bytes in all"))
        else:
            read = _read(name, path, min(left, MAX_FILE_BYTES))
            if isinstance(read, Text):
                texts.append(read)
                left -= read.size
            else:
                skipped.append((name, read))
    return Corpus(root, tuple(sorted(texts, key=lambda text: text.name)), tuple(skipped))


def text(name: str, content: str, root: Path = Path("/")) -> Text:
    """A text that was never on disk."""
    return Text(name, root / name, tuple(content.splitlines()), len(content.encode()))


def shown(name: str) -> str:
    """A path that is safe to print and to store: one line of UTF-8."""
    plain = name.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in plain)


def _common_root(paths: Sequence[Path]) -> Path:
    folders = [path if path.is_dir() else path.parent for path in paths]
    return Path(os.path.commonpath(folders)) if folders else Path.cwd()


def _unique(named: Sequence[Path]) -> Iterator[Path]:
    seen: set[str] = set()
    for path in named:
        for each in _walk(path) if path.is_dir() else [path]:
            real = os.path.realpath(each)
            if real not in seen:
                seen.add(real)
                yield each


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in IGNORED_FOLDERS and f[0] != ".")
        for file in sorted(files):
            if os.path.splitext(file)[1].lower() in SUFFIXES:
                yield Path(parent, file)


def _read(name: str, path: Path, limit: int) -> Text | str:
    """The file's text, or why there is none."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return "not a regular file"  # opening a pipe would wait for ever
        with open(path, "rb") as file:
            data = file.read(limit)
    except OSError as error:
        return (error.strerror or "cannot be read").lower()
    if b"\0" in data[:_SNIFFED_BYTES]:
        return "binary"
    notes = [] if status.st_size <= len(data) else [f"only the first {len(data)} bytes read"]
    content = data.decode("utf-8", "replace").removeprefix("\ufeff")
    if "\ufffd" in content:
        notes.append(f"{content.count(chr(0xFFFD))} characters are not UTF-8")
    lines = content.splitlines()
    if any(len(line) > MAX_LINE_CHARACTERS for line in lines):
        notes.append(f"lines cut at {MAX_LINE_CHARACTERS} characters")
    cut = tuple(line[:MAX_LINE_CHARACTERS] for line in lines)
    return Text(name, path, cut, status.st_size, tuple(notes))
