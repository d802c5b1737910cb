"""From SQLite's error codes to perkey's errors."""

from __future__ import annotations

import sqlite3

from perkey.errors import (
    PerkeyError,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    Timeout,
)

BUSY = 5
_LOCKED = 6
_READONLY = 8
_IOERR = 10
_CORRUPT = 11
_FULL = 13
_CANTOPEN = 14
_NOTADB = 26
_IOERR_WRITE = _IOERR | 3 << 8


def code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 where Python's module raised by itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def surely_not_landed(error: sqlite3.Error) -> bool:
    """Whether a commit that failed with ``error`` is certainly not in the file.

    It is not where the write-ahead log could not be written to its end.  Where flushing it
    failed, nobody knows but the file.
    """
    return getattr(error, "sqlite_errorcode", 0) in (_FULL, _IOERR_WRITE)


def translated(error: sqlite3.Error, name: str) -> PerkeyError:
    """What to raise for ``error`` on the file ``name``."""
    kind = code(error)
    if kind in (BUSY, _LOCKED):
        return Timeout(f"{name} stayed locked by another process; nothing was done")
    if kind in (_CORRUPT, _NOTADB):
        return StoreCorrupt(
            f"{name} is damaged or no SQLite database ({error}); nothing was written over it: "
            "restore a copy, or try 'sqlite3 FILE .recover'"
        )
    if kind == _FULL:
        return StoreError(f"the disk of {name} is full; the commit was rolled back, nothing lost")
    if kind == _READONLY:
        return StoreError(f"{name} cannot be written ({error}); check the file's permissions")
    if kind == _CANTOPEN:
        return StoreUnavailable(f"{name} cannot be opened ({error}); check that its folder exists")
    if kind == _IOERR:
        return StoreError(f"reading or writing {name} failed ({error})")
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return StoreClosed()
    return StoreError(f"SQLite failed on {name}: {error}")
