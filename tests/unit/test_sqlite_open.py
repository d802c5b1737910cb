"""What may be opened as a store, and what is refused without a byte of it being changed."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import perkey
from perkey.store.backends import sqlite_schema
from perkey.store.keys import Key
from tests.races.processes import Process
from tests.unit.sqlite_faults import url


def made(folder: Path) -> Path:
    """A store's file with one document in it, closed."""
    with perkey.open(url(folder)) as store:
        store.put("k", {"n": 1}, create=True)
    return folder / "work.db"


def refused(folder: Path, kind: type[perkey.PerkeyError]) -> str:
    """Opening is refused with ``kind``, and the file stays as it was; the message."""
    path = folder / "work.db"
    before = path.read_bytes()
    with pytest.raises(kind) as caught:
        perkey.open(url(folder))
    assert path.read_bytes() == before
    return str(caught.value)


def test_a_new_file_is_marked_as_ours(tmp_path: Path) -> None:
    raw = sqlite3.connect(made(tmp_path))
    assert raw.execute("PRAGMA application_id").fetchone()[0] == sqlite_schema.APPLICATION_ID
    assert raw.execute("PRAGMA user_version").fetchone()[0] == len(sqlite_schema.STEPS)
    assert raw.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    raw.close()


def test_an_empty_file_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "work.db").touch()
    assert made(tmp_path).stat().st_size > 0


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_somebody_elses_database_is_refused(tmp_path: Path, mode: str) -> None:
    raw = sqlite3.connect(tmp_path / "work.db", isolation_level=None)
    raw.execute(f"PRAGMA journal_mode = {mode}")
    for table in ("customers", "orders", "payments", "refunds"):
        raw.execute(f"CREATE TABLE {table} (id)")
    raw.close()
    said = refused(tmp_path, perkey.SchemaMismatch)
    assert "not a perkey store" in said
    assert "found 0x0 and tables customers, orders, payments and 1 more" in said
    assert "name another file" in said


@pytest.mark.parametrize("pragma", ["application_id = 77", "user_version = 3"])
def test_an_empty_database_that_somebody_marked_is_refused(tmp_path: Path, pragma: str) -> None:
    raw = sqlite3.connect(tmp_path / "work.db", isolation_level=None)
    raw.execute(f"PRAGMA {pragma}")
    raw.close()
    refused(tmp_path, perkey.SchemaMismatch)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    raw = sqlite3.connect(made(tmp_path), isolation_level=None)
    raw.execute(f"PRAGMA user_version = {len(sqlite_schema.STEPS) + 1}")
    raw.close()
    assert "newer perkey" in refused(tmp_path, perkey.SchemaMismatch)


@pytest.mark.parametrize("size", [1, 15, 99, 100, 511, 512, 4096, 70_000])
def test_what_is_no_database_is_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "work.db").write_bytes(b"These are my notes. " * (size // 20 + 1))
    os.truncate(tmp_path / "work.db", size)
    refused(tmp_path, perkey.StoreCorrupt)


def test_a_damaged_header_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path)
    path.write_bytes(b"\0" * 64 + path.read_bytes()[64:])
    refused(tmp_path, perkey.StoreCorrupt)


def test_a_damaged_page_is_told_and_not_written_over(tmp_path: Path) -> None:
    path = made(tmp_path)
    sound = path.read_bytes()
    path.write_bytes(sound[:4096] + b"\xa5" * (len(sound) - 4096))
    damaged = path.read_bytes()
    with pytest.raises(perkey.StoreCorrupt), perkey.open(url(tmp_path)) as store:
        store.transact("k", lambda tx: tx.__setitem__("k", 2))
    assert path.read_bytes() == damaged


def test_an_older_schema_is_migrated_step_by_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path)
    newer = [
        *sqlite_schema.STEPS,
        ["CREATE TABLE extra (one INTEGER)", "INSERT INTO extra VALUES (1)"],
        ["INSERT INTO extra SELECT one + 1 FROM extra"],
    ]
    monkeypatch.setattr(sqlite_schema, "STEPS", newer)
    for _ in range(2):  # the second opening finds nothing to do
        with perkey.open(url(tmp_path)) as store:
            assert store.get("k").value == {"n": 1}
            store.put("k", 2, overwrite=True)
            store.put("k", {"n": 1}, overwrite=True)
    raw = sqlite3.connect(path)
    assert raw.execute("SELECT one FROM extra ORDER BY one").fetchall() == [(1,), (2,)]
    assert raw.execute("PRAGMA user_version").fetchone() == (len(newer),)
    raw.close()
    monkeypatch.undo()
    refused(tmp_path, perkey.SchemaMismatch)


