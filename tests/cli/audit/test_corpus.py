"""Gathering files: whatever lies there, the audit goes on and says what it left out."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from perkey.cli.audit import corpus as module
from perkey.cli.audit.corpus import gather, shown


def write(folder: Path, name: str, data: bytes = b"some words\n") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def reasons(paths: list[Path]) -> dict[str, str]:
    return dict(gather(paths).skipped)


def names(paths: list[Path]) -> list[str]:
    return [text.name for text in gather(paths).texts]


def test_a_folder_gives_its_text_files_in_order(tmp_path: Path) -> None:
    for name in ["b.md", "a/c.txt", "a/B.MD", "code.py", ".git/x.md", "node_modules/y.md", "z.rst"]:
        write(tmp_path, name)
    assert names([tmp_path]) == ["a/B.MD", "a/c.txt", "b.md", "z.rst"]


def test_a_named_file_is_read_whatever_it_is_called(tmp_path: Path) -> None:
    assert names([write(tmp_path, "code.py")]) == ["code.py"]


def test_a_file_counts_once_however_often_it_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a.md")
    (tmp_path / "link.md").symlink_to(path)
    assert names([path, tmp_path, path, tmp_path / "." / "a.md"]) == ["a.md"]


def test_the_root_is_the_folder_that_holds_all(tmp_path: Path) -> None:
    one, two = write(tmp_path, "x/one.md"), write(tmp_path, "y/two.md")
    assert gather([one, two]).root == tmp_path
    assert names([one, two]) == ["x/one.md", "y/two.md"]
    assert gather([one]).root == tmp_path / "x"


def test_no_paths_is_an_empty_corpus() -> None:
    assert gather([]).texts == ()


def test_what_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    write(tmp_path, "binary.md", b"PNG\0\0\0")
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "dangling.md").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop.md").symlink_to(tmp_path / "loop.md")
    write(tmp_path, "fine.md")
    assert names([tmp_path]) == ["fine.md"]
    found = reasons([tmp_path, tmp_path / "missing.md"])
    assert found == {
        "binary.md": "binary",
        "pipe.md": "not a regular file",
        "dangling.md": "no such file or directory",
        "loop.md": "too many levels of symbolic links",
        "missing.md": "no such file or directory",
    }


def test_bytes_that_are_not_utf8_are_replaced_and_said(tmp_path: Path) -> None:
    write(tmp_path, "latin.md", "naïve café\n".encode("latin-1"))
    (text,) = gather([tmp_path]).texts
    assert text.notes == ("2 characters are not UTF-8",)
    assert text.lines == ("na\ufffdve caf\ufffd",)


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    write(tmp_path, "bom.md", b"\xef\xbb\xbf# Title\n")
    assert gather([tmp_path]).texts[0].lines == ("# Title",)


def test_an_empty_file_is_a_text_without_lines(tmp_path: Path) -> None:
    write(tmp_path, "empty.md", b"")
    (text,) = gather([tmp_path]).texts
    assert (text.lines, text.size, text.notes) == ((), 0, ())


def test_a_large_file_is_read_up_to_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 10)
    write(tmp_path, "large.md", b"0123456789abc")
    write(tmp_path, "fits.md", b"0123456789")
    fits, large = gather([tmp_path]).texts
    assert (large.lines, large.notes) == (("0123456789",), ("only the first 10 bytes read",))
    assert fits.notes == ()


def test_files_beyond_the_limits_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abcd":
        write(tmp_path, f"{name}.md", b"12345")
    monkeypatch.setattr(module, "MAX_TOTAL_BYTES", 10)
    assert names([tmp_path]) == ["a.md", "b.md"]
    assert reasons([tmp_path]) == dict.fromkeys(("c.md", "d.md"), "more than 10 bytes in all")
    monkeypatch.setattr(module, "MAX_FILES", 1)
    assert reasons([tmp_path])["b.md"] == "more than 1 files"


def test_long_lines_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINE_CHARACTERS", 4)
    write(tmp_path, "long.md", b"abcdef\nabcd\n")
    (text,) = gather([tmp_path]).texts
    assert (text.lines, text.notes) == (("abcd", "abcd"), ("lines cut at 4 characters",))


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("plain.md", "plain.md"),
        ("two\nlines.md", "two\\nlines.md"),
        ("\x1b[31mred.md", "\\x1b[31mred.md"),
        ("\u202egnp.md", "\\u202egnp.md"),
        ("caf\udce9.md", "caf\\udce9.md"),
        ("häuser 北.md", "häuser 北.md"),
    ],
)
def test_hostile_names_are_shown_escaped(name: str, safe: str) -> None:
    assert shown(name) == safe
    shown(name).encode("utf-8")


@pytest.mark.parametrize("raw", [b"caf\xe9.md", b"a\nb.md", b"\x1b]0;x\x07.md"])
def test_hostile_names_on_disk(tmp_path: Path, raw: bytes) -> None:
    assert sys.getfilesystemencoding() == "utf-8"
    (tmp_path / os.fsdecode(raw)).write_bytes(b"words")
    (text,) = gather([tmp_path]).texts
    assert text.name.isprintable()
    assert text.lines == ("words",)
