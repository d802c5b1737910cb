"""Stores that accept conditions and ignore them are refused."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import pytest

from perkey.errors import BackendNotConditional, StoreUnavailable
from perkey.store.backends.probe import RACERS, probe
from perkey.store.keys import Key
from perkey.store.record import Record
from tests.unit.manual_clock import ManualClock
from tests.unit.store.ports import MemoryPort


class Locked(MemoryPort):
    """Correct from several threads."""

    lock = threading.Lock()
    closed = 0

    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        with self.lock:
            return super().commit(heads, writes)

    def close(self) -> None:
        self.closed += 1


class IgnoresAll(MemoryPort):
    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        return super().commit({}, writes)


class IgnoresMatch(MemoryPort):
    """Creates are conditional, replacements are not."""

    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        return super().commit({k: head for k, head in heads.items() if head is None}, writes)


class IgnoresCreate(MemoryPort):
    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        return super().commit({k: head for k, head in heads.items() if head}, writes)


class ChecksThenWrites(MemoryPort):
    """In turn it is right; racers all check before the first of them writes."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Barrier(RACERS)
        self.in_turn = 7

    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        if self.in_turn:
            self.in_turn -= 1
            return super().commit(heads, writes)
        fine = all(self.heads.get(key) == head for key, head in heads.items())
        self.gate.wait(60)
        return fine and super().commit({}, writes)


class LosesWrites(MemoryPort):
    """Says yes and keeps nothing."""

    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        return all(self.heads.get(key) == head for key, head in heads.items())


def test_an_honest_store_passes_and_keeps_no_trace() -> None:
    port = Locked()
    probe(port, lambda: port, ManualClock())
    assert port.heads == {}
    assert port.closed == RACERS - 1


@pytest.mark.parametrize("port", [IgnoresAll(), IgnoresMatch(), IgnoresCreate(), LosesWrites()])
def test_a_store_that_ignores_conditions_is_refused(port: MemoryPort) -> None:
    with pytest.raises(BackendNotConditional, match="lost"):
        probe(port, lambda: port, ManualClock())
    assert port.heads == {}


def test_a_store_that_checks_first_and_writes_later_is_refused() -> None:
    port = ChecksThenWrites()
    with pytest.raises(BackendNotConditional, match=f"found {RACERS}"):
        probe(port, lambda: port, ManualClock())


def test_a_racer_that_fails_is_no_verdict() -> None:
    port = Locked()
    port.faults.extend([port.fine] * 7 + [port.lose_request])
    with pytest.raises(StoreUnavailable):
        probe(port, lambda: port, ManualClock())
