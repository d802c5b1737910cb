"""What only object stores have: conditions that vanish, bodies that break off, prefixes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import perkey
from perkey import BackendNotConditional, StoreUnavailable
from perkey.clock import SYSTEM
from perkey.store.backends.objects import ObjectsBackend
from perkey.store.backends.s3_bucket import S3Bucket
from perkey.store.limits import Limits
from perkey.store.url import parse
from perkey.testing.conformance import check_backend
from tests.backends.breaking import BreaksOff
from tests.backends.secrets import SECRET, hidden
from tests.servers.base import HOST
from tests.servers.dynamodb import DynamoDB
from tests.servers.objects import BUCKET, Objects, s3_client
from tests.servers.proxy import Proxy


@pytest.fixture
def bucket(objects_server: Objects) -> Iterator[S3Bucket]:
    bucket = S3Bucket(parse(objects_server.url), Limits(), SYSTEM)
    yield bucket
    bucket.close()


@pytest.fixture(scope="module")
def moto(dynamodb_server: DynamoDB) -> str:
    """A second S3 server, which answers some things otherwise."""
    s3_client(dynamodb_server.endpoint).create_bucket(Bucket=BUCKET)
    return f"s3://perkey:perkey@{BUCKET}/moto?endpoint={dynamodb_server.endpoint}&region=us-east-1"


# -------------------------------------------------------------------- conditions are enforced


STRIPPED = [["If-Match"], ["If-None-Match"], ["If-Match", "If-None-Match"]]


@pytest.mark.parametrize("strip", STRIPPED, ids=str)
def test_a_proxy_that_strips_conditions_is_refused(
    moto: str, dynamodb_server: DynamoDB, strip: list[str]
) -> None:
    with (
        Proxy(dynamodb_server.port, strip=strip) as proxy,
        pytest.raises(BackendNotConditional, match="conditional writes"),
    ):
        perkey.open(proxy.url(moto))


def test_a_server_that_checks_signatures_notices_it_first(objects_server: Objects) -> None:
    """The conditions are signed with the rest."""
    with (
        Proxy(objects_server.port, strip=["If-Match"]) as proxy,
        pytest.raises(StoreUnavailable, match="SignatureDoesNotMatch"),
    ):
        perkey.open(proxy.url(objects_server.url))


def test_another_server(moto: str) -> None:
    wanted = ["hostile_keys_stay_apart", "scans_go_by_utf8_bytes", "connections_share_the_records"]
    wanted += [
        "retention_by_count",
        "changes_resume_at_each_cursor",
        "a_tombstone_goes_on_counting",
    ]

    def source(limits: Limits) -> ObjectsBackend:
        return ObjectsBackend(S3Bucket(parse(moto), limits, SYSTEM), limits, SYSTEM)

    check_backend(source, only=wanted).raise_if_failed()
    with perkey.open(moto) as store:
        assert store.put("after", 1, overwrite=True).version == 1


def test_a_head_that_something_else_deleted(moto: str) -> None:
    bucket = S3Bucket(parse(moto), Limits(), SYSTEM)
    assert bucket.put("gone", b"1", None)
    tag = bucket.get("gone").tag  # type: ignore[union-attr]
    bucket.delete("gone")
    with pytest.raises(StoreUnavailable, match="deleted by something other than perkey"):
        bucket.put("gone", b"2", tag)
    bucket.close()


# ------------------------------------------------------------------------ writes that break off


@pytest.mark.parametrize("body_bytes", [0, 10])
def test_a_write_that_breaks_off_changes_nothing(
    objects_server: Objects, bucket: S3Bucket, body_bytes: int
) -> None:
    name = f"broken-off-{body_bytes}"
    assert bucket.put(name, b"whole", None)
    before = bucket.get(name)
    relay = BreaksOff(objects_server.port, body_bytes)
    place = objects_server.url.replace(f":{objects_server.port}", f":{relay.port}")
    through = S3Bucket(parse(place), Limits(), SYSTEM)
    with pytest.raises(StoreUnavailable):
        through.put(name, b"x" * 1_000, before and before.tag)
    relay.close()
    through.close()
    assert bucket.get(name) == before


# ---------------------------------------------------------------------------- the rest


def test_prefixes_keep_stores_apart(objects_server: Objects) -> None:
    places = [objects_server.url.replace("/tests?", each) for each in ("/one?", "/one/two?", "?")]
    for n, place in enumerate(places):
        with perkey.open(place) as store:
            store.put("apart", n, overwrite=True)
    for n, place in enumerate(places):
        with perkey.open(place) as store:
            assert store.get("apart").value == n
            assert [each.key for each in store.scan("")] == ["apart"]


def test_what_it_says_of_itself(objects_server: Objects) -> None:
    with perkey.open(objects_server.url) as store:
        told = store.backend.describe()
        assert told["address"] == f"{HOST}:{objects_server.port}/{BUCKET}"
        assert (told["prefix"], told["region"]) == ("tests/", "us-east-1")
        assert "perkey-test" not in f"{told}{store!r}{store.backend!r}"


def test_a_password_never_shows(objects_server: Objects) -> None:
    wrong = objects_server.url.replace("perkey-test-secret", SECRET)
    nowhere = f"s3://someone:{SECRET}@bucket?endpoint=http://127.0.0.1:1"
    for place in (wrong, nowhere):
        with pytest.raises(StoreUnavailable) as caught:
            perkey.open(place)
        hidden(caught.value)


def test_a_bucket_that_is_not_there(objects_server: Objects) -> None:
    with pytest.raises(StoreUnavailable, match="make it first"):
        perkey.open(objects_server.url.replace(f"@{BUCKET}/", "@no-such-bucket/"))
