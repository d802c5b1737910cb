"""What only PostgreSQL has: numbers of transactions, sessions that are ended, settings."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest
from msgspec.structs import replace
from psycopg.pq.abc import PGresult

import perkey
from perkey.clock import SYSTEM
from perkey.store.backends import postgres_commits as commits
from perkey.store.backends import postgres_queries as sql
from perkey.store.backends import postgres_trim as trim
from perkey.store.backends.postgres_arrays import adapt, bigints, byteas, texts
from perkey.store.backends.postgres_wire import Ask, Wire
from perkey.store.evaluate import Batch, Unit
from perkey.store.fencing import LeaseState, lease_body
from perkey.store.keys import Key
from perkey.store.record import Record
from perkey.store.transaction import Outcome, Transaction, Tx
from perkey.store.url import open_backend
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
            unit = Unit([later], [Outcome(writes=(later,))])
            (ask,) = commits.write(Batch([]), unit, {Key("d/inverted"): head})
            Wire(plain, prepare=False).ask(ask)
            assert store.backend.changes("d/inverted", begin, 10).records == []
        page = store.backend.changes("d/inverted", begin, 10)
        assert [record.version for record in page.records] == [1, 2]
        rest = store.backend.changes("d/inverted", page.cursors[0], 10)
        assert [record.version for record in rest.records] == [2]


def test_a_watcher_loses_nothing_that_goes_while_it_looks(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bug: whether something was gone and what was there were asked one after the other; what
    a commit dropped in between was neither shown nor told."""
    limits = perkey.Limits(keep_versions=2)
    with perkey.open(postgres_server.url, limits=limits) as store:
        cursor = store.backend.cursor("d/")
        store.put("fleeting", 1, create=True)
        backend = open_backend(postgres_server.url, limits, SYSTEM)
        connection = backend._link.connected()
        execute = connection.execute

        def overtaken(*asked: object) -> psycopg.Cursor:
            told = execute(*asked)
            for n in range(5):
                store.put("fleeting", n, overwrite=True)
            return told

        monkeypatch.setattr(connection, "execute", overtaken)
        seen = 0
        for _ in range(3):
            page = backend.changes("d/fleeting", cursor, 10)
            versions = [record.version for record in page.records]
            assert page.gap or versions == [*range(seen + 1, seen + 1 + len(versions))]
            seen, cursor = max([seen, *versions]), page.cursor
        backend.close()
        assert seen > 1


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


@pytest.mark.parametrize(
    "cursor",
    ["pg:²:0", "pg:0:²", "pg:1:-1", f"pg:{2**64}:0", f"pg:0:{2**63}", f"pg:{'9' * 5000}:0"],
)
def test_a_cursor_with_numbers_that_are_none_is_refused(
    postgres_server: Postgres, cursor: str
) -> None:
    """Whoever follows a server's stream sends such a thing; it was an error of ours."""
    with perkey.open(postgres_server.url) as store:
        with pytest.raises(perkey.UsageError, match="expected a cursor"):
            store.backend.changes("d/", cursor, 1)
        highest = f"pg:{2**64 - 1}:{2**63 - 1}"
        assert store.backend.changes("d/", highest, 1).records == []


