"""A PostgreSQL of one process, as far as commits need one: heads, versions, row locks, sessions.

It understands the statements of ``postgres_commits`` by their names and reads their parameters
from the wire's own binary form.  Threads wait for its row locks, and it ends a deadlock like the
server: by refusing whoever closes the circle.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import psycopg
from psycopg import errors as pg

from perkey.clock import Clock
from perkey.errors import StoreUnavailable
from perkey.store.backends import postgres_commits as commits
from perkey.store.backends import postgres_trim as trim
from perkey.store.backends.postgres import PostgresBackend
from perkey.store.backends.postgres_known import Known
from perkey.store.backends.postgres_wire import Ask
from perkey.store.limits import Limits
from perkey.store.record import Record
from perkey.store.url import parse


def array(encoded: bytes) -> list[bytes | None]:
    """The elements of a binary array of one dimension."""
    dimensions, _, _ = struct.unpack_from(">3i", encoded)
    found: list[bytes | None] = []
    at = 20 if dimensions else 12
    while at < len(encoded):
        (length,) = struct.unpack_from(">i", encoded, at)
        at += 4
        found.append(None if length < 0 else encoded[at : at + length])
        at += max(length, 0)
    return found


def _texts(encoded: bytes) -> list[str]:
    return [(each or b"").decode() for each in array(encoded)]


def _numbers(encoded: bytes) -> list[int]:
    return [int.from_bytes(each or b"", "big", signed=True) for each in array(encoded)]


class Answer:
    """What ``looked`` and ``wrote`` look at."""

    def __init__(self, rows: Sequence[Sequence[bytes | None]] = ()) -> None:
        self.rows = rows
        self.ntuples = len(rows)

    def get_value(self, row: int, column: int) -> bytes | None:
        return self.rows[row][column]


def _whole(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


class FakeServer:
    """The tables, and who holds which row."""

    def __init__(self) -> None:
        self.rows: dict[str, Record] = {}
        self.kept: list[Record] = []
        self.now = 1_000
        self._changed = threading.Condition()
        self.holders: dict[str, Session] = {}
        self.waiting: dict[Session, str] = {}
        self.blocked: Callable[[Session], bool] = lambda holder: False
        """Called before a wait for this one; True where it has made it needless."""

    def hold(self, session: Session, key: str) -> None:
        """Lock a row, or the place where it would be."""
        with self._changed:
            while (holder := self.holders.get(key, session)) is not session:
                self.waiting[session] = key
                if self._circle(session, holder):
                    del self.waiting[session]
                    raise pg.DeadlockDetected("a circle")
                if not self.blocked(holder):
                    self._changed.wait()
                del self.waiting[session]
            self.holders[key] = session

    def _circle(self, session: Session, holder: Session | None) -> bool:
        """Whether ``holder`` waits, in the end, for ``session``."""
        while holder is not None:
            if holder is session:
                return True
            holder = self.holders.get(self.waiting.get(holder, ""))
        return False

    def let_go(self, session: Session) -> None:
        with self._changed:
            for key in [each for each, holder in self.holders.items() if holder is session]:
                del self.holders[key]
            self._changed.notify_all()


class Session:
    """One connection's transaction."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.pending: list[Callable[[], None]] = []
        self.new: set[str] = set()

    def run(self, asks: Sequence[Ask]) -> list[Answer]:
        """All of these, or up to the first that is refused."""
        try:
            return [self._run(*ask) for ask in asks]
        except psycopg.Error:
            self.end()
            raise

    def _run(self, statement: bytes, parameters: Sequence[bytes]) -> Answer:
        if statement == commits.LOCKED_HEADS:
            return self._look(parameters)
        if statement == commits.WRITE:
            self._write(parameters)
            return Answer([[]])
        if statement == commits.WRITE_IF:
            same = self._same(*parameters[12:15])
            same = same and self.server.now < int.from_bytes(parameters[15], "big")
            if same:
                self._write(parameters)
            return Answer([[_whole(self.server.now), b"\1" if same else b"\0"]])
        if statement == commits.WRITE_ONE:
            return self._write_one(parameters)
        if statement in (trim.BY_COUNT, trim.BY_AGE):
            limit = int.from_bytes(parameters[1], "big", signed=True)
            for key in _texts(parameters[0]):
                self.pending.append(lambda key=key: self._trim(statement, key, limit))  # type: ignore[misc]
        if statement == commits.CAME:
            came = [key for key in _texts(parameters[0]) if key in self.server.rows]
            return Answer([[b"\1"] for _ in came[:1]])
        if statement == commits.ROLLBACK[0]:
            self.end()
        if statement == commits.COMMIT[0]:
            for each in self.pending:
                each()
            self.end()
        return Answer()

    def end(self) -> None:
        """Whatever was not committed is undone."""
        self.pending = []
        self.new = set()
        self.server.let_go(self)

    def _hold(self, keys: bytes) -> list[Record]:
        """Lock the heads of these keys that are there before the first lock, and read them."""
        found = []
        for key in [each for each in sorted(_texts(keys)) if each in self.server.rows]:
            self.server.hold(self, key)
            found.append(self.server.rows[key])
        return found

    def _look(self, parameters: Sequence[bytes]) -> Answer:
        rows = [
            [
                record.key.encode(),
                _whole(record.version),
                record.body,
                record.by.encode(),
                _whole(record.at),
                record.op.encode(),
                record.ops.encode(),
                _whole(record.fence),
                _whole(record.base),
            ]
            for record in self._hold(parameters[1])
        ]
        now = _whole(self.server.now)
        return Answer([[now, *row] for row in rows] or [[now, *[None] * 9]])

    def _same(self, keys: bytes, versions: bytes, ops: bytes) -> bool:
        heads = self._hold(keys)
        expected = list(zip(_numbers(versions), _texts(ops), strict=True))
        return [(each.version, each.op) for each in heads] == expected

    def _write_one(self, parameters: Sequence[bytes]) -> Answer:
        """What is not the head that was expected, is not waited for."""
        key, kept = parameters[0].decode(), parameters[12] == b"\1"
        expected = (int.from_bytes(parameters[10], "big"), parameters[11].decode())
        if not self._is(key, expected):
            return Answer()
        self.server.hold(self, key)
        if not self._is(key, expected):
            return Answer()
        texts = [each.decode() for each in (parameters[3], *parameters[5:7])]
        numbers = [int.from_bytes(parameters[n], "big", signed=True) for n in (1, 4, 7, 8)]
        record = Record(
            key, numbers[0], parameters[2], texts[0], numbers[1], *texts[1:], *numbers[2:]
        )
        self.pending.append(lambda: self._put(record))
        if kept:
            self.pending.append(lambda: self.server.kept.append(record))
        return Answer([[_whole(self.server.now), b"\1"]])

    def _is(self, key: str, expected: tuple[int, str]) -> bool:
        head = self.server.rows[key]
        return (head.version, head.op) == expected

    def _write(self, parameters: Sequence[bytes]) -> None:
        columns: list[Any] = [_texts(parameters[0]), _numbers(parameters[1]), array(parameters[2])]
        columns += [_texts(parameters[3]), _numbers(parameters[4])]
        columns += [_texts(parameters[5]), _texts(parameters[6])]
        columns += [_numbers(each) for each in parameters[7:9]]
        records = [Record(*row) for row in zip(*columns, strict=True)]
        kinds = _numbers(parameters[9])
        pairs = list(zip(records, kinds, strict=True))
        for record, kind in sorted(pairs, key=lambda pair: pair[0].key):
            if kind & commits.NEW:
                self.server.hold(self, record.key)
                if record.key in self.server.rows:
                    raise pg.UniqueViolation("it is there")
        for record, kind in pairs:
            if kind & (commits.NEW | commits.MOVED) and record.version:
                self.pending.append(lambda record=record: self._put(record))  # type: ignore[misc]
            if kind & commits.KEPT:
                self.pending.append(lambda record=record: self.server.kept.append(record))  # type: ignore[misc]

    def _put(self, record: Record) -> None:
        self.server.rows[record.key] = record

    def _trim(self, statement: bytes, key: str, limit: int) -> None:
        mine = [each for each in self.server.kept if each.key == key]
        head = self.server.rows[key].version
        floor = head - limit
        if statement == trim.BY_AGE:
            floor = next((each.version for each in mine if each.at >= limit), head) - 1
        for each in mine:
            if each.version <= floor:
                self.server.kept.remove(each)


