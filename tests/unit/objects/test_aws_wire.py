"""Requests to AWS: signatures by the book, keys that stay secret, connections that end."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from perkey.errors import StoreUnavailable
from perkey.store.backends.aws_wire import Keys, Wire, _Credentials, region_of
from perkey.store.backends.port import NoCredentials, NothingDone
from perkey.store.url import parse
from tests.unit.manual_clock import ManualClock
from tests.unit.objects.answers import Answers

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
KEYS = f"AKIAIOSFODNN7EXAMPLE:{SECRET.replace('/', '%2F')}"
MOMENT = datetime(2013, 5, 24, tzinfo=UTC)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "REGION", "DEFAULT_REGION")
    for name in names:
        monkeypatch.delenv(f"AWS_{name}", raising=False)


def wire(url: str = f"s3://{KEYS}@b", host: str = "examplebucket.s3.amazonaws.com") -> Wire:
    clock = ManualClock()
    clock.wall = int(MOMENT.timestamp() * 1000)
    return Wire("s3", host, parse(url), 5.0, clock)


# ---------------------------------------------------------------------------- signatures


def test_the_example_of_the_manual() -> None:
    """Source: "Authenticating Requests: Using the Authorization Header", Amazon S3 API
    Reference, example "GET Object"."""
    _, sent = wire().prepared("GET", "/test.txt", {}, {"Range": "bytes=0-9"}, b"")
    assert sent["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )


def test_the_example_of_a_listing() -> None:
    """The same page, example "GET Bucket (List Objects)"."""
    _, sent = wire().prepared("GET", "/", {"prefix": "J", "max-keys": "2"}, {}, b"")
    assert sent["authorization"].endswith(
        "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
    )


odd = st.text(st.sampled_from("aZ0 /~-._%&=+*'()é\U0001f600"), max_size=8)


@given(odd, st.dictionaries(odd.filter(bool), odd, max_size=3), st.binary(max_size=5))
def test_what_is_sent_is_what_botocore_would_sign(
    path: str, query: dict[str, str], body: bytes
) -> None:
    target, headers = wire().prepared("PUT", f"/{path}", query, {"if-match": '"t"'}, body)
    url = f"https://examplebucket.s3.amazonaws.com{target}"
    request = AWSRequest("PUT", url, {"if-match": '"t"'}, body)
    request.headers["X-Amz-Content-SHA256"] = hashlib.sha256(body).hexdigest()
    request.headers["x-amz-date"] = headers["x-amz-date"]
    signer = S3SigV4Auth(Credentials("AKIAIOSFODNN7EXAMPLE", SECRET), "s3", "us-east-1")
    request.context["timestamp"] = headers["x-amz-date"]
    canonical = signer.canonical_request(request)
    signature = signer.signature(signer.string_to_sign(request, canonical), request)
    assert headers["authorization"].endswith(f"Signature={signature}")


def test_a_session_token_is_signed_and_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    _, sent = wire("s3://b").prepared("GET", "/", {}, {}, b"")
    assert sent["x-amz-security-token"] == "token"
    assert "x-amz-date;x-amz-security-token" in sent["authorization"]


# --------------------------------------------------------------------------- credentials


def test_where_credentials_come_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def found(url: str) -> str:
        return _Credentials(parse(url)).now().access

    file = tmp_path_factory.mktemp("aws") / "credentials"
    file.write_text("[mine]\naws_access_key_id = file\naws_secret_access_key = secret\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert found("s3://b?profile=mine") == "file"
    for wrong in ("s3://b", "s3://b?profile=other"):
        with pytest.raises(NoCredentials, match="no credentials"):
            found(wrong)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "environment")
    assert found("s3://b") == "environment"
    assert found("s3://b?profile=mine") == "file"
    assert found("s3://url:secret@b?profile=mine") == "url"


def test_keys_do_not_show_themselves() -> None:
    assert "secret" not in f"{Keys('id', 'secret', 'token')!r}"


def test_where_the_region_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    assert region_of(parse("s3://b")) == "us-east-1"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-1")
    assert region_of(parse("s3://b")) == "eu-1"
    monkeypatch.setenv("AWS_REGION", "eu-2")
    assert region_of(parse("s3://b")) == "eu-2"
    assert region_of(parse("s3://b?region=eu-3")) == "eu-3"


# --------------------------------------------------------------------------- connections


def test_one_connection_serves_many_requests_until_it_ends() -> None:
    with Answers() as server:
        here = wire(f"s3://{KEYS}@b?endpoint=http://127.0.0.1:{server.port}")
        places = []
        for closing in (False, False, True, False):
            server.give(200, b"x", {"Connection": "close"} if closing else {})
            assert here.ask("POST", "/", body=b"data").body == b"x"
            places.append(here._connection and here._connection.sock)
        assert places[0] is places[1] is not None
        assert places[2] is None
        assert places[3] not in (None, places[0])
        here.close()


def test_a_connection_that_ended_meanwhile_is_replaced_before_a_write() -> None:
    with Answers() as server:
        here = wire(f"s3://{KEYS}@b?endpoint=http://127.0.0.1:{server.port}")
        server.give(200)
        here.ask("GET", "/")
        server.hang_up()
        with pytest.raises(StoreUnavailable):
            here.ask("PUT", "/", body=b"1")
        server.give(200)
        assert here.ask("PUT", "/", body=b"2").status == 200
        assert [each.body for each in server.asked] == [b"", b"1", b"2"]
        here.close()


def test_nobody_there_means_that_nothing_was_sent() -> None:
    here = wire(f"s3://{KEYS}@b?endpoint=http://127.0.0.1:1")
    with pytest.raises(NothingDone, match=re.escape("127.0.0.1:1 cannot be reached")):
        here.ask("PUT", "/", body=b"1")


def test_tls_is_checked() -> None:
    with Answers() as server:
        here = wire(f"s3://{KEYS}@b?endpoint=https://127.0.0.1:{server.port}")
        with pytest.raises(NothingDone):
            here.ask("PUT", "/", body=b"1")
        assert server.asked == []
