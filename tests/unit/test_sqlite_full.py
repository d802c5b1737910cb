"""A full disk: refused, rolled back, nothing lost, and usable as soon as there is room."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import perkey
from tests.unit.sqlite_faults import url

BIG = "x" * 200_000


@contextmanager
def no_more_pages(store: perkey.Store) -> Iterator[None]:
    """SQLite's own limit on the size of the database."""
    connection: sqlite3.Connection = store.backend._connection  # type: ignore[attr-defined]
    (used,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {used + 2}")
    yield
    connection.execute("PRAGMA max_page_count = 4294967294")


@contextmanager
def no_larger_files(store: perkey.Store) -> Iterator[None]:
    """The kernel's limit on the size of a file: writing the log fails in the commit itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


Fill = Callable[[perkey.Store], "contextmanager[None]"]


@pytest.mark.parametrize("fill", [no_more_pages, no_larger_files])
def test_a_full_disk_loses_nothing(tmp_path: Path, fill: Fill) -> None:
    with perkey.open(url(tmp_path), limits=perkey.Limits(doubt_attempts=2)) as store:
        store.put("k", 1, create=True, by="ann")
        with fill(store):  # type: ignore[attr-defined]
            with pytest.raises(perkey.StoreError) as caught:
                store.put("k", BIG, if_match=1)
            assert type(caught.value) is perkey.StoreError
            with pytest.raises(perkey.StoreError):
                store.transact(["a", "b"], lambda tx: [tx.__setitem__(k, BIG) for k in "ab"])
            assert store.get("k").value == 1
            assert store.get("a", None) is store.get("b", None) is None
        assert store.put("k", BIG, if_match=1).version == 2
        assert [each.version for each in store.history("k")] == [1, 2]
    with perkey.open(url(tmp_path)) as store:
        assert store.get("k").value == BIG


def test_one_that_is_too_large_does_not_take_its_batch_mates_along(tmp_path: Path) -> None:
    """The refusal by ``Limits.value_bytes`` is before the write, so it is one caller's alone."""
    limits = perkey.Limits(value_bytes=1000)
    with perkey.open(url(tmp_path), limits=limits) as store:
        with pytest.raises(perkey.LimitExceeded):
            store.put("k", BIG, create=True)
        assert store.put("k", "small", create=True).version == 1
