"""What only Google's and Azure's stores have: their conditions, raced for, ignored or stripped."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import perkey
from perkey import BackendNotConditional, StoreUnavailable
from perkey.clock import SYSTEM
from perkey.store.backends import azure_bucket, gcs_bucket
from perkey.store.backends.bucket import MISSING, Bucket
from perkey.store.backends.gcs_bucket import GcsBucket
from perkey.store.backends.http_bucket import Asked
from perkey.store.backends.objects import ObjectsBackend
from perkey.store.backends.probe import probe
from perkey.store.limits import Limits
from perkey.store.url import parse
from tests.backends.breaking import BreaksOff
from tests.backends.kinds import KINDS, Kind, bucket_of
from tests.backends.secrets import hidden_by
from tests.servers.base import HOST, Server
from tests.servers.gcs import Gcs

CLOUDS = [name for name in ("gcs", "azure") if name in KINDS]
RACERS, ROUNDS = 16, 5

clouds = pytest.mark.parametrize("kind", CLOUDS, indirect=True)


@pytest.fixture
def bucket(server: Server) -> Iterator[Bucket]:
    bucket = bucket_of(parse(server.url), Limits())
    yield bucket
    bucket.close()


# -------------------------------------------------------------------- conditions are enforced


def winners(bucket: Bucket, name: str, condition: str) -> list[int]:
    """Who wins of ``RACERS`` threads, each with a connection of its own that is already open."""
    barrier = threading.Barrier(RACERS)
    won: list[int] = []

    def race(n: int) -> None:
        mine = bucket.another()
        mine.get(name)
        barrier.wait()
        if mine.put(name, str(n).encode(), condition):
            won.append(n)
        mine.close()

    threads = [threading.Thread(target=race, args=(n,)) for n in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


@clouds
def test_a_race_has_one_winner(bucket: Bucket, prefix: str) -> None:
    for n in range(ROUNDS):
        name = f"{prefix}{n}"
        (created,) = winners(bucket, name, MISSING)
        stored = bucket.get(name)
        assert stored is not None
        assert stored.data == str(created).encode()
        (replaced,) = winners(bucket, name, stored.tag)
        now = bucket.get(name)
        assert now is not None
        assert (now.data, now.tag != stored.tag) == (str(replaced).encode(), True)


@clouds
def test_conditions_one_after_the_other(bucket: Bucket, prefix: str) -> None:
    assert bucket.get(prefix) is None
    assert bucket.put(prefix, b"1", MISSING)
    assert not bucket.put(prefix, b"2", MISSING)
    first = bucket.get(prefix)
    assert first is not None
    assert bucket.put(prefix, b"3", first.tag)
    assert not bucket.put(prefix, b"4", first.tag)
    assert bucket.put(prefix, b"5", None)
    bucket.delete(prefix)
    bucket.delete(prefix)
    assert bucket.get(prefix) is None
    assert not bucket.put(prefix, b"6", first.tag)  # nothing there is not what was there
    assert bucket.get(prefix) is None


class ByMedia(GcsBucket):
    """Uploads in another way, for which fake-gcs-server 1.54 takes conditions and ignores them."""

    def _putting(self, name: str, data: bytes, condition: str | None) -> Asked:
        asked = super()._putting(name, data, condition)
        query = {**asked.query, "uploadType": "media", "name": self._prefix + name}
        headers = {"content-type": "application/octet-stream"}
        return Asked(asked.method, asked.path, query, headers, data)


def test_a_server_that_ignores_conditions_is_refused(gcs_server: Gcs) -> None:
    bucket = ByMedia(parse(gcs_server.url), Limits(), SYSTEM)
    assert len(winners(bucket, "ignored", MISSING)) == RACERS
    backend = ObjectsBackend(bucket, Limits(), SYSTEM)
    with pytest.raises(BackendNotConditional, match="conditional writes"):
        probe(backend, backend._another, SYSTEM)
    backend.close()


# ------------------------------------------------------------------------ writes that break off


@clouds
@pytest.mark.parametrize("body_bytes", [0, 10, 900])
def test_a_write_that_breaks_off_changes_nothing(
    server: Server, bucket: Bucket, prefix: str, body_bytes: int
) -> None:
    assert bucket.put(prefix, b"whole", None)
    before = bucket.get(prefix)
    relay = BreaksOff(server.port, body_bytes)
    through = bucket_of(parse(server.url.replace(f":{server.port}", f":{relay.port}")), Limits())
    with pytest.raises(StoreUnavailable):
        through.put(prefix, b"x" * 1_000, before and before.tag)
    relay.close()
    through.close()
    assert bucket.get(prefix) == before


# ------------------------------------------------------------------------------- listings


@clouds
def test_listings_of_several_parts(
    bucket: Bucket, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (azure_bucket, gcs_bucket):
        monkeypatch.setattr(module, "PAGE", 2)
    names = [f"{prefix}{n}" for n in range(7)]
    for name in names:
        bucket.put(name, b"", None)
    listed = bucket.names(prefix, "", 100)
    assert [name for name, _ in listed] == names
    for name, tag in listed:
        stored = bucket.get(name)
        assert stored is not None
        assert stored.tag == tag
    assert bucket.names(prefix, "", 4) == listed[:4]
    assert bucket.names(prefix, names[2], 3) == listed[3:6]
    assert bucket.names(prefix, names[6], 3) == []
    assert bucket.names(prefix, f"{names[2]}~", 100) == listed[3:]


# ---------------------------------------------------------------------------- the rest


@clouds
def test_prefixes_keep_stores_apart(server: Server) -> None:
    places = [server.url.replace("/tests?", each) for each in ("/one?", "/one/two?")]
    for n, place in enumerate(places):
        with perkey.open(place) as store:
            store.put("apart", n, overwrite=True)
    for n, place in enumerate(places):
        with perkey.open(place) as store:
            assert store.get("apart").value == n
            assert [each.key for each in store.scan("")] == ["apart"]


@clouds
def test_what_it_says_of_itself(server: Server, kind: Kind) -> None:
    with perkey.open(server.url) as store:
        told = store.backend.describe()
        assert told["address"].startswith(f"{HOST}:{server.port}/")
        assert told["address"].endswith("/perkey")
        assert told["prefix"] == "tests/"
        assert store.backend.atomic_keys == 1
        assert store.backend.time_source == "client"
        assert "object store" in store.backend.durability
        hidden_by(store)


@clouds
def test_a_bucket_that_is_not_there(server: Server) -> None:
    with pytest.raises(StoreUnavailable, match="make it first"):
        perkey.open(server.url.replace("perkey/tests?", "no-such-bucket/tests?"))
