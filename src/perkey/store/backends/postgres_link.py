"""One session with a PostgreSQL server: made, found broken, made again, and put in plain words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg

from perkey.errors import StoreError, StoreUnavailable
from perkey.store.backends.postgres_arrays import adapt
from perkey.store.backends.postgres_commits import PLAN_ONCE
from perkey.store.backends.postgres_wire import Wire
from perkey.store.limits import Limits
from perkey.store.url import Location

T = TypeVar("T")

OWN_OPTIONS = {"prepare", "listen"}
"""URL options that are ours; all others go to libpq (``sslmode``, ``sslrootcert``, ...)."""
PREPARE_AFTER = 5
"""How often the client library sees a statement before it has it prepared."""


class Link:
    """One connection.  Used by one thread at a time."""

    def __init__(self, location: Location, limits: Limits) -> None:
        self.connection: psycopg.Connection[Any] | None = None
        self.pooled = False
        """Whether something stands between us and the server that hands out its sessions."""
        self.pid = 0
        """The server's process at the other end."""
        self._location = location
        self._limits = limits
        self._prepare = location.option("prepare", ("yes", "no", "auto"), "auto")
        self.listens = location.option("listen", ("yes", "no"), "yes") == "yes"
        self._wire: Wire | None = None

    def another(self) -> Link:
        """One more to the same server; not connected yet."""
        return Link(self._location, self._limits)

    def connected(self) -> psycopg.Connection[Any]:
        """The connection, made again if it was lost."""
        if self.connection is not None and self.connection.closed:
            self.hang_up()
        if self.connection is None:
            self.connection = self._connect()
        return self.connection

    def _connect(self) -> psycopg.Connection[Any]:
        place = self._location
        options = {k: v for k, v in place.options.items() if k not in OWN_OPTIONS}
        seconds = max(1, int(self._limits.timeout_s))
        settings: dict[str, Any] = {
            "connect_timeout": min(seconds, 10),
            "application_name": "perkey",
            "keepalives_idle": 5,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": seconds * 1000,
            **options,
        }
        try:
            connection = psycopg.connect(
                host=place.host or None,
                port=place.port,
                user=place.user,
                password=place.password,
                dbname=place.path or None,
                autocommit=True,
                prepare_threshold=None,
                **settings,
            )
            self._look_for_a_pooler(connection)
        except psycopg.Error as error:
            raise StoreUnavailable(
                f"PostgreSQL at {place} cannot be reached: {self._said(error)}"
            ) from None
        adapt(connection)
        return connection

    def _look_for_a_pooler(self, connection: psycopg.Connection[Any]) -> None:
        """A pooler invents the number under which a session can be cancelled, since the server's
        process behind it may be another one each time.  Then nothing may be kept in a session."""
        row = connection.execute("SELECT pg_backend_pid()").fetchone()
        self.pid = row[0] if row else 0
        self.pooled = self.pid != connection.info.backend_pid
        if self.prepares:
            connection.prepare_threshold = PREPARE_AFTER

    @property
    def prepares(self) -> bool:
        """Whether statements are prepared once and called by name."""
        return self._prepare == "yes" or (self._prepare == "auto" and not self.pooled)

    def wire(self, connection: psycopg.Connection[Any]) -> Wire:
        """The short way to the server over ``connection``, which is for commits from now on."""
        if self._wire is None or self._wire.connection is not connection:
            if self.prepares and not self.pooled:
                connection.execute(PLAN_ONCE)
            self._wire = Wire(connection, prepare=self.prepares)
        return self._wire

    def fresh(self) -> psycopg.Connection[Any]:
        """A connection that is certainly not inside an earlier transaction."""
        connection = self.connected()
        if _disturbed(connection):
            self.rollback()
            connection = self.connected()
        return connection

    def rollback(self) -> None:
        """End whatever transaction is open, with its connection if need be."""
        connection = self.connection
        if connection is None:
            return
        try:
            if not (connection.broken or connection.closed):
                connection.execute("ROLLBACK")
                return
        except psycopg.Error:
            pass
        self.hang_up()

    def hang_up(self) -> None:
        """Close the connection; the next use makes a new one."""
        if self.connection is not None:
            with suppress(psycopg.Error):
                self.connection.close()
        self.connection = None

    def reading(self, use: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Read, once more on a new connection if the old one turns out to be gone."""
        try:
            with self.translating():
                return use(self.connected())
        except StoreUnavailable:
            if self.connection is not None:
                raise
        with self.translating():
            return use(self.connected())

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Raise the client library's errors as ours."""
        try:
            yield
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            self._drop_if_broken()
            raise StoreUnavailable(
                f"PostgreSQL at {self._location} did not answer: {self._said(error)}"
            ) from error
        except psycopg.Error as error:
            self._drop_if_broken()
            raise StoreError(
                f"PostgreSQL at {self._location} refused: {self._said(error)}"
            ) from error

    def _drop_if_broken(self) -> None:
        connection = self.connection
        if connection is not None and (connection.broken or connection.closed):
            self.hang_up()

    def _said(self, error: BaseException) -> str:
        """The server's words, without a password that may stand in them."""
        said = " ".join(str(error).split()) or type(error).__name__
        password = self._location.password
        return said.replace(password, "***") if password else said


def _disturbed(connection: psycopg.Connection[Any]) -> bool:
    """Whether the server has hung up, or a transaction of ours was interrupted half way.

    Whatever else has arrived unasked is read and dropped, so that it answers nothing.
    """
    if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
        return True
    try:
        connection.pgconn.consume_input()
        # A server that shuts down says so first: only what is read after its words is the end.
        connection.pgconn.consume_input()
        connection.pgconn.is_busy()
    except psycopg.Error:
        return True
    return bool(connection.broken)
