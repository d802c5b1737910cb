"""Whose container it is: from the URL, or from what Azure's own tools read."""

from __future__ import annotations

import base64
import sys
from typing import Any
from urllib.parse import quote

import pytest
from azure.core.exceptions import ClientAuthenticationError

from perkey.errors import UsageError
from perkey.store.backends import azure_wire
from perkey.store.backends.azure_account import ACCOUNTS, CONNECTION, KEYS, SIGNATURE, account
from perkey.store.backends.azure_wire import Wire
from perkey.store.backends.port import NoCredentials
from perkey.store.url import parse
from tests.unit.manual_clock import ManualClock

KEY = base64.b64encode(b"s3cr3t-w0rd!").decode()
SAS = "?sv=2026-02-06&ss=b&sp=rwdl&sig=a%2Bb%2Fc%3D"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (CONNECTION, *ACCOUNTS, *KEYS, SIGNATURE):
        monkeypatch.delenv(name, raising=False)


def test_the_url_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "other")
    monkeypatch.setenv("AZURE_STORAGE_KEY", base64.b64encode(b"other").decode())
    found = account(parse(f"az://acc:{KEY}@box"))
    assert found[:3] == ("acc", b"s3cr3t-w0rd!", ())
    assert (found.endpoint, found.in_path) == ("https://acc.blob.core.windows.net", False)
    assert account(parse("az://acc@box")).key == b""  # the key is another account's


@pytest.mark.parametrize("name", KEYS)
def test_a_key_from_the_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, KEY)
    assert account(parse("az://acc@box")).key == b"s3cr3t-w0rd!"
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "acc")
    assert account(parse("az://box"))[:2] == ("acc", b"s3cr3t-w0rd!")


def test_a_shared_access_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = (("sv", "2026-02-06"), ("ss", "b"), ("sp", "rwdl"), ("sig", "a+b/c="))
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", SAS)
    assert account(parse("az://acc@box")).signature == expected
    monkeypatch.delenv("AZURE_STORAGE_SAS_TOKEN")
    assert account(parse(f"az://acc:{quote(SAS)}@box")).signature == expected


@pytest.mark.parametrize(
    ("connection", "endpoint", "in_path"),
    [
        (f"AccountName=acc;AccountKey={KEY}", "https://acc.blob.core.windows.net", False),
        (
            f"DefaultEndpointsProtocol=http;AccountName=acc;AccountKey={KEY};EndpointSuffix=h",
            "http://acc.blob.h",
            False,
        ),
        (
            f"AccountName=acc;AccountKey={KEY};BlobEndpoint=http://127.0.0.1:10000/acc;",
            "http://127.0.0.1:10000",
            True,
        ),
        (f"BlobEndpoint=https://acc.h/;SharedAccessSignature={SAS}", "https://acc.h", False),
    ],
)
def test_a_connection_string(
    connection: str, endpoint: str, in_path: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONNECTION, connection)
    found = account(parse("az://box"))
    assert (found.name, found.endpoint, found.in_path) == ("acc", endpoint, in_path)
    assert bool(found.key) != bool(found.signature)


@pytest.mark.parametrize(
    ("connection", "expected"),
    [
        ("", "whose container"),
        (f"AccountKey={KEY}", "names no account"),
        ("AccountName=acc;AccountKey=s3cr3t-w0rd", "base64"),
    ],
)
def test_what_is_missing_is_told(
    connection: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONNECTION, connection)
    with pytest.raises(UsageError, match=expected) as caught:
        account(parse("az://box"))
    assert "s3cr3t" not in str(caught.value)
    assert KEY not in str(caught.value)


def test_an_account_does_not_show_itself() -> None:
    found = account(parse(f"az://acc:{KEY}@box"))
    assert KEY not in f"{found!r}"
    assert "s3cr3t" not in f"{found!r}{found}"


# ------------------------------------------------------------------------- what is signed


def wire(url: str) -> Wire:
    location = parse(url)
    clock = ManualClock()
    clock.wall = 1_700_000_000_000
    return Wire(account(location), location, 5.0, clock)


def test_the_example_of_the_manual() -> None:
    """Source: "Authorize with Shared Key", Azure Storage REST API reference, the example of a
    signature string for Get Container Metadata."""
    text = azure_wire._to_sign(
        "myaccount",
        "GET",
        "/myaccount/mycontainer",
        {"restype": "container", "comp": "metadata", "timeout": "20"},
        {"x-ms-date": "Fri, 26 Jun 2015 23:39:12 GMT", "x-ms-version": "2015-02-21", "host": "h"},
        0,
    )
    assert text == (
        "GET\n\n\n\n\n\n\n\n\n\n\n\n"
        "x-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2015-02-21\n"
        "/myaccount/myaccount/mycontainer\ncomp:metadata\nrestype:container\ntimeout:20"
    )


def test_the_conditions_the_checksum_and_the_length_are_signed() -> None:
    headers = {"if-match": '"t"', "content-md5": "m", "x-ms-blob-type": "BlockBlob"}
    text = azure_wire._to_sign("acc", "PUT", "/box/a", {"startFrom": "b"}, headers, 4)
    assert text == (
        'PUT\n\n\n4\nm\n\n\n\n"t"\n\n\n\nx-ms-blob-type:BlockBlob\n/acc/box/a\nstartfrom:b'
    )


def test_a_shared_access_signature_goes_into_the_query() -> None:
    here = wire(f"az://acc:{quote(SAS)}@box")
    target, sent = here.prepared("GET", "/box/a b", {"comp": "x"}, {}, b"")
    assert target == "/box/a%20b?comp=x&sig=a%2Bb%2Fc%3D&sp=rwdl&ss=b&sv=2026-02-06"
    assert "authorization" not in sent


class Credential:
    """Stands for azure-identity: how it finds a token is not ours to test."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get_token(self, *scopes: str) -> Any:
        self.asked += scopes

        class Access:
            token, expires_on = "entra", 1_700_003_600

        return Access


def test_without_a_key_microsoft_entra_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    credential = Credential()
    monkeypatch.setattr("azure.identity.DefaultAzureCredential", lambda: credential)
    first = wire("az://acc@box")
    for each in (first, first.another(), first):
        _, sent = each.prepared("GET", "/box/a", {}, {}, b"")
        assert sent["authorization"] == "Bearer entra"
    assert credential.asked == ["https://storage.azure.com/.default"]


def test_where_nobody_is_logged_in_it_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nobody:
        def get_token(self, scope: str) -> Any:
            raise ClientAuthenticationError(f"a page of what was tried, with {KEY}")

    monkeypatch.setattr("azure.identity.DefaultAzureCredential", Nobody)
    with pytest.raises(NoCredentials, match=r"no credentials \(Client.*\): log in .*KEY") as caught:
        wire("az://acc@box").prepared("GET", "/box/a", {}, {}, b"")
    assert KEY not in f"{caught.value} {caught.value.__cause__}"


def test_a_token_is_not_sent_where_others_read_it() -> None:
    with pytest.raises(UsageError, match="expected a key"):
        wire("az://acc@box?endpoint=http://h:1")


def test_without_azure_identity_it_is_told_what_else_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    with pytest.raises(NoCredentials, match=r"no credentials: say az.*perkey\[azure\]"):
        wire("az://acc@box")
