"""No version is lost or written twice, wherever a writer stops and whoever comes between.

Heads are full after two versions here, so every few commits write a run of old versions first.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations

import pytest

from perkey.errors import StoreCorrupt, StoreUnavailable
from perkey.store.backends import object_frames
from perkey.store.backends.object_frames import Frame
from perkey.store.backends.objects import ObjectsBackend, Seen
from perkey.store.backends.port import NothingDone
from perkey.store.keys import Key
from perkey.store.record import Record
from perkey.testing.conformance.bench import batch_of, commit, done, held, settle
from perkey.testing.conformance.doubts import adding
from tests.unit.objects.buckets import MemoryBucket, backend, lost

KEY = Key("d/a")


@pytest.fixture(autouse=True)
def short_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_frames, "TAIL_VERSIONS", 2)


def add(store: ObjectsBackend) -> int:
    """One increment; the value that its caller is told."""
    (outcome,) = commit(store, adding(KEY))
    return int(done(outcome).result)


def check(bucket: MemoryBucket, least: int, most: int | None = None) -> int:
    """Every version up to the head is in history and holds its own number; returns the head's."""
    fresh = backend(bucket)
    found = fresh.history(KEY, 0, 1_000)
    version = held(fresh, KEY).version if found else 0
    assert [(each.version, each.body) for each in found] == [
        (n, b"%d" % n) for n in range(1, version + 1)
    ]
    assert least <= version <= (least if most is None else most)
    return version


# --------------------------------------------------------------------------- the exploration


def every_crash(kind: type[ObjectsBackend]) -> int:
    """Stop a writer before each of its requests; what is there then must do for the next."""
    bucket = MemoryBucket()
    writer = backend(bucket, kind)
    acknowledged = 0
    stops: list[tuple[int, MemoryBucket]] = []

    def stop(request: str, name: str) -> None:
        then = MemoryBucket()
        then.objects.update(bucket.objects)
        stops.append((acknowledged, then))

    writer._bucket.before = stop  # type: ignore[attr-defined]
    for _ in range(9):
        acknowledged = add(writer)
    for before, then in stops:
        version = check(then, before, before + 1)
        other = backend(then)
        assert [add(other) for _ in range(4)] == list(range(version + 1, version + 5))
        check(then, version + 4)
    return len(stops)


def every_overtaking(kind: type[ObjectsBackend], start: int, others: int = 3) -> int:
    """Others commit between any two requests, at two places at most, of one writer's commit."""
    places = 0
    runs = 0
    for count in (1, 2):
        for chosen in combinations(range(40), count):
            if chosen[-1] > places + 12:
                break
            places = max(places, one_overtaking(kind, start, chosen, others))
            runs += 1
    return runs


def one_overtaking(
    kind: type[ObjectsBackend], start: int, chosen: Sequence[int], others: int
) -> int:
    bucket = MemoryBucket()
    for _ in range(start):
        add(backend(bucket))
    writer, other = backend(bucket, kind), backend(bucket)
    told: list[int] = []
    asked = 0

    def overtake(request: str, name: str) -> None:
        nonlocal asked
        if asked in chosen:
            told.extend(add(other) for _ in range(others))
        asked += 1

    writer._bucket.before = overtake  # type: ignore[attr-defined]
    told.append(add(writer))
    writer._bucket.before = lambda request, name: None  # type: ignore[attr-defined]
    assert sorted(told) == list(range(start + 1, start + len(told) + 1))
    check(bucket, start + len(told))
    return asked


def test_a_writer_may_stop_anywhere() -> None:
    assert every_crash(ObjectsBackend) > 20


@pytest.mark.parametrize("start", [0, 1, 2, 3, 4])
def test_others_may_come_between_any_two_requests(start: int) -> None:
    assert every_overtaking(ObjectsBackend, start) > 20


# --------------------------------------------------------------------------- planted mutants


class KeepsAfterwards(ObjectsBackend):
    """Replaces the head first, and keeps the old versions then."""

    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        kept: list[Frame] = []
        self._set_aside = kept.append  # type: ignore[method-assign]
        landed = super().commit(heads, writes)
        del self._set_aside
        for before in kept:
            self._set_aside(before)
        return landed


