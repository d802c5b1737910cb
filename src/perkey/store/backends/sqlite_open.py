"""Opening an SQLite file: found, recognised, migrated and configured, or refused."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from perkey.clock import Clock
from perkey.errors import StoreCorrupt, StoreError, StoreUnavailable, UsageError
from perkey.store.backends import sqlite_schema, sqlite_time
from perkey.store.backends.sqlite_errors import BUSY, code, translated
from perkey.store.backends.sqlite_turn import waited_in_vain
from perkey.store.examine import Found
from perkey.store.limits import LONGEST_S, Limits
from perkey.store.url import Location

SYNCHRONOUS = ("FULL", "NORMAL", "OFF", "EXTRA")
MEMORY = ":memory:"
PAUSE_S = 0.005
STATEMENTS_KEPT = 256
SMALLEST = 512
"""The size of the smallest SQLite database, in bytes."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the URL says."""

    path: str
    synchronous: str
    open_timeout: float
    """Seconds to wait for other processes while opening."""
    create: bool = True
    """Whether a store may be made where there is none."""

    @property
    def in_memory(self) -> bool:
        return self.path == MEMORY


def options(location: Location, limits: Limits) -> Options:
    """Read ``sqlite:///relative.db``, ``sqlite:////absolute.db`` or ``sqlite:///:memory:``."""
    location.check_options({"synchronous", "busy_timeout", "create"})
    if location.host or location.user or location.port:
        raise UsageError(
            "an SQLite URL has three slashes before a relative path and four before an "
            f"absolute one: expected sqlite:///{location.host}..., found sqlite://{location.host}"
        )
    if not location.path:
        raise UsageError("expected a path, as in sqlite:///work.db, found an empty one")
    if "\0" in location.path:
        raise UsageError("a path cannot hold a NUL character")
    synchronous = location.option("synchronous", SYNCHRONOUS, "FULL")
    wait = location.options.get("busy_timeout", str(limits.timeout_s))
    try:
        seconds = float(wait)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_S:
        raise UsageError(f"expected busy_timeout= in seconds, found {wait!r:.80}")
    create = location.option("create", ("true", "false"), "true") == "true"
    return Options(location.path, synchronous, seconds, create)


def connect(wanted: Options, clock: Clock) -> tuple[sqlite3.Connection, int]:
    """(a connection for writing, the offset of store time).

    Others may be creating or migrating the file; whatever they keep locked is tried again
    from the start, which changes nothing that is done already.
    """
    deadline = clock.monotonic() + wanted.open_timeout
    while True:
        try:
            return _connect(wanted, clock)
        except sqlite3.Error as error:
            if code(error) != BUSY:
                raise translated(error, wanted.path) from error
            if clock.monotonic() >= deadline:
                raise waited_in_vain() from error
        clock.sleep(PAUSE_S)


def _connect(wanted: Options, clock: Clock) -> tuple[sqlite3.Connection, int]:
    if not wanted.in_memory:
        _check_file(wanted)
    connection = _connection(wanted)
    try:
        _configure(connection, wanted)
        return connection, _prepare(connection, wanted, clock)
    except BaseException:
        connection.close()
        raise


def connect_reader(wanted: Options) -> sqlite3.Connection:
    """A second connection, which cannot write."""
    try:
        connection = _connection(wanted)
        connection.execute(f"PRAGMA busy_timeout = {int(wanted.open_timeout * 1000)}")
        _configure(connection, wanted)
        connection.execute("PRAGMA query_only = ON")
        connection.execute("SELECT 1 FROM facts").fetchone()
    except sqlite3.Error as error:
        raise translated(error, wanted.path) from error
    return connection


def examine(wanted: Options) -> Found:
    """What is at the path; makes no file, and refuses what is no store of ours."""
    known, makes = len(sqlite_schema.STEPS), f"the file {wanted.path}"
    if wanted.in_memory:
        return Found(True, makes, known, known)
    path = Path(wanted.path)
    if not path.exists():
        return Found(False, makes, 0, known)
    try:
        _check_file(wanted)
        with closing(_read_only(path)) as probe:
            taken = _looked(probe, wanted) if path.stat().st_size else 0
    except sqlite3.Error as error:
        raise translated(error, wanted.path) from error
    return Found(taken > 0, makes, taken, known)


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _slashes(path: str) -> str:
    """What to add where a path may have been meant to begin at the root."""
    if path.startswith("/") or "/" not in path:
        return ""
    return (
        "; three slashes begin a path below the working directory, four an absolute one: "
        f"sqlite:////{path}"
    )


