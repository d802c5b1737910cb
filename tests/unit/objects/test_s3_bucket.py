"""What goes to an S3 server, and what its answers mean."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator

import pytest

from perkey.errors import StoreUnavailable, UsageError
from perkey.store.backends import http_bucket
from perkey.store.backends.bucket import MISSING, Stored
from perkey.store.backends.port import NothingDone
from perkey.store.backends.s3_bucket import S3Bucket
from perkey.store.limits import Limits
from perkey.store.url import parse
from tests.unit.manual_clock import ManualClock
from tests.unit.objects.answers import DATE_MS, Answers

SECRET = "s3cr3t-w0rd"


class Rig:
    """A bucket whose server gives the answers that a test queues."""

    def __init__(self, server: Answers) -> None:
        self.server = server
        self.clock = ManualClock()
        url = f"s3://name:{SECRET}@bucket/some/where?endpoint=http://127.0.0.1:{server.port}"
        self.bucket = S3Bucket(parse(url), Limits(), self.clock)


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Answers() as server:
        rig = Rig(server)
        yield rig
        rig.bucket.close()
        assert server.used_up


# ------------------------------------------------------------------------------ writing


@pytest.mark.parametrize(
    ("condition", "sent"),
    [(None, {}), (MISSING, {"if-none-match": "*"}), ('"tag"', {"if-match": '"tag"'})],
)
def test_a_condition_and_a_checksum_go_with_each_write(
    rig: Rig, condition: str | None, sent: dict[str, str]
) -> None:
    rig.server.give(200)
    assert rig.bucket.put("h/d/a", b"data", condition)
    ((method, path, headers, body),) = rig.server.asked
    assert (method, path, body) == ("PUT", "/bucket/some/where/h/d/a", b"data")
    assert headers["content-md5"] == base64.b64encode(hashlib.md5(b"data").digest()).decode()
    assert {name: headers[name] for name in headers if name.startswith("if-")} == sent
    assert all(name in headers["authorization"] for name in sent)


def test_412_is_a_conflict(rig: Rig) -> None:
    rig.server.refuse(412, "PreconditionFailed")
    assert not rig.bucket.put("a", b"data", MISSING)


def test_409_is_asked_again(rig: Rig) -> None:
    for _ in range(2):
        rig.server.refuse(409, "ConditionalRequestConflict")
    rig.server.give(200)
    assert rig.bucket.put("a", b"data", '"t"')
    assert len(rig.clock.slept) == 2


def test_409_without_an_end_is_a_conflict(rig: Rig) -> None:
    for _ in range(http_bucket.ASKED_AGAIN):
        rig.server.refuse(409, "ConditionalRequestConflict")
    assert not rig.bucket.put("a", b"data", '"t"')


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (403, "AccessDenied", "refused with 403 AccessDenied"),
        (404, "NoSuchBucket", "make it first"),
        (404, "NoSuchKey", "other than perkey"),
        (400, "InvalidRequest", "InvalidRequest"),
    ],
)
def test_a_refusal_means_that_nothing_was_done(rig: Rig, status: int, code: str, said: str) -> None:
    rig.server.refuse(status, code)
    with pytest.raises(NothingDone, match=said) as caught:
        rig.bucket.put("a", b"data", '"t"')
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("status", [500, 503])
def test_a_failure_half_way_means_nothing(rig: Rig, status: int) -> None:
    rig.server.refuse(status, "InternalError")
    with pytest.raises(StoreUnavailable) as caught:
        rig.bucket.put("a", b"data", '"t"')
    assert not isinstance(caught.value, NothingDone)


def test_a_write_is_never_sent_twice(rig: Rig) -> None:
    """Nor where the connection is an old one: whether it landed is found out by reading."""
    rig.server.give(200, b"")
    rig.bucket.delete("a")
    rig.server.hang_up()
    with pytest.raises(StoreUnavailable, match="did not answer") as caught:
        rig.bucket.put("a", b"data", MISSING)
    assert not isinstance(caught.value, NothingDone)
    assert [each.method for each in rig.server.asked] == ["DELETE", "PUT"]


def test_another_region_is_named(rig: Rig) -> None:
    rig.server.refuse(301, "PermanentRedirect", {"x-amz-bucket-region": "eu-west-9"})
    with pytest.raises(StoreUnavailable, match="say region=eu-west-9"):
        rig.bucket.put("a", b"data", MISSING)


# ------------------------------------------------------------------------------ reading


def test_an_object_and_its_tag(rig: Rig) -> None:
    rig.server.give(200, b"data", {"ETag": '"t"'})
    assert rig.bucket.get("a") == Stored(b"data", '"t"')


def test_no_object_is_no_error_and_no_bucket_is(rig: Rig) -> None:
    rig.server.refuse(404, "NoSuchKey")
    assert rig.bucket.get("a") is None
    rig.server.refuse(404, "NoSuchBucket")
    with pytest.raises(StoreUnavailable, match="make it first"):
        rig.bucket.get("a")
    rig.server.give(404)  # whatever says this, it is no answer to the question
    with pytest.raises(StoreUnavailable, match="refused with 404"):
        rig.bucket.get("a")


def test_a_read_is_sent_again_on_a_new_connection(rig: Rig) -> None:
    rig.server.hang_up()
    rig.server.give(200, b"data", {"ETag": '"t"'})
    assert rig.bucket.get("a") == Stored(b"data", '"t"')
    rig.server.hang_up()
    rig.server.hang_up()
    with pytest.raises(StoreUnavailable, match="did not answer"):
        rig.bucket.get("a")


def test_removing_what_is_gone_is_no_error(rig: Rig) -> None:
    rig.server.give(204)
    rig.bucket.delete("a")
    rig.server.refuse(404, "NoSuchKey")
    rig.bucket.delete("a")
    rig.server.refuse(403, "AccessDenied")
    with pytest.raises(StoreUnavailable, match="AccessDenied"):
        rig.bucket.delete("a")


def page(names: list[str], more: bool) -> bytes:
    objects = "".join(
        f"<Contents><Key>some/where/{name}</Key><Size>1</Size><ETag>&quot;{name}&quot;</ETag>"
        "</Contents>"
        for name in names
    )
    return (
        '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<IsTruncated>{str(more).lower()}</IsTruncated>{objects}</ListBucketResult>"
    ).encode()


def test_listings_go_on_to_the_limit(rig: Rig) -> None:
    rig.server.give(200, page(["h/1", "h/2"], more=True))
    rig.server.give(200, page(["h/3"], more=False))
    found = rig.bucket.names("h/", "", 5)
    assert found == [("h/1", '"h/1"'), ("h/2", '"h/2"'), ("h/3", '"h/3"')]
    first, second = (each.path for each in rig.server.asked)
    assert first == "/bucket/?list-type=2&max-keys=5&prefix=some%2Fwhere%2Fh%2F"
    assert second.endswith("max-keys=3&prefix=some%2Fwhere%2Fh%2F&start-after=some%2Fwhere%2Fh%2F2")
    rig.server.give(200, page([], more=True))
    assert rig.bucket.names("h/", "", 5) == []


def test_a_listing_that_is_none_is_told(rig: Rig) -> None:
    rig.server.give(200, b"<html")
    with pytest.raises(StoreUnavailable, match="listing"):
        rig.bucket.names("h/", "", 5)


def test_the_date_of_each_answer_holds_the_clock(rig: Rig) -> None:
    rig.clock.wall = 0
    rig.server.give(204)
    rig.bucket.delete("a")
    assert rig.bucket.now_ms() == DATE_MS
    assert rig.bucket.describe()["clock"].startswith(f"this client's, {DATE_MS} ms off")
    rig.server.give(204)
    rig.bucket.delete("a")  # signed with a time that the server takes
    assert rig.server.asked[-1].headers["x-amz-date"] == "20231114T221320Z"


# ------------------------------------------------------------------------------ the URL


@pytest.mark.parametrize(
    ("url", "place", "path"),
    [
        ("s3://k:s@b/p", "b.s3.us-east-1.amazonaws.com", "/p/a"),
        ("s3://k:s@b?region=eu-1", "b.s3.eu-1.amazonaws.com", "/a"),
        ("s3://k:s@b?region=cn-north-1", "b.s3.cn-north-1.amazonaws.com.cn", "/a"),
        ("s3://k:s@b.c", "s3.us-east-1.amazonaws.com", "/b.c/a"),
        ("s3://k:s@b?addressing=path", "s3.us-east-1.amazonaws.com", "/b/a"),
        ("s3://k:s@b?endpoint=http://h:9000", "h:9000", "/b/a"),
        ("s3://k:s@b?endpoint=http://b.h&addressing=virtual", "b.h", "/a"),
    ],
)
def test_where_a_url_leads(
    url: str, place: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    bucket = S3Bucket(parse(url), Limits(), ManualClock())
    assert bucket._wire.place == place
    assert f"{bucket._root}/{bucket._prefix}a" == path


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3:///path", "s3://bucket"),
        ("s3://bucket:9000/path", "endpoint=http://host:port"),
        ("s3://bucket?endpoint=h:9000", "endpoint=http"),
        (f"s3://bucket?endpoint=http://me:{SECRET}@h", "without path and password"),
        ("s3://bucket?endpoint=http://h/path", "without path and password"),
        ("s3://bucket?endpoint=http://h:x", "endpoint=http"),
        ("s3://bucket?timeout=soon", "in seconds"),
        ("s3://bucket?addressing=odd", "path, virtual"),
        ("s3://bucket?secret=x", "no option 'secret'"),
        ("s3://k:s@bucket?ca=/no/such/file", "No such file"),
    ],
)
def test_a_url_is_read_with_care(url: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected) as caught:
        S3Bucket(parse(url), Limits(), ManualClock())
    assert SECRET not in str(caught.value)
