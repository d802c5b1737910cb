"""Records in an SQLite file: durable, in the user's own process, shared by its processes."""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from perkey.clock import SYSTEM, Clock, host_ms
from perkey.errors import ForkedStore
from perkey.store.abc import Backend
from perkey.store.backends import sqlite_open, sqlite_schema
from perkey.store.backends import sqlite_queries as queries
from perkey.store.backends.sqlite_errors import BUSY, code, surely_not_landed, translated
from perkey.store.backends.sqlite_known import Known
from perkey.store.backends.sqlite_time import STEP_MS
from perkey.store.backends.sqlite_turn import FIRST_PAUSE_S, Turn, waited_in_vain
from perkey.store.evaluate import Batch, Heads
from perkey.store.examine import Found
from perkey.store.keys import HISTORY_SPACES, Key, keeps_history
from perkey.store.limits import Limits
from perkey.store.record import Page, Record, Walk, position
from perkey.store.transaction import Outcome
from perkey.store.url import Location

DURABILITY = {
    "FULL": "flushed to the disk before the call returns; survives a power cut",
    "EXTRA": "flushed to the disk, folder included, before the call returns",
    "NORMAL": "survives the death of every process; a power cut may take the last commits",
    "OFF": "survives the death of every process; a power cut may damage the file",
}

LARGE_COMMIT = 48
"""From how many records on a commit is a large one."""
SMALL_COMMITS = 1000
"""After how many small commits in a row the large ones are over."""
OFTEN_PAGES, SELDOM_PAGES = 1000, 8000
"""How long the write-ahead log grows before a checkpoint, in pages."""

UNFILED_VERSIONS = 512
"""How many of the newest versions may wait for their ``places``."""