def _check_file(wanted: Options) -> None:
    """Refuse what is no store of ours, through a connection that cannot change it."""
    path = Path(wanted.path)
    if path.is_dir():
        raise StoreUnavailable(f"expected a file at {wanted.path}, found a folder")
    if not wanted.create and not (path.exists() and path.stat().st_size):
        raise no_store(wanted.path)
    if not path.parent.is_dir():
        raise StoreUnavailable(
            f"{wanted.path} cannot be created: its folder does not exist{_slashes(wanted.path)}"
        )
    for needed in (path.parent, path) if path.exists() else (path.parent,):
        if not os.access(needed, os.W_OK):
            raise StoreError(
                f"{needed} cannot be written; a store needs to write its file and the folder "
                "around it (for the write-ahead log): check the permissions"
            )
    size = path.stat().st_size if path.exists() else 0
    if 0 < size < SMALLEST:  # which SQLite would take for an empty one
        raise StoreCorrupt(
            f"{wanted.path} is no SQLite database (it has {size} bytes); nothing was written "
            "over it: name another file"
        )
    if size:
        with closing(_read_only(path)) as probe:
            taken = _looked(probe, wanted)
        if not taken and not wanted.create:
            raise no_store(wanted.path)


def no_store(path: str) -> StoreUnavailable:
    """The refusal to make a store where one was only to be used."""
    return StoreUnavailable(
        f"there is no store at {path}, and nothing was made there; check the path, or make "
        f"one with create=true in the URL{_slashes(path)}",
        missing=path,
    )


def _looked(connection: sqlite3.Connection, wanted: Options) -> int:
    """Check the schema in one look, so that a file that is just being created is not met
    half way; returns the steps it has taken."""
    connection.execute("BEGIN")
    try:
        return sqlite_schema.check(connection, wanted.path)
    finally:
        connection.execute("ROLLBACK")


def _connection(wanted: Options) -> sqlite3.Connection:
    place = wanted.path
    if not wanted.create and not wanted.in_memory:
        place = f"{Path(place).absolute().as_uri()}?mode=rw"
    return sqlite3.connect(
        place,
        uri=place != wanted.path,
        timeout=0,  # waiting is ours: fair, interruptible, and up to the caller's own deadline
        isolation_level=None,
        check_same_thread=False,
        cached_statements=STATEMENTS_KEPT,
    )


def _configure(connection: sqlite3.Connection, wanted: Options) -> None:
    connection.execute(f"PRAGMA synchronous = {wanted.synchronous}")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA cache_size = -65536")


def _prepare(connection: sqlite3.Connection, wanted: Options, clock: Clock) -> int:
    """Bring the file to today's schema and return the offset of store time."""
    taken = _looked(connection, wanted)
    if not wanted.in_memory:
        _use_wal(connection, wanted)
    boot = sqlite_time.boot_name()
    if taken == len(sqlite_schema.STEPS):
        offset = sqlite_time.known_offset(connection, boot)
        if offset is not None:
            return offset
    connection.execute("BEGIN IMMEDIATE")
    try:
        sqlite_schema.migrate(connection, sqlite_schema.check(connection, wanted.path))
        offset = sqlite_time.known_offset(connection, boot)
        if offset is None:
            offset = sqlite_time.fix_offset(connection, boot, clock)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return offset


def _use_wal(connection: sqlite3.Connection, wanted: Options) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError(
            f"{wanted.path} cannot use a write-ahead log here (journal mode {mode!r}); "
            "put it on a local file system"
        )
    connection.execute("PRAGMA journal_size_limit = 67108864")


REMOTE = ("nfs", "cifs", "smb", "smb3", "9p", "afs", "ceph", "fuse.sshfs", "fuse.glusterfs")
"""Kinds of file systems whose locks and shared memory another machine may not see."""


MOUNTS = "/proc/self/mounts"


def concerns(wanted: Options) -> list[str]:
    """What may lose acknowledged writes of this file."""
    if wanted.in_memory:
        return ["everything is gone when this process ends; name a file to keep it"]
    found = []
    if wanted.synchronous in ("NORMAL", "OFF"):
        lost = "the last commits" if wanted.synchronous == "NORMAL" else "or damage the file"
        found.append(
            f"synchronous={wanted.synchronous}: a power cut may take {lost}; "
            "leave the option out (FULL)"
        )
    kind = _file_system(wanted.path)
    if kind in REMOTE:
        found.append(
            f"the file is on a network file system ({kind}), where SQLite's write-ahead log and "
            "locks do not work between machines; put it on a local disk"
        )
    elif kind in ("tmpfs", "ramfs"):
        found.append(f"the file is on {kind}: in memory, gone when the machine restarts")
    return found


def _file_system(path: str) -> str:
    """The kind of file system that ``path`` is on, where the system tells (Linux)."""
    real = os.path.realpath(path)
    best, kind = "", ""
    try:
        with open(MOUNTS, encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                _, where, found, *_ = line.split(" ")
                inside = real == where or real.startswith(where.rstrip("/") + "/")
                if inside and len(where) >= len(best):
                    best, kind = where, found
    except (OSError, ValueError):
        return ""
    return kind


def keep_for_ever(thing: object) -> None:
    """Keep Python from ever tearing ``thing`` down, not even when the process ends.

    Closing an inherited connection in a child rolls back what its parent is committing, in
    the index of the write-ahead log that both have mapped: the parent's file would be damaged.
    """
    import ctypes  # only ever needed in a forked child

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
