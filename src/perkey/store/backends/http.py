"""Records behind a perkey server: ``http://host:8420`` is one more store.

Everything is decided here, on the heads that the server tells; the server commits on the
condition that none of them has moved.  So a process elsewhere needs a token and no database
credentials, and nothing but the standard library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perkey.clock import Clock
from perkey.errors import Forbidden, UsageError
from perkey.store.abc import Backend
from perkey.store.backends import http_wire as wire
from perkey.store.backends.http_client import OPTIONS, HttpClient
from perkey.store.backends.optimistic import Optimistic
from perkey.store.evaluate import Batch
from perkey.store.keys import Key
from perkey.store.limits import Limits
from perkey.store.record import Page, Record, Walk, op_of
from perkey.store.transaction import Outcome
from perkey.store.url import Location


class HttpBackend:
    """One kept connection to one server.  The reader is a second one of the same kind."""

    name = "http"
    commit_records: int | None = None
    cheap_turns = True
    guesses = True
    blocking = True
    time_source = "store"

    def __init__(self, location: Location, limits: Limits, clock: Clock) -> None:
        self.limits = limits
        self._location = location
        self._clock = clock
        self._client = HttpClient(location, limits, clock)
        try:
            self._about = self._client.ask("GET", "", None, wire.About)
        except BaseException:
            self._client.close()
            raise
        keys = min(limits.transaction_keys, self._about.transaction_keys)
        self.limits = replace(limits, transaction_keys=keys)
        self.atomic_keys: int | None = self._about.atomic_keys
        self.several_versions = self.atomic_keys != 1
        self.durability = f"the server's: {self._about.durability}"
        self._latest = 0
        self._restoring = False
        self._optimistic = Optimistic(self, limits, clock)

    def now_ms(self) -> int:
        return self.look([])[1]

    # ------------------------------------------------------------------------ writing

    def apply(self, batch: Batch) -> list[Outcome]:
        # The server signs what it is given.  So do we, or callers would be told another author.
        for transaction in batch.transactions:
            transaction.by = wire.author(self._about.by, transaction.by)
        return self._optimistic.apply(batch)

    def look(self, keys: Sequence[Key]) -> tuple[list[Record | None], int]:
        looked = self._client.ask("POST", "/look", wire.Look([*keys]), wire.Looked)
        # Never below what it was before, also when another replica answers.
        self._latest = max(self._latest, looked.now)
        return looked.records, self._latest

    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        marks: dict[str, wire.Mark] = {
            str(key): None if head is None else (head.version, head.op)
            for key, head in heads.items()
        }
        # The server gives up before we do, so that we are told and need not guess.
        timeout = self._client.timeout * 0.8
        question = wire.Commit(marks, [*writes], timeout, self._restoring)
        return self._client.once("POST", "/commit", question, wire.Committed).landed

    def find_op(self, key: str, version: int) -> str | None:
        return op_of(self.history(key, version - 1, 1), version)

    def restoring(self) -> None:
        if not self._about.as_they_are:
            raise Forbidden(
                f"the server at {self._client.place} lets only a token with the role admin that "
                f"reaches every key restore records as they were, and this one is "
                f"{self._about.by!r}; nothing was written"
            )
        self._restoring = True

    def forget(self, key: Key) -> None:
        """Nothing: an own server is not probed, so there are no scratch records."""

    # ------------------------------------------------------------------------ reading

    def read(self, keys: Sequence[Key]) -> list[Record | None]:
        return self.look(keys)[0]

    def scan(self, prefix: str, after: str, limit: int) -> list[Record]:
        found: list[Record] = []
        while len(found) < limit:
            asked = min(wire.MOST, limit - len(found))
            question = wire.Scan(prefix, found[-1].key if found else after, asked)
            page = self._client.ask("POST", "/scan", question, wire.Records).records
            found += page
            if len(page) < asked:
                break
        return found

    def history(self, key: str, after: int, limit: int) -> list[Record]:
        found: list[Record] = []
        while len(found) < limit:
            asked = min(wire.MOST, limit - len(found))
            question = wire.History(str(key), found[-1].version if found else after, asked)
            page = self._client.ask("POST", "/history", question, wire.Records).records
            found += page
            if len(page) < asked:
                break
        return found

    def changes(self, prefix: str, cursor: str, limit: int) -> Page:
        question = wire.Changes(prefix, cursor, min(limit, wire.MOST))
        return self._client.ask("POST", "/changes", question, Page)

    def cursor(self, prefix: str) -> str:
        return self._client.ask("POST", "/cursor", wire.CursorOf(prefix), wire.Cursor).cursor

    def walk(self, cursor: str, limit: int) -> Walk:
        return self._client.ask("POST", "/walk", wire.WalkFrom(cursor, min(limit, wire.MOST)), Walk)

    def reader(self) -> Backend | None:
        return HttpBackend(self._location, self.limits, self._clock)

    def describe(self) -> dict[str, str]:
        about = self._client.ask("GET", "", None, wire.About)
        facts = {"server": self._client.place, "store": about.backend}
        if about.by:
            facts["token of"] = about.by
        return facts | {f"store's {name}": value for name, value in about.facts.items()}

    def concerns(self) -> list[str]:
        found = [*self._about.concerns]
        local = self._location.host in ("localhost", "127.0.0.1", "::1")
        if self._client.identified and not self._client.secure and not local:
            found.append(
                "the token crosses the network as it is, and whoever reads it can write; put a "
                "reverse proxy with TLS before the server and use https://"
            )
        return found

    def close(self) -> None:
        self._client.close()


def open_backend(location: Location, limits: Limits, clock: Clock) -> Backend:
    """``http://[token:TOKEN@]host[:port][/mount]``, ``https://`` with TLS."""
    location.check_options(OPTIONS)
    if not location.host:
        raise UsageError(f"expected a host, as in {location.scheme}://127.0.0.1:8420, found none")
    return HttpBackend(location, limits, clock)
