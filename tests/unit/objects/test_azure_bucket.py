"""What goes to Azure Blob Storage, and what its answers mean."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from urllib.parse import parse_qs, urlsplit

import pytest

from perkey.errors import StoreUnavailable, UsageError
from perkey.store.backends import http_bucket
from perkey.store.backends.azure_bucket import AzureBucket
from perkey.store.backends.bucket import MISSING, Stored
from perkey.store.backends.port import NothingDone
from perkey.store.limits import Limits
from perkey.store.url import parse
from tests.unit.manual_clock import ManualClock
from tests.unit.objects.answers import DATE, DATE_MS, Answers

KEY = base64.b64encode(b"s3cr3t-w0rd!").decode()


class Rig:
    """A container whose server gives the answers that a test queues."""

    def __init__(self, server: Answers) -> None:
        self.server = server
        self.clock = ManualClock()
        url = f"az://acc:{KEY}@box/some/where?endpoint=http://127.0.0.1:{server.port}"
        self.bucket = AzureBucket(parse(url), Limits(), self.clock)

    def refuse(self, status: int, code: str) -> None:
        self.server.give(status, b"<Error>words</Error>", {"x-ms-error-code": code})


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
    [(None, {}), (MISSING, {"if-none-match": "*"}), ("0x17", {"if-match": '"0x17"'})],
)
def test_a_condition_and_a_checksum_go_with_each_write(
    rig: Rig, condition: str | None, sent: dict[str, str]
) -> None:
    rig.server.give(201)
    assert rig.bucket.put("h/d/a", b"data", condition)
    ((method, path, headers, body),) = rig.server.asked
    assert (method, path, body) == ("PUT", "/acc/box/some/where/h/d/a", b"data")
    assert headers["x-ms-blob-type"] == "BlockBlob"
    assert headers["content-md5"] == base64.b64encode(hashlib.md5(b"data").digest()).decode()
    assert {name: headers[name] for name in headers if name.startswith("if-")} == sent
    assert headers["authorization"].startswith("SharedKey acc:")


LOST = [(412, "ConditionNotMet"), (412, ""), (409, "BlobAlreadyExists")]


@pytest.mark.parametrize(("status", "code"), LOST)
def test_a_condition_that_did_not_hold_is_a_conflict(rig: Rig, status: int, code: str) -> None:
    """A blob that must not exist and does is 409 here, what others answer with 412."""
    rig.refuse(status, code)
    assert not rig.bucket.put("a", b"data", MISSING)
    assert rig.clock.slept == []


def test_429_is_asked_again(rig: Rig) -> None:
    rig.refuse(429, "TooManyRequests")
    rig.server.give(201)
    assert rig.bucket.put("a", b"data", "0x17")
    assert len(rig.clock.slept) == 1


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (400, "InvalidHeaderValue", "refused with 400 InvalidHeaderValue"),
        (403, "AuthenticationFailed", "403 AuthenticationFailed"),
        (404, "ContainerNotFound", "make it first"),
        (404, "BlobNotFound", "other than perkey"),
        (409, "ContainerBeingDeleted", "409 ContainerBeingDeleted"),
        (409, "BlobImmutableDueToPolicy", "409 BlobImmutableDueToPolicy"),
        (412, "LeaseIdMissing", "412 LeaseIdMissing"),
    ],
)
def test_a_refusal_means_that_nothing_was_done(rig: Rig, status: int, code: str, said: str) -> None:
    rig.refuse(status, code)
    with pytest.raises(NothingDone, match=said) as caught:
        rig.bucket.put("a", b"data", "0x17")
    assert KEY not in str(caught.value)
    assert rig.clock.slept == []


@pytest.mark.parametrize("status", [408, 500, 503])
def test_a_failure_half_way_means_nothing(rig: Rig, status: int) -> None:
    rig.refuse(status, "OperationTimedOut")
    with pytest.raises(StoreUnavailable, match="OperationTimedOut") as caught:
        rig.bucket.put("a", b"data", "0x17")
    assert not isinstance(caught.value, NothingDone)
    assert len(rig.server.asked) == 1


def test_a_write_is_never_sent_twice(rig: Rig) -> None:
    rig.server.give(202)
    rig.bucket.delete("a")
    rig.server.hang_up()
    with pytest.raises(StoreUnavailable, match="did not answer") as caught:
        rig.bucket.put("a", b"data", MISSING)
    assert not isinstance(caught.value, NothingDone)
    assert [each.method for each in rig.server.asked] == ["DELETE", "PUT"]


# ------------------------------------------------------------------------------ reading


def test_an_object_and_its_tag(rig: Rig) -> None:
    rig.server.give(200, b"data", {"ETag": '"0x17"'})
    assert rig.bucket.get("a") == Stored(b"data", "0x17")


def test_no_object_is_no_error_and_no_container_is(rig: Rig) -> None:
    rig.refuse(404, "BlobNotFound")
    assert rig.bucket.get("a") is None
    rig.refuse(404, "ContainerNotFound")
    with pytest.raises(StoreUnavailable, match="make it first"):
        rig.bucket.get("a")
    rig.server.give(404)  # whatever says this, it is no answer to the question
    with pytest.raises(StoreUnavailable, match="refused with 404"):
        rig.bucket.get("a")


def test_a_read_waits_for_a_busy_store(rig: Rig) -> None:
    rig.refuse(503, "ServerBusy")
    rig.server.give(200, b"data", {"ETag": '"0x17"'})
    assert rig.bucket.get("a") == Stored(b"data", "0x17")
    for _ in range(http_bucket.ASKED_AGAIN):
        rig.refuse(503, "ServerBusy")
    with pytest.raises(StoreUnavailable, match="503 ServerBusy"):
        rig.bucket.get("a")


def test_removing_what_is_gone_is_no_error(rig: Rig) -> None:
    rig.server.give(202)
    rig.bucket.delete("a")
    rig.refuse(404, "BlobNotFound")
    rig.bucket.delete("a")
    rig.refuse(409, "SnapshotsPresent")
    with pytest.raises(StoreUnavailable, match="SnapshotsPresent"):
        rig.bucket.delete("a")


def page(names: Sequence[str], onwards: str = "") -> bytes:
    blobs = "".join(
        f"<Blob><Name>some/where/{name}</Name><Properties><Etag>0x{name[-1]}</Etag></Properties>"
        "</Blob>"
        for name in names
    )
    return (
        '\ufeff<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="box">'
        f"<Blobs>{blobs}</Blobs><NextMarker>{onwards}</NextMarker></EnumerationResults>"
    ).encode()


def test_listings_go_on_to_the_limit(rig: Rig) -> None:
    rig.server.give(200, page(["h/1", "h/2"], "more"))
    rig.server.give(200, page([], "yet more"))  # a part may be empty and not the last
    rig.server.give(200, page(["h/3"]))
    assert rig.bucket.names("h/", "", 5) == [("h/1", "0x1"), ("h/2", "0x2"), ("h/3", "0x3")]
    first, second, third = (parse_qs(urlsplit(each.path).query) for each in rig.server.asked)
    assert urlsplit(rig.server.asked[0].path).path == "/acc/box"
    assert (first["prefix"], first["maxresults"]) == (["some/where/h/"], ["6"])
    assert (first["restype"], first["comp"]) == (["container"], ["list"])
    assert (second["marker"], third["marker"]) == (["more"], ["yet more"])
    rig.server.give(200, page([]))
    assert rig.bucket.names("h/", "", 5) == []


def test_a_listing_begins_behind_a_name(rig: Rig) -> None:
    """Also on a server that does not know how to begin there, and gives all names."""
    rig.server.give(200, page(["h/0", "h/1", "h/2", "h/3"], "more"))
    assert rig.bucket.names("h/", "h/1", 2) == [("h/2", "0x2"), ("h/3", "0x3")]
    asked = parse_qs(urlsplit(rig.server.asked[0].path).query)
    assert (asked["startFrom"], asked["maxresults"]) == (["some/where/h/1"], ["3"])


def test_a_listing_that_is_none_is_told(rig: Rig) -> None:
    rig.server.give(200, b"<html")
    with pytest.raises(StoreUnavailable, match="listing"):
        rig.bucket.names("h/", "", 5)


def test_the_date_of_each_answer_holds_the_clock(rig: Rig) -> None:
    rig.clock.wall = 0
    rig.server.give(202)
    rig.bucket.delete("a")
    assert rig.bucket.now_ms() == DATE_MS
    rig.server.give(202)
    rig.bucket.delete("a")  # signed with a time that the server takes
    assert rig.server.asked[-1].headers["x-ms-date"] == DATE
    told = rig.bucket.describe()
    assert told["account"] == "acc"
    assert "w0rd" not in f"{told}{rig.bucket!r}{rig.bucket._wire!r}{rig.bucket._wire.account!r}"


# ------------------------------------------------------------------------------ the URL


@pytest.mark.parametrize(
    ("url", "place"),
    [
        (f"az://acc:{KEY}@box/p", "acc.blob.core.windows.net/box"),
        (f"az://acc:{KEY}@box?endpoint=http://h:9000", "h:9000/acc/box"),
        (f"az://acc:{KEY}@box?endpoint=http://acc.h&addressing=virtual", "acc.h/box"),
    ],
)
def test_where_a_url_leads(url: str, place: str) -> None:
    assert AzureBucket(parse(url), Limits(), ManualClock()).place == place


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("az:///path", "az://account@container"),
        ("az://acc@box:9000/path", "endpoint=http://host:port"),
        (f"az://acc:{KEY}@box?endpoint=h:9000", "endpoint=http"),
        (f"az://acc:{KEY}@box?endpoint=http://me:{KEY}@h", "without path and password"),
        (f"az://acc:{KEY}@box?timeout=soon", "in seconds"),
        (f"az://acc:{KEY}@box?addressing=odd", "path, virtual"),
        (f"az://acc:{KEY}@box?secret=x", "no option 'secret'"),
        (f"az://acc:{KEY}@box?ca=/no/such/file", "No such file"),
        (f"az://a.c:{KEY}@box", "letters and digits"),
        (f"az://acc:{KEY[:-1]}_@box", "base64"),
    ],
)
def test_a_url_is_read_with_care(url: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected) as caught:
        AzureBucket(parse(url), Limits(), ManualClock())
    assert KEY[:-1] not in str(caught.value)
