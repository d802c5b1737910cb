"""The SQLite store from the outside: what goes in comes out, also by another connection."""

from __future__ import annotations

from pathlib import Path

import perkey


def test_what_one_store_writes_another_reads(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/work.db"
    with perkey.open(url) as one, perkey.open(url) as two:
        one.put("report", {"sections": []}, create=True, by="ann")
        assert two.get("report").value == {"sections": []}
        two.transact("report", lambda tx: tx.__setitem__("report", 2), by="ben")
        found = one.get("report")
        assert (found.value, found.version, found.by) == (2, 2, "ben")
        assert [each.by for each in one.history("report")] == ["ann", "ben"]


def test_a_file_is_still_there_after_closing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/work.db"
    with perkey.open(url) as store:
        store.put("k", 1, create=True)
    with perkey.open(url) as store:
        assert store.get("k").value == 1
