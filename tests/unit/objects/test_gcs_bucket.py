"""What goes to Google Cloud Storage, and what its answers mean."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from urllib.parse import parse_qs, urlsplit

import pytest

from perkey.errors import StoreUnavailable, UsageError
from perkey.store.backends import http_bucket
from perkey.store.backends.bucket import MISSING, Stored
from perkey.store.backends.gcs_bucket import GcsBucket
from perkey.store.backends.port import NothingDone
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
        url = f"gs://token:{SECRET}@bucket/some/where?endpoint=http://127.0.0.1:{server.port}"
        self.bucket = GcsBucket(parse(url), Limits(), self.clock)

    def refuse(self, status: int, reason: str, message: str = "no") -> None:
        error = {"code": status, "message": message, "errors": [{"reason": reason}]}
        self.server.give(status, json.dumps({"error": error}).encode())


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Answers() as server:
        rig = Rig(server)
        yield rig
        rig.bucket.close()
        assert server.used_up


# ------------------------------------------------------------------------------ writing


@pytest.mark.parametrize(
    ("condition", "sent"), [(None, None), (MISSING, ["0"]), ("17", ["17"])], ids=str
)
@pytest.mark.parametrize("data", [b"data", b"", b"\r\n--perkey\r\n\0" * 3], ids=len)
def test_one_request_holds_the_condition_a_checksum_and_the_data(
    rig: Rig, condition: str | None, sent: list[str] | None, data: bytes
) -> None:
    rig.server.give(200, b"{}")
    assert rig.bucket.put("h/d/a", data, condition)
    ((method, path, headers, body),) = rig.server.asked
    where = urlsplit(path)
    query = parse_qs(where.query)
    assert (method, where.path) == ("POST", "/upload/storage/v1/b/bucket/o")
    assert query["uploadType"] == ["multipart"]
    assert query.get("ifGenerationMatch") == sent
    assert headers["authorization"] == f"Bearer {SECRET}"
    kind = headers["content-type"].encode()
    about, content = parts(kind, body)
    assert content == data
    told = json.loads(about)
    assert told["name"] == "some/where/h/d/a"
    assert told["md5Hash"] == base64.b64encode(hashlib.md5(data).digest()).decode()
    assert told["cacheControl"] == "no-store"


def parts(kind: bytes, body: bytes) -> list[bytes]:
    """The bodies of a ``multipart/related`` request.  Source: RFC 2046, section 5.1."""
    boundary = b"--" + kind.partition(b"boundary=")[2]
    start, *inner, end = (b"\r\n" + body).split(b"\r\n" + boundary)
    assert (start, end) == (b"", b"--\r\n")
    return [each.partition(b"\r\n\r\n")[2] for each in inner]


def test_412_is_a_conflict(rig: Rig) -> None:
    rig.refuse(412, "conditionNotMet")
    assert not rig.bucket.put("a", b"data", MISSING)


@pytest.mark.parametrize("status", [409, 429])
def test_where_there_were_too_many_requests_it_is_asked_again(rig: Rig, status: int) -> None:
    """An object may be replaced about once a second; what comes sooner is refused with 429."""
    for _ in range(2):
        rig.refuse(status, "rateLimitExceeded")
    rig.server.give(200, b"{}")
    assert rig.bucket.put("a", b"data", "17")
    assert len(rig.clock.slept) == 2
    assert (sum(rig.clock.slept) >= 2 * http_bucket.TOO_OFTEN_S) == (status == 429)
    assert len({each.path for each in rig.server.asked}) == 1


def test_429_without_an_end_is_a_conflict(rig: Rig) -> None:
    for _ in range(http_bucket.ASKED_AGAIN):
        rig.refuse(429, "rateLimitExceeded")
    assert not rig.bucket.put("a", b"data", "17")


@pytest.mark.parametrize(
    ("status", "reason", "said"),
    [
        (400, "invalid", "refused with 400 invalid"),
        (401, "authError", "refused with 401 authError"),
        (403, "retentionPolicyNotMet", "403 retentionPolicyNotMet"),
        (404, "notFound", "make it first"),
    ],
)
def test_a_refusal_means_that_nothing_was_done(
    rig: Rig, status: int, reason: str, said: str
) -> None:
    rig.refuse(status, reason, f"the token was {SECRET}")
    with pytest.raises(NothingDone, match=said) as caught:
        rig.bucket.put("a", b"data", MISSING)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
def test_a_failure_half_way_means_nothing(rig: Rig, status: int) -> None:
    rig.refuse(status, "backendError")
    with pytest.raises(StoreUnavailable, match="backendError") as caught:
        rig.bucket.put("a", b"data", "17")
    assert not isinstance(caught.value, NothingDone)
    assert len(rig.server.asked) == 1


def test_a_write_is_never_sent_twice(rig: Rig) -> None:
    rig.server.give(204)
    rig.bucket.delete("a")
    rig.server.hang_up()
    with pytest.raises(StoreUnavailable, match="did not answer") as caught:
        rig.bucket.put("a", b"data", MISSING)
    assert not isinstance(caught.value, NothingDone)
    assert [each.method for each in rig.server.asked] == ["DELETE", "POST"]


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"error": 7}', b'{"error": {"errors": []}}'])
def test_a_refusal_that_cannot_be_read_is_told_by_its_number(rig: Rig, body: bytes) -> None:
    rig.server.give(403, body)
    with pytest.raises(NothingDone, match=r"refused with 403$"):
        rig.bucket.put("a", b"data", None)


# ------------------------------------------------------------------------------ reading


def test_an_object_and_its_generation(rig: Rig) -> None:
    rig.server.give(200, b"data", {"x-goog-generation": "17", "ETag": "other"})
    assert rig.bucket.get("h/d/a") == Stored(b"data", "17")
    (asked,) = rig.server.asked
    assert asked.path == "/storage/v1/b/bucket/o/some%2Fwhere%2Fh%2Fd%2Fa?alt=media"


def test_an_object_without_a_generation_is_no_answer(rig: Rig) -> None:
    rig.server.give(200, b"data")
    with pytest.raises(StoreUnavailable, match="generation"):
        rig.bucket.get("a")


def test_no_object_is_no_error_and_no_bucket_is(rig: Rig) -> None:
    rig.server.give(404, b"No such object: bucket/a")
    assert rig.bucket.get("a") is None
    rig.server.give(404, b"The specified bucket does not exist.")
    with pytest.raises(StoreUnavailable, match="make it first"):
        rig.bucket.get("a")
    rig.refuse(403, "forbidden")
    with pytest.raises(StoreUnavailable, match="403 forbidden"):
        rig.bucket.get("a")


@pytest.mark.parametrize("status", [429, 503])
def test_a_read_waits_for_a_busy_store(rig: Rig, status: int) -> None:
    rig.refuse(status, "rateLimitExceeded")
    rig.server.give(200, b"data", {"x-goog-generation": "17"})
    assert rig.bucket.get("a") == Stored(b"data", "17")
    assert len(rig.clock.slept) == 1
    for _ in range(http_bucket.ASKED_AGAIN):
        rig.refuse(status, "rateLimitExceeded")
    with pytest.raises(StoreUnavailable, match=f"{status} rateLimitExceeded"):
        rig.bucket.get("a")


def test_removing_what_is_gone_is_no_error(rig: Rig) -> None:
    rig.server.give(204)
    rig.bucket.delete("a")
    rig.server.give(404, b"Not Found")
    rig.bucket.delete("a")
    rig.refuse(403, "forbidden")
    with pytest.raises(StoreUnavailable, match="403 forbidden"):
        rig.bucket.delete("a")


def page(names: Sequence[str], onwards: str = "") -> bytes:
    items = [{"name": f"some/where/{name}", "generation": f"1{name[-1]}"} for name in names]
    more = {"nextPageToken": onwards} if onwards else {}
    return json.dumps({"kind": "storage#objects", "items": items, **more}).encode()


def test_listings_go_on_to_the_limit(rig: Rig) -> None:
    rig.server.give(200, page(["h/1", "h/2"], "more"))
    rig.server.give(200, page([], "yet more"))  # a part may be empty and not the last
    rig.server.give(200, page(["h/3"]))
    assert rig.bucket.names("h/", "", 5) == [("h/1", "11"), ("h/2", "12"), ("h/3", "13")]
    first, second, third = (parse_qs(urlsplit(each.path).query) for each in rig.server.asked)
    assert (first["prefix"], first["maxResults"]) == (["some/where/h/"], ["6"])
    assert "startOffset" not in first
    assert "pageToken" not in first
    assert (second["pageToken"], third["pageToken"]) == (["more"], ["yet more"])
    rig.server.give(200, b"{}")
    assert rig.bucket.names("h/", "", 5) == []


def test_a_listing_begins_behind_a_name(rig: Rig) -> None:
    rig.server.give(200, page(["h/1", "h/2", "h/3"], "more"))
    assert rig.bucket.names("h/", "h/1", 2) == [("h/2", "12"), ("h/3", "13")]
    asked = parse_qs(urlsplit(rig.server.asked[0].path).query)
    assert (asked["startOffset"], asked["maxResults"]) == (["some/where/h/1"], ["3"])


@pytest.mark.parametrize("body", [b"<html", b"[]", b'{"items": [{}]}', b'{"items": 7}'])
def test_a_listing_that_is_none_is_told(rig: Rig, body: bytes) -> None:
    rig.server.give(200, body)
    with pytest.raises(StoreUnavailable, match="listing"):
        rig.bucket.names("h/", "", 5)


def test_the_date_of_each_answer_holds_the_clock(rig: Rig) -> None:
    rig.clock.wall = 0
    rig.server.give(204)
    rig.bucket.delete("a")
    assert rig.bucket.now_ms() == DATE_MS
    told = rig.bucket.describe()
    assert told["clock"].startswith(f"this client's, {DATE_MS} ms off")
    assert SECRET not in f"{told}{rig.bucket!r}{rig.bucket._wire!r}"


# ------------------------------------------------------------------------------ the URL


@pytest.mark.parametrize(
    ("url", "emulator", "place"),
    [
        ("gs://t@b/p", "", "storage.googleapis.com/b"),
        ("gs://t@b?endpoint=http://h:9000", "elsewhere:1", "h:9000/b"),
        ("gs://b", "h:9000", "h:9000/b"),
        ("gs://b", "http://h:9000", "h:9000/b"),
        ("gs://b_c.d?auth=none", "", "storage.googleapis.com/b_c.d"),
    ],
)
def test_where_a_url_leads(
    url: str, emulator: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)
    bucket = GcsBucket(parse(url), Limits(), ManualClock())
    assert bucket.place == place
    # What only Google's own store does is said of that alone.
    assert ("pace" in bucket.describe()) == place.startswith("storage.googleapis.com/")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("gs:///path", "gs://bucket"),
        ("gs://bucket:9000/path", "endpoint=http://host:port"),
        ("gs://bucket?endpoint=h:9000", "endpoint=http"),
        (f"gs://bucket?endpoint=http://me:{SECRET}@h", "without path and password"),
        ("gs://bucket?timeout=soon", "in seconds"),
        ("gs://bucket?auth=odd", "default, none"),
        ("gs://bucket?secret=x", "no option 'secret'"),
        ("gs://t@bucket?ca=/no/such/file", "No such file"),
        (f"gs://{SECRET}%0d%0a@bucket", "that no token has"),
    ],
)
def test_a_url_is_read_with_care(url: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected) as caught:
        GcsBucket(parse(url), Limits(), ManualClock())
    assert SECRET not in str(caught.value)
