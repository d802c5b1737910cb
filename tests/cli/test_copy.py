"""``perkey copy`` as people type it: what it refuses, what it says, how it ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perkey import open as open_store
from perkey.cli import copying, exits
from perkey.clock import SYSTEM
from perkey.store import transfer
from perkey.store.url import open_backend
from perkey.testing.conformance.bench import put
from tests.cli.run import Command
from tests.moving import fill


@pytest.fixture
def source(url: str) -> str:
    with open_store(url) as store:
        fill(store)
    return url


@pytest.fixture
def target(tmp_path: Path) -> str:
    return f"file://{tmp_path}/target"


def test_a_copy_says_what_it_did(perkey: Command, source: str, target: str) -> None:
    ran = perkey("copy", source, target)
    assert ran.code == exits.DONE
    assert "the same, digest" in ran.out
    assert f"{source} -> {target}" in ran.out
    assert "copied   " in ran.out
    assert perkey("copy", source, target, "--json").json["copied"] == 0


def test_verify_only_writes_nothing(perkey: Command, source: str, target: str) -> None:
    assert perkey("copy", source, target, "--verify-only").code == exits.STORE
    assert not Path(target.removeprefix("file://")).exists()
    perkey("copy", source, target)
    told = perkey("copy", source, target, "--verify-only", "--json")
    assert (told.code, told.json["same"]) == (exits.DONE, True)
    assert told.json["verify_only"] is True
    said = perkey("copy", source, target, "--verify-only").out
    assert "copied" not in said
    assert "verified only, nothing was written" in said
    assert f"compared {told.json['keys']} keys: {told.json['records']} records" in said
    perkey("doc", "put", "more", "1", "--create")
    told = perkey("copy", source, target, "--verify-only", "--json")
    assert (told.code, told.json["behind"], told.json["named"]) == (exits.BUSY, 1, ["more"])
    perkey("doc", "put", "extra", "1", "--create", "--store", target)
    told = perkey("copy", source, target, "--verify-only")
    assert told.code == exits.REFUSED
    assert "1 key went on in the source" in told.out
    assert "1 key only in the target" in told.out


def test_a_mistyped_source_is_not_made(perkey: Command, tmp_path: Path, target: str) -> None:
    before = sorted(tmp_path.iterdir())
    for url in (f"sqlite:///{tmp_path}/tyop.db", f"file://{tmp_path}/tyop"):
        ran = perkey("copy", url, target)
        assert ran.code == exits.STORE
        assert "there is no store" in ran.err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("memory://", "sqlite:///x.db", "in memory"),
        ("sqlite:///x.db", "sqlite:///:memory:", "in memory"),
        ("nothing", "sqlite:///x.db", "expected a store URL"),
    ],
)
def test_what_makes_no_sense(perkey: Command, one: str, other: str, expected: str) -> None:
    ran = perkey("copy", one, other)
    assert (ran.code, expected in ran.err) == (exits.USAGE, True)


def test_the_same_store_by_two_names(perkey: Command, source: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    ran = perkey("copy", source, f"sqlite:///{tmp_path}/link/store.db")
    assert ran.code == exits.USAGE
    assert "both are the same store" in ran.err


def test_a_full_target_is_refused(perkey: Command, source: str, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    perkey("doc", "put", "mine", "1", "--create", "--store", other)
    ran = perkey("copy", source, other)
    assert ran.code == exits.USAGE
    assert "not empty" in ran.err
    assert perkey("doc", "list", "--json", "--store", other).out.count("mine") == 1


def test_a_source_that_never_rests(
    perkey: Command, source: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers go on during the copy: exit code 4, and the next run finishes it."""
    writer = open_backend(source, transfer.LIMITS, SYSTEM)
    compare: Callable[..., transfer.Report] = transfer.compare

    def while_others_write(*given: object) -> transfer.Report:
        put(writer, copying.transfer.Key("d/busy"), b"1")
        return compare(*given)

    with monkeypatch.context() as patch:
        patch.setattr(transfer, "compare", while_others_write)
        ran = perkey("copy", source, target)
    assert ran.code == exits.BUSY
    assert "stop its writers" in ran.out
    assert "'busy'" in ran.out
    writer.close()
    assert perkey("copy", source, target).code == exits.DONE
