"""The messages of a NATS stream as records: heads, pages of a subject, histories and changes."""

from __future__ import annotations

import json
from typing import NamedTuple

from nats.aio.msg import Msg

from perkey.errors import StoreUnavailable
from perkey.store.backends import nats_client, nats_names
from perkey.store.backends.envelope import unpack
from perkey.store.backends.nats_client import Wire
from perkey.store.keys import keeps_history
from perkey.store.record import Page, Record

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
BACK = "Perkey-Back"
"""How many messages before this one, in the same batch, the version before it stands."""
PAGE_BYTES = 8 * 1024 * 1024


class Stored(NamedTuple):
    """A message of a key's subject."""

    sequence: int
    record: Record
    before: int
    """The sequence of the version before this one; 0 where there was none."""


class Reader:
    """Reads one stream from its own store, without its queue of commands."""

    def __init__(self, wire: Wire, stream: str) -> None:
        self._wire = wire
        self._stream = stream

    def ask(self, target: str, body: bytes) -> list[Msg]:
        """The messages that answer one request, the status that ends them included."""
        subject = f"$JS.API.DIRECT.GET.{self._stream}{target}"
        replies = self._wire.ask_many(subject, body) if body else [self._wire.ask(subject)]
        status = nats_client.status(replies[-1])
        if status not in ("", "204", "404"):
            said = (replies[-1].headers or {}).get("Description", status)
            raise StoreUnavailable(f"NATS at {self._wire.place} refused: {said}")
        return replies

    def history(self, key: str, after: int, limit: int) -> list[Record]:
        if not keeps_history(key):
            return []
        subject = nats_names.subject(self._stream, key)
        sequence = self._find(subject, after + 1)
        found: list[Record] = []
        more = sequence > 0
        while more and len(found) < limit:
            page, sequence, more = self.page(subject, sequence, limit - len(found))
            found += [each.record for each in page]
            sequence += 1
        return found

    def _find(self, subject: str, version: int) -> int:
        """The sequence of the first kept version from ``version`` on; 0 where there is none."""
        first, _, _ = self.page(subject, 1, 1)
        if not first or first[0].record.version >= version:
            return first[0].sequence if first else 0
        reply = self.ask(f".{subject}", b"")[0]
        low, (high, head) = first[0].sequence, read(reply)
        if head.version < version:
            return 0
        while high - low > 1:
            middle = (low + high) // 2
            page, _, _ = self.page(subject, middle, 1)
            if page and page[0].record.version < version:
                low = page[0].sequence
            else:
                high = middle
        return high

    def page(self, subject: str, sequence: int, limit: int) -> tuple[list[Stored], int, bool]:
        """Records of a subject from ``sequence`` on, the last sequence that was looked at, and
        whether more follow."""
        body = {"seq": sequence, "batch": limit, "max_bytes": PAGE_BYTES}
        body_bytes = json.dumps({**body, "next_by_subj": subject}).encode()
        *replies, end = self.ask("", body_bytes)
        last = int((replies[-1].headers or {})["Nats-Sequence"]) if replies else sequence - 1
        found = [Stored(*read(reply), _predecessor(reply)) for reply in replies if reply.data]
        return found, last, int((end.headers or {}).get("Nats-Num-Pending", 0)) > 0

    def changes(self, prefix: str, seen: int, limit: int) -> Page:
        """Up to ``limit`` kept versions under ``prefix`` behind the sequence ``seen``."""
        subject = nats_names.under(self._stream, prefix)
        records: list[Record] = []
        cursors: list[str] = []
        met: set[str] = set()
        gap = False
        page, last, more = self.page(subject, seen + 1, limit)
        for each in page:
            key = each.record.key
            if not key.startswith(prefix) or not keeps_history(key):
                continue
            # Where the version before came after the cursor and was not met, it is gone.
            gap = gap or (key not in met and each.before > seen)
            met.add(key)
            records.append(each.record)
            cursors.append(str(each.sequence))
        return Page(records, cursors, str(last), gap, live=not more)


def read(reply: Msg) -> tuple[int, Record]:
    """The sequence and the record of a message."""
    return int((reply.headers or {})["Nats-Sequence"]), unpack(reply.data)


def _predecessor(reply: Msg) -> int:
    headers = reply.headers or {}
    if BACK in headers:
        return int(headers["Nats-Sequence"]) - int(headers[BACK])
    return int(headers.get(EXPECTED, 0))
