"""What only PostgreSQL has: numbers of transactions, sessions that are ended, settings."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from msgspec.structs import replace

import perkey
from perkey.store.backends import postgres_queries as sql
from perkey.store.backends.postgres_arrays import adapt, bigints, byteas, texts
from perkey.store.backends.postgres_wire import Wire
from perkey.store.keys import Key
from tests.servers.postgres import Postgres


@pytest.fixture
def plain(postgres_server: Postgres) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        yield connection


def test_changes_go_by_the_number_and_not_by_its_text() -> None:
    """The bug: ordered as text, transaction 1000 came before 999, and watchers lost changes."""
    with Postgres() as server, perkey.open(server.url) as store:
        with psycopg.connect(server.url, autocommit=True) as plain:
            key = Key("d/crossing")
            (number,) = plain.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
            assert number < 980, "a new cluster begins below a thousand"
            for _ in range(990 - number):
                plain.execute("SELECT pg_current_xact_id()")
            written = [store.put("crossing", n, overwrite=True).version for n in range(40)]
            row = plain.execute("SELECT max(xid)::text::bigint FROM perkey_versions").fetchone()
            assert row > (1000,)
        for limit in (3, 100):
            cursor, seen = "", []
            while True:
                page = store.backend.changes(key, cursor, limit)
                seen += [record.version for record in page.records]
                cursor = page.cursor
                if page.live and len(seen) >= len(written):
                    break
            assert seen == written


def test_changes_of_a_key_come_in_order_whoever_began_first(
    postgres_server: Postgres, plain: psycopg.Connection
) -> None:
    """The bug: a writer that had its number before it got the row wrote version 2 with a lower
    number than version 1, and watchers saw 2 first."""
    with perkey.open(postgres_server.url) as store:
        begin = store.backend.cursor("d/")
        with plain.transaction():
            plain.execute("SELECT pg_current_xact_id()")
            store.put("inverted", 1, create=True)
            (head,) = store.backend.read([Key("d/inverted")])
            assert head is not None
            later = replace(head, version=2, op="later")
            wire = Wire(plain, prepare=False)
            wire.ask((sql.WRITE, sql.columns([later], [sql.MOVED + sql.KEPT])))
            assert store.backend.changes("d/inverted", begin, 10).records == []
        page = store.backend.changes("d/inverted", begin, 10)
        assert [record.version for record in page.records] == [1, 2]
        rest = store.backend.changes("d/inverted", page.cursors[0], 10)
        assert [record.version for record in rest.records] == [2]


def test_columns_arrive_as_they_are(plain: psycopg.Connection) -> None:
    adapt(plain)
    cases: list[tuple[bytes, str, list[object]]] = [
        (byteas([b"", None, b"\0\xff" * 3000]), "bytea", [b"", None, b"\0\xff" * 3000]),
        (byteas([]), "bytea", []),
        (texts(["", "é \U0001f600", 'a"b,{}']), "text", ["", "é \U0001f600", 'a"b,{}']),
        (bigints([0, -1, 2**63 - 1, -(2**63)]), "bigint", [0, -1, 2**63 - 1, -(2**63)]),
        (bigints([]), "bigint", []),
    ]
    for encoded, kind, expected in cases:
        (found,) = plain.execute(f"SELECT %s::{kind}[]".encode(), (encoded,)).fetchone()
        assert found == expected


def test_sessions_that_the_server_ended_are_replaced(
    postgres_server: Postgres, plain: psycopg.Connection
) -> None:
    """An idle connection that is gone costs its caller nothing, writing or reading."""
    with perkey.open(postgres_server.url) as store:
        for n in range(1, 4):
            plain.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE application_name = 'perkey'"
            )
            assert store.put("ended", n, overwrite=True).value == n
            assert store.get("ended").value == n


def test_commits_are_planned_once_and_go_by_the_index(postgres_server: Postgres) -> None:
    """The plan that is kept from an empty table must not read a full one from end to end."""
    with perkey.open(postgres_server.url) as store:
        for n in range(12):
            store.put("planned", n, overwrite=True)
        session = store.backend._link.connected()  # type: ignore[attr-defined]
        told = session.execute(
            "SELECT min(generic_plans), max(custom_plans) FROM pg_prepared_statements "
            "WHERE name LIKE 'perkey_%'"
        ).fetchone()
        assert told == (12, 0)
        assert session.execute("SHOW enable_seqscan").fetchone() == ("off",)
        # A scan's plan depends on its bounds, so the reading session plans as ever.
        reader = store.core._reader._link.connected()  # type: ignore[attr-defined]
        assert reader is not session
        assert reader.execute("SHOW plan_cache_mode").fetchone() == ("auto",)
        assert reader.execute("SHOW enable_seqscan").fetchone() == ("on",)


@pytest.mark.parametrize("setting", ["synchronous_commit", "fsync", "full_page_writes"])
def test_settings_that_lose_writes_are_told(setting: str) -> None:
    with Postgres(**{setting: "off"}) as server, perkey.open(server.url) as store:
        told = store.backend.concerns()
        assert len(told) == 1
        assert told[0].startswith(f"{setting} is off")


def test_a_well_kept_server_is_no_concern(postgres_server: Postgres) -> None:
    with perkey.open(postgres_server.url) as store:
        facts = store.backend.describe()
        assert [facts[name] for name in ("synchronous_commit", "fsync")] == ["on", "on"]
        assert store.backend.concerns() == []
        assert facts["schema"] == str(len(sql.STEPS))


def test_a_store_behind_a_dead_server_says_where(postgres_server: Postgres) -> None:
    secret = "s3cr3t-w0rd"
    with pytest.raises(perkey.StoreUnavailable) as caught:
        perkey.open(f"postgresql://perkey:{secret}@127.0.0.1:1/postgres")
    assert secret not in str(caught.value)