def of_an_older_perkey(folder: Path, steps: int) -> sqlite3.Connection:
    """A file that has only taken the first ``steps``, and a connection that has it open."""
    raw = sqlite3.connect(folder / "work.db", isolation_level=None)
    raw.execute("PRAGMA journal_mode = WAL")
    for step in sqlite_schema.STEPS[:steps]:
        for statement in step:
            raw.execute(statement)
    raw.execute(f"PRAGMA application_id = {sqlite_schema.APPLICATION_ID}")
    raw.execute(f"PRAGMA user_version = {steps}")
    return raw


COLUMNS = '(key, version, at, fence, base, "by", op, ops, body)'
NINE = "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"


def test_a_file_of_the_first_schema_keeps_its_cells(tmp_path: Path) -> None:
    rows = [
        (f"a/{name}", version, 1000 + version, 7, version - 1, "me", "op2", "op1", body)
        for name, version, body in (("b", 3, b"[1]"), ("a\0", 1, None), ("é", 900, b'"x"'))
    ]
    raw = of_an_older_perkey(tmp_path, 1)
    raw.executemany(f"INSERT INTO cells {COLUMNS} {NINE}", rows)
    raw.close()
    with perkey.open(url(tmp_path)) as store:
        found = store.backend.read([Key(row[0]) for row in rows])
        for record, row in zip(found, rows, strict=True):
            assert record is not None
            assert (record.key, record.version, record.at, record.fence, record.base) == row[:5]
            assert (record.by, record.op, record.ops, record.body) == row[5:]
        assert [each.key for each in store.backend.scan("a/", "", 9)] == ["a/b", "a/é"]
    raw = sqlite3.connect(tmp_path / "work.db")
    assert raw.execute("PRAGMA user_version").fetchone() == (len(sqlite_schema.STEPS),)
    tables = raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    assert ("cells",) in tables
    assert ("old_cells",) not in tables
    raw.close()


def test_a_file_of_the_second_schema_keeps_its_versions(tmp_path: Path) -> None:
    """Two documents and a board, their versions mixed, of one of them the first dropped."""
    order = [("d/a", 2), ("d/é\0", 1), ("b/run", 1), ("d/a", 3), ("d/é\0", 2), ("d/a", 4)]
    rows = [
        (key, version, 1000, 7, version - 1, "me", f"op{version}", "", b"%d" % version)
        for key, version in order
    ]
    raw = of_an_older_perkey(tmp_path, 2)
    raw.execute(f"INSERT INTO log {COLUMNS} {NINE}", ("d/a", 1, 9, 0, 0, "", "op1", "", b"1"))
    raw.executemany(f"INSERT INTO log {COLUMNS} {NINE}", rows)
    raw.execute("DELETE FROM log WHERE seq = 1")
    raw.executemany("INSERT INTO names VALUES (?, ?)", [("d/a", 1), ("d/é\0", 0), ("b/run", 0)])
    raw.execute("UPDATE facts SET dropped = 1")
    with perkey.open(url(tmp_path)) as store:
        backend = store.backend
        heads = backend.read([Key("d/a"), Key("d/é\0"), Key("b/run"), Key("d/none")])
        assert [each and each.version for each in heads] == [4, 2, 1, None]
        assert heads[0] is not None
        assert (heads[0].body, heads[0].op, heads[0].fence, heads[0].base) == (b"4", "op4", 7, 3)
        page = backend.changes("d/", "", 99)
        assert page.gap
        assert [(each.key, each.version) for each in page.records] == [
            each for each in order if each[0] != "b/run"
        ]
        assert [each.value for each in store.history("a")] == [2, 3, 4]
        assert store.put("a", 5, if_match=4).version == 5
        assert [each.value for each in store.history("a")] == [2, 3, 4, 5]
        assert [each.key for each in store.scan()] == ["a", "é\0"]
    # Whoever has had the file open since before fails; it does not write what nobody finds.
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        raw.execute(f"INSERT INTO log {COLUMNS} {NINE}", ("d/a", 6, 9, 0, 5, "", "op6", "", b"6"))
    raw.close()


def test_a_migration_that_fails_leaves_the_old_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path)
    broken = [*sqlite_schema.STEPS, ["CREATE TABLE extra (one)", "SELECT * FROM nowhere"]]
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_schema, "STEPS", broken)
        with pytest.raises(perkey.StoreError, match="nowhere"):
            perkey.open(url(tmp_path))
    with perkey.open(url(tmp_path)) as store:
        assert store.get("k").value == {"n": 1}


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(perkey.StoreUnavailable, match="folder does not exist"):
        perkey.open(f"sqlite:///{tmp_path}/nowhere/work.db")


