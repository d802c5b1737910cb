"""What one object holds: old versions move on in whole runs, and damage is noticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perkey.errors import LimitExceeded, StoreCorrupt
from perkey.store.backends import object_frames as frames
from perkey.store.backends.object_frames import Frame
from perkey.store.record import Record


def record(version: int, size: int = 1, key: str = "d/a") -> Record:
    return Record(key, version, b"1" * size, "ann", version, f"op{version}")


def head(first: int, last: int, floor: int = 1, size: int = 1) -> Frame:
    writes = [record(version, size) for version in range(first, last + 1)]
    return frames.following(None, writes, (floor, 0))


@given(st.integers(1, 50), st.integers(1, 20), st.integers(0, 300), st.integers(0, 2**60))
def test_an_object_comes_back(first: int, count: int, size: int, at: int) -> None:
    made = head(first, first + count - 1, size=size)._replace(floor_at=at)
    found = frames.read(frames.write(made), "name")
    assert found == made
    assert found.first == first
    assert [found.at(v) for v in range(first, first + count)] == [
        record(v, size) for v in range(first, first + count)
    ]


@given(st.data())
def test_every_damaged_byte_is_noticed(data: st.DataObject) -> None:
    good = frames.write(head(3, 5))
    place = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[place] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(good) - 1))
    for wrong in (bytes(bad), good[:cut], good + b"x"):
        with pytest.raises(StoreCorrupt, match="the-name"):
            frames.read(wrong, "the-name")


def test_a_head_keeps_the_versions_before_it() -> None:
    before = head(1, 3)
    after = frames.following(before, [record(4), record(5)], (1, 0))
    assert (after.first, len(after.entries), after.record) == (1, 5, record(5))
    assert after.entries[:3] == before.entries  # never packed again


def test_what_is_below_the_floor_goes() -> None:
    after = frames.following(head(1, 5), [record(6)], (4, 9))
    assert (after.first, after.record.version, after.floor, after.floor_at) == (4, 6, 4, 9)
    batch = [record(version) for version in range(6, 16)]
    after = frames.following(head(1, 5), batch, (12, 0))
    assert (after.first, after.record.version) == (12, 15)


def test_a_record_without_history_stands_alone() -> None:
    before = frames.following(None, [record(1, key="l/a")], (1, 0))
    after = frames.following(before, [record(2, key="l/a"), record(3, key="l/a")], (1, 0))
    assert (len(after.entries), after.first, after.record.version) == (1, 3, 3)
    assert not frames.is_full(after._replace(entries=after.entries * 1000))


def test_when_a_head_is_full() -> None:
    assert not frames.is_full(None)
    assert not frames.is_full(head(1, frames.TAIL_VERSIONS - 1))
    assert frames.is_full(head(1, frames.TAIL_VERSIONS))
    assert not frames.is_full(head(1, 1, size=100))
    assert frames.is_full(head(1, 1, size=frames.TAIL_BYTES))


def test_an_object_has_a_longest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "OBJECT_BYTES", 1_000)
    frames.write(head(1, 1, size=900))
    with pytest.raises(LimitExceeded, match="at most 1000 bytes in one object") as caught:
        frames.write(head(1, 2, size=900))
    assert caught.value.details["limit"] == 1_000
