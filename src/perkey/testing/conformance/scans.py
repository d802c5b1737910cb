"""Scans: live heads under a prefix, in order of their UTF-8 bytes, page by page."""

from __future__ import annotations

from perkey.testing.conformance.bench import Bench, commit, put, putting, same, scanned
from perkey.testing.conformance.suite import check

ORDER = (
    "",
    "\0",
    "\0\0",
    "!",
    "A",
    "Z",
    "a",
    "a\0",
    "a!",
    "aa",
    "b",
    "~",
    "\x7f",
    "\x80",
    "é",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "\uffffa",
    "\U00010000",
    "\U0001f600",
    "\U0010ffff",
    "\U0010ffff\U0010ffff",
)
"""In order of UTF-8 bytes.  UTF-16 and most collations order them otherwise."""


@check()
def scans_go_by_utf8_bytes(bench: Bench) -> None:
    """Keys come in the order of their UTF-8 bytes, whatever the page size."""
    backend = bench.open()
    keys = [bench.key("k" + text) for text in ORDER]
    commit(backend, *(putting(key, b"1") for key in reversed(keys)))
    for limit in (1, 2, 7, 100):
        found = [record.key for record in scanned(backend, bench.key("k"), limit)]
        same(found, keys, f"a scan in pages of {limit}")


@check()
def a_prefix_is_text_and_no_pattern(bench: Bench) -> None:
    """A scan finds exactly the keys that start with its prefix, itself included."""
    backend = bench.open()
    texts = [
        *("k", "k%", "k%a", "k_", "k_a", "ka", "K", "k*", "k*a", "k?", "k[", "k[a", "k\\", "k\\a"),
        *("k\uffff", "k\uffffz", "k\U0010ffff", "k\U0010ffffz", "l", "é", "e\u0301", "éa"),
    ]
    keys = [bench.key(text) for text in texts]
    commit(backend, *(putting(key, b"1") for key in keys))
    for prefix in [*keys, bench.key("")]:
        wanted = sorted((key for key in keys if key.startswith(prefix)), key=str.encode)
        found = [record.key for record in scanned(backend, prefix, 5)]
        same(found, wanted, f"a scan of {prefix!r}")


@check()
def scans_go_on_behind_any_text(bench: Bench) -> None:
    """``after`` may be any text: a key, a deleted one, one that never was, one outside."""
    backend = bench.open()
    keys = [bench.key(f"{n:02}") for n in range(10)]
    commit(backend, *(putting(key, b"1") for key in keys))
    put(backend, keys[4], None)
    live = [key for key in keys if key != keys[4]]
    outside = ["", "a", bench.prefix[:-1], bench.prefix, bench.key("~"), "z/"]
    for after in [*keys, *(key + "\0" for key in keys), *outside]:
        found = [record.key for record in backend.scan(bench.prefix, after, 100)]
        same(found, [key for key in live if key > after], f"a scan behind {after!r}")


@check()
def scans_show_no_tombstones(bench: Bench) -> None:
    """Deleted keys do not appear, and do not shorten a page so that a caller stops early."""
    backend = bench.open()
    keys = [bench.key(f"{n:02}") for n in range(30)]
    commit(backend, *(putting(key, b"1") for key in keys))
    commit(backend, *(putting(key, None) for key in keys[:25]))
    same([each.key for each in backend.scan(bench.prefix, "", 3)], keys[25:28], "a page of three")
    same([each.key for each in scanned(backend, bench.prefix, 2)], keys[25:], "pages of two")
    put(backend, keys[3], b"2")
    same([each.version for each in backend.scan(bench.prefix, "", 1)], [3], "a re-created key")


@check()
def scans_show_the_newest_version(bench: Bench) -> None:
    """A scanned record is the head, with all its fields."""
    backend = bench.open()
    keys = [bench.key(f"{n}") for n in range(5)]
    for n in range(3):
        commit(backend, *(putting(key, b"%d" % n, "ann") for key in keys))
    same(scanned(backend, bench.prefix, 2), backend.read(keys), "scanned records")


@check()
def an_empty_prefix_has_no_records(bench: Bench) -> None:
    """Scanning where nothing is gives nothing."""
    backend = bench.open()
    same(backend.scan(bench.prefix, "", 10), [], "a scan of nothing")
    put(backend, bench.key("a"), b"1")
    put(backend, bench.key("a"), None)
    same(backend.scan(bench.prefix, "", 10), [], "a scan of a tombstone")
