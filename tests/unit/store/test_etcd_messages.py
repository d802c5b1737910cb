"""The bytes of etcd's messages: as the protocol's own encoder writes them, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perkey.errors import StoreCorrupt, UsageError
from perkey.store.backends import etcd_messages as messages
from perkey.store.backends.etcd_names import (
    LATEST,
    SAME,
    Names,
    pack_after,
    unpack_after,
)
from perkey.store.record import Record

names = st.text(st.sampled_from("ab/~ é\U0001f600\0\x7f"), min_size=1, max_size=12)
numbers = st.integers(0, 2**63 - 1)
some_bytes = st.binary(max_size=300)


# Written out by hand from rpc.proto: field number * 8 + wire type, length, content.
def test_requests_are_what_the_protocol_says() -> None:
    assert messages.range_request(b"k") == b"\x0a\x01k"
    full = messages.range_request(b"a", b"b", limit=300, revision=5, keys_only=True, after=6)
    assert full == b"\x0a\x01a\x12\x01b\x18\xac\x02\x20\x05\x40\x01\x50\x07"
    assert messages.put_request(b"k", b"") == b"\x0a\x01k"
    assert messages.put_request(b"k", b"v") == b"\x0a\x01k\x12\x01v"
    assert messages.delete_request(b"a", b"b") == b"\x0a\x01a\x12\x01b"
    assert messages.compact_request(9) == b"\x08\x09\x10\x01"
    assert messages.authenticate_request("u", "p") == b"\x0a\x01u\x12\x01p"


def test_a_condition_names_its_revision_even_when_it_is_none() -> None:
    """Without the last field the server would compare nothing: 0 has to be written out."""
    assert messages.unchanged(b"k", 0) == b"\x10\x02\x1a\x01k\x30\x00"
    assert messages.unchanged(b"k", 7) == b"\x10\x02\x1a\x01k\x30\x07"


def test_transactions_are_conditions_then_operations() -> None:
    assert messages.reads([b"R"]) == b"\x12\x03\x0a\x01R"
    assert messages.writes([b"C"], [b"D"], [b"P"]) == b"\x0a\x01C\x12\x03\x1a\x01D\x12\x03\x12\x01P"


def test_answers_are_taken_apart() -> None:
    header = b"\x0a\x02\x18\x05"
    stored = b"\x12\x0b\x0a\x01k\x10\x02\x18\x03\x20\x01\x2a\x00"
    assert messages.found(header + stored + b"\x18\x01\x20\x02") == messages.Found(
        5, [messages.Stored(b"k", b"", 3)], True
    )
    inner = b"\x0a\x0d" + stored
    answer = header + b"\x10\x01" + b"\x1a" + bytes([len(inner)]) + inner
    revision, held, answers = messages.txn_answer(answer)
    assert (revision, held) == (5, True)
    assert answers == [messages.Found(0, [messages.Stored(b"k", b"", 3)], False)]
    assert messages.txn_answer(header) == (5, False, [])
    told = messages.status(b"\x12\x053.5.1\x18\x80\x01\x42\x07NOSPACE")
    assert told == messages.Status("3.5.1", 128, ["NOSPACE"])
    assert messages.token(b"\x12\x03abc") == "abc"


@given(some_bytes, some_bytes, numbers, numbers)
def test_fields_come_back(start: bytes, end: bytes, limit: int, revision: int) -> None:
    made = messages.range_request(start, end, limit=limit, revision=revision)
    wanted = {1: start, 2: end, 3: limit, 4: revision}
    assert dict(messages._fields(made)) == {name: value for name, value in wanted.items() if value}


@given(st.binary(max_size=60))
def test_nonsense_is_told_and_never_a_surprise(data: bytes) -> None:
    for read in (messages.found, messages.txn_answer, messages.status, messages.token):
        try:
            read(data)
        except StoreCorrupt:
            continue


@pytest.mark.parametrize(
    "data", [b"\x0a\x05ab", b"\x0a", b"\xff", b"\x0d\0\0\0\0", b"\x08\x01\x12"]
)
def test_a_torn_answer_is_no_answer(data: bytes) -> None:
    with pytest.raises(StoreCorrupt):
        messages.found(data)


# ---------------------------------------------------------------------------------- names


@given(names, st.integers(0, LATEST))
def test_a_version_is_named_and_found(name: str, version: int) -> None:
    made = Names("s")
    assert made.key_of_version(made.version(f"d/{name}", version)) == (f"d/{name}", version)


@given(names, names)
def test_keys_keep_their_order_and_their_prefix(one: str, two: str) -> None:
    made = Names("s")
    in_order = made.head(one) < made.head(two)
    assert in_order == (one.encode() < two.encode())
    for start, end, name in (
        (*made.heads(one), made.head(two)),
        (*made.all_versions(one), made.version(two, 3)),
    ):
        assert (start <= name < end) == two.startswith(one)
    start, end = made.heads("", one)
    assert (start <= made.head(two) < end) == (two.encode() > one.encode())


@given(names, names, st.integers(1, 1_000), st.integers(1, 1_000), st.integers(1, 1_000))
def test_versions_of_one_key_are_apart(
    one: str, two: str, first: int, last: int, version: int
) -> None:
    made = Names("s")
    start, end = made.versions(one, first, last)
    inside = start <= made.version(two, version) < end
    assert inside == (one == two and first <= version <= last)
    start, end = made.versions(one)
    assert (start <= made.version(two, version) < end) == (one == two)


@pytest.mark.parametrize("name", ["", "a/b", "a b", "é", "x" * 65, "a\n"])
def test_a_name_cannot_reach_into_another_store(name: str) -> None:
    with pytest.raises(UsageError, match="letters, digits"):
        Names(name)


@given(numbers | st.just(SAME))
def test_a_record_carries_its_predecessor(before: int) -> None:
    record = Record("d/k", 2, b"1", "me", 5, "op", "older", 3, 1)
    assert unpack_after(pack_after(record, before)) == (record, before)


def test_a_value_of_somebody_else_is_refused() -> None:
    for data in (b"", b"12345678", b"123456789"):
        with pytest.raises(StoreCorrupt):
            unpack_after(data)
