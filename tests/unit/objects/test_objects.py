"""Records as objects: what is asked of the store, what is refused, what retention leaves."""

from __future__ import annotations

import json

import pytest

import perkey
from perkey.errors import (
    BackendNotConditional,
    LimitExceeded,
    NotSupported,
    SchemaMismatch,
    StoreCorrupt,
    StoreUnavailable,
)
from perkey.store.backends import object_frames, object_names, objects
from perkey.store.backends.objects import ObjectsBackend
from perkey.store.backends.port import NothingDone
from perkey.store.keys import Key
from perkey.testing.conformance.bench import commit, held, put, putting, versions
from tests.unit.manual_clock import ManualClock
from tests.unit.objects.buckets import Ignoring, MemoryBucket, backend, lost

KEY = Key("d/a")
HEAD = object_names.head(KEY)


@pytest.fixture
def bucket() -> MemoryBucket:
    return MemoryBucket()


@pytest.fixture
def short_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_frames, "TAIL_VERSIONS", 4)


def asked(store: ObjectsBackend) -> list[str]:
    """The kinds of requests since the last time."""
    requests = store._bucket.requests  # type: ignore[attr-defined]
    kinds = [kind for kind, _ in requests]
    requests.clear()
    return kinds


def runs(bucket: MemoryBucket) -> list[tuple[int, int]]:
    return [object_names.ends(name) for name in sorted(bucket.objects) if name[0] == "v"]


# ----------------------------------------------------------------------------- requests


def test_an_update_reads_once_and_writes_once(bucket: MemoryBucket) -> None:
    store = backend(bucket)
    for n in range(7):  # then it looks whether others wait for their turn
        put(store, KEY, b"%d" % n)
        assert asked(store) == ["get", "put"]
    assert set(bucket.objects) == {HEAD}
    assert versions(store.history(KEY, 0, 99)) == list(range(1, 8))
    assert asked(store) == ["get"]


def test_a_batch_on_one_key_is_one_write(bucket: MemoryBucket) -> None:
    store = backend(bucket)
    commit(store, *(putting(KEY, b"%d" % n) for n in range(50)))
    assert asked(store) == ["get", "put"]
    assert held(store, KEY).version == 50


@pytest.mark.usefixtures("short_heads")
def test_a_full_head_moves_on_first(bucket: MemoryBucket) -> None:
    store = backend(bucket)
    for n in range(4):
        put(store, KEY, b"%d" % n)
    asked(store)
    put(store, KEY, b"4")
    assert asked(store) == ["get", "put", "put", "names"]
    assert runs(bucket) == [(1, 4)]
    assert object_frames.read(bucket.objects[HEAD][0], "").first == 5


def test_long_values_do_not_pile_up_in_the_head(bucket: MemoryBucket) -> None:
    store = backend(bucket)
    for _ in range(5):
        put(store, KEY, b"1" * object_frames.TAIL_BYTES)
    assert len(bucket.objects[HEAD][0]) < object_frames.TAIL_BYTES + 1_000
    assert runs(bucket) == [(n, n) for n in range(1, 5)]


def test_a_batch_too_long_for_one_object_is_cut(
    bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_frames, "OBJECT_BYTES", 100_000)
    store = backend(bucket)
    outcomes = commit(store, *(putting(KEY, b"1" * 15_000) for _ in range(12)))
    assert [each.error for each in outcomes] == [None] * 12
    assert versions(store.history(KEY, 0, 99)) == list(range(1, 13))
    most = store.limits.value_bytes
    assert most == 100_000 - objects.AROUND_BYTES
    (outcome,) = commit(store, putting(KEY, b"1" * most))
    assert outcome.error is None
    (outcome,) = commit(store, putting(KEY, b"1" * (most + 1)))
    assert isinstance(outcome.error, LimitExceeded)


def test_an_idle_watcher_lists_and_reads_nothing(bucket: MemoryBucket) -> None:
    store = backend(bucket)
    for n in range(20):
        put(store, Key(f"d/{n}"), b"1")
    cursor = store.cursor("d/")
    asked(store)
    assert store.changes("d/", cursor, 10).records == []
    assert asked(store) == ["names"]
    put(backend(bucket), Key("d/7"), b"2")
    assert versions(store.changes("d/", cursor, 10).records) == [2]
    assert asked(store).count("get") <= 2


