"""PostgreSQL behind a pooler in transaction mode, and word of commits where there is none."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

import perkey
from perkey import Change, Store, Synced, UsageError
from perkey.clock import SYSTEM
from perkey.store import watch
from perkey.store.abc import Listens
from perkey.store.backends import postgres_commits as commits
from perkey.store.backends import postgres_queries as sql
from perkey.store.backends.postgres_link import Link
from perkey.store.limits import Limits
from perkey.store.url import open_backend, parse
from perkey.testing.conformance import check_backend
from tests.backends.crew import crew
from tests.races.processes import finished
from tests.servers.pooler import SESSIONS, Pooler
from tests.servers.postgres import Postgres

LONG_S = 600.0


@pytest.fixture
def pooler(postgres_server: Postgres) -> Iterator[Pooler]:
    with Pooler(postgres_server.port) as pooler:
        yield pooler


@pytest.fixture
def plain(postgres_server: Postgres) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def never_looks_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher that waits for word, or for ever."""
    monkeypatch.setattr(watch, "POLL_S", LONG_S)
    monkeypatch.setattr(watch._left, "__defaults__", (LONG_S,))


def ears(plain: psycopg.Connection) -> int:
    """How many sessions listen."""
    found = plain.execute(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' "
        f"AND (classid::bigint << 32) + objid::bigint = {sql.EARS}".encode()
    ).fetchone()
    assert found is not None
    return int(found[0])


def until(plain: psycopg.Connection, count: int) -> None:
    while ears(plain) != count:
        pass


# -------------------------------------------------------------------------------- a pooler


def test_a_pooler_is_noticed_and_nothing_is_kept_in_a_session(
    postgres_server: Postgres, pooler: Pooler
) -> None:
    with perkey.open(pooler.url(postgres_server.url)) as store:
        for n in range(1, 20):
            assert store.put("pooled", n, overwrite=True).value == n
            assert store.get("pooled").value == n
        assert [each.value for each in store.history("pooled", limit=100)] == [*range(1, 20)]
        assert store.backend.describe()["pooler"].startswith("in between")
        assert len(pooler.used) == SESSIONS
    with perkey.open(postgres_server.url) as store:
        assert store.backend.describe()["pooler"] == "none"


def write_often(store: Store) -> None:
    for n in range(10):
        store.put("prepared", n, overwrite=True)


def test_prepared_statements_do_not_survive_there(
    postgres_server: Postgres, pooler: Pooler
) -> None:
    """Told to prepare all the same, it fails plainly: that is what is noticed and avoided."""
    with (
        perkey.open(pooler.url(postgres_server.url) + "?prepare=yes") as store,
        pytest.raises(perkey.StoreError, match="prepared statement"),
    ):
        write_often(store)


@pytest.mark.parametrize(
    "name",
    [
        "all_or_nothing_over_several_keys",
        "a_lost_reply_over_several_keys",
        "retention_by_age",
    ],
)
def test_conformance_behind_a_pooler(postgres_server: Postgres, pooler: Pooler, name: str) -> None:
    check_backend(pooler.url(postgres_server.url), only=[name]).raise_if_failed()


ADDER = """
key = arguments[0]
store = perkey.open(url)

def add(tx):
    tx[key] = tx.get(key, 0) + 1

say("ready")
hear()
for _ in range(40):
    store.transact(key, add)
"""


def test_processes_behind_a_pooler_count_to_the_last_one(
    postgres_server: Postgres, pooler: Pooler
) -> None:
    url = pooler.url(postgres_server.url)
    with crew(ADDER, url, [("pooled/counted",)] * 3) as adders:
        finished(adders)
    with perkey.open(postgres_server.url) as store:
        assert store.get("pooled/counted").value == 120


def test_behind_a_pooler_a_watcher_looks_by_itself(
    postgres_server: Postgres, pooler: Pooler, plain: psycopg.Connection
) -> None:
    with (
        perkey.open(pooler.url(postgres_server.url)) as store,
        perkey.open(postgres_server.url) as other,
        store.watch("pooled/") as changes,
    ):
        assert isinstance(store.backend, Listens)
        assert store.backend.listen() is None
        other.put("pooled/a", 1, overwrite=True)
        assert first(changes).document.value == 1
        assert ears(plain) == 0
        assert pooler.dropped == 0


def first(changes: perkey.store.watch.Watch) -> Change:
    while not isinstance(item := next(changes), Change):
        assert isinstance(item, Synced)
    return item


# ------------------------------------------------------------------------------------ word