def test_a_relative_path_that_looks_absolute_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``sqlite:///var/lib/app.db`` is a path below the working directory."""
    monkeypatch.chdir(tmp_path)
    hint = "below the working directory, four an absolute one: sqlite:////var/lib/app.db"
    with pytest.raises(perkey.StoreUnavailable) as gone:
        perkey.open("sqlite:///var/lib/app.db")
    assert str(gone.value).startswith("var/lib/app.db cannot be created: its folder does not exist")
    assert str(gone.value).endswith(hint)
    with pytest.raises(perkey.StoreUnavailable, match="there is no store at") as gone:
        perkey.open("sqlite:///var/lib/app.db?create=false")
    assert str(gone.value).endswith(hint)
    for clear in (f"sqlite:///{tmp_path}/no/app.db", "sqlite:///app.db?create=false"):
        with pytest.raises(perkey.StoreUnavailable) as gone:
            perkey.open(clear)
        assert "slashes" not in str(gone.value)
    assert [*tmp_path.iterdir()] == []


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(perkey.StoreUnavailable, match="found a folder"):
        perkey.open(f"sqlite:///{tmp_path}")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("sqlite://work.db", "three slashes"),
        ("sqlite:///", "expected a path"),
        ("sqlite:///w.db?synchronous=MAYBE", "synchronous"),
        ("sqlite:///w.db?busy_timeout=soon", "busy_timeout"),
        ("sqlite:///w.db?timeout=3", "no option"),
        ("sqlite:///w%00.db", "NUL"),
        ("sqlite:///notes#1.db", "%23"),
    ],
)
def test_a_wrong_url_is_refused(wrong: str, says: str) -> None:
    with pytest.raises(perkey.UsageError, match=says):
        perkey.open(wrong)


@pytest.mark.parametrize("name", ["a b.db", "ü.db", "%23 x#.db", "q?.db", "file:x.db"])
def test_a_path_may_hold_any_character(tmp_path: Path, name: str) -> None:
    quoted = name.replace("%", "%25").replace("#", "%23").replace("?", "%3F")
    for _ in range(2):
        with perkey.open(f"sqlite:///{tmp_path}/{quoted}") as store:
            store.put("k", 1, overwrite=True)
    assert name in os.listdir(tmp_path)


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with perkey.open("sqlite:///work.db") as store:
        store.put("k", 1, create=True)
    assert (tmp_path / "work.db").exists()


CANNOT_WRITE = """
perkey.open("sqlite:///:memory:").close()  # all is imported before the rights are gone
import os
if os.geteuid() == 0:
    os.setuid(65534)
try:
    with perkey.open(url) as store:
        store.put("k", 2, overwrite=True)
except StoreError as error:
    say("refused", "cannot be" in str(error))
else:
    say("written")
"""


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_cannot_be_written_is_refused_at_once(what: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = made(folder)
        path.chmod(0o444 if what == "file" else 0o666)
        folder.chmod(0o555 if what == "folder" else 0o777)
        with Process(CANNOT_WRITE, url(folder)) as process:
            assert process.hear() == "refused True"
        folder.chmod(0o777)
        with perkey.open(url(folder)) as store:
            assert store.get("k").value == {"n": 1}


@pytest.mark.parametrize(
    ("option", "number"), [("FULL", 2), ("NORMAL", 1), ("EXTRA", 3), ("OFF", 0)]
)
def test_durability_is_a_url_option(tmp_path: Path, option: str, number: int) -> None:
    with perkey.open(url(tmp_path, f"?synchronous={option}")) as store:
        connection = store.backend._connection  # type: ignore[attr-defined]
        assert connection.execute("PRAGMA synchronous").fetchone() == (number,)
        assert store.backend.describe()["synchronous"] == option
        assert ("power cut" in store.backend.durability) == (option != "EXTRA")


def test_flushing_is_the_default(tmp_path: Path) -> None:
    with perkey.open(f"sqlite:///{tmp_path}/work.db") as store:
        assert store.backend.describe()["synchronous"] == "FULL"


def test_many_processes_may_create_one_file_at_once(tmp_path: Path) -> None:
    code = """
hear()
with perkey.open(url) as store:
    store.transact("n", lambda tx: tx.__setitem__("n", tx.get("n", 0) + 1))
say("done")
"""
    processes = [Process(code, url(tmp_path)) for _ in range(4)]
    try:
        for process in processes:
            process.say()
        assert [process.hear() for process in processes] == ["done"] * 4
    finally:
        for process in processes:
            process.__exit__(None, None, None)
    with perkey.open(url(tmp_path)) as store:
        assert store.get("n").value == 4


def test_many_threads_may_create_one_file_at_once(tmp_path: Path) -> None:
    def create(name: str) -> int:
        with perkey.open(f"sqlite:///{tmp_path}/{name}.db") as store:
            return store.put("k", 1, overwrite=True).version

    with ThreadPoolExecutor(8) as pool:
        for turn in range(10):
            assert sorted(pool.map(create, [str(turn)] * 8)) == list(range(1, 9))


def test_a_store_in_memory_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        with perkey.open("sqlite:///:memory:") as store:
            store.put("k", 1, create=True)
            assert not store.backend.blocking
    assert os.listdir(tmp_path) == []