def test_a_scan_reads_no_tombstone_twice(bucket: MemoryBucket) -> None:
    store = backend(bucket)
    for n in range(9):
        put(store, Key(f"d/{n}"), b"1" if n == 4 else None)
    assert len(store.scan("d/", "", 10)) == 1
    asked(store)
    assert [each.key for each in store.scan("d/", "", 10)] == ["d/4"]
    assert asked(store) == ["names", "get"]


def test_what_is_remembered_has_a_limit(
    bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "KNOWN_KEYS", 5)
    store = backend(bucket)
    for n in range(20):
        put(store, Key(f"d/{n:02}"), b"1")
    assert len(store.scan("d/", "", 99)) == 20
    assert len(store._marks) == 5


def test_listings_go_on_behind_a_page(
    bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "PAGE", 3)
    store = backend(bucket)
    keys = [Key(f"d/{n:02}") for n in range(11)]
    keys += [Key("d/" + "x" * 300 + f"{n}") for n in range(4)]
    for key in keys:
        put(store, key, b"1")
    assert [each.key for each in store.scan("d/", "", 99)] == keys
    assert [each.key for each in store.scan("d/", keys[-3], 99)] == keys[-2:]


def test_several_records_are_read_as_of_one_moment(bucket: MemoryBucket) -> None:
    """The other writes the first key, then the second, while both are read."""
    keys = [Key("d/a"), Key("d/b")]
    other = backend(bucket)
    for key in keys:
        put(other, key, b"0")
    store = backend(bucket)
    moves = iter([("get", HEAD, None), ("get", object_names.head("d/b"), keys)])
    turn = next(moves)

    def between(kind: str, name: str) -> None:
        nonlocal turn
        if (kind, name) == turn[:2]:
            for key in turn[2] or ():
                put(other, key, b"1")
            turn = next(moves, ("", "", None))

    store._bucket.before = between  # type: ignore[attr-defined]
    assert [record and record.body for record in store.read(keys)] == [b"1", b"1"]


# ----------------------------------------------------------------------------- retention


@pytest.mark.usefixtures("short_heads")
def test_old_runs_go_by_count(bucket: MemoryBucket) -> None:
    store = backend(bucket, keep_versions=6)
    for n in range(50):
        put(store, KEY, b"%d" % n)
        kept = versions(store.history(KEY, 0, 99))
        assert kept == list(range(max(1, n - 4), n + 2))
    assert len(runs(bucket)) <= 3


@pytest.mark.usefixtures("short_heads")
def test_old_versions_go_by_age(bucket: MemoryBucket) -> None:
    clock = ManualClock()
    bucket.clock = clock
    store = backend(bucket, keep_s=10.0)
    for n in range(30):
        put(store, KEY, b"%d" % n)
        clock.wall += 1_000
        assert versions(store.history(KEY, 0, 99)) == list(range(max(1, n - 9), n + 2))
    assert len(runs(bucket)) <= 4


@pytest.mark.usefixtures("short_heads")
def test_a_late_run_below_the_floor_does_no_harm(bucket: MemoryBucket) -> None:
    store = backend(bucket, keep_versions=4)
    for n in range(5):
        put(store, KEY, b"%d" % n)
    ((name, old),) = [(n, each) for n, each in bucket.objects.items() if n[0] == "v"]
    for n in range(5, 20):
        put(store, KEY, b"%d" % n)
    assert name not in bucket.objects
    bucket.objects[name] = old
    assert versions(store.history(KEY, 0, 99)) == [17, 18, 19, 20]
    for n in range(5):
        put(store, KEY, b"%d" % n)
    assert name not in bucket.objects


@pytest.mark.usefixtures("short_heads")
def test_runs_that_overlap_are_read_once(bucket: MemoryBucket) -> None:
    """A writer with shorter heads kept the same versions, and then lost."""
    store = backend(bucket)
    for n in range(9):
        put(store, KEY, b"%d" % n)
    whole = object_frames.read(bucket.objects[object_names.run(KEY, 1, 4)][0], "")
    part = whole._replace(entries=whole.entries[:2], record=whole.at(2))
    bucket.put(object_names.run(KEY, 1, 2), object_frames.write(part), None)
    for after in range(9):
        found = store.history(KEY, after, 99)
        assert [int(each.body or b"") for each in found] == list(range(after, 9))


