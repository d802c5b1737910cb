"""What goes to DynamoDB, and what its answers mean."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from perkey.errors import StoreUnavailable, UsageError
from perkey.store.backends import dynamodb_client
from perkey.store.backends.dynamodb import DynamoDBBackend
from perkey.store.backends.dynamodb_client import Client, Refusal
from perkey.store.backends.dynamodb_items import head
from perkey.store.backends.port import NothingDone
from perkey.store.keys import Key
from perkey.store.limits import Limits
from perkey.store.record import Record
from perkey.store.url import parse
from tests.unit.manual_clock import ManualClock
from tests.unit.objects.answers import Answers

SECRET = "s3cr3t-w0rd"
TYPE = "com.amazonaws.dynamodb.v20120810#"
DOCUMENT, CELL = Key("d/a"), Key("l/a")


class Rig:
    """A backend whose server gives the answers that a test queues."""

    def __init__(self, server: Answers) -> None:
        self.server = server
        self.clock = ManualClock()
        url = f"dynamodb://name:{SECRET}@Table?endpoint=http://127.0.0.1:{server.port}"
        self.client = Client(parse(url), Limits(), self.clock)
        self.backend = DynamoDBBackend(self.client, Limits(), self.clock)

    def gives(self, **answer: Any) -> None:
        self.server.give(200, json.dumps(answer).encode())

    def refuses(self, code: str, status: int = 400, **more: Any) -> None:
        self.server.give(status, json.dumps({"__type": TYPE + code, **more}).encode())

    def cancels(self, *codes: str, item: object = None) -> None:
        reasons: list[dict[str, object]] = [{"Code": code} for code in codes]
        if item is not None:
            reasons[0]["Item"] = item
        self.refuses("TransactionCanceledException", CancellationReasons=reasons)

    @property
    def sent(self) -> dict[str, Any]:
        """The last request."""
        body: dict[str, Any] = json.loads(self.server.asked[-1].body)
        return body

    @property
    def action(self) -> str:
        return self.server.asked[-1].headers["x-amz-target"].partition(".")[2]

    def commit(self, key: Key = DOCUMENT) -> bool:
        return self.backend.commit({key: None}, [record(key)])


def record(key: Key, op: str = "op") -> Record:
    return Record(key, 1, b"1", "", 0, op)


def item_of(kept: Record) -> dict[str, Any]:
    """What the server would send of a record's head."""
    found: dict[str, Any] = json.loads(dynamodb_client.msgspec.json.encode(head(kept, 1, 0)))
    return found


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Answers() as server:
        rig = Rig(server)
        yield rig
        rig.backend.close()
        assert server.used_up


# ------------------------------------------------------------------------------ writing


