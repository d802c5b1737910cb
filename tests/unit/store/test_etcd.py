"""The etcd backend on a fake cluster: layout, cursors, compaction, limits, lost replies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

import perkey
from perkey import Change, Gap, LimitExceeded, NotSupported, Store, StoreUnavailable, Synced
from perkey.store.backends import etcd, etcd_changes
from perkey.store.backends import etcd_messages as messages
from perkey.store.keys import Key
from perkey.store.limits import Limits
from perkey.store.transaction import Tx
from perkey.testing.conformance import CHECKS, check_backend
from perkey.testing.conformance.bench import all_changes, commit, put, putting, transaction
from tests.unit.manual_clock import ManualClock
from tests.unit.store.fake_etcd import FakedBackend, FakeEtcd, refuse

A, B = Key("d/a"), Key("d/b")


@pytest.fixture
def cluster() -> FakeEtcd:
    return FakeEtcd()


@pytest.fixture
def backend(cluster: FakeEtcd) -> FakedBackend:
    return FakedBackend(cluster, Limits())


@pytest.fixture
def store(backend: FakedBackend) -> Iterator[Store]:
    with Store(backend) as store:
        yield store


def filling(keys: Sequence[str], value: object) -> Callable[[Tx], None]:
    """A function that assigns ``value`` to all ``keys``."""

    def fill(tx: Tx) -> None:
        for key in keys:
            tx[key] = value

    return fill


@pytest.mark.parametrize("name", CHECKS)
def test_the_suite_on_the_fake(name: str) -> None:
    cluster = FakeEtcd()
    report = check_backend(lambda limits: FakedBackend(cluster, limits), only=[name])
    (result,) = report.raise_if_failed().results
    assert result.status == "passed"


# ----------------------------------------------------------------------------- the layout


def test_a_commit_is_one_request_with_its_history(cluster: FakeEtcd, backend: FakedBackend) -> None:
    commit(backend, putting(A, b"1"), putting(A, b"2"), putting(B, b"3"))
    assert cluster.requests == [messages.TXN, messages.TXN]  # a look and a commit
    assert cluster.revision == 2
    assert sorted(cluster.live()) == [
        b"perkey/h/d/a",
        b"perkey/h/d/b",
        b"perkey/v/d/a\xff\0\0\0\0\0\0\0\1",
        b"perkey/v/d/a\xff\0\0\0\0\0\0\0\2",
        b"perkey/v/d/b\xff\0\0\0\0\0\0\0\1",
    ]


def test_retention_is_part_of_the_commit(cluster: FakeEtcd) -> None:
    backend = FakedBackend(cluster, Limits(keep_versions=2))
    for n in range(5):
        commit(backend, putting(A, b"%d" % n))
        kept = [key for key in cluster.live() if key.startswith(b"perkey/v/")]
        assert len(kept) == min(n + 1, 2)
    assert cluster.requests.count(messages.DELETE) == 0


def test_retention_by_age_is_no_reason_to_fail(cluster: FakeEtcd) -> None:
    backend = FakedBackend(cluster, Limits(keep_s=1))

    def before(path: str) -> None:
        if path == messages.DELETE:
            raise StoreUnavailable("gone")

    cluster.before = before
    assert put(backend, A, b"1").version == 1
    assert put(backend, A, b"2").version == 2


def test_a_key_that_is_only_read_is_compared(store: Store, backend: FakedBackend) -> None:
    other = FakedBackend(backend.cluster, Limits())
    put(backend, A, b"1")
    runs: list[object] = []

    def copy(tx: Tx) -> None:
        runs.append(tx.get("a"))
        if len(runs) == 1:
            put(other, A, b"2")
        tx["b"] = tx.get("a")

    store.transact(["a", "b"], copy)
    assert (runs, store.get("b").value) == ([1, 2], 2)


# -------------------------------------------------------------------------------- cursors


def test_few_changes_cost_one_request(cluster: FakeEtcd, backend: FakedBackend) -> None:
    for n in range(40):
        put(backend, A, b"%d" % n)
    end = backend.cursor("d/")
    put(backend, A, b"new")
    cluster.requests.clear()
    page = backend.changes("d/", end, 256)
    assert ([each.version for each in page.records], page.live) == ([41], True)
    assert backend.changes("d/", page.cursor, 256).records == []
    assert cluster.requests == [messages.RANGE, messages.RANGE]


@pytest.mark.parametrize("limit", [1, 7, 100, 5_000])
def test_a_long_way_back_is_listed_once(
    cluster: FakeEtcd, backend: FakedBackend, limit: int
) -> None:
    for n in range(100):
        commit(backend, putting(A, b"%d" % n), putting(B, b"%d" % n), putting(B, b"x"))
    pages = -(-300 // limit)
    cluster.requests.clear()
    records, cursors, _, gap = all_changes(backend, "d/", "", limit)
    assert [each.version for each in records if each.key == A] == [*range(1, 101)]
    assert [each.version for each in records if each.key == B] == [*range(1, 201)]
    assert (len(set(cursors)), gap) == (300, False)
    # The heads, and the list; once more the heads, where the end was not of now.
    assert cluster.requests.count(messages.RANGE) == (2 if pages == 1 else 3)
    assert cluster.requests.count(messages.TXN) <= 1 + pages + 300 // etcd_changes.SOME


def test_many_changed_keys_are_listed(backend: FakedBackend) -> None:
    keys = [Key(f"d/{n:03}") for n in range(etcd_changes.FEW + 2)]
    start = backend.cursor("d/")
    for key in keys:
        put(backend, key, b"1")
    records, _, _, gap = all_changes(backend, "d/", start, 10)
    assert ([each.key for each in records], gap) == (keys, False)


def test_synced_is_not_said_while_more_came_meanwhile(backend: FakedBackend) -> None:
    for n in range(100):
        put(backend, A, b"%d" % n)
    page = backend.changes("d/", "", 60)
    put(backend, A, b"new")
    page = backend.changes("d/", page.cursor, 60)
    assert ([each.version for each in page.records], page.live) == ([*range(61, 101)], False)
    page = backend.changes("d/", page.cursor, 60)
    assert ([each.version for each in page.records], page.live) == ([101], True)


def test_watchers_far_behind_keep_out_of_each_others_way(
    cluster: FakeEtcd, backend: FakedBackend
) -> None:
    keys = [Key(f"d/{n}") for n in range(etcd_changes.PLANS + 2)]
    for n in range(50):
        commit(backend, *(putting(key, b"%d" % n) for key in keys))
    cursors = dict.fromkeys(keys, "")
    seen: dict[Key, list[int]] = {key: [] for key in keys}
    for _ in range(6):
        for key in keys:
            page = backend.changes(key, cursors[key], 10)
            cursors[key] = page.cursor
            seen[key] += [each.version for each in page.records]
    assert all(versions == [*range(1, 51)] for versions in seen.values())


def test_another_page_in_between_changes_nothing(backend: FakedBackend) -> None:
    for n in range(60):
        commit(backend, putting(A, b"%d" % n), putting(B, b"%d" % n))
    first = backend.changes("d/a", "", 10)
    other = backend.changes("d/", "", 10)
    rest, _, _, gap = all_changes(backend, "d/a", first.cursor, 10)
    assert [each.version for each in first.records + rest] == [*range(1, 61)]
    assert (gap, len(other.records), other.live) == (False, 10, False)


def test_a_cursor_of_a_later_state_is_a_gap(cluster: FakeEtcd, backend: FakedBackend) -> None:
    """The cluster was put back to a backup: its revisions begin again further down."""
    put(backend, A, b"1")
    later = str(cluster.revision + 50)
    page = backend.changes("d/", later, 10)
    assert (page.gap, page.records, page.live) == (True, [], True)
    assert page.cursor == str(cluster.revision)
    put(backend, A, b"2")
    assert [each.version for each in backend.changes("d/", page.cursor, 10).records] == [2]


# ----------------------------------------------------------------------------- compaction


def test_compaction_takes_nothing_from_a_watcher(cluster: FakeEtcd, store: Store) -> None:
    """What we keep is in keys of our own, so old revisions are not needed for it."""
    with store.watch("a", after="") as watch:
        for n in range(80):
            store.put("a", n, overwrite=True)
        cluster.compact()
        seen = [next(watch) for _ in range(81)]
    assert [each.document.value for each in seen[:-1] if isinstance(each, Change)] == [*range(80)]
    assert isinstance(seen[-1], Synced)


def test_what_retention_dropped_is_a_gap_after_compaction_too(cluster: FakeEtcd) -> None:
    with Store(FakedBackend(cluster, Limits(keep_versions=3))) as store:
        store.put("a", 0, overwrite=True)
        with store.watch("a", after="") as watch:
            assert [type(next(watch)), type(next(watch))] == [Change, Synced]
            for n in range(1, 10):
                store.put("a", n, overwrite=True)
            cluster.compact()
            seen = [next(watch) for _ in range(5)]
        assert isinstance(seen[0], Gap)
        assert [each.document.value for each in seen[1:4] if isinstance(each, Change)] == [7, 8, 9]


def test_compaction_between_two_requests(cluster: FakeEtcd, backend: FakedBackend) -> None:
    """Each read that takes several requests begins anew."""
    names = [f"{n:04}" for n in range(450)]
    for start in range(0, len(names), 40):
        commit(backend, *(putting(Key(f"d/{name}"), b"1") for name in names[start : start + 40]))
    for n in range(250):
        put(backend, A, b"%d" % n)
    due: list[int] = []

    def once_more(path: str) -> None:
        if due and path in (messages.RANGE, messages.TXN):
            due.pop()
            if not due:
                cluster.revision += 1
                cluster.compact()

    cluster.before = once_more
    keys = [Key(f"d/{name}") for name in names]
    for act, expected in (
        (lambda: len(backend.scan("d/0", "", 1_000)), 450),
        (lambda: len(backend.history(A, 0, 1_000)), 250),
        (lambda: sum(each is not None for each in backend.read(keys)), 450),
        (lambda: len(all_changes(backend, "d/a", "", 1_000)[0]), 250),
    ):
        due[:] = [1, 2]
        assert act() == expected
        assert not due


def test_compaction_without_end_is_told(cluster: FakeEtcd, backend: FakedBackend) -> None:
    for n in range(250):
        put(backend, A, b"%d" % n)

    def each_time(path: str) -> None:
        cluster.revision += 1
        cluster.compact()

    cluster.before = each_time
    with pytest.raises(StoreUnavailable, match="faster than they can be read"):
        backend.history(A, 0, 1_000)


# --------------------------------------------------------------------------------- limits


def test_as_many_keys_as_fit_and_no_more(store: Store) -> None:
    most = store.backend.atomic_keys
    assert most == 42
    names = [f"{n}" for n in range(most + 1)]
    store.transact(names[:most], filling(names[:most], 1))
    assert [store.get(name).value for name in names[:most]] == [1] * most
    ran: list[int] = []
    with pytest.raises(NotSupported, match=r"at most 42 keys.*postgresql://"):
        store.transact(names, lambda tx: ran.append(1))
    assert not ran


def test_a_full_commit_with_retention_fits(cluster: FakeEtcd) -> None:
    backend = FakedBackend(cluster, Limits(keep_versions=1))
    keys = [Key(f"d/{n}") for n in range(42)]
    for n in range(3):
        assert commit(backend, transaction(keys, filling(keys, n)))[0].error is None
    assert cluster.revision == 4
    assert len(cluster.live()) == 84


def test_a_batch_is_cut_to_what_one_commit_takes(cluster: FakeEtcd, backend: FakedBackend) -> None:
    outcomes = commit(backend, *(putting(A, b"%d" % n) for n in range(300)))
    assert [each.writes[0].version for each in outcomes] == [*range(1, 301)]
    assert cluster.revision == 1 + 3
    keys = [Key(f"d/{n}") for n in range(40)]
    many = [putting(key, b"1") for key in keys for _ in range(6)]
    assert all(each.error is None for each in commit(backend, *many))


def test_a_batch_too_long_for_one_request_is_cut(cluster: FakeEtcd, backend: FakedBackend) -> None:
    body = b'"' + b"x" * 300_000 + b'"'
    outcomes = commit(backend, *(putting(Key(f"d/{n}"), body) for n in range(5)))
    assert all(each.error is None for each in outcomes)
    assert cluster.revision > 2


def test_the_longest_value_is_told(store: Store) -> None:
    limit = store.limits.value_bytes
    assert limit == (etcd.REQUEST_BYTES - etcd.AROUND_BYTES) // 2
    store.put("é" * 256, "x" * (limit - 2), create=True, by="é" * 100)
    with pytest.raises(LimitExceeded, match=str(limit)):
        store.put("a", "x" * (limit - 1), create=True)


def test_several_values_too_long_for_one_commit(store: Store) -> None:
    with pytest.raises(LimitExceeded, match="1568768 bytes"):
        store.transact(["a", "b"], filling(["a", "b"], "x" * 700_000))
    assert [store.get(name, None) for name in ("a", "b")] == [None, None]


# -------------------------------------------------------------------------- lost and gone


def test_a_reply_that_does_not_come(cluster: FakeEtcd, store: Store) -> None:
    lost: list[str] = []

    def lose_one(path: str) -> None:
        if path == messages.TXN and cluster.revision > 1 and not lost:
            lost.append(path)
            raise StoreUnavailable("no reply")

    def add(tx: Tx) -> int:
        tx["a"] = tx.get("a", 0) + 1
        return int(tx["a"])

    cluster.after = lose_one
    for n in range(1, 20):
        lost.clear()
        assert store.transact("a", add) == n
        assert (store.get("a").value, store.get("a").version) == (n, n)
        assert lost


def test_a_server_that_is_gone_did_nothing(cluster: FakeEtcd, store: Store) -> None:
    cluster.before = refuse
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.put("a", 1, create=True)
    cluster.before = lambda path: None
    assert store.put("a", 1, create=True).version == 1


def test_damage_is_told_and_not_written_over(cluster: FakeEtcd, store: Store) -> None:
    store.put("a", 1, create=True)
    cluster.rows[b"perkey/h/d/a"].append((cluster.revision, b"short"))
    for act in (lambda: store.get("a"), lambda: store.put("a", 2, overwrite=True)):
        with pytest.raises(perkey.StoreCorrupt):
            act()
    assert cluster.live()[b"perkey/h/d/a"] == b"short"


# ------------------------------------------------------------------------------------ time


@pytest.mark.parametrize(
    ("ahead_ms", "said"),
    [
        (0, None),
        (1_900, None),  # the date is cut to its second
        (-900, None),
        (3_500, "about 3 s ahead of the server's"),
        (-3_600_000, "about 3600 s behind the server's"),
    ],
)
def test_a_clock_that_is_apart_from_the_servers_is_told(
    cluster: FakeEtcd, ahead_ms: int, said: str | None
) -> None:
    clock = ManualClock()
    backend = FakedBackend(cluster, Limits(), clock)
    assert len(backend.concerns()) == 1  # only its version; no date, no word
    cluster.clock_ms = clock.now_ms() - ahead_ms
    told = [each for each in backend.concerns() if "clock" in each]
    assert len(told) == (said is not None)
    assert all(str(said) in each and "NTP" in each for each in told)


def test_time_never_goes_back(cluster: FakeEtcd) -> None:
    clock = ManualClock()
    backend = FakedBackend(cluster, Limits(), clock)
    before = backend.now_ms()
    clock.wall -= 60_000
    assert backend.now_ms() == before
    clock.wall += 60_001
    assert backend.now_ms() == before + 1
