"""``perkey copy`` between SQLite and each store, killed on the way and started again."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

import perkey
from perkey.cli import exits, main
from perkey.clock import SYSTEM
from perkey.store import transfer
from perkey.store.transfer import Report
from perkey.store.url import open_backend
from tests.backends.crew import crew
from tests.backends.kinds import Kind, everywhere
from tests.moving import fill

DOCUMENTS = 60
"""Fewer where each commit takes long."""

COPIER = """
from perkey.clock import SYSTEM
from perkey.store import transfer
from perkey.store.url import open_backend

transfer.BATCH_RECORDS, transfer.PAGE = 12, 10
source, target = (open_backend(each, transfer.LIMITS, SYSTEM) for each in (url, arguments[0]))

def tell(progress):
    if progress.phase == "copying" and progress.records >= 30:
        say("under way")

say("ready")
hear()
transfer.move(source, target, arguments[1], SYSTEM, tell)
say("done")
"""


@pytest.fixture
def source(tmp_path: Path, kind: Kind) -> str:
    """A filled SQLite store."""
    url = f"sqlite:///{tmp_path}/source.db"
    with perkey.open(url) as store:
        fill(store, int(DOCUMENTS * kind.pace))
    return url


def compared(one: str, other: str) -> Report:
    backends = [open_backend(url, transfer.LIMITS, SYSTEM) for url in (one, other)]
    try:
        return transfer.compare(backends[0], backends[1], lambda progress: None)
    finally:
        for backend in backends:
            backend.close()


def copied(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object]]:
    """What the command did, and what it said."""
    capsys.readouterr()
    code = main(["copy", *arguments, "--json"])
    told = json.loads(capsys.readouterr().out)
    assert isinstance(told, dict)
    return code, told


@everywhere
def test_there_and_back_killed_on_the_way(
    source: str, empty: str, kind: Kind, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        with crew(COPIER, source, [(empty, source)]) as (copier,):
            assert copier.hear() in ("under way", "done")
            copier.signal(signal.SIGKILL)
            copier.end()
    code, told = copied(capsys, source, empty)
    assert (code, told["same"]) == (exits.DONE, True)
    back = f"sqlite:///{tmp_path}/back.db"
    code, returned = copied(capsys, empty, back)
    assert (code, returned["same"]) == (exits.DONE, True)
    assert returned["digest"] == told["digest"]
    report = compared(source, back)
    assert report.same
    assert report.digest == told["digest"]
    assert report.keys > DOCUMENTS * kind.pace


@everywhere
def test_work_goes_on_after_the_move(
    source: str, empty: str, kind: Kind, capsys: pytest.CaptureFixture[str]
) -> None:
    copied(capsys, source, empty)
    with perkey.open(source) as old, perkey.open(empty) as new:
        document = old.get("counted")
        assert new.get("counted") == document
        again = new.transact("counted", lambda tx: tx.__setitem__("counted", 0))
        assert again is None
        assert new.get("counted").version == document.version + 1
        if kind.several_keys:
            receipt = perkey.Once(new).transact("receipt1", "counted", len, payload={"n": 1})
            assert receipt.replayed
        assert perkey.Leases(new).acquire("lease/2", ttl=5).token == 2
    code, told = copied(capsys, source, empty, "--verify-only")
    assert (code, told["same"]) == (exits.REFUSED, False)
