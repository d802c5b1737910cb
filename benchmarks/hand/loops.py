"""The hand-written loops: read a version, change the document, write on the condition that the
version is still there, keep the new version in a history; after a conflict, pause with full
jitter from 1 ms to 50 ms and begin again."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

Value = dict[str, Any]


class Loop(Protocol):
    """One writer's connection."""

    def step(self) -> bool:
        """Read, change, write; False for a conflict."""

    def close(self) -> None:
        """Hang up."""


def pause(lost: int) -> None:
    """Full jitter, 1 ms doubling up to 50 ms."""
    time.sleep(random.random() * min(0.05, 0.001 * 2**lost))


def changed(text: str | bytes) -> bytes:
    """The document with one more in ``n``."""
    value = json.loads(text)
    value["n"] += 1
    return json.dumps(value).encode()


class Postgres:
    """psycopg: a select, and a statement that updates and keeps the version."""

    def __init__(self, url: str, first: bytes) -> None:
        import psycopg

        self.connection = psycopg.connect(url, autocommit=True)
        run = self.connection.execute
        run("CREATE TABLE IF NOT EXISTS hand (key text PRIMARY KEY, version bigint, body bytea)")
        run(
            "CREATE TABLE IF NOT EXISTS hand_history (key text, version bigint, body bytea, "
            "author text, at timestamptz DEFAULT now(), PRIMARY KEY (key, version))"
        )
        run("INSERT INTO hand VALUES ('k', 1, %s) ON CONFLICT DO NOTHING", (first,))

    def step(self) -> bool:
        run = self.connection.execute
        version, body = run("SELECT version, body FROM hand WHERE key = 'k'").fetchone()
        done = run(
            "WITH u AS (UPDATE hand SET version = version + 1, body = %s "
            "WHERE key = 'k' AND version = %s RETURNING version, body) "
            "INSERT INTO hand_history SELECT 'k', version, body, 'me' FROM u",
            (changed(body), version),
        )
        return done.rowcount == 1

    def close(self) -> None:
        self.connection.close()


class Redis:
    """redis-py: a get, and a script that compares, sets and appends to a stream."""

    SCRIPT = """
    if redis.call('HGET', KEYS[1], 'v') ~= ARGV[1] then return 0 end
    local v = redis.call('HINCRBY', KEYS[1], 'v', 1)
    redis.call('HSET', KEYS[1], 'b', ARGV[2])
    redis.call('XADD', KEYS[2], v .. '-0', 'b', ARGV[2], 'by', 'me')
    return 1
    """

    def __init__(self, url: str, first: bytes) -> None:
        import redis

        self.client = redis.Redis.from_url(url)
        self.client.hsetnx("hand:k", "v", 1)
        self.client.hsetnx("hand:k", "b", first)
        self.script = self.client.register_script(self.SCRIPT)

    def step(self) -> bool:
        version, body = self.client.hmget("hand:k", "v", "b")
        return bool(self.script(["hand:k", "hand:h"], [version, changed(body)]))

    def close(self) -> None:
        self.client.close()


