"""Records as files: what is on the disk, what is refused, and writers that slept."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

import perkey
from perkey import (
    BackendNotConditional,
    LimitExceeded,
    Limits,
    NotSupported,
    SchemaMismatch,
    StoreCorrupt,
    StoreUnavailable,
    UsageError,
)
from perkey.clock import SYSTEM
from perkey.store.backends import files, files_disk, vector
from perkey.store.backends.files import FilesBackend
from perkey.store.backends.files_disk import Disk, digest, frame, line, parse
from perkey.store.backends.port import NothingDone
from perkey.store.keys import Key
from perkey.store.record import Record, following
from perkey.store.url import open_backend
from perkey.testing.conformance.bench import head, held, put
from tests.unit.manual_clock import ManualClock

KEY = Key("d/report")
LEASE = Key("l/report")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def opened(root: Path, limits: Limits | None = None) -> FilesBackend:
    backend = open_backend(f"file://{root}", limits or Limits(), SYSTEM)
    assert isinstance(backend, FilesBackend)
    return backend


def folder(root: Path, key: str = KEY) -> Path:
    return root / "keys" / key[0] / digest(key)


def after(base: Record | None, op: str, key: Key = KEY) -> Record:
    """The record that a writer who read ``base`` would write."""
    version, ops, fence = following(base)
    return Record(key, version, b"1", "", 0, op, ops, fence, version - 1)


# ---------------------------------------------------------------------------- on the disk


def test_one_file_a_version_and_nothing_aside(root: Path) -> None:
    backend = opened(root)
    for n in range(3):
        put(backend, KEY, b"%d" % n)
    assert sorted(path.name for path in folder(root).iterdir()) == ["1", "2", "3"]
    assert list((root / "aside").iterdir()) == []
    assert parse((folder(root) / "2").read_bytes(), "").record.body == b"1"


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "\0", ".", "x" * 512, "Ä" * 256])
def test_no_key_becomes_a_path(root: Path, name: str) -> None:
    with perkey.open(f"file://{root}") as store:
        store.put(name, 1, create=True)
        assert store.get(name).value == 1
    (found,) = (root / "keys" / "d").iterdir()
    assert len(found.name) == 64


def test_a_file_is_never_written_again(root: Path) -> None:
    backend = opened(root)
    put(backend, KEY, b"1")
    first = (folder(root) / "1").stat()
    put(backend, KEY, b"2")
    put(backend, KEY, None)
    again = (folder(root) / "1").stat()
    assert (first.st_ino, first.st_mtime_ns) == (again.st_ino, again.st_mtime_ns)


# ------------------------------------------------------------------------- damaged stores


@pytest.mark.parametrize("size", [0, 3, 8, 16, 40])
def test_a_torn_head_is_an_error_and_no_new_document(root: Path, size: int) -> None:
    with perkey.open(f"file://{root}") as store:
        store.put("report", "x" * 100, create=True)
        path = folder(root) / "1"
        path.write_bytes(path.read_bytes()[:size])
        for act in (
            lambda: store.get("report"),
            lambda: store.put("report", 1, create=True),
            lambda: store.put("report", 1, overwrite=True),
        ):
            with pytest.raises(StoreCorrupt):
                act()
        assert [each.name for each in folder(root).iterdir()] == ["1"]


def test_a_flipped_bit_is_an_error(root: Path) -> None:
    backend = opened(root)
    put(backend, KEY, b'"value"')
    path = folder(root) / "1"
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(StoreCorrupt):
            opened(root).read([KEY])


def test_an_unreadable_head_is_an_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = opened(root)
    put(backend, KEY, b"1")
    (folder(root) / "2").mkdir()  # reading a folder fails as a broken disk does, for root too
    with pytest.raises(StoreUnavailable):
        backend.read([KEY])
    with pytest.raises(StoreUnavailable):
        put(opened(root), KEY, b"2")


def test_a_file_in_another_place_is_an_error(root: Path) -> None:
    backend = opened(root)
    put(backend, KEY, b"1")
    os.link(folder(root) / "1", folder(root) / "2")
    with pytest.raises(StoreCorrupt, match="moved or copied"):
        backend.read([KEY])


def test_a_missing_version_in_history_is_an_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LOOKS", 3)
    backend = opened(root)
    for _ in range(3):
        put(backend, KEY, b"1")
    (folder(root) / "2").unlink()
    with pytest.raises(StoreCorrupt):
        backend.history(KEY, 0, 10)
    with pytest.raises(StoreCorrupt):
        backend.changes("d/", "", 10)


def test_a_store_that_was_unmounted_is_not_empty(root: Path) -> None:
    backend = opened(root)
    put(backend, KEY, b"1")
    away = root.rename(root.with_name("away"))
    root.mkdir()
    with pytest.raises(StoreUnavailable, match="mounted"):
        backend.read([KEY])
    with pytest.raises(StoreUnavailable, match="mounted"):
        backend.scan("d/", "", 10)
    root.rmdir()
    away.rename(root)
    assert held(backend, KEY).body == b"1"


# -------------------------------------------------------------------------------- opening


def test_what_is_opened(root: Path, tmp_path: Path) -> None:
    for url in ("file://host/x", "file://", "file:///", "file:///x?y=1", "file:///a%00b"):
        with pytest.raises(UsageError):
            open_backend(url, Limits(), SYSTEM)
    with pytest.raises(StoreUnavailable, match="above"):
        opened(tmp_path / "no" / "such")
    (tmp_path / "precious").write_text("")
    with pytest.raises(UsageError, match="precious"):
        opened(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious"]


def test_a_newer_or_damaged_format_is_refused(root: Path) -> None:
    opened(root)
    marker = root / files_disk.MARKER
    marker.write_text(json.dumps({"format": 2}))
    with pytest.raises(SchemaMismatch):
        opened(root)
    marker.write_text("")
    with pytest.raises(StoreCorrupt):
        opened(root)


def test_a_file_system_without_hard_links_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: str, target: str) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(BackendNotConditional, match="hard links"):
        opened(root)
    assert list(root.iterdir()) == []


def test_a_link_that_replaces_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that lets ``link`` take an existing name would lose updates."""
    opened(root)
    monkeypatch.setattr(os, "link", lambda source, target: os.replace(source, target))
    with pytest.raises(BackendNotConditional):
        opened(root)