@pytest.mark.usefixtures("short_heads")
def test_a_version_that_is_missing_is_told(bucket: MemoryBucket) -> None:
    store = backend(bucket)
    for n in range(9):
        put(store, KEY, b"%d" % n)
    bucket.delete(object_names.run(KEY, 1, 4))
    with pytest.raises(StoreCorrupt, match="missing"):
        store.history(KEY, 0, 99)
    with pytest.raises(StoreCorrupt, match="missing"):
        store.changes("d/", "", 99)
    assert versions(store.history(KEY, 4, 99)) == [5, 6, 7, 8, 9]


# ----------------------------------------------------------------------------- faults


@pytest.mark.usefixtures("short_heads")
def test_a_run_that_cannot_be_kept_stops_the_commit(bucket: MemoryBucket) -> None:
    store = backend(bucket)
    for n in range(4):
        put(store, KEY, b"%d" % n)
    store._bucket.after_put.extend([lost])  # type: ignore[attr-defined]
    assert put(store, KEY, b"4").version == 5
    for n in range(5, 8):
        put(store, KEY, b"%d" % n)
    store._bucket.after_put.extend([lost, lost])  # type: ignore[attr-defined]
    with pytest.raises(NothingDone, match="could not be kept"):
        put(store, KEY, b"8")
    assert held(store, KEY).version == 8
    assert put(store, KEY, b"8").version == 9


@pytest.mark.usefixtures("short_heads")
def test_a_failing_removal_fails_no_commit(bucket: MemoryBucket) -> None:
    store = backend(bucket, keep_versions=5)

    def refuse(kind: str, name: str) -> None:
        if kind == "delete":
            raise StoreUnavailable("not now")

    store._bucket.before = refuse  # type: ignore[attr-defined]
    for n in range(20):
        put(store, KEY, b"%d" % n)
    left = len(runs(bucket))
    store._bucket.before = lambda kind, name: None  # type: ignore[attr-defined]
    for n in range(5):
        put(store, KEY, b"%d" % n)
    assert len(runs(bucket)) < left
    assert versions(store.history(KEY, 0, 99)) == [21, 22, 23, 24, 25]


def test_damage_is_told_and_not_written_over(bucket: MemoryBucket) -> None:
    store = backend(bucket)
    put(store, KEY, b"1")
    bucket.put(HEAD, b"PKO1 not a record", None)
    for act in (lambda: store.read([KEY]), lambda: put(store, KEY, b"2")):
        with pytest.raises(StoreCorrupt, match="damaged"):
            act()
    assert bucket.objects[HEAD][0] == b"PKO1 not a record"


def test_an_object_under_another_name_is_told(bucket: MemoryBucket) -> None:
    store = backend(bucket)
    put(store, KEY, b"1")
    bucket.objects[object_names.head("d/b")] = bucket.objects[HEAD]
    with pytest.raises(StoreCorrupt, match="another record"):
        store.read([Key("d/b")])


# ----------------------------------------------------------------------------- opening


def test_it_is_marked_and_probed(bucket: MemoryBucket) -> None:
    store = backend(bucket)
    store.check()
    assert json.loads(bucket.objects[objects.MARKER][0]) == {"format": 1}
    assert set(bucket.objects) == {objects.MARKER}
    store.check()


def test_a_store_that_ignores_conditions_is_refused() -> None:
    with pytest.raises(BackendNotConditional, match="conditional writes"):
        backend(Ignoring()).check()


@pytest.mark.parametrize(
    ("marker", "error"),
    [(b'{"format": 2}', SchemaMismatch), (b"hello", StoreCorrupt), (b"[]", StoreCorrupt)],
)
def test_another_format_is_refused(
    bucket: MemoryBucket, marker: bytes, error: type[Exception]
) -> None:
    bucket.put(objects.MARKER, marker, None)
    with pytest.raises(error):
        backend(bucket).check()
    assert list(bucket.objects) == [objects.MARKER]


def test_it_commits_one_key(bucket: MemoryBucket) -> None:
    with perkey.Store(backend(bucket)) as store:
        with pytest.raises(NotSupported, match="objects"):
            store.transact(["a", "b"], lambda tx: None)
        assert store.backend.describe()["address"] == "memory"
