"""pgbouncer itself, in transaction mode: many clients on a few sessions, none of them their own."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

import perkey
from perkey import Change, LeaseHeld, Leases, Once, Store, Synced
from perkey.store.abc import Listens
from perkey.testing.conformance import CHECKS, check_backend
from tests.backends.crew import crew
from tests.races.processes import finished
from tests.servers.pgbouncer import SESSIONS, PgBouncer
from tests.servers.postgres import Postgres

PROCESSES, EACH = 2 * SESSIONS, 30


@pytest.fixture(scope="module")
def pooler(postgres_server: Postgres) -> Iterator[PgBouncer]:
    with PgBouncer(postgres_server.port) as pooler:
        yield pooler


@pytest.fixture
def store(pooler: PgBouncer) -> Iterator[Store]:
    with perkey.open(pooler.url) as store:
        yield store


def test_it_is_noticed_by_itself(store: Store, postgres_server: Postgres) -> None:
    assert store.backend.describe()["pooler"].startswith("in between")
    assert isinstance(store.backend, Listens)
    assert store.backend.listen() is None
    with perkey.open(postgres_server.url) as straight:
        assert straight.backend.describe()["pooler"] == "none"


@pytest.mark.parametrize("name", CHECKS)
def test_conformance(pooler: PgBouncer, name: str) -> None:
    (result,) = check_backend(pooler.url, only=[name]).raise_if_failed().results
    assert result.status == "passed"


ADDER = """
key, count = arguments[0], int(arguments[1])
store = perkey.open(url)

def add(tx):
    for name in (key, f"{key}/second"):
        tx[name] = tx.get(name, 0) + 1
    return tx[key]

say("ready")
hear()
for n in range(count):
    store.transact([key, f"{key}/second"], add)
    if n == 10:
        say("under way")
"""


def test_more_processes_than_sessions_count_to_the_last_one(
    pooler: PgBouncer, store: Store
) -> None:
    """Also when one of them is killed in the middle of a transaction that others wait for."""
    with crew(ADDER, pooler.url, [("bouncer/n", EACH)] * PROCESSES) as adders:
        doomed, *rest = adders
        for adder in adders:
            assert adder.hear() == "under way"
        doomed.signal(signal.SIGKILL)
        finished(rest)
        doomed.end()
    found, second = store.get("bouncer/n"), store.get("bouncer/n/second")
    assert found.value == found.version == second.value
    assert EACH * (PROCESSES - 1) + 11 <= found.value <= EACH * PROCESSES


def test_leases_receipts_and_watching(store: Store, postgres_server: Postgres) -> None:
    lease = Leases(store).acquire("bouncer/job", ttl=600)
    with (
        perkey.open(postgres_server.url) as straight,
        store.watch("bouncer/watched") as changes,
    ):
        straight.put("bouncer/watched", 1, create=True)
        item = next(changes)
        while not isinstance(item, Change):
            assert isinstance(item, Synced)
            item = next(changes)
        assert item.document.value == 1
        with pytest.raises(LeaseHeld):
            Leases(straight).acquire("bouncer/job", ttl=1, wait=0.01)
    store.put("bouncer/watched", 2, if_match=1, fence=lease.fence)
    for _ in range(2):
        Once(store).transact(
            "bouncer/once", "bouncer/paid", lambda tx: tx.__setitem__("bouncer/paid", 1)
        )
    assert store.get("bouncer/paid").version == 1


def test_it_may_be_restarted(postgres_server: Postgres) -> None:
    with PgBouncer(postgres_server.port) as pooler, perkey.open(pooler.url) as store:
        for n in range(1, 4):
            assert store.put("bouncer/restarted", n, overwrite=True).version == n
            pooler.restart()
            assert store.get("bouncer/restarted").value == n
