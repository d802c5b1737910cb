"""The etcd backend whole, under every schedule of two processes on a fake cluster.

Below ``Optimistic``, which ``test_compare_and_swap`` explores: the requests themselves, as bytes,
each of which may be lost, come late, lose its reply, or be its sender's last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perkey.store.backends import etcd_messages as messages
from perkey.store.backends.etcd_names import unpack_after
from perkey.store.keys import Key
from perkey.store.record import Record
from perkey.testing import explore, register_fingerprint
from tests.explore.processes_apart import (
    A,
    B,
    Heads,
    Process,
    World,
    adding,
    caller,
    each_once,
    world_of,
)
from tests.unit.store.fake_etcd import FakedBackend, FakeEtcd


class Cluster(Heads):
    """The same questions as of any store, asked of a fake etcd."""

    def __init__(self) -> None:
        super().__init__()
        self.etcd = FakeEtcd()

    def made(self, key: Key) -> list[Record]:
        rows = self.etcd.rows.get(b"perkey/h/" + key.encode(), [])
        return [unpack_after(value)[0] for _, value in rows if value is not None]

    def kept(self, key: Key) -> list[Record]:
        """The history of ``key``."""
        start = b"perkey/v/" + key.encode() + b"\xff"
        live = self.etcd.live()
        return [unpack_after(live[name])[0] for name in sorted(live) if name.startswith(start)]


class Asking:
    """The wire of one process: each request is one of its steps."""

    place = "fake:2379"

    def __init__(self, process: Process) -> None:
        self.process = process

    def call(self, path: str, request: bytes) -> bytes:
        etcd = self.process.store.etcd  # type: ignore[attr-defined]
        writes = path == messages.TXN and b"\x10\x02\x1a" in request
        answer: bytes = self.process.ask(
            "commit" if writes else "look", lambda: etcd.call(path, request)
        )
        return answer


def etcd_process(process: Process, limits: Any, clock: Any) -> FakedBackend:
    backend = FakedBackend(process.store.etcd, limits, clock)  # type: ignore[attr-defined]
    backend._wire = Asking(process)  # type: ignore[assignment]
    return backend


def _of_cluster(cluster: Cluster) -> list[Any]:
    etcd = cluster.etcd
    rows = [[name, *map(list, etcd.rows[name])] for name in sorted(etcd.rows)]
    return [etcd.revision, rows, [ask.origin for ask in cluster.late]]


register_fingerprint(Cluster, _of_cluster)


def each_once_with_its_history(world: World, ended: Any) -> None:
    each_once(world, ended)
    for key in (A, B):
        assert world.store.kept(key) == world.store.made(key)  # type: ignore[attr-defined]


def explored(check: Callable[..., Any] = each_once_with_its_history, **budgets: int) -> Any:
    work = [[adding(0, 0, A, attempts=2)], [adding(1, 0, A, B, attempts=2)]]
    return explore(
        world_of(work, Cluster, apply=etcd_process),
        [caller(0), caller(1)],
        check=check,
        symmetric=False,
        seconds=200,
        **budgets,
    )


@pytest.mark.parametrize("budgets", [{"lost_replies": 1, "crashes": 1}, {"failures": 1}])
def test_every_answer_is_the_truth(budgets: dict[str, int]) -> None:
    explored(**budgets).assert_holds()


# --------------------------------------------------------------------------------- planted


def test_a_condition_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a transaction's keys is not compared."""
    whole = messages.writes
    monkeypatch.setattr(
        messages,
        "writes",
        lambda conditions, deletes, puts: whole(list(conditions)[1:], deletes, puts),
    )
    explored().assert_fails("check")


def test_history_that_is_written_afterwards_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version in a commit of its own is missing where its writer died in between."""

    def in_two(self: Any, heads: Any, writes: Any) -> bool:
        deletes, puts = self._written(heads, writes)
        conditions = [
            messages.unchanged(self._names.head(key), self._seen.get(key, 0)) for key in heads
        ]
        now = [each for each in puts if b"perkey/h/" in each]
        later = [each for each in puts if b"perkey/v/" in each]
        request = messages.writes(conditions, deletes, now)
        landed = messages.txn_answer(self._wire.call(messages.TXN, request))[1]
        if landed:
            self._wire.call(messages.TXN, messages.writes([], [], later))
        return landed

    monkeypatch.setattr(FakedBackend, "commit", in_two)
    explored(crashes=1).assert_fails("check")
