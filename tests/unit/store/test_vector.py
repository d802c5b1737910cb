"""Histories and changes where no store orders the commits of several keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from perkey.errors import LimitExceeded, StoreCorrupt, UsageError
from perkey.store.backends import vector
from perkey.store.backends.vector import Removed, Standing
from perkey.store.record import Record


class Shelf:
    """Documents whose old versions somebody may remove while they are read."""

    def __init__(self, **heads: int) -> None:
        self.heads = heads
        self.floors = dict.fromkeys(heads, 1)
        self.looks = 0
        self.removals: list[tuple[str, int]] = []
        """What is removed after each look, the first one first: (key, new floor)."""

    def at(self, key: str) -> Standing | None:
        self.looks += 1
        if key not in self.heads:
            return None
        head, floor = self.heads[key], self.floors[key]
        if self.removals:
            gone, above = self.removals.pop(0)
            self.floors[gone] = above

        def versions(first: int, last: int) -> Iterator[Record]:
            for version in range(first, last + 1):
                if version < self.floors[key]:
                    raise Removed
                # b's versions fall between a's.
                yield Record(f"d/{key}", version, b"1", "", version * 10 + ord(key), f"op{version}")

        return Standing(f"d/{key}", head, floor, versions)

    def all(self) -> list[Standing]:
        return [at for at in map(self.at, self.heads) if at is not None]

    def changes(self, cursor: str = "", limit: int = 100) -> tuple[list[str], list[str], bool]:
        page = vector.changes("d/", cursor, limit, self.all)
        assert len(page.cursors) == len(page.records)
        return seen(page.records), page.cursors, page.gap

    def history(self, key: str, after: int = 0, limit: int = 100) -> list[str]:
        return seen(vector.history(f"d/{key}", after, limit, lambda: self.at(key)))


def seen(records: Sequence[Record]) -> list[str]:
    return [f"{record.key[2:]}{record.version}" for record in records]


def test_versions_of_several_keys_come_by_their_time() -> None:
    found, _, gap = Shelf(a=3, b=2).changes()
    assert (found, gap) == (["a1", "b1", "a2", "b2", "a3"], False)


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_every_cursor_goes_on_right_behind_its_change(limit: int) -> None:
    shelf = Shelf(a=3, b=2)
    whole, cursors, _ = shelf.changes()
    for place, cursor in enumerate(cursors, 1):
        rest, _, gap = shelf.changes(cursor, limit)
        assert (rest, gap) == (whole[place : place + limit], False)


def test_a_page_says_whether_more_follow() -> None:
    shelf = Shelf(a=3)
    live = [vector.changes("d/", "", limit, shelf.all).live for limit in (2, 3, 4)]
    assert live == [False, True, True]


def test_the_end_is_behind_everything() -> None:
    shelf = Shelf(a=3, b=2)
    end = vector.end(shelf.all())
    assert shelf.changes(end) == ([], [], False)
    shelf.heads.update(b=3)
    assert shelf.changes(end)[0] == ["b3"]


def test_what_was_dropped_before_it_was_seen_is_a_gap() -> None:
    shelf = Shelf(a=5)
    _, cursors, _ = shelf.changes(limit=2)
    shelf.floors["a"] = 3
    assert shelf.changes(cursors[1]) == (["a3", "a4", "a5"], shelf.changes(cursors[1])[1], False)
    shelf.floors["a"] = 4
    found, _, gap = shelf.changes(cursors[1])
    assert (found, gap) == (["a4", "a5"], True)


def test_a_version_that_went_while_it_was_read_is_looked_for_again() -> None:
    shelf = Shelf(a=5)
    shelf.removals = [("a", 3)]
    assert shelf.history("a") == ["a3", "a4", "a5"]
    assert shelf.looks == 2
    shelf.removals = [("a", 4)]
    assert shelf.changes()[0] == ["a4", "a5"]


def test_what_should_be_there_and_is_not_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector, "LOOKS", 5)

    class Holed(Shelf):
        def at(self, key: str) -> Standing | None:
            at = super().at(key)
            return at and at._replace(floor=1)

    shelf = Holed(a=3)
    shelf.floors["a"] = 2
    for read in (shelf.changes, lambda: shelf.history("a")):
        shelf.looks = 0
        with pytest.raises(StoreCorrupt, match="should be kept are missing"):
            read()
        assert shelf.looks == 5


def test_a_history_begins_above_what_is_asked_and_at_the_floor() -> None:
    shelf = Shelf(a=5)
    assert shelf.history("a", after=2, limit=2) == ["a3", "a4"]
    assert shelf.history("a", after=5) == []
    shelf.floors["a"] = 4
    assert shelf.history("a", after=1) == ["a4", "a5"]
    assert shelf.history("nobody") == []


@pytest.mark.parametrize("cursor", ["17", "seen", "seen:!", "seen:AAAA", "pg:1:2", "seen:é"])
def test_a_cursor_of_another_store_is_refused(cursor: str) -> None:
    with pytest.raises(UsageError, match="a cursor of this store"):
        Shelf(a=1).changes(cursor)


def test_a_prefix_with_too_many_keys_is_refused() -> None:
    vector.check_size("d/x", vector.MOST_KEYS, "files")
    with pytest.raises(LimitExceeded, match=f"at most {vector.MOST_KEYS} keys under 'x'"):
        vector.check_size("d/x", vector.MOST_KEYS + 1, "files")