class SqliteBackend:
    """One connection to one file.  The reader is a second one of the same kind."""

    name = "sqlite"
    atomic_keys: int | None = None
    time_source = "host"

    def __init__(
        self,
        options: sqlite_open.Options,
        connection: sqlite3.Connection,
        offset: int,
        limits: Limits,
        clock: Clock,
        turn: Turn | None = None,
    ) -> None:
        self.limits = limits
        self.blocking = not options.in_memory
        self.durability = (
            "none: everything is gone when the process ends"
            if options.in_memory
            else DURABILITY[options.synchronous]
        )
        self._options = options
        self._connection = connection
        self._forked = False
        # One cursor for all: each statement ends the one before it, so that no half-read
        # result of an interrupted call holds an old snapshot open.
        self._cursor = connection.cursor()
        self._run: Callable[..., Any] = self._cursor.execute
        self._offset = offset
        self._clock = clock
        self._turn = turn
        self._known = Known()
        self._high = 0
        self._filed = 0
        """Up to where ``versions`` was in ``places`` when this connection last looked."""
        self.unfiled_versions = UNFILED_VERSIONS
        self._small_commits_left = 0
        _open_backends.add(self)

    def now_ms(self) -> int:
        return self._offset + host_ms()

    # ------------------------------------------------------------------ writing

    def apply(self, batch: Batch) -> list[Outcome]:
        try:
            self._begin(batch.deadline)
            now = self.now_ms()
            heads = self._current(batch.blank)
            unit = batch.evaluate(heads, now, self._find_op)
            if unit.settled or not unit.writes:
                self._run("ROLLBACK")
                return unit.outcomes
            # Under SQLite's lock "it has not landed" is final: nothing can land late.
            batch.doubts.clear()
            self._write(unit.writes)
            self._pace(len(unit.writes))
            high = self._raise_high(now)
            batch.committing = unit
            self._run("COMMIT")
            # An interrupt may strike in this call: until then the commit stays in doubt.
            self._known.keep(heads, unit.writes)
            batch.committing = None
            self._high = high
            return unit.outcomes
        except sqlite3.Error as error:
            if surely_not_landed(error):
                batch.committing = None
            self._undo(batch)
            raise translated(error, self._options.path) from error
        except BaseException:
            self._undo(batch)
            raise

    def _current(self, heads: Heads) -> Heads:
        """Fill in the heads of these keys, inside a write transaction."""
        (data_version,) = self._run(queries.DATA_VERSION).fetchone()
        rest = self._known.take(heads, data_version)
        if rest:
            heads.update(self._heads(rest))
        return heads

    def _begin(self, deadline: float | None) -> None:
        """Take SQLite's write lock, first come first served; ``Timeout`` at the deadline."""
        if self._connection.in_transaction:  # an interrupt struck while undoing
            self._run("ROLLBACK")
        if self._turn is None:
            self._run("BEGIN IMMEDIATE")
            return
        if deadline is None:
            deadline = self._clock.monotonic() + self.limits.timeout_s
        try:
            self._turn.enter(deadline)
            while True:
                try:
                    self._run("BEGIN IMMEDIATE")
                    return
                except sqlite3.OperationalError as error:
                    if code(error) != BUSY:
                        raise
                if self._clock.monotonic() >= deadline:
                    raise waited_in_vain()
                self._clock.sleep(FIRST_PAUSE_S)
        finally:
            self._turn.leave()

    def _undo(self, batch: Batch) -> None:
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                # Still open, so it has certainly not landed.
                batch.committing = None
                self._run("ROLLBACK")

    def _write(self, records: Sequence[Record]) -> None:
        kept: list[Record] = []
        cells: dict[str, Record] = {}
        for record in records:
            key = record.key
            if key[0] in HISTORY_SPACES:
                kept.append(record)
            else:
                cells[str(key)] = record  # of several versions in one commit the last one stays
        if kept:
            self._append(kept)
        if cells:
            new = [each for each in cells.values() if each.version == 1]
            # By key, so that neighbours lie on one page.
            moved = [cells[key] for key in sorted(cells) if cells[key].version > 1]
            self._put(queries.NEW_CELL, queries.rows(new))
            self._put(queries.NEW_CELL, queries.rows(moved, queries.ROOM), queries.MOVE_CELL)

    def _put(self, head: str, values: list[object], tail: str = "", columns: int = 9) -> None:
        """Write the rows that ``values`` are, one behind the other, with few statements."""
        start = 0
        for count in queries.shares(len(values) // columns):
            some = values[start : start + count * columns]
            start += count * columns
            self._run(queries.insert(head, columns, count, tail), some)

    def _raise_high(self, now: int) -> int:
        """Keep the file's time mark above every commit, so that a reboot never goes below."""
        if now < self._high:
            return self._high
        self._run(queries.RAISE_HIGH, (now + STEP_MS,))
        return now + STEP_MS

    def _pace(self, records: int) -> None:
        """Checkpoint often after small commits, seldom while large ones come.

        A short write-ahead log is soon written over in place, where a flush costs half of
        what it costs at the end of a growing file.  Commits that touch many pages gain more
        from a long one, in which hot pages are checkpointed once for many commits.
        """
        if records >= LARGE_COMMIT:
            if not self._small_commits_left:
                self._run(f"PRAGMA wal_autocheckpoint = {SELDOM_PAGES}")
            self._small_commits_left = SMALL_COMMITS
        elif self._small_commits_left:
            self._small_commits_left -= 1
            if not self._small_commits_left:
                self._run(f"PRAGMA wal_autocheckpoint = {OFTEN_PAGES}")

    def _append(self, records: Sequence[Record]) -> None:
        """Add versions, and drop those that retention says."""
        self._put(queries.PUT_VERSION, queries.rows(records))
        last: int = self._cursor.lastrowid or 0
        # Their numbers follow each other, whatever number of statements wrote them.
        places = {str(each.key): last + n for n, each in enumerate(records, 1 - len(records))}
        names: list[object] = [part for place in places.items() for part in place]
        self._put(queries.PUT_NAME, names, queries.MOVE_NAME, columns=2)
        if last - self._filed >= self.unfiled_versions:
            (self._filed,) = self._run(queries.FILED).fetchone()  # others file too
            if last - self._filed >= self.unfiled_versions:
                self._file()
        keep = self.limits.keep_versions
        floors = {str(each.key): each.version - keep for each in records if each.version > keep}
        if floors:
            self._file()
        for key, floor in floors.items():
            self._drop(key, floor)
        if self.limits.keep_s is not None:
            for key in places:
                self._drop_old(key)

    def _file(self) -> None:
        """Write down where the newest versions lie, in the order of keys: neighbours lie on
        one page, which is written once for all of them."""
        (filed,) = self._run(queries.FILED).fetchone()
        self._run(queries.FILE, (filed,))
        self._run(queries.NOTE_FILED)

    def _drop_old(self, key: str) -> None:
        """Drop the versions of ``key`` that are too old, except the current one."""
        assert self.limits.keep_s is not None
        oldest = self.now_ms() - int(self.limits.keep_s * 1000)
        (first,) = self._run(queries.FIRST_AT, (key,)).fetchone()
        if first < oldest:
            self._file()
            (floor,) = self._run(queries.LAST_OLD, (key, oldest)).fetchone()
            self._drop(key, floor)

    def _drop(self, key: str, floor: int) -> None:
        """Drop the versions of ``key`` up to ``floor``, and note that they are gone.

        All are filed.
        """
        (seq,) = self._run(queries.LAST_DROPPED, (key, floor)).fetchone()
        if seq is not None:
            self._run(queries.DROP, (key, floor))
            self._run(queries.DROP_PLACES, (key, floor))
            self._run(queries.NOTE_NAME, (seq, key))
            self._run(queries.NOTE_STORE, (seq,))

    def _find_op(self, key: str, version: int) -> str | None:
        row = self._run(queries.FIND_OP, (str(key), version)).fetchone()
        return None if row is None else row[0]

    # ------------------------------------------------------------------ reading

    def read(self, keys: Sequence[Key]) -> list[Record | None]:
        if len(keys) == 1:  # one statement is a snapshot of its own
            with self._translating():
                heads = self._heads(dict.fromkeys(keys))
        else:
            with self._snapshot():
                heads = self._heads(dict.fromkeys(keys))
        return [heads[key] for key in keys]

    def _heads(self, heads: Heads) -> Heads:
        """Fill in the heads of these keys."""
        kept: list[str] = []
        cells: list[str] = []
        for key in heads:
            (kept if key[0] in HISTORY_SPACES else cells).append(str(key))
        if kept:
            for row in self._found(queries.find_heads, kept):
                heads[row[0]] = Record(*row)
        if cells:
            for row in self._found(queries.find_cells, cells):
                heads[row[0]] = queries.trimmed(row)
        return heads

    def _found(self, find: Callable[[int], str], names: list[str]) -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(names), queries.MOST):
            some = queries.padded(names[start : start + queries.MOST])
            yield from self._run(find(len(some)), some).fetchall()

    def scan(self, prefix: str, after: str, limit: int) -> list[Record]:
        bounds = (prefix, after, queries.past(prefix), limit)
        with self._snapshot():
            found = []
            if not prefix or keeps_history(prefix):
                found += [Record(*row) for row in self._run(queries.SCAN_LOG, bounds)]
            if not prefix or not keeps_history(prefix):
                found += map(queries.trimmed, self._run(queries.SCAN_CELLS, bounds))
        if not prefix:
            found.sort(key=lambda record: record.key.encode())
        return found[:limit]

    def history(self, key: str, after: int, limit: int) -> list[Record]:
        name = str(key)
        with self._snapshot():
            rows = self._run(queries.HISTORY, (name, after, limit)).fetchall()
            if len(rows) < limit:
                rows += self._run(queries.NEWEST, (name, after, limit - len(rows))).fetchall()
        return [Record(*row) for row in rows]

    def walk(self, cursor: str, limit: int) -> Walk:
        part, after = (cursor or "log/").split("/", 1)
        with self._snapshot():
            if part == "log":
                found = [Record(*row) for row in self._run(queries.WALK_LOG, (after, limit))]
            else:
                found = [*map(queries.trimmed, self._run(queries.WALK_CELLS, (after, limit)))]
        if len(found) == limit:
            return Walk(found, f"{part}/{found[-1].key}")
        return Walk(found, "cells/" if part == "log" else "")

    def changes(self, prefix: str, cursor: str, limit: int) -> Page:
        seen = position(cursor)
        low, high = prefix, queries.past(prefix)
        with self._snapshot():
            (dropped,) = self._run(queries.DROPPED).fetchone()
            gap = False
            if seen < dropped:
                (gap,) = self._run(queries.DROPPED_UNDER, (low, high, seen)).fetchone()
            rows = self._run(queries.CHANGES, (seen, low, high, limit)).fetchall()
            (last,) = self._run(queries.LAST_SEQ).fetchone()
        cursors = [str(row[0]) for row in rows]
        live = len(rows) < limit or rows[-1][0] == last
        end = str(max(last, seen)) if live else cursors[-1]
        return Page([Record(*row[1:]) for row in rows], cursors, end, bool(gap), live)

    def cursor(self, prefix: str) -> str:
        with self._snapshot():
            return str(self._run(queries.LAST_SEQ).fetchone()[0])

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """All that is read within is of one moment."""
        with self._translating():
            if self._connection.in_transaction:  # an interrupt struck while leaving
                self._run("ROLLBACK")
            self._run("BEGIN")
            try:
                yield
            finally:
                self._run("ROLLBACK")

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise translated(error, self._options.path) from error

    # ------------------------------------------------------------------ the rest

    def reader(self) -> Backend | None:
        if self._options.in_memory:
            return None
        connection = sqlite_open.connect_reader(self._options)
        return SqliteBackend(self._options, connection, self._offset, self.limits, self._clock)

    def describe(self) -> dict[str, str]:
        with self._snapshot():
            facts = {
                name: str(self._run(f"PRAGMA {name}").fetchone()[0])
                for name in ("journal_mode", "page_count", "page_size", "user_version")
            }
            facts["records"], facts["versions"] = map(str, self._run(queries.COUNTS).fetchone())
        facts["path"] = self._options.path
        facts["synchronous"] = self._options.synchronous
        facts["sqlite"] = sqlite3.sqlite_version
        facts["schema"] = f"{facts.pop('user_version')} of {len(sqlite_schema.STEPS)}"
        return facts

    def concerns(self) -> list[str]:
        return sqlite_open.concerns(self._options)

    def close(self) -> None:
        if self._turn is not None:
            self._turn.close()
        if not self._forked:
            self._connection.close()

    def abandon(self) -> None:
        """In a child process: never use, close or tear down what the parent has open."""
        self._forked = True
        self._run = _refuse_in_child
        sqlite_open.keep_for_ever(self._cursor)
        sqlite_open.keep_for_ever(self._connection)


def _refuse_in_child(*statement: object) -> NoReturn:
    raise ForkedStore


_open_backends: weakref.WeakSet[SqliteBackend] = weakref.WeakSet()


def _after_fork() -> None:
    for backend in list(_open_backends):
        backend.abandon()


os.register_at_fork(after_in_child=_after_fork)


def examine(location: Location, limits: Limits, clock: Clock = SYSTEM) -> Found:
    """What is at an SQLite URL; makes no file."""
    return sqlite_open.examine(sqlite_open.options(location, limits))


def open_backend(location: Location, limits: Limits, clock: Clock = SYSTEM) -> Backend:
    """``sqlite:///relative.db``, ``sqlite:////absolute.db`` or ``sqlite:///:memory:``.

    Options: ``synchronous=FULL|NORMAL|OFF|EXTRA`` (FULL: a commit survives a power cut) and
    ``busy_timeout``, the seconds to wait for other processes while opening and reading.
    """
    options = sqlite_open.options(location, limits)
    connection, offset = sqlite_open.connect(options, clock)
    turn = None if options.in_memory else Turn(f"{os.path.realpath(options.path)}-turn", clock)
    return SqliteBackend(options, connection, offset, limits, clock, turn)
