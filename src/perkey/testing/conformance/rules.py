"""Fences, receipts, time, readers, and the backend's word about itself."""

from __future__ import annotations

from perkey.errors import Expired, KeyReused, LeaseLost
from perkey.store import receipts
from perkey.store.abc import Backend
from perkey.store.fencing import LeaseState, lease_body
from perkey.store.keys import Key
from perkey.store.transaction import Claim, Fence, Outcome, Tx
from perkey.testing.conformance.bench import (
    Bench,
    commit,
    done,
    expect,
    head,
    held,
    put,
    putting,
    same,
    transaction,
)
from perkey.testing.conformance.suite import check

FOREVER = 2**62


def _lease(backend: Backend, lease: Key, token: int, expires: int) -> None:
    put(backend, lease, lease_body(LeaseState("holder", token, expires)))


def _fenced(backend: Backend, key: Key, lease: Key, token: int, body: bytes) -> Outcome:
    fence = Fence(lease, token)
    asked = transaction(key, lambda tx: tx.put_body(key, body), fence=fence)
    (outcome,) = commit(backend, asked)
    return outcome


@check()
def a_fence_lets_only_the_holder_write(bench: Bench) -> None:
    """A transaction with a fence commits while its lease is held, by the store's time."""
    backend = bench.open()
    key, lease = bench.key("a"), bench.key("a", "l/")
    refused = {
        "no lease": None,
        "another token": (8, FOREVER),
        "a lease that ran out": (7, backend.now_ms() - 1),
        "a released lease": (7, 0),
    }
    for what, state in refused.items():
        if state is not None:
            _lease(backend, lease, *state)
        error = _fenced(backend, key, lease, 7, b"0").error
        expect(isinstance(error, LeaseLost), f"with {what}: expected LeaseLost, found {error!r}")
        same(head(backend, key), None, f"the record, with {what}")
    _lease(backend, lease, 7, FOREVER)
    written = done(_fenced(backend, key, lease, 7, b"1")).writes
    same([(each.key, each.fence) for each in written], [(key, 7)], "what the holder wrote")
    same(held(backend, lease).version, 4, "the lease's own version")


@check()
def a_record_remembers_its_highest_fence(bench: Bench) -> None:
    """After a write under token 9 none under token 8 commits, whatever the lease says."""
    backend = bench.open()
    key, lease = bench.key("a"), bench.key("a", "l/")
    _lease(backend, lease, 9, FOREVER)
    done(_fenced(backend, key, lease, 9, b"9"))
    put(backend, key, b"10")
    same(held(backend, key).fence, 9, "the fence after a write without one")
    put(backend, key, None)
    same(held(backend, key).fence, 9, "the fence of a tombstone")
    _lease(backend, lease, 8, FOREVER)
    error = _fenced(backend, key, lease, 8, b"8").error
    expect(isinstance(error, LeaseLost), f"expected LeaseLost, found {error!r}")
    same(held(backend, key).version, 3, "the version after the refusal")


def _claim(bench: Bench, payload: object = "p", expires: int | None = None) -> Claim:
    digest, fields = receipts.fingerprint(payload)
    return Claim(bench.key("op", "r/"), digest, fields, expires)


@check()
def a_receipt_replays_its_result(bench: Bench) -> None:
    """A repeated claim answers with the stored result and runs nothing; falsy ones too."""
    backend = bench.open()
    results: tuple[object, ...] = (0, False, None, "", [], {}, -0.0, {"a": [1]})
    for n, result in enumerate(results):
        claim = Claim(bench.key(f"{n}", "r/"), "f")
        runs: list[int] = []

        def fn(tx: Tx, result: object = result, runs: list[int] = runs) -> object:
            runs.append(1)
            return result

        first = done(commit(backend, transaction((), fn, claim=claim))[0])
        again = done(commit(backend, transaction((), fn, claim=claim))[0])
        same((first.result, first.replayed), (result, False), "the first outcome")
        same((again.result, again.replayed), (result, True), "the second outcome")
        same((len(runs), held(backend, claim.key).version), (1, 1), "runs, and the receipt")


@check()
def a_receipt_refuses_another_payload(bench: Bench) -> None:
    """The same claim with another fingerprint raises ``KeyReused``, naming the fields."""
    backend = bench.open()
    first, other = _claim(bench, {"a": 1, "b": 2}), _claim(bench, {"a": 1, "b": 3})
    done(commit(backend, transaction((), lambda tx: "done", claim=first))[0])
    error = commit(backend, transaction((), lambda tx: "again", claim=other))[0].error
    expect(isinstance(error, KeyReused), f"expected KeyReused, found {error!r}")
    same(getattr(error, "fields", None), ["b"], "the fields that differ")


