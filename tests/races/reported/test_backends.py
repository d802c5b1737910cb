"""Stores that say one thing and do another: what other projects reported of theirs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import perkey
from perkey import BackendNotConditional, Conflict, PerkeyError, StoreUnavailable
from perkey.store.backends import files_disk, nats
from perkey.store.backends.bucket import MISSING
from perkey.store.backends.port import NothingDone
from perkey.store.backends.probe import probe
from perkey.store.backends.s3_bucket import S3Bucket
from perkey.store.evaluate import Batch
from perkey.store.limits import Limits
from perkey.store.url import parse
from perkey.testing import FaultyStore
from tests.unit.manual_clock import ManualClock
from tests.unit.objects.answers import Answers
from tests.unit.objects.buckets import Ignoring, MemoryBucket, backend

# --------------------------------------------------- it landed, and the reply did not come


def version_after_a_lost_reply() -> int:
    """The write lands, its reply is lost, and the client asks again under the same condition."""
    with FaultyStore("memory://", lose={2}) as store:
        read = store.put("branch", "one", create=True)
        return store.put("branch", "two", if_match=read.version).version


def test_a_landed_write_whose_reply_was_lost_is_a_success() -> None:
    """As in https://github.com/earth-mover/icechunk/issues/2099 and
    https://github.com/aws/aws-sdk-java-v2/issues/6580."""
    assert version_after_a_lost_reply() == 2


def test_asking_again_without_looking_reports_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Batch, "resolve", lambda batch, heads, find_op: None)
    with pytest.raises(Conflict):
        version_after_a_lost_reply()


# ------------------------------------------------------------ conditions that are ignored


def winners(bucket: MemoryBucket) -> int:
    """How many of two clients create the same object."""
    return sum(bucket.another().put("lock", b"mine", MISSING) for _ in range(2))


def test_a_server_that_ignores_conditions_is_refused() -> None:
    """As in https://github.com/stackshy/cloudemu/pull/657."""
    clock = ManualClock()
    port = backend(Ignoring(clock))
    with pytest.raises(BackendNotConditional):
        probe(port, lambda: backend(Ignoring(clock, port._bucket)), clock)


def test_without_the_probe_two_clients_create_one_object() -> None:
    assert winners(MemoryBucket()) == 1
    assert winners(Ignoring()) == 2


# ------------------------------------------------------------------ 409 is not 412


@pytest.fixture
def busy() -> Iterator[S3Bucket]:
    """A bucket that answers a creation with 409: another request was under way."""
    with Answers() as server:
        server.refuse(409, "ConditionalRequestConflict")
        server.give(200)
        url = f"s3://name:secret@bucket?endpoint=http://127.0.0.1:{server.port}"
        bucket = S3Bucket(parse(url), Limits(), ManualClock())
        yield bucket
        bucket.close()


def test_a_conflict_of_requests_is_asked_again(busy: S3Bucket) -> None:
    """As in https://github.com/apache/opendal/issues/6741 and
    https://github.com/apache/arrow-rs-object-store/pull/852."""
    assert busy.put("lock", b"mine", MISSING)


def test_taking_it_for_a_refusal_leaves_the_lock_to_nobody(
    busy: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = busy._wire.ask

    def as_412(*given: Any, **more: Any) -> Any:
        answer = ask(*given, **more)
        return answer._replace(status=412) if answer.status == 409 else answer

    monkeypatch.setattr(busy._wire, "ask", as_412)
    assert not busy.put("lock", b"mine", MISSING)


# ------------------------------------------------------------- two codes for one refusal


def a_replicated_stream_refuses() -> Any:
    """A commit to NATS whose expected sequence is not the last, on a replicated stream."""
    refused = {"error": {"err_code": 10164, "description": "wrong last sequence"}}
    wire = SimpleNamespace(place="nats", post=lambda _: SimpleNamespace(data=json.dumps(refused)))
    port = SimpleNamespace(_wire=wire, _messages=lambda *_: [("s", b"", {})])
    port._check_size = lambda *_: None
    return nats.NatsBackend.commit(port, {}, [])  # type: ignore[arg-type]


def test_both_codes_of_nats_are_a_conflict() -> None:
    """As in https://github.com/nats-io/nats.py/pull/883 and
    https://github.com/nats-io/nats.go/issues/2097."""
    assert a_replicated_stream_refuses() is False


def test_the_second_code_alone_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats, "MOVED", (10071,))
    with pytest.raises(NothingDone):
        a_replicated_stream_refuses()