def test_old_files_aside_are_removed_and_young_ones_stay(root: Path) -> None:
    opened(root)
    old, young = root / "aside" / "old", root / "aside" / "young"
    old.touch()
    young.touch()
    os.utime(old, (1, 1))
    opened(root)
    assert [path.name for path in (root / "aside").iterdir()] == ["young"]


def test_several_keys_are_refused_before_the_function_runs(root: Path) -> None:
    with perkey.open(f"file://{root}") as store, pytest.raises(NotSupported):
        store.transact(["a", "b"], lambda tx: pytest.fail("it ran"))


# -------------------------------------------------------------------------- lost and late


def test_a_link_whose_reply_was_lost_counts_as_made(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS repeats a request whose reply it lost, and then says that the name exists."""
    backend = opened(root)
    link = os.link

    def twice(source: str, target: str) -> None:
        link(source, target)
        raise FileExistsError(errno.EEXIST, "File exists", target)

    monkeypatch.setattr(os, "link", twice)
    assert put(backend, KEY, b"1").version == 1
    assert put(backend, KEY, b"2").version == 2


def test_a_flush_that_fails_is_found_out(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is there though its flush failed: counted once, on the second look."""
    backend = opened(root)
    put(backend, KEY, b"1")
    sync, failures = files_disk.sync_folder, [OSError(errno.EIO, "I/O error")]

    def failing(path: str) -> None:
        if failures:
            raise failures.pop()
        sync(path)

    monkeypatch.setattr(files_disk, "sync_folder", failing)
    assert put(backend, KEY, b"2").version == 2
    assert head(backend, KEY) == held(opened(root), KEY)


def test_a_full_disk_writes_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = opened(root)

    def full(path: str, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files_disk, "write_file", full)
    with pytest.raises(StoreUnavailable, match="No space"):
        put(backend, KEY, b"1")
    assert head(backend, KEY) is None


def sleeper(root: Path, key: Key, versions: int) -> tuple[Disk, Record | None, FilesBackend]:
    """A writer that has looked and then sleeps, while others write ``versions`` more."""
    limits = Limits(keep_versions=1)
    backend = opened(root, limits)
    disk = Disk(str(root), SYSTEM)
    found = disk.head(key)
    for _ in range(versions):
        put(backend, key, b"1")
    return disk, found.record if found else None, backend


@pytest.mark.parametrize("key", [KEY, LEASE])
@pytest.mark.parametrize("first", [0, 1, 5])
def test_a_late_writer_takes_no_name_that_was_removed(root: Path, key: Key, first: int) -> None:
    """Its name is free again, and still it lost: nothing of it is ever seen."""
    backend = opened(root, Limits(keep_versions=1))
    for _ in range(first):
        put(backend, key, b"1")
    disk, base, backend = sleeper(root, key, 80)
    late = after(base, "late", key)
    assert not (folder(root, key) / str(late.version)).exists()
    assert disk.put(late, 1, base) is False
    assert not (folder(root, key) / str(late.version)).exists()
    assert held(backend, key).version == 80 + first


def test_two_late_writers_in_a_row(root: Path) -> None:
    """What one late writer left there, having died, is no ground for another to stand on."""
    backend = opened(root, Limits(keep_versions=1))
    written = [put(backend, KEY, b"1") for _ in range(2)]
    for _ in range(80):
        put(backend, KEY, b"1")
    dead = after(written[0], "dead")
    assert dead.version == 2
    (folder(root) / "2").write_bytes(frame(dead, 1))
    assert Disk(str(root), SYSTEM).put(after(written[1], "late"), 1, written[1]) is False
    assert backend.find_op(KEY, 2) is None
    assert held(backend, KEY).version == 82


def test_a_reader_that_slept_finds_the_head(root: Path) -> None:
    """Neither a removed head nor what a dead late writer left beside it misleads it."""
    backend = opened(root, Limits(keep_versions=1))
    put(backend, KEY, b"1")
    disk, base, _ = sleeper(root, KEY, 80)
    (folder(root) / "2").write_bytes(frame(after(base, "dead"), 1))
    found = disk.head(KEY)
    assert found is not None
    assert found.record.version == 81


def test_a_late_writer_that_did_win_is_told_so(root: Path) -> None:
    """Its name was linked in time; only its base was removed before it looked."""
    backend = opened(root)
    base = put(backend, KEY, b"1")
    mine = put(backend, KEY, b"2")
    put(backend, KEY, b"3")
    (folder(root) / "1").unlink()
    assert Disk(str(root), SYSTEM)._genuine(mine, base) is True
    (folder(root) / "2").unlink()
    (folder(root) / "3").rename(folder(root) / "4")
    with pytest.raises(StoreUnavailable, match="removed meanwhile"):
        Disk(str(root), SYSTEM)._genuine(mine, base)


def test_a_file_aside_that_was_removed_means_nothing_done(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(str(opened(root)._disk.root), SYSTEM)
    monkeypatch.setattr(files_disk, "write_file", lambda path, data: None)
    with pytest.raises(NothingDone):
        disk.put(after(None, "op"), 1, None)


# ------------------------------------------------------------------------ what is removed


@pytest.mark.parametrize("key", [KEY, LEASE])
def test_old_files_go_and_the_window_stays(root: Path, key: Key) -> None:
    backend = opened(root, Limits(keep_versions=2))
    for _ in range(96):
        put(backend, key, b"1")
    left = Disk(str(root), SYSTEM).versions(key)
    assert left == list(range(96 - files_disk.WINDOW + 1, 97))
    assert [each.version for each in backend.history(key, 0, 99)] == [95, 96] * (key is KEY)


def test_a_longer_history_outlasts_the_window(root: Path) -> None:
    backend = opened(root, Limits(keep_versions=60))
    for _ in range(80):
        put(backend, KEY, b"1")
    assert [each.version for each in backend.history(KEY, 0, 99)] == list(range(21, 81))
    assert line(80, 21) == 21
    assert line(80, 79) == 49


def test_memory_of_keys_is_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_disk, "KNOWN_KEYS", 3)
    backend = opened(root)
    for n in range(10):
        put(backend, Key(f"d/{n}"), b"1")
    assert len(backend._disk._known) <= 3
    assert [each.version for each in backend.scan("d/", "", 20)] == [1] * 10


def test_scans_and_watchers_have_limits(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = opened(root)
    for n in range(4):
        put(backend, Key(f"d/{n}"), b"1")
    monkeypatch.setattr(vector, "MOST_KEYS", 3)
    with pytest.raises(LimitExceeded, match="at most 3 keys"):
        backend.changes("d/", "", 10)
    assert len(backend.changes("d/1", "", 10).records) == 1
    monkeypatch.setattr(files, "INDEX_KEYS", 3)
    with pytest.raises(LimitExceeded):
        backend.scan("d/", "", 10)


def test_a_cursor_is_what_it_was() -> None:
    seen = {vector.name(f"d/{n}"): n * 2**40 for n in range(20)}
    assert vector.read(vector.write(seen)) == seen
    assert vector.read("") == vector.read(vector.write({})) == {}
    for text in ("seen:x", "seen:AAAA", "seen:ä", "5", vector.write(seen)[:-4]):
        with pytest.raises(UsageError):
            vector.read(text)


def test_time_does_not_go_back(root: Path) -> None:
    clock = ManualClock()
    backend = FilesBackend(opened(root)._disk.root, Limits(), clock, [0])
    first = put(backend, KEY, b"1").at
    clock.wall -= 5_000
    assert put(backend, KEY, b"2").at >= first
    fresh = FilesBackend(backend._disk.root, Limits(), clock, [0])
    assert put(fresh, KEY, b"3").at >= first


def test_old_ops_are_not_guessed(root: Path) -> None:
    """Which write made a version is told inside the window, and below it not at all."""
    backend = opened(root)
    record = put(backend, LEASE, b"1")
    for _ in range(64):
        put(backend, LEASE, b"1")
    assert backend.find_op(LEASE, record.version) is None
    assert backend.find_op(LEASE, 60) is not None
