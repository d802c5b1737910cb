"""Moving a store: exact, resumable wherever it was killed, and compared to the last field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import perkey
from perkey.clock import SYSTEM
from perkey.errors import HistoryGap, LimitExceeded, UsageError
from perkey.store import transfer
from perkey.store.abc import Backend
from perkey.store.backends.memory import MemoryBackend
from perkey.store.evaluate import Batch
from perkey.store.keys import Key
from perkey.store.limits import Limits
from perkey.store.record import Record
from perkey.store.transaction import Outcome
from perkey.store.transfer import Progress, Report
from perkey.store.url import open_backend
from perkey.stores import Store
from perkey.testing.conformance.bench import put
from perkey.testing.conformance.moving import restore, walked
from perkey.testing.faulty import Faults, FaultyBackend
from tests.moving import fill

T = TypeVar("T", bound=MemoryBackend)
ORIGIN = "sqlite:///there"


class Killed(BaseException):
    """The process ends here."""


def sharing(backend: MemoryBackend, kind: type[T]) -> T:
    """Another backend over the same records."""
    other = kind.__new__(kind)
    other.__dict__ = backend.__dict__
    return other


class Mortal(MemoryBackend):
    """Dies at its n-th commit, before it or right behind it."""

    left: int
    lands: bool

    @classmethod
    def over(cls, inner: MemoryBackend, at: int, *, lands: bool = False) -> Mortal:
        backend = sharing(inner, cls)
        backend.left, backend.lands = at, lands
        return backend

    def apply(self, batch: Batch) -> list[Outcome]:
        self.left -= 1
        if self.left == 0:
            if self.lands:
                super().apply(batch)
            raise Killed
        return super().apply(batch)


@pytest.fixture
def source() -> Iterator[MemoryBackend]:
    backend = MemoryBackend()
    with Store(backend) as store:
        fill(store)
        yield backend


def move(source: Backend, target: Backend, tell: transfer.Tell = lambda progress: None) -> Report:
    return transfer.move(source, target, ORIGIN, SYSTEM, tell)


def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "BATCH_RECORDS", 5)
    monkeypatch.setattr(transfer, "PAGE", 4)


def contents(backend: Backend) -> dict[str, list[Record]]:
    """Everything in a store but its scratch records."""
    heads = {k: v for k, v in walked(backend, 100).items() if not k.startswith("q/")}
    return {key: [*backend.history(key, 0, 10_000), head] for key, head in heads.items()}


# ------------------------------------------------------------------------------- exactness


@pytest.mark.parametrize("scheme", ["memory", "sqlite", "file"])
def test_everything_arrives_as_it_was(source: MemoryBackend, scheme: str, tmp_path: Path) -> None:
    urls = {
        "memory": "memory://",
        "sqlite": f"sqlite:///{tmp_path}/a.db",
        "file": f"file://{tmp_path}/a",
    }
    target = open_backend(urls[scheme], transfer.LIMITS, SYSTEM)
    told: list[str] = []
    report = move(source, target, lambda progress: told.append(progress.phase))
    assert report.same
    assert contents(target) == contents(source)
    assert report.keys == len(contents(source))
    assert report.records == sum(map(len, contents(source).values()))
    assert set(told) == {"copying", "comparing"}
    spaces = {key[0] for key in contents(target)}
    assert spaces >= set("dblrat")
    again = move(source, target)
    assert (again.copied, again.same, again.digest) == (0, True, report.digest)
    target.close()


def test_work_goes_on_in_the_new_store(source: MemoryBackend) -> None:
    """Receipts replay, tokens grow, versions count on, money is all there."""
    with Store(source) as old:
        before = perkey.Ledger(old).balance("one")
        version = old.get("counted").version
        token = perkey.Leases(old).info("lease/2").token
    target = MemoryBackend()
    move(source, target)
    with Store(target) as new:
        assert perkey.Ledger(new).balance("one") == before
        assert perkey.Ledger(new).trial_balance().balanced
        receipt = perkey.Once(new).transact(
            "receipt1", "counted", lambda tx: 1 / 0, payload={"n": 1}
        )
        assert receipt.replayed
        assert perkey.Leases(new).acquire("lease/2", ttl=5).token == token + 1
        assert new.put("counted", 0, if_match=version).version == version + 1


def test_a_history_that_begins_in_the_middle(tmp_path: Path) -> None:
    source = MemoryBackend(Limits(keep_versions=5))
    key = Key("d/a")
    for n in range(30):
        put(source, key, b"%d" % n)
    target = open_backend(f"sqlite:///{tmp_path}/a.db", transfer.LIMITS, SYSTEM)
    assert move(source, target).same
    assert [each.version for each in target.history(key, 0, 99)] == [26, 27, 28, 29, 30]
    target.close()


# ------------------------------------------------------------------- killed and started again


def commits_of_a_copy(source: MemoryBackend) -> int:
    target = Mortal.over(MemoryBackend(), 0)
    move(source, target)
    return -target.left


@pytest.mark.parametrize("lands", [False, True])
def test_killed_at_every_commit_it_goes_on(
    source: MemoryBackend, lands: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_batches(monkeypatch)
    wanted = contents(source)
    commits = commits_of_a_copy(source)
    assert commits > 15
    for at in range(1, commits + 1):
        target = MemoryBackend()
        with pytest.raises(Killed):
            move(source, Mortal.over(target, at, lands=lands))
        report = move(source, target)
        assert report.same
        assert contents(target) == wanted


def test_two_copies_at_once_do_no_harm(
    source: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second runs from begin to end before the n-th commit of the first, for every n."""
    small_batches(monkeypatch)
    wanted = contents(source)
    for at in range(1, commits_of_a_copy(source) + 1):
        target = MemoryBackend()

        class Overtaken(Mortal):
            def apply(self, batch: Batch) -> list[Outcome]:
                self.left -= 1
                if self.left == 0:
                    assert move(source, sharing(self, MemoryBackend)).same
                return MemoryBackend.apply(self, batch)

        report = move(source, Overtaken.over(target, at))
        assert report.same
        assert contents(target) == wanted


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), share=st.floats(0, 0.5))
def test_lost_replies_and_failures_at_random(seed: int, share: float) -> None:
    source, inner = MemoryBackend(), MemoryBackend()
    with Store(source) as store:
        fill(store, documents=4)
        target = FaultyBackend(inner, Faults(lose=share, fail=share / 2, seed=seed))
        for _ in range(100):
            try:
                report = move(source, target)
                break
            except perkey.StoreUnavailable:
                continue
        assert report.same
        assert contents(inner) == contents(source)


