"""An etcd in memory that speaks the same bytes, with all its old revisions until compacted."""

from __future__ import annotations

import threading
from collections.abc import Callable

from perkey.clock import SYSTEM, Clock
from perkey.errors import LimitExceeded
from perkey.store.backends import etcd_messages as messages
from perkey.store.backends.etcd import EtcdBackend
from perkey.store.backends.etcd_client import Compacted
from perkey.store.backends.port import NothingDone
from perkey.store.limits import Limits
from perkey.store.url import parse

Fields = dict[int, list[int | bytes]]


def taken_apart(data: bytes) -> Fields:
    """The fields of a message by number."""
    found: Fields = {}
    for number, value in messages._fields(data):
        found.setdefault(number, []).append(value)
    return found


def text(fields: Fields, number: int) -> bytes:
    value = fields.get(number, [b""])[0]
    assert isinstance(value, bytes)
    return value


def number(fields: Fields, name: int) -> int:
    value = fields.get(name, [0])[0]
    assert isinstance(value, int)
    return value


class FakeEtcd:
    """The cluster.  ``before`` runs ahead of each request and may raise or write."""

    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 0
        self.rows: dict[bytes, list[tuple[int, bytes | None]]] = {}
        """Each key's values by revision; None where it was removed."""
        self.requests: list[str] = []
        self._lock = threading.Lock()
        self.before: Callable[[str], None] = lambda path: None
        self.after: Callable[[str], None] = lambda path: None
        self.clock_ms: int | None = None

    def call(self, path: str, request: bytes) -> bytes:
        self.requests.append(path)
        self.before(path)
        fields = taken_apart(request)
        with self._lock:  # one request after the other, as the server does
            answer = {
                messages.RANGE: self._range,
                messages.TXN: self._txn,
                messages.DELETE: self._delete,
                messages.STATUS: lambda fields: messages._text(2, b"3.5.1"),
            }[path](fields)
        self.after(path)
        return answer

    def compact(self) -> None:
        """Forget all that was overwritten or removed."""
        self.compacted = self.revision
        for key, row in list(self.rows.items()):
            self.rows[key] = [each for each in row[-1:] if each[1] is not None]

    def live(self) -> dict[bytes, bytes]:
        """What is there now."""
        now = ((key, row[-1][1]) for key, row in self.rows.items() if row)
        return {key: value for key, value in now if value is not None}

    # --------------------------------------------------------------------------- requests

    def _header(self) -> bytes:
        return messages._text(1, messages._number(3, self.revision))

    def _within(self, fields: Fields) -> list[bytes]:
        start, end = text(fields, 1), text(fields, 2)
        if not end:
            return [start] if start in self.rows else []
        return sorted(key for key in self.rows if start <= key < end)

    def _range(self, fields: Fields) -> bytes:
        at = number(fields, 4) or self.revision
        if at < self.compacted:
            raise Compacted(f"revision {at} is gone")
        found = []
        for key in self._within(fields):
            rows = [each for each in self.rows[key] if each[0] <= at]
            if rows and rows[-1][1] is not None and rows[-1][0] >= number(fields, 10):
                found.append((key, *rows[-1]))
        limit = number(fields, 3) or len(found)
        out = self._header()
        for key, mod, value in found[:limit]:
            assert value is not None
            stored = messages._text(1, key) + messages._number(3, mod)
            stored += b"" if number(fields, 8) else messages._text(5, value)
            out += messages._text(2, stored)
        return out + messages._number(3, len(found) > limit)

    def _mod(self, key: bytes) -> int:
        row = self.rows.get(key, [])
        return row[-1][0] if row and row[-1][1] is not None else 0

    def _txn(self, fields: Fields) -> bytes:
        conditions = [taken_apart(each) for each in fields.get(1, []) if isinstance(each, bytes)]
        operations = [taken_apart(each) for each in fields.get(2, []) if isinstance(each, bytes)]
        if max(len(conditions), len(operations)) > 128:
            raise LimitExceeded("etcdserver: too many operations in txn request")
        for each in conditions:
            assert number(each, 2) == 2, "a comparison of mod revisions"
            assert 6 in each, "the revision to compare with"
        if any(self._mod(text(each, 3)) != number(each, 6) for each in conditions):
            return self._header()
        answers = b""
        if any({2, 3} & set(each) for each in operations):
            self.revision += 1
            self._check_doubles(operations)
        for each in operations:
            ((kind, (inner,)),) = each.items()
            assert isinstance(inner, bytes)
            act = {1: self._range, 2: self._put, 3: self._remove}[kind]
            answers += messages._text(3, messages._text(kind, act(taken_apart(inner))))
        return self._header() + messages._number(2, 1) + answers

    def _check_doubles(self, operations: list[Fields]) -> None:
        """The server refuses a transaction that changes one key twice."""
        puts = [text(taken_apart(each[2][0]), 1) for each in operations if 2 in each]  # type: ignore[arg-type]
        assert len(puts) == len(set(puts)), "duplicate key given in txn request"
        for each in operations:
            if 3 in each:
                some = taken_apart(each[3][0])  # type: ignore[arg-type]
                assert not [key for key in puts if text(some, 1) <= key < text(some, 2)]

    def _put(self, fields: Fields) -> bytes:
        self.rows.setdefault(text(fields, 1), []).append((self.revision, text(fields, 2)))
        return self._header()

    def _remove(self, fields: Fields) -> bytes:
        for key in self._within(fields):
            if self._mod(key):
                self.rows[key].append((self.revision, None))
        return self._header()

    def _delete(self, fields: Fields) -> bytes:
        self.revision += 1
        return self._remove(fields)


class FakeWire:
    """One connection to it."""

    place = "fake:2379"

    def __init__(self, cluster: FakeEtcd) -> None:
        self.cluster = cluster
        self.closed = False

    def call(self, path: str, request: bytes) -> bytes:
        return self.cluster.call(path, request)

    def server_ms(self) -> int | None:
        return self.cluster.clock_ms

    def close(self) -> None:
        self.closed = True


class FakedBackend(EtcdBackend):
    """The backend as it is, on a fake cluster."""

    def __init__(self, cluster: FakeEtcd, limits: Limits, clock: Clock = SYSTEM) -> None:
        super().__init__(parse("etcd://fake"), limits, clock)
        self.cluster = cluster
        self._wire = FakeWire(cluster)  # type: ignore[assignment]

    def _another(self) -> EtcdBackend:
        return FakedBackend(self.cluster, self.limits, self._clock)


def refuse(path: str) -> None:
    """For ``before``: the server is not there."""
    raise NothingDone("etcd at fake:2379 cannot be reached")
