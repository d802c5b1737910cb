"""The two round trips of a commit, close to libpq.

The client library waits several times for a pipeline of statements and looks at every value; here
all statements of a trip are sent at once, the answers are waited for once, and they are binary.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult
from psycopg.waiting import Ready, Wait

Ask = tuple[bytes, Sequence[bytes | None]]
"""A statement with ``$1``, ``$2`` ..., and its parameters in binary; None is NULL."""
_SHORT = (b"BEGIN", b"COMMIT", b"ROLLBACK")
"""What is not worth preparing."""
_FAILED = ExecStatus.FATAL_ERROR
_SYNC = ExecStatus.PIPELINE_SYNC
_ABORTED = ExecStatus.PIPELINE_ABORTED


class Wire:
    """One connection's statements.  Used by one thread at a time."""

    def __init__(self, connection: psycopg.Connection[Any], *, prepare: bool) -> None:
        """``prepare=False`` where the connection is not the same server session each time."""
        self.connection = connection
        self._prepare = prepare
        self._known: dict[bytes, bytes] = {}
        """Statement -> the name under which this session has it prepared."""

    def ask(self, *asks: Ask, then: Ask | None = None) -> list[PGresult]:
        """All of these in one round trip; an answer each.

        Raises what the server says to the first one that it refuses; those behind it were not
        run.  After any other error the connection must be closed.  ``then`` goes last, and whether
        it is refused is of no importance.
        """
        counting = len(asks)
        if then is not None:
            asks = (*asks, then)
        if self._prepare:
            for statement, _ in asks:
                if statement not in self._known and statement not in _SHORT:
                    self._get_ready(statement)
        pgconn = self.connection.pgconn
        pgconn.enter_pipeline_mode()
        for statement, parameters in asks:
            formats = [1] * len(parameters)
            name = self._known.get(statement)
            if name is None:
                pgconn.send_query_params(statement, parameters, None, formats, 1)
            else:
                pgconn.send_query_prepared(name, parameters, formats, 1)
        pgconn.pipeline_sync()
        results = self.connection.wait(_answers(pgconn))
        pgconn.exit_pipeline_mode()
        for result in results[:counting]:
            if result.status in (_FAILED, _ABORTED):
                raise _error(result)
        return results[:counting]

    def _get_ready(self, statement: bytes) -> None:
        name = b"perkey_%d" % len(self._known)
        result = self.connection.pgconn.prepare(name, statement)
        if result.status == _FAILED:
            raise _error(result)
        self._known[statement] = name


def _error(result: PGresult) -> psycopg.Error:
    """What a refusal says; without the server's code for it, the connection is gone."""
    error = error_from_result(result)
    return error if error.sqlstate else psycopg.OperationalError(str(error))


def _answers(pgconn: Any) -> Generator[Wait, Ready | int, list[PGresult]]:
    """Send the rest, and read up to the end of the trip."""
    while pgconn.flush():
        if (yield Wait.RW) & Ready.R:
            pgconn.consume_input()
    found: list[PGresult] = []
    while True:
        while pgconn.is_busy():
            yield Wait.R
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:  # between the answers of two statements
            continue
        if result.status == _SYNC:
            return found
        found.append(result)
