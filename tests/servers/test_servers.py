"""Each server starts, keeps one conditional write, and refuses the stale one.

These tests say what the backends' tests stand on: if one fails, look here first.  Versions
and start-up times are printed (``-s``).
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats
import obstore
import psutil
import psycopg
import pytest
import redis
from botocore.exceptions import ClientError
from nats.js.errors import KeyWrongLastSequenceError
from obstore.exceptions import PreconditionError
from obstore.store import S3Store

from tests.servers import base
from tests.servers.dynamodb import DynamoDB
from tests.servers.etcd import Etcd
from tests.servers.nats import Nats
from tests.servers.objects import ACCESS_KEY, BUCKET, SECRET_KEY, Objects, s3_client
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy
from tests.servers.valkey import Valkey

LUA = """
if redis.call('HGET', KEYS[1], 'v') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'v', ARGV[2])
return 1
"""


def report(server: base.Server) -> None:
    print(f"\n{server.name}: {server.version()}, started in {server.started_in:.2f} s")


def test_postgres(postgres_server: Postgres) -> None:
    report(postgres_server)
    update = "UPDATE t SET v = v + 1 WHERE k = 'a' AND v = %s"
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute("CREATE TEMP TABLE t (k text PRIMARY KEY, v bigint)")
        connection.execute("INSERT INTO t VALUES ('a', 1)")
        assert connection.execute(update, (1,)).rowcount == 1
        assert connection.execute(update, (1,)).rowcount == 0
        assert connection.info.server_version >= 180_000


def test_valkey(valkey_server: Valkey) -> None:
    report(valkey_server)
    with redis.Redis.from_url(valkey_server.url) as client:
        client.hset("smoke", "v", "1")
        assert client.eval(LUA, 1, "smoke", "1", "2") == 1
        assert client.eval(LUA, 1, "smoke", "1", "3") == 0
        assert client.config_get("appendfsync") == {"appendfsync": "always"}


def etcd_put(server: Etcd, key: bytes, value: bytes, revision: int) -> bool:
    """One transaction over the JSON gateway: put if the key's mod revision is this one."""
    name = base64.b64encode(key).decode()
    put = {"key": name, "value": base64.b64encode(value).decode()}
    body = {
        "compare": [{"key": name, "target": "MOD", "mod_revision": str(revision)}],
        "success": [{"request_put": put}],
    }
    connection = http.client.HTTPConnection(base.HOST, server.port, timeout=base.ANSWER_SECONDS)
    try:
        connection.request("POST", "/v3/kv/txn", json.dumps(body))
        return bool(json.loads(connection.getresponse().read()).get("succeeded", False))
    finally:
        connection.close()


def test_etcd(etcd_server: Etcd) -> None:
    report(etcd_server)
    assert etcd_put(etcd_server, b"smoke", b"1", 0)
    assert not etcd_put(etcd_server, b"smoke", b"2", 0)


async def test_nats(nats_server: Nats) -> None:
    report(nats_server)
    client = await nats.connect(nats_server.url)
    try:
        bucket = await client.jetstream().create_key_value(bucket="smoke", history=5)
        first = await bucket.create("k", b"1")
        assert await bucket.update("k", b"2", last=first) == first + 1
        with pytest.raises(KeyWrongLastSequenceError):
            await bucket.update("k", b"3", last=first)
    finally:
        await client.close()


def test_objects_with_boto3(objects_server: Objects) -> None:
    report(objects_server)
    client = objects_server.client()
    tag = client.put_object(Bucket=BUCKET, Key="smoke", Body=b"1", IfNoneMatch="*")["ETag"]
    client.put_object(Bucket=BUCKET, Key="smoke", Body=b"2", IfMatch=tag)
    for condition in ({"IfMatch": tag}, {"IfNoneMatch": "*"}):
        with pytest.raises(ClientError) as refused:
            client.put_object(Bucket=BUCKET, Key="smoke", Body=b"3", **condition)
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 412
    assert client.get_object(Bucket=BUCKET, Key="smoke")["Body"].read() == b"2"


