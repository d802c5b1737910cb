"""``perkey doctor`` on stores without a server: what it says, and that it makes nothing."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from perkey import BackendNotConditional
from perkey.cli import doctor, exits
from perkey.clock import SYSTEM
from perkey.store import checkup
from perkey.store.backends import sqlite_open
from perkey.store.backends.memory import MemoryBackend
from perkey.store.evaluate import Batch
from perkey.store.keys import Key
from perkey.store.transaction import Outcome
from tests.cli.run import Command


def test_a_store_that_is_well(perkey: Command, url: str) -> None:
    perkey("doc", "put", "k", "1", "--create")
    told = perkey("doctor", url, "--json", "--n", "20")
    assert told.code == exits.DONE
    facts = told.json
    assert facts["state"] == "open"
    assert facts["store"]["name"] == "sqlite"
    assert facts["promises"]["atomic_keys"] is None
    assert "power cut" in facts["promises"]["durability"]
    assert facts["schema"]["to_run"] == 0
    assert any("all 20 changes arrived" in line for line in facts["probed"])
    for kind in ("read", "commit"):
        latency = facts["latency"][kind]
        assert latency["n"] == 20
        assert 0 <= latency["median_ms"] <= latency["p99_ms"]
    assert facts["warnings"] == []


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_its_scratch_record_is_not_counted(perkey: Command, scheme: str, tmp_path: Path) -> None:
    where = f"{scheme}:///{tmp_path}/counted"
    perkey("doc", "put", "k", "1", "--create", "--store", where)
    told = [perkey("doctor", where, "--json").json["store"] for _ in range(2)]
    assert [facts["records"] for facts in told] == ["1", "1"]


def test_people_see_the_same(perkey: Command, url: str) -> None:
    perkey("doc", "put", "k", "1", "--create")
    ran = perkey("doctor")  # PERKEY_STORE
    assert ran.code == exits.DONE
    said = ("keys in one commit", "any number", "8,388,608 bytes", "median", "p99", "all is well")
    for word in (url, *said):
        assert word in ran.out


@pytest.mark.parametrize(("ahead", "said"), [(-7, "7 ms behind"), (0, "0 ms ahead of")])
def test_on_which_side_its_clock_is(
    perkey: Command, url: str, monkeypatch: pytest.MonkeyPatch, ahead: int, said: str
) -> None:
    perkey("doc", "put", "k", "1", "--create")
    opened = doctor._opened

    def elsewhere(*given: Any) -> dict[str, Any]:
        return {**opened(*given), "clock_ahead_ms": ahead}

    monkeypatch.setattr(doctor, "_opened", elsewhere)
    assert f"its clock is {said} this machine's" in perkey("doctor", url).out


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_a_mistyped_path_makes_nothing(perkey: Command, scheme: str, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    ran = perkey("doctor", f"{scheme}:///{tmp_path}/tyop", "--json")
    assert ran.code == exits.REFUSED
    assert ran.json["state"] == "absent"
    assert sorted(tmp_path.iterdir()) == before
    ran = perkey("doctor", f"{scheme}:///{tmp_path}/tyop", "--create", "--json")
    assert (ran.code, ran.json["state"]) == (exits.DONE, "open")


def test_steps_of_the_schema_are_told_and_not_taken(
    perkey: Command, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    perkey("doc", "put", "k", "1", "--create")
    more = [*sqlite_open.sqlite_schema.STEPS, ["CREATE TABLE later (x)"]]
    monkeypatch.setattr(sqlite_open.sqlite_schema, "STEPS", more)
    ran = perkey("doctor", url, "--json")
    assert ran.code == exits.REFUSED
    assert (ran.json["state"], ran.json["schema"]["to_run"]) == ("old", 1)
    assert f"step {len(more) - 1} of {len(more)}" in ran.json["warnings"][0]
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (len(more) - 1,)


def test_what_is_no_store_is_refused(perkey: Command, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("x" * 5_000)
    ran = perkey("doctor", f"sqlite:///{tmp_path}/text")
    assert ran.code == exits.STORE
    assert (tmp_path / "text").read_text() == "x" * 5_000


def test_settings_that_lose_writes(perkey: Command, url: str, tmp_path: Path) -> None:
    perkey("doc", "put", "k", "1", "--create")
    ran = perkey("doctor", f"{url}?synchronous=OFF")
    assert ran.code == exits.REFUSED
    assert "warning: synchronous=OFF" in ran.out
    ran = perkey("doctor", "memory://", "--json")
    assert ran.code == exits.REFUSED
    assert "process ends" in ran.json["warnings"][0]


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        ("server:/x {} nfs rw 0 0", "network file system (nfs)"),
        ("none {} tmpfs rw 0 0", "in memory"),
        ("/dev/x {} ext4 rw 0 0", ""),
        ("nonsense", ""),
    ],
)
def test_file_systems_that_lose_writes(
    mounts: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mounts"
    table.write_text("/dev/root / ext4 rw 0 0\n" + mounts.format(tmp_path) + "\n")
    monkeypatch.setattr(sqlite_open, "MOUNTS", str(table))
    found = sqlite_open.concerns(sqlite_open.Options(str(tmp_path / "a.db"), "FULL", 1.0))
    assert len(found) == bool(expected)
    assert expected in "".join(found)


@pytest.mark.parametrize("given", [("--n", "0"), ("--n", "99999999")])
def test_numbers_have_limits(perkey: Command, url: str, given: tuple[str, str]) -> None:
    assert perkey("doctor", url, *given).code == exits.USAGE


class Forgetful(MemoryBackend):
    """The store that the race must catch: one change in between is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.one_by_one = threading.Lock()

    def apply(self, batch: Batch) -> list[Outcome]:
        with self.one_by_one:
            outcomes = super().apply(batch)
            head = self._heads.get(checkup.SCRATCH)
            if head is not None and head.body == b"7" and not self._history:
                self._history[Key("d/once")] = []
                self._heads[checkup.SCRATCH] = replace(head, body=b"6")
            return outcomes

    def close(self) -> None:
        """All connections are this one."""


def test_a_lost_change_is_told() -> None:
    backend = Forgetful()
    with pytest.raises(BackendNotConditional, match="does not enforce"):
        checkup.race(backend, lambda: backend, SYSTEM)