# ---------------------------------------------------------------------------- live writers


def test_a_source_that_moves_on_is_caught_up(source: MemoryBackend) -> None:
    target = MemoryBackend()
    wrote: list[int] = []

    def write_once(progress: Progress) -> None:
        if progress.phase == "copying" and not wrote:
            wrote.append(put(source, Key("d/counted"), b"99").version)
            put(source, Key("a/new"), b"1")

    assert move(source, target, write_once).same
    assert contents(target) == contents(source)


def test_a_source_that_never_rests_is_told(source: MemoryBackend) -> None:
    target = MemoryBackend()

    def write(progress: Progress) -> None:
        put(source, Key("d/busy"), b"%d" % source.now_ms())

    report = move(source, target, write)
    assert (report.same, report.different, report.extra) == (False, 0, 0)
    assert report.behind >= 1
    assert "busy" in report.named
    assert move(source, target).same


def test_versions_that_the_source_dropped_half_way(source: MemoryBackend) -> None:
    target = MemoryBackend()
    key = Key("d/busy")
    put(source, key, b"1")
    move(source, target)
    for n in range(4):
        put(source, key, b"%d" % n)
    source.limits = Limits(keep_versions=2)
    put(source, key, b"9")
    with pytest.raises(HistoryGap, match="stands at 1, the source begins with 5"):
        move(source, target)


# --------------------------------------------------------------------------- what is refused


def test_a_target_with_something_in_it_is_refused(source: MemoryBackend) -> None:
    target = MemoryBackend()
    put(target, Key("d/mine"), None)
    with pytest.raises(UsageError, match=r"not empty.*'mine'"):
        move(source, target)
    assert [*walked(target, 9)] == ["d/mine"]


def test_a_copy_of_another_store_is_refused(source: MemoryBackend) -> None:
    target = MemoryBackend()
    transfer.move(MemoryBackend(), target, "sqlite:///other", SYSTEM, lambda progress: None)
    with pytest.raises(UsageError, match="copy of sqlite:///other"):
        move(source, target)


