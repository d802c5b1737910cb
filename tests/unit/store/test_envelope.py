"""Records as bytes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perkey.errors import SchemaMismatch, StoreCorrupt
from perkey.store.backends.envelope import pack, unpack
from perkey.store.record import Record

numbers = st.integers(0, 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
records = st.builds(
    Record, texts, numbers, st.none() | st.binary(), texts, numbers, texts, texts, numbers, numbers
)


@given(records)
def test_a_record_comes_back_as_it_went_in(record: Record) -> None:
    assert unpack(pack(record)) == record


@given(records, st.data())
def test_damage_is_told(record: Record, data: st.DataObject) -> None:
    whole = pack(record)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(StoreCorrupt):
        unpack(cut)
    with pytest.raises(StoreCorrupt):
        unpack(whole + b"\0")


@pytest.mark.parametrize(
    "fields", [(2,) + ("x",) * 9, (2, "k"), (2, "k", 1, b"", "", 0, "", "", 0, 0)]
)
def test_a_newer_format_is_not_guessed_at(fields: tuple[object, ...]) -> None:
    with pytest.raises(SchemaMismatch, match="format 2"):
        unpack(msgspec.msgpack.encode(fields))
