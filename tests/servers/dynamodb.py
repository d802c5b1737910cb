"""DynamoDB (and a second S3), played by moto's server in a subprocess."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from tests.servers import base


class DynamoDB(base.Server):
    """Tables outlive a restart, not a killed server; what S3 it plays keeps nothing."""

    name = "moto"

    @property
    def endpoint(self) -> str:
        """The endpoint that AWS clients take, for DynamoDB and for S3."""
        return f"http://{base.HOST}:{self.port}"

    @property
    def url(self) -> str:
        return (
            f"dynamodb://perkey:perkey@perkey?endpoint={self.endpoint}&region=us-east-1&create=yes"
        )

    @staticmethod
    def version() -> str:
        return f"moto {version('moto')}"

    def client(self) -> Any:
        """A boto3 client for DynamoDB that never sends anything twice."""
        return boto3.client(
            "dynamodb",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="perkey",
            aws_secret_access_key="perkey",
            config=Config(retries={"total_max_attempts": 1}, connect_timeout=60, read_timeout=60),
        )

    def command(self) -> list[str]:
        program = Path(__file__).with_name("moto_server.py")
        kept = self.directory / "data" / "tables"
        return [sys.executable, str(program), base.HOST, str(self.port), str(kept)]

    def ready(self) -> bool:
        status, _ = base.http_get(self.port, "/moto-api/data.json", base.PROBE_SECONDS)
        return status == 200
