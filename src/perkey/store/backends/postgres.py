"""Records in PostgreSQL: several machines, one truth.

A batch takes two round trips.  The first begins, locks the heads of all declared keys in one
order, and reads them and the server's time; the second writes everything and commits.  A key
that does not exist yet cannot be locked: its insert fails if another process was first, and
the batch is evaluated again.

Where this process knows all those heads, because it wrote them last, one round trip is enough:
it locks them, compares, and writes if they are the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import errors as pg

from perkey.clock import Clock
from perkey.errors import SchemaMismatch, StoreError, Timeout, UsageError
from perkey.store.abc import Backend, Listener
from perkey.store.backends import postgres_commits as commits
from perkey.store.backends import postgres_queries as sql
from perkey.store.backends.opening import opened
from perkey.store.backends.postgres_arrays import byteas
from perkey.store.backends.postgres_known import Known
from perkey.store.backends.postgres_link import Link
from perkey.store.backends.postgres_listen import listener
from perkey.store.backends.postgres_trim import trims
from perkey.store.backends.postgres_wire import Ask
from perkey.store.evaluate import Batch, Heads, Unit, may_land, unknown
from perkey.store.examine import Found
from perkey.store.keys import Key
from perkey.store.limits import Limits, backoff
from perkey.store.record import Page, Record, Walk
from perkey.store.transaction import Outcome
from perkey.store.url import Location

RETRIED = (pg.SerializationFailure, pg.DeadlockDetected, pg.UniqueViolation)
"""Another transaction was first; nothing was written, evaluate again."""

OFF = {
    "synchronous_commit": "a crash of the server loses the last acknowledged commits; set it to on "
    "for this role or database",
    "fsync": "a crash of the machine may damage everything; set it to on",
    "full_page_writes": "a power cut may damage pages; set it to on unless the file system writes "
    "pages whole",
}
"""Settings, and what it means where one of them is off."""
SET_BACK_MS = 1_000
"""How far a version may be dated after the server's time without a word."""
SET_BACK = (
    "the newest version is dated {} s after the server's time: its clock was set back. Processes "
    "that have seen the later time stand at it until then, and end no lease meanwhile: restart "
    "them, and have the server's clock slewed, not set"
)

_CURSOR = re.compile(r"pg:([0-9]{1,20}):([0-9]{1,19})")

DURABILITY = {
    "on": "flushed to the server's disk (and a synchronous standby) before the call returns",
    "remote_apply": "applied on a synchronous standby before the call returns",
    "remote_write": "flushed to the disk and received by a synchronous standby",
    "local": "flushed to the server's disk before the call returns",
    "off": "NOT flushed: a crash of the server may lose the last acknowledged commits",
}


