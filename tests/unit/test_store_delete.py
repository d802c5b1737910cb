"""``Store.delete``: a tombstone that counts on, refused where nothing is."""

from __future__ import annotations

import pytest

import perkey
from perkey import Conflict, NotFound


def test_a_deleted_record_is_gone_and_its_version_counts_on() -> None:
    with perkey.open("memory://") as store:
        store.put("k", 1, create=True)
        with pytest.raises(Conflict):
            store.delete("k", if_match=7)
        assert store.delete("k", if_match=1, by="ann").version == 2
        with pytest.raises(NotFound):
            store.delete("k")
        assert store.put("k", 2, create=True).version == 3


def test_what_was_never_there_cannot_be_deleted() -> None:
    with perkey.open("memory://") as store, pytest.raises(NotFound):
        store.delete("k")
