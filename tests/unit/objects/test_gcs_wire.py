"""Who asks at Google: a token in the URL, a file with credentials, nobody, or no way to know."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from perkey.clock import SYSTEM
from perkey.store.backends.gcs_wire import SCOPE, Wire
from perkey.store.backends.port import NoCredentials, NothingDone
from perkey.store.url import parse
from tests.unit.objects.answers import Answers

SECRET = "s3cr3t-w0rd"


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials of whoever runs the tests, and no question to a machine's own service."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST", "GCE_METADATA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "project")
    monkeypatch.setenv("NO_GCE_CHECK", "true")


@pytest.fixture
def tokens() -> Iterator[Answers]:
    with Answers() as server:
        yield server


def wire(url: str) -> Wire:
    return Wire(parse(url), 5.0, SYSTEM)


def authorization(here: Wire) -> str | None:
    return here.prepared("GET", "/a%2Fb", {"alt": "media"}, {}, b"")[1].get("authorization")


def user_file(folder: Path) -> Path:
    """As ``gcloud auth application-default login`` leaves it."""
    file = folder / "user.json"
    told = {"client_id": "id", "client_secret": SECRET, "refresh_token": SECRET}
    file.write_text(json.dumps({"type": "authorized_user", **told}))
    return file


@cache
def private_key() -> bytes:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def account_file(folder: Path, tokens: Answers) -> Path:
    """A service account's key, which says where its tokens are given out."""
    file = folder / "account.json"
    told = {
        "type": "service_account",
        "client_email": "perkey@project.example",
        "private_key_id": "1",
        "private_key": private_key().decode(),
        "token_uri": f"http://127.0.0.1:{tokens.port}/token",
    }
    file.write_text(json.dumps(told))
    return file


def grant(tokens: Answers, text: str) -> None:
    answer = {"access_token": text, "expires_in": 3600, "token_type": "Bearer"}
    tokens.give(200, json.dumps(answer).encode())


def test_a_path_is_sent_as_it_is_and_a_token_with_it() -> None:
    target, sent = wire(f"gs://token:{SECRET}@b").prepared("GET", "/a%2Fb", {"alt": "x y"}, {}, b"")
    assert target == "/a%2Fb?alt=x%20y"
    assert sent["authorization"] == f"Bearer {SECRET}"
    assert sent["host"] == "storage.googleapis.com"
    assert authorization(wire("gs://b?auth=none")) is None


def test_a_server_that_is_not_googles_is_asked_without_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:1")
    here = wire("gs://b")
    assert (here.place, authorization(here)) == ("127.0.0.1:1", None)
    with pytest.raises(NoCredentials, match="no credentials"):
        wire("gs://b?endpoint=http://h:1")  # this URL does not mean the environment's server


def test_a_users_file(tmp_path: Path, tokens: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    place = f"http://127.0.0.1:{tokens.port}/token"
    monkeypatch.setattr("google.oauth2.credentials._GOOGLE_OAUTH2_TOKEN_ENDPOINT", place)
    file = user_file(tmp_path)
    grant(tokens, "one")
    here = wire(f"gs://b?credentials={file}")
    assert [authorization(here), authorization(here.another())] == ["Bearer one"] * 2
    (asked,) = tokens.asked
    assert parse_qs(asked.body.decode())["refresh_token"] == [SECRET]
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    grant(tokens, "two")
    assert authorization(wire("gs://b")) == "Bearer two"


def test_a_service_account(tmp_path: Path, tokens: Answers) -> None:
    grant(tokens, "one")
    here = wire(f"gs://b?credentials={account_file(tmp_path, tokens)}")
    assert authorization(here) == "Bearer one"
    asked = parse_qs(tokens.asked[0].body.decode())
    assert asked["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    assert asked["assertion"][0].count(".") == 2
    claims = json.loads(base64.urlsafe_b64decode(asked["assertion"][0].split(".")[1] + "=="))
    assert claims["scope"] == SCOPE


def test_a_refused_token_is_told_without_what_was_sent(tmp_path: Path, tokens: Answers) -> None:
    here = wire(f"gs://b?credentials={account_file(tmp_path, tokens)}")
    said = {"error": "invalid_grant", "error_description": SECRET}
    tokens.give(400, json.dumps(said).encode())
    with pytest.raises(NothingDone, match="RefreshError") as caught:
        authorization(here)
    error: BaseException | None = caught.value
    assert SECRET not in f"{error} {error!r}"
    assert error is not None
    assert error.__cause__ is None
    assert error.__suppress_context__


def test_a_place_of_tokens_that_is_gone(tmp_path: Path) -> None:
    with Answers() as gone:
        file = account_file(tmp_path, gone)
    with pytest.raises(NothingDone, match="TransportError"):
        authorization(wire(f"gs://b?credentials={file}"))


@pytest.mark.parametrize("content", [None, "", "{}", '{"type": "odd"}', "[]"])
def test_a_file_that_holds_none(content: str | None, tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(NoCredentials, match="no credentials"):
        wire(f"gs://b?credentials={file}")


def test_without_google_auth_it_is_told_what_else_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "google.auth", None)
    with pytest.raises(NoCredentials, match=r"perkey\[gcs\]"):
        wire("gs://b")
    assert authorization(wire(f"gs://token:{SECRET}@b")) == f"Bearer {SECRET}"
