"""A turn for whoever lost several times, across processes.

A bare compare-and-swap loop starves the slow: whoever just won is already back with a fresh
head while the loser still pauses.  So a process that lost twice writes a *turn*: one record
that names the keys it wants and its op.  Everybody who is about to write one of them sees it
with the heads and holds back until that op is in them, or until the turn has stood for too
long.  Only fairness rests on this: a turn that is lost, ignored or late costs a retry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol
from zlib import crc32

import msgspec

from perkey.clock import Clock
from perkey.errors import OutcomeUnknown, StoreError
from perkey.store.keys import TURNS, Key
from perkey.store.record import Record, following, has_op

LOSSES = 2
"""After how many lost attempts a turn is asked for."""
STRIDE = 8
"""Where looking costs something: how many commits go by between two looks while nobody else
seems to write."""
BUSY_S = 1.0
"""For how long after a trace of another process every look includes the turn."""
PROCESS = 16
"""How many characters of an op name its process."""
PATIENCE = 12
"""How many times a store's usual answer a turn stands, at least."""
MOST_KEYS = 64


class Turn(msgspec.Struct, frozen=True):
    """The value of the turn's record."""

    op: str
    keys: list[int]
    """A checksum for each key that is wanted; empty: all keys."""


class Writer(Protocol):
    """The part of a port that a turn needs."""

    cheap_turns: bool

    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        """``Port.commit``."""


_decoder = msgspec.json.Decoder(Turn)
_encoder = msgspec.json.Encoder()


class Turns:
    """This process's view of the turn of one store."""

    def __init__(self, port: Writer, clock: Clock, longest: float) -> None:
        self.key = TURNS
        self.latency = 0.001
        """Seconds that a commit has taken of late."""
        self._port = port
        self._clock = clock
        self._longest = longest
        self._mine = ""
        self._seen = ""
        self._since = 0.0
        self._commits = 0
        self._busy_until = 0.0

    def took(self, seconds: float) -> None:
        """A commit landed after ``seconds``."""
        self.latency += (seconds - self.latency) / 8
        self._commits += 1

    def asks(self, lost: int) -> bool:
        """Whether the turn should be read with the heads."""
        if self._port.cheap_turns or lost > 0 or self._commits % STRIDE == STRIDE - 1:
            return True
        return self._clock.monotonic() < self._busy_until

    def saw(self, heads: Mapping[Key, Record | None], op: str) -> None:
        """Learn from heads whether other processes write them too; ``op`` is our own."""
        for head in heads.values():
            if head is not None and head.op[:PROCESS] != op[:PROCESS]:
                self._busy_until = self._clock.monotonic() + BUSY_S
                return

    def due(self, lost: int, op: str, record: Record | None) -> bool:
        """Whether ``op``, which lost this often, should ask for a turn and has none yet."""
        return lost >= LOSSES and (record is None or record.op != op)

    def blocks(self, record: Record | None, heads: Mapping[Key, Record | None]) -> bool:
        """Whether somebody else's turn holds on one of these keys."""
        if record is None or record.body is None or record.op == self._mine:
            return False
        now = self._clock.monotonic()
        if record.op != self._seen:
            self._seen, self._since = record.op, now
        if now - self._since > max(self._longest, PATIENCE * self.latency):
            return False
        turn = _decoder.decode(record.body)
        wanted = [key for key in heads if not turn.keys or _sum(key) in turn.keys]
        return bool(wanted) and not any(_has(heads[key], turn.op) for key in wanted)

    def pause(self) -> None:
        """Wait about as long as the other's commit takes."""
        self._clock.sleep(self.latency * (0.5 + self._clock.random()))

    def take(self, record: Record | None, op: str, keys: Sequence[Key]) -> None:
        """Ask for the turn after ``record``; whether it was granted shows in the next look."""
        self._mine = op
        sums = [] if len(keys) > MOST_KEYS else [_sum(key) for key in keys]
        version, ops, fence = following(record)
        body = _encoder.encode(Turn(op, sums))
        turn = Record(TURNS, version, body, "", 0, op, ops, fence, version - 1)
        try:
            self._port.commit({TURNS: record}, [turn])
        except (StoreError, OutcomeUnknown):
            return  # only a courtesy: the transaction itself is tried whatever became of it


def _sum(key: str) -> int:
    return crc32(key.encode())


def _has(head: Record | None, op: str) -> bool:
    return head is not None and has_op(head, op)
