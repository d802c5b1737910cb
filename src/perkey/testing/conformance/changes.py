"""Changes: the feed that watchers read, and its cursors."""

from __future__ import annotations

from functools import partial

from perkey.errors import UsageError
from perkey.store.abc import Backend
from perkey.store.record import Record
from perkey.testing.conformance.bench import (
    Bench,
    all_changes,
    commit,
    expect,
    put,
    putting,
    raises,
    same,
    versions,
)
from perkey.testing.conformance.suite import check


def _by_key(records: list[Record]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for record in records:
        found.setdefault(record.key, []).append(record.version)
    return found


def _fill(bench: Bench) -> tuple[Backend, dict[str, list[int]]]:
    """A backend with three keys written in turns, and the versions of each."""
    backend = bench.open()
    keys = [bench.key(name) for name in "abc"]
    for n in range(5):
        commit(backend, *(putting(key, b"%d" % n, by=f"w{n}") for key in keys))
    put(backend, keys[0], None)
    put(backend, keys[0], b"again")
    wanted = {str(key): [1, 2, 3, 4, 5] for key in keys}
    wanted[keys[0]] += [6, 7]
    return backend, wanted


@check()
def changes_show_every_version_once(bench: Bench) -> None:
    """Each key's versions come in order, none missing, none twice, deletes included."""
    backend, wanted = _fill(bench)
    for limit in (1, 2, 3, 100):
        records, _, _, gap = all_changes(backend, bench.prefix, "", limit)
        same(_by_key(records), wanted, f"changes in pages of {limit}")
        same(gap, False, "whether a gap was told where nothing was dropped")
    for key in wanted:
        same(
            [(each.version, each.body, each.by, each.op) for each in records if each.key == key],
            [(e.version, e.body, e.by, e.op) for e in backend.history(key, 0, 100)],
            f"changes of {key!r} against its history",
        )


@check()
def changes_resume_at_each_cursor(bench: Bench) -> None:
    """From the cursor of any change, exactly the rest follows."""
    backend, wanted = _fill(bench)
    records, cursors, end, _ = all_changes(backend, bench.prefix)
    for place, cursor in enumerate(cursors, 1):
        rest, _, _, gap = all_changes(backend, bench.prefix, cursor, 2)
        same(_by_key(records[:place] + rest), wanted, f"what came before and after change {place}")
        same(gap, False, f"whether a gap was told behind change {place}")
    same(all_changes(backend, bench.prefix, end)[0], [], "changes behind the last cursor")


@check()
def changes_go_on_live(bench: Bench) -> None:
    """The cursor of an empty page is a place to wait at: what is written next follows."""
    backend = bench.open()
    cursor = backend.changes(bench.prefix, "", 10).cursor
    for n in range(6):
        page = backend.changes(bench.prefix, cursor, 10)
        same((page.records, page.live, page.gap), ([], True, False), "a page before the write")
        put(backend, bench.key("a"), b"%d" % n)
        put(backend, bench.key("b"), b"%d" % n)
        records, _, cursor, gap = all_changes(backend, bench.prefix, page.cursor, 1)
        wanted = {bench.key("a"): [n + 1], bench.key("b"): [n + 1]}
        same((_by_key(records), gap), (wanted, False), "changes after two writes")


@check()
def a_cursor_stands_behind_everything(bench: Bench) -> None:
    """``cursor()`` is behind all that was committed, and before all that comes."""
    backend = bench.open()
    empty = backend.cursor(bench.prefix)
    put(backend, bench.key("a"), b"1")
    behind = backend.cursor(bench.prefix)
    same(all_changes(backend, bench.prefix, behind)[0], [], "changes behind the cursor")
    put(backend, bench.key("a"), b"2")
    put(backend, bench.key("b"), b"3")
    found = _by_key(all_changes(backend, bench.prefix, behind)[0])
    same(found, {bench.key("a"): [2], bench.key("b"): [1]}, "changes after the cursor")
    found = _by_key(all_changes(backend, bench.prefix, empty)[0])
    same(found, {bench.key("a"): [1, 2], bench.key("b"): [1]}, "changes after an early cursor")


@check()
def changes_keep_to_their_prefix(bench: Bench) -> None:
    """Changes of other prefixes are not shown, and do not hold a watcher up."""
    backend = bench.open()
    names = ["k", "k%", "k_", "ka", "K", "k\uffff", "k\U0010ffff", "l", "k/é"]
    keys = [bench.key(name) for name in names]
    for _ in range(2):
        commit(backend, *(putting(key, b"1") for key in keys))
    for prefix in [*keys, bench.prefix]:
        wanted = {str(key): [1, 2] for key in keys if key.startswith(prefix)}
        same(_by_key(all_changes(backend, prefix, "", 3)[0]), wanted, f"changes under {prefix!r}")


@check()
def only_kept_spaces_have_changes(bench: Bench) -> None:
    """Records without history do not appear among changes."""
    backend = bench.open()
    for space, wanted in (("b/", [1, 2]), ("l/", []), ("r/", []), ("a/", [])):
        key = bench.key("a", space)
        put(backend, key, b"1")
        put(backend, key, b"2")
        records = all_changes(backend, bench.key("", space))[0]
        same(versions(records), wanted, f"changes in {space}")


@check()
def a_gap_is_told(bench: Bench) -> None:
    """A cursor that retention passed by is told so; one it did not pass by is not."""
    backend = bench.open(keep_versions=3)
    key = bench.key("a")
    put(backend, key, b"1")
    old = backend.cursor(bench.prefix)
    for n in range(30):
        put(backend, key, b"%d" % n)
    kept = versions(backend.history(key, 0, 100))
    for cursor, what in ((old, "an old cursor"), ("", "the beginning")):
        records, cursors, _, gap = all_changes(backend, bench.prefix, cursor, 2)
        same(gap, True, f"whether a gap was told from {what}")
        same(versions(records), kept, f"changes from {what}")
    rest, _, _, gap = all_changes(backend, bench.prefix, cursors[0])
    same((versions(rest), gap), (kept[1:], False), "changes from a cursor that still stands")


@check()
def a_gap_of_one_key_outlasts_another(bench: Bench) -> None:
    """A gap is told for each key, whichever key retention came to last."""
    backend = bench.open(keep_versions=2)
    early, late = bench.key("early"), bench.key("late")
    for _ in range(2):
        put(backend, early, b"1")
    behind = backend.cursor(bench.prefix)
    for _ in range(12):
        put(backend, late, b"1")
    for _ in range(12):  # drops what stood before the cursor, and then some
        put(backend, early, b"1")
    for prefix in (late, early, bench.prefix):
        same(all_changes(backend, prefix, behind)[3], True, f"a gap under {prefix!r}")


@check()
def a_page_ends_where_it_says(bench: Bench) -> None:
    """A page that is not live has more behind it; going on by its cursor repeats nothing."""
    backend, wanted = _fill(bench)
    total = sum(map(len, wanted.values()))
    for limit in range(1, total + 2):
        page = backend.changes(bench.prefix, "", limit)
        expect(len(page.records) <= limit, f"a page of {limit} had {len(page.records)} changes")
        if page.live:
            same(len(page.records), total, f"changes on a live page of {limit}")
        rest = all_changes(backend, bench.prefix, page.cursor)[0]
        same(_by_key(page.records + rest), wanted, f"a page of {limit} and the rest")


@check()
def a_foreign_cursor_is_refused(bench: Bench) -> None:
    """A text that was never a cursor raises ``UsageError`` and does not start anywhere."""
    backend = bench.open()
    put(backend, bench.key("a"), b"1")
    for text in ("nonsense", "-", "\0", "1.5", "'"):
        raises(UsageError, partial(backend.changes, bench.prefix, text, 10), repr(text))
