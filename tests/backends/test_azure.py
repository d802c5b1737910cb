"""What only Azure's store has: conditions stripped on the way, signed or not, and its own 409."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

import perkey
from perkey import BackendNotConditional, StoreUnavailable
from perkey.clock import SYSTEM
from perkey.store.backends.azure_bucket import AzureBucket
from perkey.store.backends.bucket import MISSING
from perkey.store.backends.http_bucket import ASKED_AGAIN, Fate, HttpBucket
from perkey.store.backends.wire import Answer
from perkey.store.limits import Limits
from perkey.store.url import parse
from tests.backends.secrets import SECRET, hidden
from tests.servers.azure import Azure, AzureSecure, entra_token
from tests.servers.base import HOST
from tests.servers.proxy import Proxy

STRIPPED = [["If-Match"], ["If-None-Match"], ["If-Match", "If-None-Match"]]


@pytest.fixture
def bucket(azure_server: Azure) -> Iterator[AzureBucket]:
    bucket = AzureBucket(parse(azure_server.url), Limits(), SYSTEM)
    yield bucket
    bucket.close()


@pytest.mark.parametrize("strip", STRIPPED, ids=str)
def test_a_proxy_that_strips_conditions_is_refused(azure_server: Azure, strip: list[str]) -> None:
    """A shared access signature does not cover them."""
    url = azure_server.shared_url
    with (
        Proxy(azure_server.port, strip=strip) as proxy,
        pytest.raises(BackendNotConditional, match="conditional writes"),
    ):
        perkey.open(proxy.url(url))


def test_where_conditions_are_signed_the_server_notices_it_first(azure_server: Azure) -> None:
    with (
        Proxy(azure_server.port, strip=["If-Match"]) as proxy,
        pytest.raises(StoreUnavailable, match="403 AuthorizationFailure"),
    ):
        perkey.open(proxy.url(azure_server.url))


def test_a_shared_access_signature_is_enough(azure_server: Azure, prefix: str) -> None:
    with perkey.open(azure_server.shared_url) as store:
        assert store.put(prefix, 1, create=True).version == 1
        assert store.get(prefix).value == 1
        assert "sig=" not in f"{store!r}{store.backend!r}{store.backend.describe()}"


def test_a_password_never_shows(azure_server: Azure) -> None:
    key = SECRET.replace("-", "") + "AA"  # base64, and a wrong one
    scheme, _, rest = azure_server.url.partition("://")
    place = rest.rpartition("@")[2]
    for where in (place, f"perkey/tests?endpoint=http://{HOST}:1"):
        with pytest.raises(StoreUnavailable) as caught:
            perkey.open(f"{scheme}://perkeytest:{key}@{where}")
        hidden(caught.value, key)


def test_taking_azures_409_for_a_busy_store_only_waits(
    bucket: AzureBucket, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: 409 means the same everywhere.  It is sent five times, for nothing."""
    assert bucket.put(prefix, b"theirs", MISSING)
    assert not bucket.put(prefix, b"mine", MISSING)
    sent: list[Fate] = []

    def as_elsewhere(answer: Answer) -> Fate:
        sent.append(HttpBucket._fate(bucket, answer))
        return sent[-1]

    monkeypatch.setattr(bucket, "_fate", as_elsewhere)
    assert not bucket.put(prefix, b"mine", MISSING)
    assert sent == [Fate.BUSY] * ASKED_AGAIN


# ------------------------------------------------------------------------ TLS, and tokens


@pytest.fixture(scope="module")
def secure() -> Iterator[AzureSecure]:
    with AzureSecure() as server:
        yield server


class Credential:
    """Stands for azure-identity; what it gives out, Azurite takes."""

    def get_token(self, *scopes: str) -> SimpleNamespace:
        token, ends = entra_token()
        return SimpleNamespace(token=token, expires_on=ends)


def test_a_token_of_entra_over_tls(secure: AzureSecure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("azure.identity.DefaultAzureCredential", Credential)
    with perkey.open(secure.entra_url) as store:
        assert store.put("a", 1, overwrite=True).version >= 1
        assert store.get("a").value == 1
        assert entra_token()[0][:40] not in f"{store!r}{store.backend!r}{store.backend.describe()}"


def test_a_token_that_azure_refuses(secure: AzureSecure, monkeypatch: pytest.MonkeyPatch) -> None:
    token = entra_token()[0].rpartition(".")[0].replace("e", "f") + ".x"
    given = SimpleNamespace(token=token, expires_on=1 << 40)
    refused = SimpleNamespace(get_token=lambda scope: given)
    monkeypatch.setattr("azure.identity.DefaultAzureCredential", lambda: refused)
    with pytest.raises(StoreUnavailable, match="refused with 40") as caught:
        perkey.open(secure.entra_url)
    hidden(caught.value, token)


def test_a_certificate_that_nobody_vouches_for(secure: AzureSecure) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        perkey.open(secure.url.partition("&ca=")[0])
    with perkey.open(secure.url) as store:
        assert store.put("b", 1, overwrite=True).version >= 1
