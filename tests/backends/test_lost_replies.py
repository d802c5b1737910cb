"""A proxy drops, delays and repeats one reply in ten: nothing is lost, nothing done twice, and
nobody is told of a conflict that never was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import perkey
from perkey import Store
from perkey.store.transaction import Tx
from tests.backends.kinds import Kind
from tests.servers.base import Server
from tests.servers.proxy import Faults, Proxy

FAULTS = Faults(drop=0.05, delay=0.02, duplicate=0.03, delay_seconds=0.02)
INCREMENTS = 200


@pytest.fixture
def proxy(kind: Kind, server: Server) -> Iterator[Proxy]:
    with Proxy(server.port, only=kind.is_write, seed=7) as proxy:
        yield proxy


@pytest.fixture
def lossy(proxy: Proxy, server: Server, kind: Kind) -> Iterator[Store]:
    """A store whose replies get lost, from now on."""
    with perkey.open(proxy.url(server.url) + kind.plain) as store:
        proxy.faults = FAULTS
        yield store
        proxy.faults = Faults()


def faults_met(proxy: Proxy) -> int:
    return sum(proxy.counts[name] for name in ("drop", "delay", "duplicate"))


def test_increments_are_exact(lossy: Store, proxy: Proxy, prefix: str) -> None:
    def add(tx: Tx) -> int:
        tx[prefix] = tx.get(prefix, 0) + 1
        return int(tx[prefix])

    told = [lossy.transact(prefix, add) for _ in range(INCREMENTS)]
    assert told == list(range(1, INCREMENTS + 1))
    record = lossy.get(prefix)
    assert (record.value, record.version) == (INCREMENTS, INCREMENTS)
    assert faults_met(proxy) > INCREMENTS / 20


def test_a_sole_writer_never_meets_a_conflict(lossy: Store, proxy: Proxy, prefix: str) -> None:
    version = lossy.put(prefix, 0, create=True).version
    for n in range(1, INCREMENTS):
        version = lossy.put(prefix, n, if_match=version).version
    assert version == INCREMENTS
    assert [each.value for each in lossy.history(prefix, limit=1000)] == list(range(INCREMENTS))
    assert faults_met(proxy) > INCREMENTS / 20


def test_a_reply_lost_on_purpose(lossy: Store, proxy: Proxy, prefix: str) -> None:
    """Create, replace and delete: each lands, its reply does not come, and it counts once."""
    proxy.faults = Faults()
    for n, act in enumerate(
        (
            lambda: lossy.put(prefix, 1, create=True),
            lambda: lossy.put(prefix, 2, if_match=1),
            lambda: lossy.delete(prefix, if_match=2),
            lambda: lossy.put(prefix, 4, create=True),
        ),
        1,
    ):
        proxy.arm("drop")
        act()
        assert len(lossy.history(prefix)) == n
    assert proxy.counts["drop"] == 4