Line = Callable[[Session, Sequence[Ask]], list[Answer]]
"""(session, statements) -> what is heard of them; the place for faults."""


class FakeLink:
    """``Link`` and ``Wire`` to a fake server, over a line that may be bad."""

    pid = 0

    def __init__(self, server: FakeServer, line: Line) -> None:
        self.server = server
        self.line = line
        self.trips = 0
        self.session: Session | None = None
        self.connection: Any = None

    def connected(self) -> Any:
        if self.connection is None:
            self.session = Session(self.server)
            self.connection = SimpleNamespace(broken=False, closed=False, close=self.hang_up)
        return self.connection

    fresh = connected

    def wire(self, connection: Any) -> FakeLink:
        return self

    def ask(self, *asks: Ask, then: Ask | None = None) -> list[Answer]:
        self.trips += 1
        assert self.session is not None
        try:
            return self.line(self.session, asks)
        except psycopg.Error as error:
            self.connection.broken = not error.sqlstate
            raise

    def rollback(self) -> None:
        if self.connection is not None and self.connection.broken:
            self.hang_up()
        elif self.session is not None:
            self.session.end()

    def hang_up(self) -> None:
        """The line is gone.  What its session still does is not this side's any more."""
        self.session = self.connection = None

    @contextmanager
    def translating(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            if self.connection is not None and self.connection.broken:
                self.hang_up()
            raise StoreUnavailable("did not answer") from error


def straight(session: Session, asks: Sequence[Ask]) -> list[Answer]:
    """A line without faults."""
    return session.run(asks)


class FakedPostgres(PostgresBackend):
    """The real backend on a fake server."""

    def __init__(
        self,
        server: FakeServer,
        limits: Limits,
        clock: Clock,
        *,
        line: Line = straight,
        known: Known | None = None,
    ) -> None:
        super().__init__(parse("postgresql://fake/fake"), limits, clock, known)
        self.link = FakeLink(server, line)
        self._link = self.link  # type: ignore[assignment]

    def _find_op(self, key: str, version: int) -> str | None:
        kept = self.link.server.kept
        return next((r.op for r in kept if (r.key, r.version) == (key, version)), None)