# ----------------------------------------------------------------------- keys as paths

HOSTILE = "../../../outside"


def files_outside(tmp_path: Path) -> list[str]:
    """What appears beside the store's folder when somebody else chooses the keys."""
    root = tmp_path / "shared" / "store"
    root.parent.mkdir()
    with perkey.open(f"file://{root}") as store:
        try:
            store.put(HOSTILE, "mine", create=True)
        except PerkeyError:
            pass
    return sorted(path.name for path in root.parent.iterdir() if path != root)


def test_no_key_leaves_the_stores_folder(tmp_path: Path) -> None:
    """As in https://github.com/bcosca/fatfree/issues/1073 and
    https://github.com/falcondev-oss/github-actions-cache-server/issues/227."""
    assert files_outside(tmp_path) == []


def test_a_key_that_becomes_a_path_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = files_disk.digest
    as_it_is = lambda key: key[2:] if ".." in key else digest(key)  # noqa: E731
    monkeypatch.setattr(files_disk, "digest", as_it_is)
    assert files_outside(tmp_path) == ["outside"]


# ------------------------------------------------------------------- half of a file


def value_after_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A process is gone after it wrote half of a file; another one reads the key."""
    url = f"file://{tmp_path}/store"
    with perkey.open(f"{url}") as store:
        store.put("state", "whole", create=True)
        whole = files_disk.write_file

        def half(path: str, data: bytes) -> None:
            whole(path, data[: len(data) // 2])
            raise OSError(5, "the process is gone")

        monkeypatch.setattr(files_disk, "write_file", half)
        with pytest.raises(StoreUnavailable):
            store.put("state", "new", overwrite=True)
        monkeypatch.setattr(files_disk, "write_file", whole)
    with perkey.open(url) as store:
        return store.get("state").value


def test_half_a_file_is_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in https://github.com/Yeachan-Heo/oh-my-codex/issues/294."""
    assert value_after_a_crash(tmp_path, monkeypatch) == "whole"


def test_a_file_written_in_place_is_torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_place(disk: Any, record: Any, floor: int, base: Any) -> bool:
        folder = disk.folder(record.key)
        files_disk.make_folder(folder)
        try:
            files_disk.write_file(f"{folder}/{record.version}", files_disk.frame(record, floor))
        except FileExistsError:
            return False
        except OSError as error:
            raise NothingDone("gone") from error
        return True

    monkeypatch.setattr(files_disk.Disk, "put", in_place)
    with pytest.raises(perkey.StoreCorrupt):
        value_after_a_crash(tmp_path, monkeypatch)


# ------------------------------------------------------------- a reader that turns writer


def what_a_second_writer_does(path: Path, begin: str) -> str:
    """While a transaction has read and is about to write, another connection writes."""
    said: list[str] = []

    def second() -> str:
        other = sqlite3.connect(path, timeout=0, isolation_level=None)
        try:
            other.execute("UPDATE names SET dropped = dropped + 1")
        except sqlite3.OperationalError as error:
            return str(error)
        finally:
            other.close()
        return "writes"

    with perkey.open(f"sqlite:///{path}", limits=Limits(timeout_s=0.05)) as store:
        store.put("n", 1, create=True)
        inner: Any = store.core.backend
        run = inner._run
        inner._run = lambda sql, *given: run(sql.replace("BEGIN IMMEDIATE", begin), *given)

        def count(tx: Any) -> None:
            tx["n"] = tx["n"] + 1
            said.append(second())

        try:
            store.transact("n", count)
        except PerkeyError:
            said.append("and the first one fails")
        inner._run = run
    return ", ".join(said)


def test_a_second_writer_waits_for_the_first(tmp_path: Path) -> None:
    """As in https://github.com/chrisbenincasa/tunarr/issues/2132 and
    https://github.com/chatmail/core/pull/4063: "database is locked", at once."""
    assert (
        what_a_second_writer_does(tmp_path / "work.db", "BEGIN IMMEDIATE") == "database is locked"
    )


def test_a_transaction_that_begins_as_a_reader_fails_at_its_write(tmp_path: Path) -> None:
    said = what_a_second_writer_does(tmp_path / "work.db", "BEGIN")
    assert said == "writes, and the first one fails"
