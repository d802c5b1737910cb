"""Items: where records stand, in which order, how long they may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perkey.errors import InvalidKey, LimitExceeded
from perkey.store.backends import dynamodb_items as items
from perkey.store.record import Record

texts = st.text(st.sampled_from("\0ab~/é\U0001f600\U0010ffff"), min_size=1, max_size=9)


def record(key: str = "d/a", body: bytes | None = b"1", op: str = "op") -> Record:
    return Record(key, 3, body, "ann", 7, op)


@given(texts, texts)
def test_heads_stand_in_key_order(one: str, other: str) -> None:
    first, second = (items.head_key(f"d/{key}")["s"]["B"] for key in (one, other))
    assert (first < second) == (one.encode() < other.encode())
    assert first < first + items.HIGHEST > (one + "\U0010ffff").encode()


@given(st.integers(0, 2**60), st.integers(0, 2**60))
def test_versions_stand_in_order(one: int, other: int) -> None:
    assert (items.numbered(one) < items.numbered(other)) == (one < other)


@given(texts, texts)
def test_no_two_records_share_an_item(one: str, other: str) -> None:
    places = [items.head_key(f"d/{one}"), items.head_key(f"b/{one}"), items.version_key("d/x", 1)]
    places += [items.version_key(f"d/{one}", 1), items.version_key(f"d/{one}", 2)]
    if one != other:
        places += [items.head_key(f"d/{other}"), items.version_key(f"d/{other}", 1)]
    if "x" not in (one, other):
        assert len({(each["p"]["B"], each["s"]["B"]) for each in places}) == len(places)


def test_a_key_has_a_longest_size() -> None:
    items.head_key("r/" + "x" * items.SORT_BYTES)
    with pytest.raises(InvalidKey, match="up to 1024 bytes"):
        items.head_key("r/" + "x" * (items.SORT_BYTES + 1))


def test_an_item_has_a_longest_size() -> None:
    most = items.ITEM_BYTES - items.AROUND_BYTES
    items.head(record(body=b"1" * most), 1, 0)
    with pytest.raises(LimitExceeded, match="409600 bytes") as caught:
        items.version(record(body=b"1" * items.ITEM_BYTES))
    assert caught.value.details["found"] > items.ITEM_BYTES


def test_the_longest_key_and_value_fit() -> None:
    most = items.ITEM_BYTES - items.AROUND_BYTES
    ops = " ".join(f"{n:020}" for n in range(16))
    long = Record("d/" + "x" * 512, 2**60, b"1" * most, "y" * 512, 2**50, "z" * 40, ops, 2**60)
    for item in (items.head(long, 2**60, 2**50), items.version(long)):
        assert items.size(item) <= items.ITEM_BYTES


def test_what_a_condition_says() -> None:
    assert items.condition(None) == {"ConditionExpression": "attribute_not_exists(p)"}
    said = items.condition(record())
    assert said["ExpressionAttributeValues"] == {":v": {"N": "3"}, ":o": {"S": "op"}}
    # A head and its condition agree on what stands for an empty op.
    nameless = record(op="")
    assert (
        items.condition(nameless)["ExpressionAttributeValues"][":o"]
        == items.head(nameless, 1, 0)["o"]
    )


def test_a_tombstone_is_marked() -> None:
    assert "x" in items.head(record(body=None), 1, 0)
    assert "x" not in items.head(record(), 1, 0)