def trips_of(store: perkey.Store, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The first statement behind BEGIN of each round trip that a commit takes from now on."""
    trips: list[bytes] = []
    right = Wire.ask

    def ask(self: Wire, *asks: Ask, then: Ask | None = None) -> list[PGresult]:
        trips.append(asks[1][0] if asks[0] == commits.BEGIN else asks[0][0])
        return right(self, *asks, then=then)

    monkeypatch.setattr(Wire, "ask", ask)
    return trips


def test_a_document_that_is_known_is_updated_in_one_round_trip(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    with perkey.open(postgres_server.url) as store, perkey.open(postgres_server.url) as other:
        documents, others = perkey.Documents(store), perkey.Documents(other)
        documents.put("guessed", {"n": 0}, create=True)

        def more(value: dict[str, int]) -> dict[str, int]:
            value["n"] += 1
            return value

        trips = trips_of(store, monkeypatch)
        assert documents.update("guessed", more).value == {"n": 1}
        assert trips == [commits.WRITE_ONE]
        trips.clear()
        assert others.update("guessed", more).value == {"n": 2}
        assert trips == [commits.LOCKED_HEADS, commits.WRITE_ONE]
        trips.clear()
        assert documents.update("guessed", more).value == {"n": 3}
        assert trips == [commits.WRITE_ONE, commits.LOCKED_HEADS, commits.WRITE_ONE]
        history = store.history("guessed", limit=10)
        assert [each.version for each in history] == [1, 2, 3, 4]
        assert [each.value["n"] for each in history] == [0, 1, 2, 3]


def test_a_guess_waits_for_a_row_and_is_wrong_after_all(
    postgres_server: Postgres, plain: psycopg.Connection
) -> None:
    """The server compares what it finds when it has the lock, not what it saw before."""
    with perkey.open(postgres_server.url) as store:
        store.put("waited/a", 1, create=True)
        store.put("waited/b", 1, create=True)
        with plain.transaction():
            plain.execute("SELECT 1 FROM perkey_heads WHERE key = 'd/waited/a' FOR UPDATE")

            def both(tx: Tx) -> int:
                tx["waited/a"] += 1
                tx["waited/b"] += 1
                return int(tx["waited/b"])

            results: list[int] = []
            keys = ["waited/a", "waited/b"]
            thread = threading.Thread(target=lambda: results.append(store.transact(keys, both)))
            thread.start()
            waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            while plain.execute(waits).fetchone() == (0,):
                pass
            plain.execute(
                "UPDATE perkey_heads SET version = 2, body = '10', op = 'theirs' "
                "WHERE key = 'd/waited/b'"
            )
        thread.join()
        assert results == [11]
        assert store.get("waited/b").version == 3


@pytest.mark.parametrize("ends", ["COMMIT", "ROLLBACK"])
def test_a_guess_of_one_record_waits_for_its_row(
    postgres_server: Postgres, plain: psycopg.Connection, ends: str
) -> None:
    """Compared with what is there once the row is free; and what was not written leaves nothing."""
    key = f"waited/{ends}"
    with perkey.open(postgres_server.url) as store:
        documents = perkey.Documents(store)
        documents.put(key, 1, create=True)
        plain.execute("BEGIN")
        plain.execute(
            "UPDATE perkey_heads SET body = '10', op = 'theirs' WHERE key = %s",
            (f"d/{key}".encode(),),
        )
        thread = threading.Thread(target=documents.update, args=(key, lambda value: value + 1))
        thread.start()
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        while plain.execute(waits).fetchone() == (0,):
            pass
        plain.execute(ends.encode())
        thread.join()
        assert store.get(key).value == (11 if ends == "COMMIT" else 2)
        assert [each.version for each in store.history(key, limit=10)] == [1, 2]


def test_one_record_arrives_as_it_is(postgres_server: Postgres) -> None:
    """A deletion, a body with every byte, and a record of which no version is kept."""
    with perkey.open(postgres_server.url) as store:
        wire = store.backend._link.wire(store.backend._link.connected())  # type: ignore[attr-defined]
        first = Record("d/one", 1, b"1", "é", 5, "op 1")
        kept = [
            Record("d/one", 2, b"\0\xff" * 3000, "\0", 6, "op 2", "op 1", 2**62, 1),
            Record("d/one", 3, None, "", 7, "op 3", "op 2! op 1", 2**62, 2),
        ]
        lease = [Record("l/one", n, b"%d" % n, "", n, f"op {n}") for n in (1, 2)]
        for head, *later in ([first, *kept], lease):
            wire.ask(*commits.write(Batch([]), Unit([head], []), {}))
            for record in later:
                heads = {Key(head.key): head}
                (ask,) = commits.write_if(Batch([]), Unit([record], []), heads, b"5000")
                assert ask[0] == commits.WRITE_ONE
                now, same = commits.wrote(wire.ask(ask)[0])
                assert same
                assert abs((now or 0) - store.backend.now_ms()) < 3_600_000
                # A second time it is not over that head any more.
                assert commits.wrote(wire.ask(ask)[0]) == (None, False)
                assert store.backend.read([Key(record.key)]) == [record]
                head = record
        assert store.backend.history("d/one", 0, 10) == [first, *kept]
        assert store.backend.history("l/one", 0, 10) == []


def test_a_locked_record_is_written_with_the_patience_of_its_look(
    postgres_server: Postgres, plain: psycopg.Connection
) -> None:
    with perkey.open(postgres_server.url) as store, plain.transaction():
        store.put("patient", 1, overwrite=True)
        (head,) = store.backend.read([Key("d/patient")])
        assert head is not None
        unit = Unit([replace(head, version=head.version + 1, op="later")], [])
        (ask,) = commits.write(Batch([]), unit, {Key(head.key): head})
        assert ask[0] == commits.WRITE_ONE
        plain.execute("SET LOCAL lock_timeout = '7s'")
        assert not commits.unwritten(ask, Wire(plain, prepare=False).ask(ask)[0])
        assert plain.execute("SHOW lock_timeout").fetchone() == ("7s",)


def test_changes_of_one_record_come_in_order_whoever_began_first(
    postgres_server: Postgres, plain: psycopg.Connection
) -> None:
    with perkey.open(postgres_server.url) as store:
        begin = store.backend.cursor("d/")
        with plain.transaction():
            plain.execute("SELECT pg_current_xact_id()")
            store.put("inverted/one", 1, create=True)
            (head,) = store.backend.read([Key("d/inverted/one")])
            assert head is not None
            later = replace(head, version=2, op="later")
            unit = Unit([later], [])
            (ask,) = commits.write_if(Batch([]), unit, {Key(head.key): head}, b"5000")
            assert ask[0] == commits.WRITE_ONE
            assert commits.wrote(Wire(plain, prepare=False).ask(ask)[0])[1]
        page = store.backend.changes("d/inverted/one", begin, 10)
        assert [record.version for record in page.records] == [1, 2]


def test_a_key_that_was_found_missing_is_not_made_meanwhile(postgres_server: Postgres) -> None:
    """The bug: two processes each found the other's key missing, and both made their own."""
    with perkey.open(postgres_server.url) as one, perkey.open(postgres_server.url) as two:
        both_look = threading.Barrier(2)
        made: list[str] = []

        def make(store: perkey.Store, mine: str, other: str) -> None:
            looked: list[bool] = []

            def alone(tx: Tx) -> bool:
                if not looked:
                    looked.append(True)
                    both_look.wait()
                if other in tx:
                    return False
                tx[mine] = 1
                return True

            if store.transact([mine, other], alone):
                made.append(mine)

        sides = ((one, "skew/x", "skew/y"), (two, "skew/y", "skew/x"))
        threads = [threading.Thread(target=make, args=side) for side in sides]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(made) == 1
        assert [each.key for each in one.scan("skew/")] == made
        count = one.backend._link.connected().execute(  # type: ignore[attr-defined]
            "SELECT count(*) FROM perkey_heads WHERE version = 0"
        )
        assert count.fetchone() == (0,)


@pytest.mark.parametrize("what", ["reads", "did it itself", "may not do it again"])
def test_who_waits_for_a_commit_sees_all_of_it(
    postgres_server: Postgres, plain: psycopg.Connection, what: str
) -> None:
    """The bugs: whoever waited for the row that a commit moves did not find the row that it makes.
    A reader was told half of it; one whose own commit that was did it again, or was refused."""
    moved, made = Key(f"d/whole/{what}"), Key(f"d/whole/{what}/paid")

    def pay(tx: Tx) -> int:
        paid = int(tx.body(moved) or b"0")
        if paid and what == "may not do it again":
            raise ValueError("no funds")
        tx.put_body(moved, b"%d" % (paid + 1))
        tx.put_body(made, b"1")
        return paid + 1

    def read(tx: Tx) -> int:
        return int(tx.body(made) or b"0")

    with perkey.open(postgres_server.url) as one, perkey.open(postgres_server.url) as two:
        one.put(moved[2:], 0, create=True)
        session = one.backend
        batch = Batch([Transaction((moved, made), pay, op=what)])
        heads, now = session._locked(batch)  # type: ignore[attr-defined]
        unit = batch.evaluate(heads, now, lambda key, version: None)
        wire = session._link.wire(session._link.connected())  # type: ignore[attr-defined]
        wire.ask(*commits.write(batch, unit, heads))
        if what == "reads":
            batch = Batch([Transaction((moved, made), read)])
        else:  # nobody has heard of the first attempt, which is still under way
            batch.doubts.append(unit)
        told: list[Outcome] = []
        thread = threading.Thread(target=lambda: told.extend(two.backend.apply(batch)))
        thread.start()
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while plain.execute(waits).fetchone() == (0,):
            pass
        wire.ask(commits.COMMIT)
        thread.join()
        assert [(each.result, each.error) for each in told] == [(1, None)]
        assert [record.version for record in one.backend.history(moved, 0, 10)] == [1, 2]


def test_a_lease_that_has_ended_stops_a_write_whose_clock_stood_still(
    postgres_server: Postgres, plain: psycopg.Connection
) -> None:
    """The bug: the lease was held by a time that was carried on, and the server's was not asked."""
    with perkey.open(postgres_server.url) as store:
        store.put("fenced", 0, create=True)
        lease = perkey.Leases(store).acquire("fenced", ttl=3600)
        store.put("fenced", 1, overwrite=True, fence=lease.fence)
        refused: list[perkey.PerkeyError] = []

        def write() -> None:
            try:
                store.put("fenced", 2, overwrite=True, fence=lease.fence)
            except perkey.LeaseLost as lost:
                refused.append(lost)

        known = store.backend._known  # type: ignore[attr-defined]
        # This process's clock stood still for an hour: the next try goes by an old time.
        known._told = (known._told[0], known._told[1] - 3_600_000)
        known._latest -= 3_600_000
        state = LeaseState("", lease.token, known._told[1] + 3_600_000)
        for key, head in known._heads.items():
            if head.body is not None and head.key == lease.fence.lease:
                body = lease_body(state)
                known._heads[key] = replace(head, body=body)
                plain.execute(
                    "UPDATE perkey_heads SET body = %s WHERE key = %s", (body, key.encode())
                )
        write()
        assert len(refused) == 1
        assert store.get("fenced").value == 1


def counted_up(store: perkey.Store, key: str, times: int) -> list[int]:
    """The versions that are kept of a document after so many more updates."""
    for _ in range(times):
        store.put(key, times, overwrite=True)
    return [each.version for each in store.history(key, limit=100)]


@pytest.mark.parametrize("limits", [{"keep_versions": 3}, {"keep_versions": 3, "keep_s": 3600}])
def test_what_is_over_the_limit_goes_in_the_same_trip(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    key = f"trimmed/{len(limits)}"
    with perkey.open(postgres_server.url, limits=perkey.Limits(**limits)) as store:  # type: ignore[arg-type]
        begin = store.backend.cursor("d/")
        counted_up(store, key, 4)
        trips = trips_of(store, monkeypatch)
        assert counted_up(store, key, 5) == [7, 8, 9]
        assert trips == [commits.WRITE_ONE] * 5
        page = store.backend.changes(f"d/{key}", begin, 100)
        assert page.gap
        assert [each.version for each in page.records] == [7, 8, 9]
        assert not store.backend.changes(f"d/{key}", page.cursors[0], 100).gap


@pytest.mark.parametrize("known", [True, False])
def test_a_database_put_back_to_a_backup_keeps_its_history(
    postgres_server: Postgres, plain: psycopg.Connection, known: bool
) -> None:
    """What is dropped is counted from the head that is there, not from the one that was guessed."""
    key = f"put-back/{known}"
    with perkey.open(postgres_server.url, limits=perkey.Limits(keep_versions=3)) as store:
        assert counted_up(store, key, 9) == [7, 8, 9]
        plain.execute("UPDATE perkey_heads SET version = 3 WHERE key = %s", (f"d/{key}".encode(),))
        plain.execute(
            "UPDATE perkey_versions SET version = version - 6 WHERE key = %s",
            (f"d/{key}".encode(),),
        )
        if not known:
            store.backend._known._heads.clear()  # type: ignore[attr-defined]
        assert counted_up(store, key, 1) == [2, 3, 4]


def test_trimming_goes_by_the_index(postgres_server: Postgres) -> None:
    with perkey.open(postgres_server.url) as store:
        store.put("planned", 1, overwrite=True)
        session = store.backend._link.connected()  # type: ignore[attr-defined]
        for statement in (trim.BY_COUNT, trim.BY_AGE):
            session.execute("DEALLOCATE ALL")
            session.execute(b"PREPARE trimming (bytea[], bigint) AS " + statement)
            plan = session.execute("EXPLAIN EXECUTE trimming ('{}', 1)").fetchall()
            told = "\n".join(row[0] for row in plan)
            assert "Seq Scan on perkey_versions" not in told
            assert told.count("perkey_versions_pkey") == told.count(" on perkey_versions ") - 1


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
            store.put(f"planned/{n}", n, overwrite=True)
        session = store.backend._link.connected()  # type: ignore[attr-defined]
        told = session.execute(
            "SELECT min(generic_plans), max(custom_plans) FROM pg_prepared_statements "
            "WHERE name LIKE 'perkey_%'"
        ).fetchone()
        assert told is not None
        assert told[0] >= 11
        assert told[1] == 0
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
        store.put("well-kept", 1, overwrite=True)  # other tests may have restored later dates
        assert store.backend.concerns() == []
        assert facts["schema"] == str(len(sql.STEPS))


def test_a_clock_that_was_set_back_is_told_and_stops_nothing_for_good() -> None:
    """Who has seen the later time stands at it; who has not, or is new, goes by the server."""
    with Postgres() as server, perkey.open(server.url) as store:
        assert store.backend.concerns() == [], "there is no version yet"
        store.put("set-back", 1, create=True)
        assert store.backend.concerns() == []
        known = store.backend._known  # type: ignore[attr-defined]
        later = known.told(store.backend.now_ms() + 3_600_000)
        assert store.put("set-back", 2, overwrite=True).at.timestamp() * 1000 >= later - 1
        assert store.backend.now_ms() >= later
        (told,) = store.backend.concerns()
        assert "its clock was set back" in told
        assert 3_000 < int(told.partition("dated ")[2].partition(" s ")[0]) <= 3_600
        with perkey.open(server.url) as new:
            assert new.backend.now_ms() < later - 3_000_000
        assert known.told(later + 1) == later + 1


def test_a_store_behind_a_dead_server_says_where(postgres_server: Postgres) -> None:
    secret = "s3cr3t-w0rd"
    with pytest.raises(perkey.StoreUnavailable) as caught:
        perkey.open(f"postgresql://perkey:{secret}@127.0.0.1:1/postgres")
    assert secret not in str(caught.value)
