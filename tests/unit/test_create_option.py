"""``create=false`` in the URL of a store on disk: it is used where it is, never made."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import perkey
from perkey.errors import StoreUnavailable, UsageError

NO_STORE = "there is no store at .*nothing was made there; check the path"


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_an_existing_store_opens_and_a_missing_one_does_not(tmp_path: Path, scheme: str) -> None:
    url = f"{scheme}:///{tmp_path}/store"
    with pytest.raises(StoreUnavailable, match=NO_STORE):
        perkey.open(f"{url}?create=false")
    assert not list(tmp_path.iterdir())
    with perkey.open(url) as store:
        store.put("k", 1, create=True)
    with perkey.open(f"{url}?create=false") as store:
        assert store.put("k", 2, if_match=1).version == 2
    with perkey.open(f"{url}?create=true") as store:
        assert store.get("k").value == 2


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_a_missing_folder_is_a_missing_store(tmp_path: Path, scheme: str) -> None:
    with pytest.raises(StoreUnavailable, match=NO_STORE):
        perkey.open(f"{scheme}:///{tmp_path}/none/store?create=false")
    assert not list(tmp_path.iterdir())


def test_an_empty_file_is_no_store_yet(tmp_path: Path) -> None:
    place = tmp_path / "s.db"
    place.touch()
    with pytest.raises(StoreUnavailable, match=NO_STORE):
        perkey.open(f"sqlite:///{place}?create=false")
    assert place.stat().st_size == 0


def test_nor_is_a_database_with_nothing_in_it(tmp_path: Path) -> None:
    place = tmp_path / "s.db"
    connection = sqlite3.connect(place)
    connection.execute("VACUUM")
    connection.execute("PRAGMA user_version = 0")
    connection.close()
    before = place.read_bytes()
    with pytest.raises(StoreUnavailable, match=NO_STORE):
        perkey.open(f"sqlite:///{place}?create=false")
    assert place.read_bytes() == before


def test_a_path_with_marks_of_a_url_is_found(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/a%3Fb %25 %23c.db"
    perkey.open(place).close()
    with perkey.open(f"{place}?create=false") as store:
        store.put("k", 1, create=True)
    assert sorted(each.name for each in tmp_path.glob("*.db")) == ["a?b % #c.db"]


def test_in_memory_there_is_nothing_to_look_for() -> None:
    with perkey.open("sqlite:///:memory:?create=false") as store:
        assert store.put("k", 1, create=True).version == 1


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_it_is_true_or_false(tmp_path: Path, scheme: str) -> None:
    with pytest.raises(UsageError, match="expected create= one of true, false"):
        perkey.open(f"{scheme}:///{tmp_path}/store?create=no")
