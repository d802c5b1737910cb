"""Strike at one statement of an SQLite store: before it runs, or after it has run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perkey.store.backends.sqlite import SqliteBackend
from perkey.stores import Store

BEFORE, AFTER = "before", "after"


def disk_error() -> Exception:
    """What SQLite raises when the disk failed."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = 10
    return error


class Strike:
    """Raises ``make()`` once, at the statement number ``at``, ``when`` it begins or has ended."""

    def __init__(self, at: int, when: str, make: Callable[[], BaseException]) -> None:
        self.at = at
        self.when = when
        self.make = make
        self.count = 0
        self.statements: list[str] = []
        self.fell: str | None = None
        self.then: Callable[[], None] = lambda: None

    def wrap(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def struck(sql: str, *parameters: Any) -> Any:
            place, self.count = self.count, self.count + 1
            self.statements.append(sql)
            if place == self.at and self.when == BEFORE:
                self._fall(sql)
            result = run(sql, *parameters)
            if place == self.at and self.when == AFTER:
                self._fall(sql)
            return result

        return struck

    def _fall(self, sql: str) -> None:
        self.fell = sql
        self.then()
        raise self.make()


@contextmanager
def striking(store: Store, strike: Strike) -> Iterator[Strike]:
    """Let ``strike`` fall on the store's writing connection."""
    backend = store.backend
    assert isinstance(backend, SqliteBackend)
    run = backend._run
    backend._run = strike.wrap(run)
    try:
        yield strike
    finally:
        backend._run = run


def url(folder: Path, options: str = "") -> str:
    """The URL of a store in ``folder``; flushing is no part of what most tests look at."""
    return f"sqlite:///{folder}/work.db{options or '?synchronous=OFF'}"
