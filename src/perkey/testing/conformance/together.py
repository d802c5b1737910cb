"""Many at once: threads over one store, and several connections over the same records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from perkey.errors import Conflict
from perkey.store.abc import Backend
from perkey.store.transaction import Tx
from perkey.stores import Store
from perkey.testing.conformance.bench import Bench, expect, held, put, same, versions
from perkey.testing.conformance.suite import check

CONNECTIONS = 3
PATIENCE_S = 60.0
"""How long the threads of a check may take before it counts as hung."""


def _at_once(works: Sequence[Callable[[], None]]) -> None:
    """Run each on a thread of its own, from one starting line; raise the first error."""
    line = threading.Barrier(len(works))
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            line.wait(PATIENCE_S)
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        expect(not thread.is_alive(), f"a thread was still at work after {PATIENCE_S:g} s")
    if errors:
        raise errors[0]


def _increments(stores: Sequence[Store], bench: Bench, threads: int, each: int) -> None:
    key = bench.key("count")

    def add(tx: Tx) -> None:
        tx[key] = tx.get(key, 0) + 1

    def work(store: Store) -> Callable[[], None]:
        def run() -> None:
            for _ in range(each):
                store.transact(key, add)

        return run

    _at_once([work(store) for store in stores for _ in range(threads)])
    total = len(stores) * threads * each
    backend = stores[0].backend
    same(held(backend, key).body, b"%d" % total, "the count")
    same(versions(backend.history(key, 0, total + 1)), list(range(1, total + 1)), "its versions")


@check()
def threads_share_one_store(bench: Bench) -> None:
    """Eight threads increment one document; nothing is lost and no version is skipped."""
    _increments([bench.store(bench.open())], bench, threads=8, each=20)


@check()
def connections_share_the_records(bench: Bench) -> None:
    """Several connections increment one document; nothing is lost, no version is skipped."""
    stores = [bench.store(backend) for backend in bench.open_shared(CONNECTIONS)]
    _increments(stores, bench, threads=2, each=15)


@check()
def one_creator_wins(bench: Bench) -> None:
    """Of those who create one key at the same moment, exactly one succeeds, every time."""
    stores = [bench.store(backend) for backend in bench.open_shared(CONNECTIONS)]
    keys = [bench.key(f"{n:02}") for n in range(15)]
    won: list[tuple[str, str]] = []

    def work(store: Store, name: str) -> Callable[[], None]:
        def run() -> None:
            for key in keys:
                try:
                    store.put(key, name, create=True)
                except Conflict:
                    continue
                won.append((key, name))

        return run

    _at_once([work(store, f"{n}.{m}") for n, store in enumerate(stores) for m in range(2)])
    same(sorted(key for key, _ in won), keys, "keys won")
    found = {key: f'"{name}"'.encode() for key, name in won}
    same({key: held(stores[0].backend, key).body for key in keys}, found, "whose values stand")


@check(keys=2)
def a_total_is_the_same_in_every_read(bench: Bench) -> None:
    """Amounts moved between records, in rings and opposite pairs: no read sees one half."""
    backends = bench.open_shared(CONNECTIONS)
    stores = [bench.store(backend) for backend in backends]
    keys = [bench.key(name) for name in "abcd"]
    for key in keys:
        put(backends[0], key, b"100")
    running = threading.Event()
    totals: list[int] = []

    def move(source: int, target: int) -> Callable[[Tx], None]:
        def run(tx: Tx) -> None:
            tx[keys[source]] = tx[keys[source]] - 1
            tx[keys[target]] = tx[keys[target]] + 1

        return run

    def work(store: Store, shift: int) -> Callable[[], None]:
        def run() -> None:
            for n in range(20):
                source, target = n % 4, (n + shift) % 4
                store.transact([keys[source], keys[target]], move(source, target))

        return run

    def watch() -> None:
        while not running.is_set():
            found = stores[-1].get_many([key.name for key in keys])
            totals.append(sum(each.value for each in found.values()))

    reader = threading.Thread(target=watch, daemon=True)
    reader.start()
    try:
        _at_once([work(store, shift) for store in stores for shift in (1, 3)])
    finally:
        running.set()
        reader.join(PATIENCE_S)
    expect(totals, "the reader read nothing")
    same(set(totals), {400}, "totals that were read")
    same(sum(int(held(backends[0], key).body or b"0") for key in keys), 400, "the total at rest")


@check()
def versions_read_exist_in_history(bench: Bench) -> None:
    """A reader beside a writer never sees a value that history does not have."""
    backends = bench.open_shared(2)
    writer, other = bench.store(backends[0]), bench.store(backends[-1])
    key = bench.key("a")
    seen: dict[int, object] = {}

    def write() -> None:
        for n in range(60):
            writer.put(key, n, overwrite=True)

    def read() -> None:
        last = 0
        while last < 60:
            found = other.get(key, None)
            if found is not None:
                expect(found.version >= last, f"version {found.version} was read after {last}")
                last = found.version
                seen[last] = found.value

    _at_once([write, read])
    kept = {each.version: each.value for each in writer.history(key)}
    same({version: kept.get(version) for version in seen}, seen, "what was read")


@check()
def records_outlive_their_connection(bench: Bench) -> None:
    """What a closed connection committed is there for the next, cursors included."""
    first, *others = bench.open_shared(2)
    key = bench.key("a")
    put(first, key, b"1")
    cursor = first.cursor(bench.prefix)
    record = put(first, key, b"2")
    if not others:
        return
    (second,) = others
    first.close()
    same(second.read([key]), [record], "the head")
    same(versions(second.history(key, 0, 9)), [1, 2], "the history")
    found = second.changes(bench.prefix, cursor, 9)
    same((versions(found.records), found.gap), ([2], False), "changes behind the old cursor")
    third: Backend = bench.open()
    same(put(third, key, b"3").version, 3, "the version that a new connection writes")