class Etcd:
    """grpcio: a range, and a transaction that compares the revision, puts, and keeps what it put.

    There is no maintained client that blocks, so the calls are made as the backend makes them.
    """

    def __init__(self, url: str, first: bytes) -> None:
        import grpc

        from perkey.store.backends import etcd_messages

        self.say = etcd_messages
        self.channel = grpc.insecure_channel(
            url.removeprefix("etcd://"),
            options=[("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)],
        )
        self.range = self.channel.unary_unary(etcd_messages.RANGE)
        self.txn = self.channel.unary_unary(etcd_messages.TXN)
        self._put(0, first)

    def step(self) -> bool:
        answer = self.range(self.say.range_request(b"hand/k"), timeout=30)
        (head,) = self.say.found(answer).stored
        return self._put(head.mod, changed(head.value))

    def _put(self, mod: int, body: bytes) -> bool:
        say = self.say
        puts = [
            say.put_request(b"hand/k", body),
            say.put_request(b"hand/history/%020d/me" % mod, body),
        ]
        request = say.writes([say.unchanged(b"hand/k", mod)], [], puts)
        return say.txn_answer(self.txn(request, timeout=30))[1]

    def close(self) -> None:
        self.channel.close()


class Nats:
    """nats-py: a key-value bucket with history, on a loop of its own."""

    def __init__(self, url: str, first: bytes) -> None:
        self.runner = asyncio.Runner()
        self.bucket = self.runner.run(self._bucket(url, first))

    async def _bucket(self, url: str, first: bytes) -> Any:
        import nats
        from nats.js.errors import KeyWrongLastSequenceError

        self.wrong = KeyWrongLastSequenceError
        self.client = await nats.connect(url)
        bucket = await self.client.jetstream().create_key_value(bucket="hand", history=64)
        try:
            await bucket.create("k", first)
        except KeyWrongLastSequenceError:
            pass
        return bucket

    def step(self) -> bool:
        return self.runner.run(self._step())

    async def _step(self) -> bool:
        entry = await self.bucket.get("k")
        try:
            await self.bucket.update("k", changed(entry.value), last=entry.revision)
        except self.wrong:
            return False
        return True

    def close(self) -> None:
        self.runner.run(self.client.close())
        self.runner.close()


class Files:
    """One immutable file a version, fsynced and linked; the newest is found by counting on."""

    def __init__(self, folder: str, first: bytes) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(exist_ok=True)
        self.version = 1
        self.aside = self.folder / f"aside-{os.getpid()}-{id(self)}"
        if not (self.folder / "1").exists():
            self._put(1, first)

    def step(self) -> bool:
        while (self.folder / str(self.version + 1)).exists():
            self.version += 1
        body = (self.folder / str(self.version)).read_bytes()
        return self._put(self.version + 1, changed(body))

    def _put(self, version: int, body: bytes) -> bool:
        with open(self.aside, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(self.aside, self.folder / str(version))
        except FileExistsError:
            return False
        finally:
            self.aside.unlink()
        handle = os.open(self.folder, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
        return True

    def close(self) -> None:
        """Nothing is open."""


class Sqlite:
    """sqlite3 at ``synchronous=FULL``: read, then one transaction that compares and keeps."""

    def __init__(self, path: str, first: bytes) -> None:
        import sqlite3

        self.connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=30
        )
        run = self.connection.execute
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run("CREATE TABLE IF NOT EXISTS hand (key TEXT PRIMARY KEY, version INTEGER, body BLOB)")
        run(
            "CREATE TABLE IF NOT EXISTS hand_history (id INTEGER PRIMARY KEY, key TEXT, "
            "version INTEGER, body BLOB, author TEXT, UNIQUE (key, version))"
        )
        run("INSERT OR IGNORE INTO hand VALUES ('k', 1, ?)", (first,))

    def step(self) -> bool:
        run = self.connection.execute
        version, body = run("SELECT version, body FROM hand WHERE key = 'k'").fetchone()
        body = changed(body)
        run("BEGIN IMMEDIATE")
        done = run(
            "UPDATE hand SET version = version + 1, body = ? WHERE key = 'k' AND version = ?",
            (body, version),
        )
        if done.rowcount != 1:
            run("ROLLBACK")
            return False
        run(
            "INSERT INTO hand_history (key, version, body, author) VALUES ('k', ?, ?, 'me')",
            (version + 1, body),
        )
        run("COMMIT")
        return True

    def close(self) -> None:
        self.connection.close()


LOOPS: dict[str, Callable[[str, bytes], Loop]] = {
    "sqlite": Sqlite,
    "postgres": Postgres,
    "redis": Redis,
    "etcd": Etcd,
    "nats": Nats,
    "files": Files,
}
