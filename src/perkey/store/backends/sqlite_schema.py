"""The SQLite file: its tables, its version, and what may be opened.

A file is recognised by its ``application_id``; ``user_version`` counts the steps below that
it has taken.  A new file takes all of them, an older one the rest, in one transaction.
Anything else is refused before a byte of it is changed.
"""

from __future__ import annotations

import sqlite3

from perkey.errors import SchemaMismatch

APPLICATION_ID = 0x70_6B_65_79  # "pkey"

STEPS: list[list[str]] = [
    [
        # Every version of documents and boards, in commit order: history, watch log and the
        # current body in one place, so that a write carries its body once and touches two
        # pages.  The body stands last: who looks for keys does not read its pages.
        """CREATE TABLE log (
             seq INTEGER PRIMARY KEY,
             key TEXT NOT NULL,
             version INTEGER NOT NULL,
             at INTEGER NOT NULL,
             fence INTEGER NOT NULL,
             base INTEGER NOT NULL,
             "by" TEXT NOT NULL,
             op TEXT NOT NULL,
             ops TEXT NOT NULL,
             body BLOB
           )""",
        "CREATE UNIQUE INDEX log_versions ON log (key, version)",
        # Which keys the log knows; ``dropped`` is the last place in the log that retention
        # took from this key.
        """CREATE TABLE names (
             key TEXT PRIMARY KEY,
             dropped INTEGER NOT NULL DEFAULT 0
           ) WITHOUT ROWID""",
        # Receipts, leases, accounts, entries: the current version alone, as small as it goes.
        """CREATE TABLE cells (
             key TEXT PRIMARY KEY,
             version INTEGER NOT NULL,
             at INTEGER NOT NULL,
             fence INTEGER NOT NULL,
             base INTEGER NOT NULL,
             "by" TEXT NOT NULL,
             op TEXT NOT NULL,
             ops TEXT NOT NULL,
             body BLOB
           ) WITHOUT ROWID""",
        # Store time is the machine's uptime plus an offset that was fixed once per boot;
        # ``high`` is a time that no commit has reached yet.
        "CREATE TABLE boots (boot TEXT PRIMARY KEY, offset INTEGER NOT NULL) WITHOUT ROWID",
        """CREATE TABLE facts (
             one INTEGER PRIMARY KEY CHECK (one = 1),
             high INTEGER NOT NULL,
             dropped INTEGER NOT NULL
           )""",
        "INSERT INTO facts VALUES (1, 0, 0)",
    ],
    [
        # Cells by number: a new one goes to the end of the table, and one that is written
        # again stays where it is.  Only its key has a place in the order of keys.
        "ALTER TABLE cells RENAME TO old_cells",
        """CREATE TABLE cells (
             id INTEGER PRIMARY KEY,
             key TEXT NOT NULL,
             version INTEGER NOT NULL,
             at INTEGER NOT NULL,
             fence INTEGER NOT NULL,
             base INTEGER NOT NULL,
             "by" TEXT NOT NULL,
             op TEXT NOT NULL,
             ops TEXT NOT NULL,
             body BLOB
           )""",
        """INSERT INTO cells (key, version, at, fence, base, "by", op, ops, body)
             SELECT key, version, at, fence, base, "by", op, ops, body
             FROM old_cells ORDER BY key""",
        "DROP TABLE old_cells",
        "CREATE UNIQUE INDEX cells_keys ON cells (key)",
    ],
    [
        # A key finds its current version by number, and where its versions lie is written
        # down for many versions at once: with an index that every commit keeps, each key of
        # a commit costs a page of its own.  The log gets another name, so that an older
        # perkey which has this file open fails instead of writing without a place.
        "ALTER TABLE log RENAME TO versions",
        """CREATE TABLE places (
             key TEXT NOT NULL,
             version INTEGER NOT NULL,
             seq INTEGER NOT NULL,
             PRIMARY KEY (key, version)
           ) WITHOUT ROWID""",
        "INSERT INTO places SELECT key, version, seq FROM versions ORDER BY key, version",
        "DROP INDEX log_versions",
        # The place in ``versions`` of the current one.
        "ALTER TABLE names ADD COLUMN last INTEGER NOT NULL DEFAULT 0",
        """UPDATE names SET last = (
             SELECT seq FROM places WHERE key = names.key ORDER BY version DESC LIMIT 1
           )""",
        # Up to where ``versions`` is in ``places``.
        "ALTER TABLE facts ADD COLUMN filed INTEGER NOT NULL DEFAULT 0",
        "UPDATE facts SET filed = (SELECT ifnull(max(seq), 0) FROM versions)",
    ],
]


def check(connection: sqlite3.Connection, name: str) -> int:
    """How many steps this file has taken; 0 for an empty one.

    Raises ``SchemaMismatch`` for a file of a newer perkey or of someone else.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID:
        if application == 0 and version == 0 and tables == 0:
            return 0
        raise SchemaMismatch(
            f"{name} is an SQLite database of another program, not a perkey store: expected "
            f"application_id {APPLICATION_ID:#x}, found {application:#x} and {_named(connection)}; "
            "it was left as it is: name another file",
            foreign=True,
        )
    if version > len(STEPS):
        raise SchemaMismatch(
            f"{name} was written by a newer perkey: expected schema version {len(STEPS)} or "
            f"below, found {version}; upgrade perkey to open it"
        )
    return int(version)


def _named(connection: sqlite3.Connection) -> str:
    """What a file of somebody else's holds, for whoever has to recognise it."""
    rows = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    ).fetchall()
    if not rows:
        return "no tables"
    shown = ", ".join(f"{name:.40}" for (name,) in rows[:3])
    more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
    return f"table{'s' * (len(rows) > 1)} {shown}{more}"


def migrate(connection: sqlite3.Connection, taken: int) -> None:
    """Take the steps that are missing.  Inside a write transaction of the caller's."""
    for step in STEPS[taken:]:
        for statement in step:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {len(STEPS)}")