def test_objects_with_obstore(objects_server: Objects) -> None:
    store = S3Store(
        BUCKET,
        endpoint=objects_server.endpoint,
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        region="us-east-1",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    first = obstore.put(store, "smoke-obstore", b"1", mode="create")
    condition: Any = {"e_tag": first["e_tag"]}
    obstore.put(store, "smoke-obstore", b"2", mode=condition)
    with pytest.raises(PreconditionError):
        obstore.put(store, "smoke-obstore", b"3", mode=condition)


def test_dynamodb(dynamodb_server: DynamoDB) -> None:
    report(dynamodb_server)
    client = dynamodb_server.client()
    client.create_table(
        TableName="smoke",
        KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    client.put_item(TableName="smoke", Item={"k": {"S": "a"}, "v": {"N": "1"}})

    def update(seen: int) -> None:
        client.put_item(
            TableName="smoke",
            Item={"k": {"S": "a"}, "v": {"N": str(seen + 1)}},
            ConditionExpression="v = :seen",
            ExpressionAttributeValues={":seen": {"N": str(seen)}},
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )

    update(1)
    with pytest.raises(ClientError) as refused:
        update(1)
    assert refused.value.response["Error"]["Code"] == "ConditionalCheckFailedException"
    assert refused.value.response["Item"]["v"] == {"N": "2"}


def test_a_stripped_condition_loses_updates(dynamodb_server: DynamoDB) -> None:
    """What opening a store has to find out: nothing in the answer shows it."""
    direct = s3_client(dynamodb_server.endpoint)
    direct.create_bucket(Bucket=BUCKET)
    tag = direct.put_object(Bucket=BUCKET, Key="k", Body=b"1")["ETag"]
    with Proxy(dynamodb_server.port, strip=["If-Match", "If-None-Match"]) as proxy:
        through = s3_client(proxy.url(dynamodb_server.endpoint))
        through.put_object(Bucket=BUCKET, Key="k", Body=b"2", IfMatch=tag)
        through.put_object(Bucket=BUCKET, Key="k", Body=b"3", IfMatch=tag)
        through.close()
    with pytest.raises(ClientError):
        direct.put_object(Bucket=BUCKET, Key="k", Body=b"4", IfMatch=tag)


# ------------------------------------------------------------------ a server's life


LIVES: list[Callable[[], base.Server]] = [Postgres, Valkey, Etcd, Nats, Objects, DynamoDB]


@pytest.mark.parametrize("kind", LIVES)
def test_restart_and_kill_keep_the_address(kind: Callable[[], base.Server]) -> None:
    with kind() as server:
        url, first = server.url, server.pid
        assert server.restart() == url
        second = server.pid
        assert second != first
        server.kill()
        assert not psutil.pid_exists(second)
        assert server.start() == url
        last, directory = server.pid, server.directory
    assert not psutil.pid_exists(last)
    assert not directory.exists()


def test_postgres_keeps_commits_over_a_crash() -> None:
    with Postgres() as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS v")
        server.kill()
        server.start()
        with psycopg.connect(server.url) as connection:
            assert connection.execute("SELECT v FROM kept").fetchone() == (7,)


def test_objects_keep_writes_over_a_crash() -> None:
    with Objects() as server:
        server.client().put_object(Bucket=BUCKET, Key="kept", Body=b"7")
        server.kill()
        server.start()
        assert server.client().get_object(Bucket=BUCKET, Key="kept")["Body"].read() == b"7"


def test_a_paused_server_answers_nothing_until_resumed(valkey_server: Valkey) -> None:
    with (
        redis.Redis.from_url(valkey_server.url, socket_timeout=60) as client,
        redis.Redis.from_url(valkey_server.url, socket_timeout=0.3) as impatient,
    ):
        client.ping()
        valkey_server.pause()
        try:
            with pytest.raises(redis.TimeoutError):
                impatient.ping()
        finally:
            valkey_server.resume()
        assert client.ping()


def test_pause_reaches_every_process(postgres_server: Postgres) -> None:
    """PostgreSQL serves each connection by a process with a session of its own."""
    with psycopg.connect(postgres_server.url) as connection:
        backend = connection.info.backend_pid
        postgres_server.pause()
        try:
            assert psutil.Process(backend).status() == psutil.STATUS_STOPPED
        finally:
            postgres_server.resume()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_failed_start_shows_the_log() -> None:
    server = Postgres(shared_buffers="nonsense")
    try:
        with pytest.raises(base.ServerFailed, match=r"(?s)ended with.*shared_buffers"):
            server.start()
    finally:
        server.close()


OWNER = """
import os, sys
from tests.servers.valkey import Valkey
server = Valkey()
server.start()
print(server.pid, flush=True)
sys.stdin.read()
"""


def test_servers_of_a_killed_test_run_are_stopped() -> None:
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    ) as owner:
        assert owner.stdout is not None
        server = psutil.Process(int(owner.stdout.readline()))
        owner.send_signal(signal.SIGKILL)
    server.wait(timeout=60)