@check()
def a_failure_leaves_no_receipt(bench: Bench) -> None:
    """After an exception the same claim runs again."""
    backend = bench.open()
    claim = _claim(bench)

    def fail(tx: Tx) -> None:
        raise ValueError

    (outcome,) = commit(backend, transaction((), fail, claim=claim))
    expect(isinstance(outcome.error, ValueError), f"expected ValueError, found {outcome.error!r}")
    same(head(backend, claim.key), None, "the receipt of a failure")
    same(done(commit(backend, transaction((), lambda tx: 1, claim=claim))[0]).result, 1, "a retry")


@check()
def an_expired_receipt_still_refuses(bench: Bench) -> None:
    """When the stored result has run out, the operation is not run a second time."""
    backend = bench.open()
    claim = _claim(bench, expires=-1)
    done(commit(backend, transaction((), lambda tx: 1, claim=claim))[0])
    error = commit(backend, transaction((), lambda tx: 2, claim=claim))[0].error
    expect(isinstance(error, Expired), f"expected Expired, found {error!r}")


@check(keys=2)
def a_receipt_commits_with_its_change(bench: Bench) -> None:
    """Two of one batch with the same claim: the second is answered, and the change is made once."""
    backend = bench.open()
    key, claim = bench.key("a"), _claim(bench)

    def add(tx: Tx) -> int:
        tx[key] = tx.get(key, 0) + 1
        return int(tx[key])

    asked = [transaction(key, add, claim=claim) for _ in range(3)]
    outcomes = [done(each) for each in commit(backend, *asked)]
    same([each.result for each in outcomes], [1, 1, 1], "results")
    same([each.replayed for each in outcomes], [False, True, True], "which were replayed")
    same(held(backend, key).version, 1, "how often the change was made")


@check()
def time_never_goes_back(bench: Bench) -> None:
    """``now_ms`` does not decrease, over calls, commits and connections."""
    backend = bench.open()
    times = []
    for n in range(50):
        times.append(backend.now_ms())
        if n % 10 == 0:
            times.append(put(backend, bench.key("a"), b"1").at)
            times.append(backend.now_ms())
    same(times, sorted(times), "times in order")
    (outcome,) = commit(backend, transaction(bench.key("b"), lambda tx: tx.now))
    expect(times[-1] <= outcome.result <= backend.now_ms(), "tx.now is not the store's time")


@check()
def a_reader_sees_what_was_committed(bench: Bench) -> None:
    """What ``apply`` has returned is seen by ``reader()`` at once, in every way of reading."""
    backend = bench.open()
    reader = backend.reader() or backend
    key = bench.key("a")
    for n in range(20):
        record = put(backend, key, b"%d" % n)
        same(reader.read([key]), [record], "the head")
        same(reader.scan(bench.prefix, "", 9), [record], "the scan")
        same(len(reader.history(key, 0, 99)), n + 1, "the history")
        page = reader.changes(bench.prefix, "", 99)
        same(len(page.records), n + 1, "the changes")
        expect(reader.now_ms() >= record.at, "a reader's time is behind a record it shows")
    if reader is not backend:
        reader.close()
        same(put(backend, key, b"20").version, 21, "a write after its reader was closed")


@check()
def closing_twice_is_harmless(bench: Bench) -> None:
    """``close`` may be called again."""
    backend = bench.open()
    put(backend, bench.key("a"), b"1")
    reader = backend.reader()
    for each in (reader, reader, backend, backend):
        if each is not None:
            each.close()


@check()
def a_backend_describes_itself(bench: Bench) -> None:
    """Its attributes have the types that the library relies on."""
    backend = bench.open()
    expect(isinstance(backend, Backend), "a method or attribute of Backend is missing")
    expect(backend.name and isinstance(backend.name, str), "name is not a text")
    atomic = backend.atomic_keys
    expect(atomic is None or (type(atomic) is int and atomic >= 1), f"atomic_keys is {atomic!r}")
    expect(isinstance(backend.blocking, bool), "blocking is not a bool")
    expect(backend.durability and isinstance(backend.durability, str), "durability is not a text")
    expect(backend.time_source in ("store", "host", "client"), repr(backend.time_source))
    facts = backend.describe()
    texts = [text for pair in facts.items() for text in pair]
    expect(all(isinstance(text, str) for text in texts), f"describe() is not texts: {facts!r}")


@check()
def limits_are_its_own(bench: Bench) -> None:
    """A backend keeps the limits it was opened with, or lower ones."""
    backend = bench.open(batch=7, value_bytes=1_000)
    expect(backend.limits.batch <= 7, f"batch is {backend.limits.batch}")
    expect(backend.limits.value_bytes <= 1_000, f"value_bytes is {backend.limits.value_bytes}")
    same(len(commit(backend, *(putting(bench.key(f"{n}"), b"1") for n in range(7)))), 7, "a batch")