class ForgetsToKeep(ObjectsBackend):
    def _set_aside(self, before: Frame) -> None:
        pass


class LooksAgain(ObjectsBackend):
    """Takes the condition from a second look, just before it writes."""

    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        for key, seen in list(self._seen.items()):
            now = self._head(key)
            assert now is not None
            self._seen[key] = Seen(now.tag, seen.frame)
        return super().commit(heads, writes)


class Overwrites(ObjectsBackend):
    """No condition at all."""

    @contextmanager
    def _unconditional(self) -> Iterator[None]:
        put = self._bucket.put
        self._bucket.put = lambda name, data, condition: put(name, data, None)  # type: ignore[method-assign]
        try:
            yield
        finally:
            del self._bucket.put

    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        with self._unconditional():
            return super().commit(heads, writes)


@pytest.mark.parametrize("mutant", [KeepsAfterwards, ForgetsToKeep])
def test_a_crash_shows_a_history_that_comes_late(mutant: type[ObjectsBackend]) -> None:
    with pytest.raises((AssertionError, StoreCorrupt)):
        every_crash(mutant)


@pytest.mark.parametrize("mutant", [LooksAgain, Overwrites])
def test_overtaking_shows_a_condition_that_is_not_the_looks(mutant: type[ObjectsBackend]) -> None:
    with pytest.raises((AssertionError, StoreCorrupt)):
        every_overtaking(mutant, start=1)


# ------------------------------------------------------------------------------ at random


class Chaos:
    """Writers that come between each other's requests; replies and requests get lost or late."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.bucket = MemoryBucket()
        self.late: list[Callable[[], object]] = []
        self.depth = 0
        self.acknowledged: list[int] = []
        self.writers = [self._writer() for _ in range(3)]

    def _writer(self) -> ObjectsBackend:
        writer = backend(self.bucket, doubt_attempts=200, backoff_s=1e-6)
        inner = writer._bucket
        assert isinstance(inner, MemoryBucket)
        put = inner.put
        inner.before = self.between

        def faulty(name: str, data: bytes, condition: str | None) -> bool:
            fate = self.choose.random()
            if fate < 0.1:
                inner.after_put.append(lost)
            elif fate < 0.2:
                raise StoreUnavailable("the request was lost")
            elif fate < 0.3:
                other = self.bucket.another()
                self.late.append(lambda: other.put(name, data, condition))
                raise StoreUnavailable("no reply yet")
            try:
                return put(name, data, condition)
            finally:
                inner.after_put.clear()

        inner.put = faulty  # type: ignore[method-assign]
        return writer

    def between(self, request: str, name: str) -> None:
        while self.late and self.choose.random() < 0.3:
            self.late.pop(self.choose.randrange(len(self.late)))()
        if self.depth < 2 and self.choose.random() < 0.15:
            self.add(self.choose.randrange(3))

    def add(self, who: int) -> None:
        self.depth += 1
        writer = self.writers[who] if self.depth == 1 else self._writer()
        told = self._told(writer, self.choose.randrange(1, 4))
        assert told == list(range(told[0], told[0] + len(told)))
        self.acknowledged += told
        self.depth -= 1

    def _told(self, writer: ObjectsBackend, count: int) -> list[int]:
        while True:
            batch = batch_of(writer, *(adding(KEY) for _ in range(count)))
            try:
                outcomes = settle(writer, batch, writer.apply)
            except NothingDone:  # its word that all of it may be asked for again
                continue
            return [int(done(each).result) for each in outcomes]


@pytest.mark.parametrize("seed", range(40))
def test_what_is_acknowledged_happened_once(seed: int) -> None:
    chaos = Chaos(seed)
    for _ in range(25):
        chaos.add(chaos.choose.randrange(3))
    while chaos.late:
        chaos.late.pop()()
    total = len(chaos.acknowledged)
    assert sorted(chaos.acknowledged) == list(range(1, total + 1))
    check(chaos.bucket, total)