def test_a_document_and_its_version_are_one_transaction(rig: Rig) -> None:
    rig.gives()
    assert rig.commit()
    assert rig.action == "TransactWriteItems"
    first, second = (each["Put"] for each in rig.sent["TransactItems"])
    assert first["ConditionExpression"] == "attribute_not_exists(p)"
    assert first["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"
    assert "ConditionExpression" not in second
    assert {first["TableName"], second["TableName"]} == {"Table"}
    token = rig.sent["ClientRequestToken"]
    rig.gives()
    assert rig.commit()
    assert rig.sent["ClientRequestToken"] != token


def test_a_record_without_history_is_one_conditional_put(rig: Rig) -> None:
    rig.gives()
    assert rig.commit(CELL)
    assert rig.action == "PutItem"
    assert rig.sent["ConditionExpression"] == "attribute_not_exists(p)"


def test_a_key_that_is_only_compared_is_checked(rig: Rig) -> None:
    rig.gives()
    assert rig.backend.commit({CELL: None, Key("l/b"): None}, [record(CELL)])
    kinds = sorted(kind for each in rig.sent["TransactItems"] for kind in each)
    assert kinds == ["ConditionCheck", "Put"]


def test_a_condition_that_fails_is_a_conflict(rig: Rig) -> None:
    rig.refuses("ConditionalCheckFailedException", Item=item_of(record(CELL, "another")))
    assert not rig.commit(CELL)
    rig.cancels("ConditionalCheckFailed", "None", item=item_of(record(DOCUMENT, "another")))
    assert not rig.commit()
    rig.cancels("TransactionConflict", "None")
    assert not rig.commit()


def test_what_stands_there_may_be_our_own(rig: Rig) -> None:
    """Something between repeated the request: the first one landed, and it is no conflict."""
    rig.refuses("ConditionalCheckFailedException", Item=item_of(record(CELL)))
    assert rig.commit(CELL)
    rig.cancels("ConditionalCheckFailed", "None", item=item_of(record(DOCUMENT)))
    assert rig.commit()


def test_a_refusal_means_that_nothing_was_done(rig: Rig) -> None:
    rig.cancels("ConditionalCheckFailed", "ValidationError")
    with pytest.raises(NothingDone, match=r"TransactionCanceled.*ValidationError"):
        rig.commit()
    rig.refuses("AccessDeniedException", message=f"no: {SECRET}")
    with pytest.raises(NothingDone, match="AccessDenied") as caught:
        rig.commit(CELL)
    assert SECRET not in str(caught.value)
    rig.refuses("ResourceNotFoundException")
    with pytest.raises(NothingDone, match="create=yes"):
        rig.commit(CELL)


@pytest.mark.parametrize(
    ("status", "code"), [(500, "InternalServerError"), (400, "TransactionInProgressException")]
)
def test_a_failure_half_way_means_nothing(rig: Rig, status: int, code: str) -> None:
    rig.refuses(code, status)
    with pytest.raises(StoreUnavailable) as caught:
        rig.commit()
    assert not isinstance(caught.value, NothingDone)


def test_a_write_is_never_sent_twice(rig: Rig) -> None:
    rig.server.hang_up()
    with pytest.raises(StoreUnavailable):
        rig.commit()
    assert len(rig.server.asked) == 1


def test_too_much_to_do_is_asked_again(rig: Rig) -> None:
    rig.refuses("ProvisionedThroughputExceededException")
    rig.cancels("ThrottlingError", "None")
    rig.gives()
    assert rig.commit()
    assert len(rig.clock.slept) == 2
    for _ in range(dynamodb_client.ASKED_AGAIN):
        rig.refuses("ThrottlingException")
    with pytest.raises(NothingDone, match="Throttling"):
        rig.commit(CELL)


# ------------------------------------------------------------------------------ reading


def test_reads_are_strongly_consistent(rig: Rig) -> None:
    rig.gives(Item=item_of(record(CELL)))
    assert rig.backend.read([CELL]) == [record(CELL)]
    assert (rig.action, rig.sent["ConsistentRead"]) == ("GetItem", True)
    rig.gives(Items=[])
    assert rig.backend.scan("d/", "", 5) == []
    assert (rig.action, rig.sent["ConsistentRead"]) == ("Query", True)


def test_several_heads_are_read_in_one_transaction(rig: Rig) -> None:
    rig.cancels("TransactionConflict", "None")
    rig.gives(Responses=[{"Item": item_of(record(CELL))}, {}])
    assert rig.backend.read([CELL, DOCUMENT]) == [record(CELL), None]
    assert rig.action == "TransactGetItems"


def test_a_query_goes_on_where_a_page_ended(rig: Rig) -> None:
    rig.gives(Items=[item_of(record(Key("d/a")))], LastEvaluatedKey={"p": 1})
    rig.gives(Items=[item_of(record(Key("d/b")))])
    assert [each.key for each in rig.backend.scan("d/", "", 5)] == ["d/a", "d/b"]
    assert rig.sent["ExclusiveStartKey"] == {"p": 1}


def test_an_answer_that_is_none_is_no_refusal(rig: Rig) -> None:
    rig.server.give(502, b"<html>")
    with pytest.raises(StoreUnavailable, match="status 502"):
        rig.backend.read([CELL])
    rig.server.give(413, b"<html>")
    with pytest.raises(NothingDone, match="status 413"):
        rig.backend.read([CELL])


def test_a_refusal_knows_its_reasons() -> None:
    refusal = Refusal("Cancelled", ["None", "A", "B"])
    assert refusal.only({"A", "B"})
    assert not refusal.only({"A"})
    assert refusal.any({"A"})
    assert Refusal("A").only({"A"})


# ------------------------------------------------------------------------------ the URL


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("dynamodb://", "dynamodb://table"),
        ("dynamodb://table:80", "dynamodb://table"),
        ("dynamodb://table/path", "dynamodb://table"),
        ("dynamodb://k:s@table?timeout=0", "in seconds"),
        ("dynamodb://k:s@table?colour=red", "no option 'colour'"),
        (f"dynamodb://table?endpoint=http://me:{SECRET}@h", "without path and password"),
    ],
)
def test_a_url_is_read_with_care(url: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected) as caught:
        Client(parse(url), Limits(), ManualClock())
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("region", "place"),
    [("eu-1", "dynamodb.eu-1.amazonaws.com"), ("cn-1", "dynamodb.cn-1.amazonaws.com.cn")],
)
def test_where_a_url_leads(region: str, place: str) -> None:
    client = Client(parse(f"dynamodb://k:s@My.Table_1?region={region}"), Limits(), ManualClock())
    assert client.place == f"{place}/My.Table_1"
