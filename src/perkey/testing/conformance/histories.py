"""History: every kept version, in order, and the truth about those that are gone."""

from __future__ import annotations

from perkey.clock import SYSTEM
from perkey.store.record import Record
from perkey.testing.conformance.bench import (
    Bench,
    commit,
    expect,
    held,
    put,
    putting,
    same,
    versions,
)
from perkey.testing.conformance.suite import check


@check()
def history_has_every_version(bench: Bench) -> None:
    """Each version stays as it was written, deletes included, oldest first."""
    backend = bench.open()
    key = bench.key("a")
    bodies = [b"1", b"2", None, b"4", None, b"6"]
    written = [put(backend, key, body, by=f"w{n}") for n, body in enumerate(bodies)]
    found = backend.history(key, 0, 100)
    same([_shown(each) for each in found], [_shown(each) for each in written], "the history")


def _shown(record: Record) -> tuple[object, ...]:
    return record.key, record.version, record.body, record.by, record.at, record.op, record.base


@check()
def history_pages(bench: Bench) -> None:
    """``after`` and ``limit`` cut a page anywhere; behind the head there is nothing."""
    backend = bench.open()
    key = bench.key("a")
    commit(backend, *(putting(key, b"%d" % n) for n in range(12)))
    for after in range(14):
        for limit in (1, 5, 100):
            wanted = list(range(after + 1, 13))[:limit]
            found = versions(backend.history(key, after, limit))
            same(found, wanted, f"history after {after}, limit {limit}")


@check()
def history_is_of_one_key(bench: Bench) -> None:
    """Keys that begin alike share no history, and an unknown key has none."""
    backend = bench.open()
    keys = [bench.key(text) for text in ("a", "a/b", "a\0", "ab", "A")]
    for n, key in enumerate(keys):
        commit(backend, *(putting(key, b"%d" % n) for _ in range(n + 1)))
    for n, key in enumerate(keys):
        found = backend.history(key, 0, 100)
        same([(each.key, each.body) for each in found], [(key, b"%d" % n)] * (n + 1), repr(key))
    same(backend.history(bench.key("never"), 0, 100), [], "history of an unknown key")


@check()
def only_documents_and_boards_keep_history(bench: Bench) -> None:
    """Records of other spaces keep their head alone."""
    backend = bench.open()
    for space, kept in (("d/", 3), ("b/", 3), ("l/", 0), ("r/", 0), ("a/", 0), ("p/", 0)):
        key = bench.key("a", space)
        commit(backend, *(putting(key, b"%d" % n) for n in range(3)))
        same(held(backend, key).version, 3, f"the head in {space}")
        same(len(backend.history(key, 0, 100)), kept, f"versions kept in {space}")


@check()
def retention_by_count(bench: Bench) -> None:
    """The newest ``keep_versions`` stay; a first version above 1 says what is gone."""
    backend = bench.open(keep_versions=5)
    key, other = bench.key("a"), bench.key("b")
    put(backend, other, b"1")
    for n in range(40):
        put(backend, key, b"%d" % n)
        _check_tail(backend.history(key, 0, 1000), n + 1, least=min(n + 1, 5))
    kept = versions(backend.history(key, 0, 1000))
    expect(len(kept) <= 10, f"expected about 5 versions kept, found {len(kept)}")
    same(held(backend, key).body, b"39", "the head")
    same(versions(backend.history(key, 2, 2)), kept[:2], "history after a version that is gone")
    same(versions(backend.history(other, 0, 9)), [1], "history of a key that is below the limit")


@check()
def retention_in_one_batch(bench: Bench) -> None:
    """A batch that writes one key more often than is kept leaves the newest versions."""
    backend = bench.open(keep_versions=5)
    key = bench.key("a")
    commit(backend, *(putting(key, b"%d" % n) for n in range(20)))
    _check_tail(backend.history(key, 0, 1000), 20, least=5)
    same(held(backend, key).version, 20, "the head's version")


@check()
def retention_by_age(bench: Bench) -> None:
    """Versions older than ``keep_s`` go with a later write; the head always stays."""
    backend = bench.open(keep_s=0.05)
    key, other = bench.key("a"), bench.key("b")
    put(backend, other, b"1")
    commit(backend, *(putting(key, b"%d" % n) for n in range(4)))
    end = backend.now_ms() + 100
    while backend.now_ms() <= end:
        SYSTEM.sleep(0.02)
    put(backend, key, b"4")
    _check_tail(backend.history(key, 0, 100), 5, least=1)
    same(versions(backend.history(key, 0, 100)), [5], "versions young enough")
    same(held(backend, other).body, b"1", "an old head")


@check()
def what_is_young_is_kept(bench: Bench) -> None:
    """With ``keep_s``, nothing goes that is younger."""
    backend = bench.open(keep_s=3600.0)
    key = bench.key("a")
    for n in range(4):
        put(backend, key, b"%d" % n)
    commit(backend, *(putting(key, b"%d" % n) for n in range(4)))
    same(versions(backend.history(key, 0, 100)), [*range(1, 9)], "versions that are young")


def _check_tail(found: list[Record], last: int, least: int) -> None:
    expect(len(found) >= least, f"expected at least {least} versions, found {versions(found)}")
    wanted = list(range(last - len(found) + 1, last + 1))
    same(versions(found), wanted, "an unbroken run up to the head")