class PostgresBackend:
    """One connection.  The reader is a second one of the same kind."""

    name = "postgres"
    atomic_keys: int | None = None
    blocking = True
    time_source = "store"
    durability = DURABILITY["on"]

    def __init__(
        self, location: Location, limits: Limits, clock: Clock, known: Known | None = None
    ) -> None:
        """``known``: another connection's of this process, which shares what it knows."""
        self.limits = limits
        self._location = location
        self._clock = clock
        self._link = Link(location, limits)
        self._known = known or Known(clock)

    # ------------------------------------------------------------------------- writing

    def apply(self, batch: Batch) -> list[Outcome]:
        attempt = 0
        while True:
            attempt += 1
            try:
                outcomes = self._attempt(batch)
            except RETRIED as error:
                batch.committing = None
                self._link.rollback()
                if attempt >= max(self.limits.attempts, 20):
                    raise StoreError(
                        f"PostgreSQL could not order this commit among others: {error}"
                    ) from error
                self._clock.sleep(backoff(1, self.limits, self._clock.random()) / 10)
                continue
            for outcome in outcomes:
                outcome.attempts = max(outcome.attempts, attempt)
            return outcomes

    def _attempt(self, batch: Batch) -> list[Outcome]:
        try:
            return self._answered(batch)
        except RETRIED:
            raise
        except pg.LockNotAvailable as error:
            batch.committing = None
            self._link.rollback()
            raise Timeout(
                "another transaction held a declared key until the time was up; nothing was done"
            ) from error
        except psycopg.Error as error:
            self._undo(batch, error)
            with self._link.translating():
                raise
        except BaseException:
            self._undo(batch, None)
            raise

    def _answered(self, batch: Batch) -> list[Outcome]:
        guess = self._known.take(batch)
        if guess is not None and not batch.doubts:
            outcomes = self._try(batch, *guess)
            if outcomes is not None:
                return outcomes
        heads, now = self._locked(batch)
        if guess is not None:
            self._known.differed(guess[0], heads)
        if batch.doubts:
            self._look_again(heads)
        unit = batch.evaluate(heads, now, self._find_op)
        if unit.settled:
            self._link.rollback()
            return unit.outcomes
        # Once a key has moved on, what has not landed on it never will; and so it is when this
        # unit moves one.
        batch.doubts[:] = [doubt for doubt in batch.doubts if may_land(doubt, heads)]
        if unit.writes:
            self._commit(batch, unit, heads)
        else:
            if not self._look_again(heads, commits.ROLLBACK):
                self._link.rollback()
            if batch.doubts:
                raise unknown(batch.doubts[0])
        self._known.keep(heads, unit)
        return unit.outcomes

    def _try(self, batch: Batch, heads: Heads, now: int) -> list[Outcome] | None:
        """An attempt on heads that nobody has looked at; None where they, or the server, must be
        asked.  A guess alone never answers anybody: what writes nothing looks, too."""
        unit = batch.evaluate(heads, now, self._find_op)
        if not unit.writes:
            return None
        asks = commits.write_if(batch, unit, heads, self._patience(batch))
        asks += trims(self.limits, unit.writes)
        wire = self._link.wire(self._link.fresh())
        batch.committing = unit
        answer = wire.ask(commits.BEGIN, *asks, commits.COMMIT, then=commits.TELL)[1]
        batch.committing = None
        told, same = commits.wrote(answer)
        if told is not None:
            self._known.told(told)
        if not same:
            return None
        self._known.keep(heads, unit)
        return unit.outcomes

    def _locked(self, batch: Batch) -> tuple[Heads, int]:
        """``_lock``, once more on a new connection if the old one turns out to be gone."""
        try:
            return self._lock(batch)
        except psycopg.OperationalError as error:
            alive = self._link.connection is not None and not self._link.connection.broken
            if alive and not isinstance(error, pg.AdminShutdown | pg.CrashShutdown):
                raise
        self._link.hang_up()
        return self._lock(batch)

    def _lock(self, batch: Batch) -> tuple[Heads, int]:
        """Begin, lock the heads in key order, and read them and the time under the lock."""
        keys = batch.keys
        connection = self._link.fresh()
        ask = commits.look(keys, self._patience(batch))
        _, answer = self._link.wire(connection).ask(commits.BEGIN, ask)
        now, found = commits.looked(answer)
        heads: Heads = dict.fromkeys(keys)
        heads.update((Key(record.key), record) for record in found)
        return heads, self._known.told(now)

    def _look_again(self, heads: Heads, *then: Ask) -> bool:
        """Raise one of ``RETRIED`` where a key came while the lock of another was waited for;
        returns whether there was a second look, with ``then`` in the same trip.

        One commit may have moved the one and made the other: whoever went by these heads would
        see half of it.  What writes needs no second look, since it holds the places of all that
        was missing.
        """
        ask = commits.look_again(heads)
        if ask is None:
            return False
        came = self._link.wire(self._link.connected()).ask(ask, *then)[0]
        if came.ntuples:
            raise pg.SerializationFailure("a key came while the lock of another was waited for")
        return True

    def _patience(self, batch: Batch) -> bytes:
        """How many milliseconds to wait for a lock; raises where the time is up."""
        left = self.limits.timeout_s
        if batch.deadline is not None:
            left = batch.deadline - self._clock.monotonic()
        if left <= 0:
            raise Timeout("the time was up before the store was asked; nothing was done")
        return b"%d" % max(1, int(left * 1000))

    def _commit(self, batch: Batch, unit: Unit, heads: Heads) -> None:
        """Write a unit's last record per key and all its versions, and commit, in one trip."""
        asks = [*commits.write(batch, unit, heads), *trims(self.limits, unit.writes)]
        wire = self._link.wire(self._link.connected())
        batch.committing = unit
        answer = wire.ask(*asks, commits.COMMIT, then=commits.TELL)[0]
        batch.committing = None
        if commits.unwritten(asks[0], answer):
            raise pg.SerializationFailure("a head that was locked has become another one")

    def _undo(self, batch: Batch, error: psycopg.Error | None) -> None:
        """Roll back; the batch stays in doubt only if the server may have its COMMIT."""
        connection = self._link.connection
        alive = connection is not None and not (connection.broken or connection.closed)
        if alive and error is not None and error.sqlstate is not None:
            batch.committing = None  # the server itself said no
        if alive and error is None:
            # Interrupted between sending and hearing: only a new connection is in a known state.
            assert connection is not None
            with suppress(psycopg.Error):
                connection.close()
        self._link.rollback()

    def _find_op(self, key: str, version: int) -> str | None:
        row = self._link.connected().execute(sql.FIND_OP, (key.encode(), version)).fetchone()
        return None if row is None else str(row[0])

    # ------------------------------------------------------------------------- reading

    def now_ms(self) -> int:
        row = self._link.reading(lambda c: c.execute(sql.NOW).fetchone())
        assert row is not None
        return self._known.told(int(row[0]))

    def read(self, keys: Sequence[Key]) -> list[Record | None]:
        wanted = byteas(map(str.encode, keys))
        rows = self._link.reading(lambda c: c.execute(sql.HEADS, (wanted,)).fetchall())
        heads = {record.key: record for record in map(sql.record, rows)}
        return [heads.get(key) for key in keys]

    def scan(self, prefix: str, after: str, limit: int) -> list[Record]:
        low = prefix.encode()
        bounds = {"low": low, "after": after.encode(), "high": sql.past(low), "limit": limit}
        rows = self._link.reading(lambda c: c.execute(sql.SCAN, bounds).fetchall())
        return [sql.record(row) for row in rows]

    def walk(self, cursor: str, limit: int) -> Walk:
        bounds = (cursor.encode(), limit)
        rows = self._link.reading(lambda c: c.execute(sql.WALK, bounds).fetchall())
        found = [sql.record(row) for row in rows]
        return Walk(found, found[-1].key if len(found) == limit else "")

    def history(self, key: str, after: int, limit: int) -> list[Record]:
        bounds = (key.encode(), after, limit)
        rows = self._link.reading(lambda c: c.execute(sql.HISTORY, bounds).fetchall())
        return [sql.record(row) for row in rows]

    def changes(self, prefix: str, cursor: str, limit: int) -> Page:
        xid, seq = _position(cursor)
        low = prefix.encode()
        bounds = {"xid": xid, "seq": seq, "low": low, "high": sql.past(low), "limit": limit}
        found = self._link.reading(lambda c: c.execute(sql.CHANGES, bounds).fetchall())
        gap = bool(found[0][0])
        rows = [row[1:] for row in found if row[1] is not None]
        cursors = [_cursor(row[0], row[1]) for row in rows]
        end = cursors[-1] if cursors else _cursor(xid, seq)
        records = [sql.record(row[2:]) for row in rows]
        return Page(records, cursors, end, gap, live=len(rows) < limit)

    def cursor(self, prefix: str) -> str:
        row = self._link.reading(lambda c: c.execute(sql.END).fetchone())
        assert row is not None
        return _cursor(row[0], 0)

    # ------------------------------------------------------------------------ the rest

    def prepare(self) -> None:
        """Make or migrate the schema under an advisory lock, and read what is promised."""
        with self._link.translating():
            connection = self._link.connected()
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (sql.LOCK_ID,))
                self._migrate(connection)
            row = connection.execute("SHOW synchronous_commit").fetchone()
            self.durability = DURABILITY.get(str(row and row[0]), DURABILITY["on"])

    def schema(self) -> int:
        """How many steps the schema has taken; 0 where there is none."""

        def look(connection: psycopg.Connection[Any]) -> int:
            there = connection.execute(sql.HAS_FACTS).fetchone()
            if there is None or there[0] is None:
                return 0
            row = connection.execute(sql.SCHEMA_VERSION).fetchone()
            return 0 if row is None else int(row[0])

        return self._link.reading(look)

    def _migrate(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(sql.FACTS_TABLE)
        row = connection.execute(sql.SCHEMA_VERSION).fetchone()
        version = 0 if row is None else row[0]
        if version > len(sql.STEPS):
            raise SchemaMismatch(
                f"the database at {self._location} has schema {version}, and this perkey knows "
                f"up to {len(sql.STEPS)}; use a newer perkey"
            )
        for step in sql.STEPS[version:]:
            connection.execute(step)  # a constant of ours
        if version < len(sql.STEPS):
            connection.execute("DELETE FROM perkey_facts")
            connection.execute("INSERT INTO perkey_facts VALUES (%s)", (len(sql.STEPS),))

    def listen(self) -> Listener | None:
        """Word of what other processes commit; None behind a pooler, or where it is not wanted."""
        return listener(self._link.another(), lambda: self._link.pid)

    def reader(self) -> Backend | None:
        return PostgresBackend(self._location, self.limits, self._clock, self._known)

    def describe(self) -> dict[str, str]:
        row = self._link.reading(lambda c: c.execute(sql.DESCRIBE).fetchone())
        assert row is not None
        names = ("server", "synchronous_commit", "fsync", "full_page_writes", "records", "versions")
        facts = dict(zip(names, map(str, row), strict=True))
        pooler = "in between: nothing is prepared, watchers look by themselves"
        facts["pooler"] = pooler if self._link.pooled else "none"
        return {"place": str(self._location), "schema": str(len(sql.STEPS)), **facts}

    def concerns(self) -> list[str]:
        facts = self.describe()
        found = [f"{name} is off: {why}" for name, why in OFF.items() if facts[name] == "off"]
        row = self._link.reading(lambda c: c.execute(sql.AHEAD).fetchone())
        if row is not None and row[0] > SET_BACK_MS:
            found.append(SET_BACK.format(row[0] // 1000))
        return found

    def close(self) -> None:
        self._link.hang_up()


def _cursor(xid: str, seq: int) -> str:
    return f"pg:{xid}:{seq}"


def _position(cursor: str) -> tuple[str, int]:
    """A transaction's number and a sequence within it; ``""`` is before everything."""
    found = _CURSOR.fullmatch(cursor or "pg:0:0")
    if found is None or int(found[1]) >= 1 << 64 or int(found[2]) >= 1 << 63:
        raise UsageError(f"expected a cursor of this store, found {cursor!r:.60}")
    return found[1], int(found[2])


def examine(location: Location, limits: Limits, clock: Clock) -> Found:
    """How far the schema at a PostgreSQL URL is; makes and migrates nothing."""
    backend = PostgresBackend(location, limits, clock)
    try:
        taken = backend.schema()
    finally:
        backend.close()
    return Found(taken > 0, "the tables perkey_*", taken, len(sql.STEPS))


def open_backend(location: Location, limits: Limits, clock: Clock) -> Backend:
    """``postgresql://user:password@host:port/database``.

    libpq's options pass through (``sslmode=verify-full``, ``sslrootcert=...``).  ``prepare=no``
    switches prepared statements off, for a pooler that cannot carry them.
    """
    backend = PostgresBackend(location, limits, clock)
    return opened(backend, backend.prepare)