@pytest.mark.parametrize("space", ["d/", "a/"])
def test_a_target_that_was_written_to_is_refused(source: MemoryBackend, space: str) -> None:
    target = MemoryBackend()
    key = Key(f"{space}both")
    put(source, key, b"1")
    move(source, target)
    put(target, key, b"2")
    with pytest.raises(UsageError, match="somebody wrote to the target"):
        move(source, target)
    put(source, key, b"3")
    put(source, key, b"4")
    with pytest.raises(UsageError, match="somebody wrote to the target"):
        move(source, target)


def test_a_value_that_is_too_long_for_the_target(source: MemoryBackend) -> None:
    put(source, Key("d/long"), b'"' + b"x" * 5_000 + b'"')
    target = MemoryBackend(Limits(value_bytes=1_000, keep_versions=1 << 50))
    with pytest.raises(LimitExceeded, match="at most 1000 bytes at 'long'"):
        move(source, target)


# --------------------------------------------------------- the comparison catches everything


def tampered(name: str, record: Record) -> Record:
    value = getattr(record, name)
    other: object = (
        b"[]" if name == "body" else value + 1 if isinstance(value, int) else value + "x"
    )
    return replace(record, **{name: other})


@pytest.mark.parametrize("field", [f for f in Record.__struct_fields__ if f != "key"])
@pytest.mark.parametrize("where", ["head", "version"])
def test_one_wrong_field_is_found(source: MemoryBackend, field: str, where: str) -> None:
    target = MemoryBackend()
    assert move(source, target).same
    key = Key("d/doc/3 é\0000")
    versions = target._history[key]
    if where == "head":
        target._heads[key] = tampered(field, target._heads[key])
    else:
        versions[1] = tampered(field, versions[1])
    report = transfer.compare(source, target, lambda progress: None)
    assert not report.same
    assert (report.different, report.named) == (1, [key.name])


def lost_history(target: MemoryBackend) -> None:
    target._history[Key("d/doc/3 é\0000")].pop(0)


def lost_tombstone(target: MemoryBackend) -> None:
    target._heads.pop(Key("d/doc/4 é\0001"))
    target._order = None


def one_more(target: MemoryBackend) -> None:
    put(target, Key("r/more"), b"1")


@pytest.mark.parametrize("harm", [lost_history, lost_tombstone, one_more])
def test_missing_and_extra_records_are_found(
    source: MemoryBackend, harm: Callable[[MemoryBackend], None]
) -> None:
    target = MemoryBackend()
    move(source, target)
    harm(target)
    report = transfer.compare(source, target, lambda progress: None)
    assert not report.same
    assert len(report.named) == 1


class Scanning(MemoryBackend):
    """The bug: only what a scan shows is moved, so deleted keys start again at version 1."""

    def walk(self, cursor: str, limit: int):  # type: ignore[no-untyped-def]
        page = super().walk(cursor, limit)
        return replace(page, records=[each for each in page.records if not each.deleted])


def test_a_copy_that_forgets_tombstones_is_caught(source: MemoryBackend) -> None:
    blind = sharing(source, Scanning)
    target = MemoryBackend()
    move(blind, target)
    report = transfer.compare(source, target, lambda progress: None)
    assert report.behind > 0
    assert not report.same


class Rewriting(MemoryBackend):
    """The bug: records are written anew, with versions and times of the target's own."""

    def apply(self, batch: Batch) -> list[Outcome]:
        outcomes = super().apply(batch)
        for record in (each for outcome in outcomes for each in outcome.writes):
            self._heads[Key(record.key)] = replace(record, at=self.now_ms())
        return outcomes


def test_a_copy_that_writes_anew_is_caught(source: MemoryBackend) -> None:
    report = move(source, Rewriting())
    assert report.different > 0


def test_the_digest_is_the_stores_and_not_the_orders(source: MemoryBackend) -> None:
    one, other = MemoryBackend(), MemoryBackend()
    digest = move(source, one).digest
    heads: Sequence[list[Record]] = list(contents(source).values())
    for records in reversed(heads):
        restore(other, records[:-1] or records)
    assert transfer.compare(other, one, lambda progress: None).digest == digest
    put(other, Key("d/x"), b"1")
    assert transfer.compare(other, one, lambda progress: None).digest != digest