@pytest.mark.usefixtures("never_looks_by_itself")
def test_word_of_another_process_wakes_a_watcher(
    postgres_server: Postgres, plain: psycopg.Connection
) -> None:
    with (
        perkey.open(postgres_server.url) as store,
        perkey.open(postgres_server.url) as other,
        store.watch("word/") as changes,
    ):
        until(plain, 1)
        found: list[Change] = []
        waiting = threading.Thread(target=lambda: found.append(first(changes)))
        waiting.start()
        other.put("word/a", 1, create=True)
        waiting.join(60)
        assert [each.document.key for each in found] == ["word/a"]


@pytest.mark.usefixtures("never_looks_by_itself")
async def test_word_wakes_a_task(postgres_server: Postgres, plain: psycopg.Connection) -> None:
    async with await perkey.aopen(postgres_server.url) as store, store.watch("task/") as changes:
        until(plain, 1)
        assert isinstance(await changes.next(), Synced)
        with perkey.open(postgres_server.url) as other:
            other.put("task/a", 1, create=True)
        item = await changes.next(60)
        assert isinstance(item, Change)
        assert item.document.key == "task/a"


@pytest.mark.usefixtures("never_looks_by_itself")
def test_a_listener_that_lost_its_session_gets_another(
    postgres_server: Postgres, plain: psycopg.Connection
) -> None:
    """What was committed while nobody listened is found as soon as somebody does again."""
    with (
        perkey.open(postgres_server.url) as store,
        perkey.open(postgres_server.url) as other,
        store.watch("lost/") as changes,
    ):
        until(plain, 1)
        assert isinstance(changes.next(60), Synced)
        plain.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks "
            f"WHERE locktype = 'advisory' AND objid::bigint = {sql.EARS & 0xFFFFFFFF}".encode()
        )
        other.put("lost/a", 1, create=True)
        assert first(changes).document.key == "lost/a"
        until(plain, 1)
        other.put("lost/b", 1, create=True)
        assert first(changes).document.key == "lost/b"


def test_nobody_is_told_where_nobody_listens(
    postgres_server: Postgres, plain: psycopg.Connection
) -> None:
    url = postgres_server.url
    plain.execute(f"LISTEN {sql.CHANNEL}".encode())  # without the lock by which listeners show
    with perkey.open(url) as store:
        store.put("told", 1, overwrite=True)
        assert [*plain.notifies(timeout=0)] == []
        with store.watch("told"):
            until(plain, 1)
            store.put("told", 2, overwrite=True)
            assert len([*plain.notifies(timeout=60, stop_after=1)]) == 1
    until(plain, 0)


def test_a_watcher_may_be_told_not_to_listen(
    postgres_server: Postgres, plain: psycopg.Connection
) -> None:
    with perkey.open(postgres_server.url + "?listen=no") as store, store.watch("x") as changes:
        assert isinstance(store.backend, Listens)
        assert store.backend.listen() is None
        assert isinstance(next(changes), Synced)
        assert ears(plain) == 0
    for option in ("listen=maybe", "prepare=maybe"):
        with pytest.raises(UsageError, match="one of yes, no"):
            perkey.open(f"{postgres_server.url}?{option}")


def test_a_commit_whose_word_cannot_be_told_has_landed(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where retention takes a longer way."""
    monkeypatch.setattr(commits, "TELL", (b"SELECT 1 / 0", ()))
    for limits in (Limits(), Limits(keep_versions=1)):
        with perkey.open(postgres_server.url, limits=limits) as store:
            versions = [store.put("untold", n, overwrite=True).version for n in range(3)]
            assert versions == [*range(versions[0], versions[0] + 3)]
            assert store.statistics()["attempts"] == {1: 3}


def test_our_own_commits_are_no_word(postgres_server: Postgres) -> None:
    backend = open_backend(postgres_server.url, Limits(), SYSTEM)
    assert isinstance(backend, Listens)
    listener = backend.listen()
    assert listener is not None
    with Store(backend) as store, perkey.open(postgres_server.url) as other:
        store.put("own", 1, overwrite=True)
        assert not listener.wait(0.5)
        other.put("own", 2, overwrite=True)
        assert listener.wait(60)
        listener.stop()
        assert not listener.wait(60)
    listener.close()


def test_a_link_says_who_is_at_the_other_end(postgres_server: Postgres) -> None:
    link = Link(parse(postgres_server.url), Limits())
    (pid,) = link.connected().execute("SELECT pg_backend_pid()").fetchone()
    assert (link.pid, link.pooled, link.prepares) == (pid, False, True)
    link.hang_up()
