"""What only DynamoDB has: tables, their keys and settings, limits in bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import perkey
from perkey import LimitExceeded, NotSupported, SchemaMismatch, Store, StoreUnavailable
from perkey.store.keys import Key
from perkey.store.transaction import Tx
from tests.backends.secrets import SECRET, hidden, hidden_by
from tests.servers.dynamodb import DynamoDB


@pytest.fixture
def plain(dynamodb_server: DynamoDB) -> Any:
    return dynamodb_server.client()


@pytest.fixture
def store(dynamodb_server: DynamoDB) -> Iterator[Store]:
    with perkey.open(dynamodb_server.url) as store:
        yield store


def table(server: DynamoDB, name: str, create: str = "&create=yes") -> str:
    return server.url.replace("@perkey?", f"@{name}?").replace("&create=yes", create)


def test_a_table_is_made_only_where_that_was_asked_for(
    dynamodb_server: DynamoDB, plain: Any
) -> None:
    with pytest.raises(StoreUnavailable, match="create=yes"):
        perkey.open(table(dynamodb_server, "Made.Here", create=""))
    with perkey.open(table(dynamodb_server, "Made.Here")) as store:
        store.put("a", 1, create=True)
        told = store.backend.describe()
    assert (told["status"], told["billing"]) == ("ACTIVE", "PAY_PER_REQUEST")
    assert told["address"].endswith("/Made.Here")
    assert "Made.Here" in plain.list_tables()["TableNames"]
    with perkey.open(table(dynamodb_server, "Made.Here", create="")) as store:
        assert store.get("a").value == 1


@pytest.mark.parametrize("kind", ["S", "N"])
def test_a_foreign_table_is_refused(dynamodb_server: DynamoDB, plain: Any, kind: str) -> None:
    keys = [("p", "HASH"), ("s", "RANGE")]
    plain.create_table(
        TableName=f"foreign{kind}",
        KeySchema=[{"AttributeName": name, "KeyType": use} for name, use in keys],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": kind} for name, _ in keys],
        BillingMode="PAY_PER_REQUEST",
    )
    with pytest.raises(SchemaMismatch, match="no perkey store"):
        perkey.open(table(dynamodb_server, f"foreign{kind}"))
    assert plain.scan(TableName=f"foreign{kind}")["Items"] == []


def test_a_newer_format_is_refused(dynamodb_server: DynamoDB, plain: Any) -> None:
    place = table(dynamodb_server, "newer")
    perkey.open(place).close()
    marker = {"p": {"B": b"perkey"}, "s": {"B": b"format"}, "v": {"N": "2"}}
    plain.put_item(TableName="newer", Item=marker)
    with pytest.raises(SchemaMismatch, match="format 2"):
        perkey.open(place)


def test_a_table_that_forgets_is_a_concern(dynamodb_server: DynamoDB, plain: Any) -> None:
    with perkey.open(table(dynamodb_server, "forgetful")) as store:
        assert store.backend.concerns() == []
        plain.update_time_to_live(
            TableName="forgetful",
            TimeToLiveSpecification={"Enabled": True, "AttributeName": "old"},
        )
        assert "'old' (TTL)" in " ".join(store.backend.concerns())


def test_fifty_documents_commit_together(store: Store) -> None:
    names = [f"fifty/{n:02}" for n in range(51)]

    def fill(tx: Tx, names: list[str]) -> None:
        for name in names:
            tx[name] = 1

    store.transact(names[:50], lambda tx: fill(tx, names[:50]))
    assert len(list(store.scan("fifty/"))) == 50
    with pytest.raises(NotSupported, match="50 keys"):
        store.transact(names, lambda tx: fill(tx, names))


def items(plain: Any) -> int:
    """How many items the table has; one page of a scan ends after 1 MB."""
    pages = plain.get_paginator("scan").paginate(TableName="perkey", Select="COUNT")
    return sum(page["Count"] for page in pages)


def test_a_record_without_history_is_one_item(store: Store, plain: Any) -> None:
    before = items(plain)
    for n in range(5):
        store.transact(Key("l/one item"), lambda tx, n=n: tx.__setitem__(Key("l/one item"), n))
    assert items(plain) == before + 1


def test_an_item_bounds_a_value(store: Store) -> None:
    most = store.limits.value_bytes
    assert most == 400 * 1024 - 8_192
    store.put("long", "x" * (most - 2), overwrite=True)
    with pytest.raises(LimitExceeded, match=str(most)):
        store.put("long", "x" * (most - 1), overwrite=True)
    names = [f"long/{n}" for n in range(6)]

    def fill(tx: Tx) -> None:
        for name in names:
            tx[name] = "x" * (most - 2)

    with pytest.raises(LimitExceeded, match="counted twice"):
        store.transact(names, fill)
    assert list(store.scan("long/")) == []


def test_old_versions_leave_the_table(dynamodb_server: DynamoDB, plain: Any) -> None:
    with perkey.open(
        table(dynamodb_server, "short"), limits=perkey.Limits(keep_versions=5)
    ) as store:
        for n in range(50):
            store.put("a", n, overwrite=True)
        assert [each.value for each in store.history("a")] == [45, 46, 47, 48, 49]
    assert plain.scan(TableName="short", Select="COUNT")["Count"] < 30


def test_a_password_never_shows(dynamodb_server: DynamoDB) -> None:
    with perkey.open(dynamodb_server.url.replace(":perkey@", f":{SECRET}@")) as store:
        hidden_by(store)
    with pytest.raises(StoreUnavailable) as caught:
        perkey.open(f"dynamodb://someone:{SECRET}@table?endpoint=http://127.0.0.1:1")
    hidden(caught.value)
