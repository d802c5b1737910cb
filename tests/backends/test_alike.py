"""What all stores share besides the conformance suite: how they are named, opened and left."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

import perkey
from perkey import UsageError
from perkey.clock import SYSTEM
from perkey.store.limits import Limits
from perkey.store.url import open_backend
from tests.backends.kinds import Kind, everywhere
from tests.servers.base import Server


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("etcd://h?timeout=soon", "in seconds"),
        ("etcd://h?timeout=0", "in seconds"),
        ("etcd://h?nmae=x", "no option 'nmae'"),
        ("etcd://h?name=a/b", "letters, digits"),
        ("etcd://h?also=h2", "also=host:port"),
        ("etcd://h?also=:2379", "also=host:port"),
        ("etcd://h?ca=/x.pem", "etcds://"),
        ("etcds://h?ca=/no/such.pem", "cannot be read"),
        ("nats://h?timeout=soon", "in seconds"),
        ("nats://h?stream=x", "no option 'stream'"),
        ("nats://h?name=a.b", "letters, digits"),
        ("nats://h?replicas=2", "1, 3, 5"),
        ("redis://h/zero", "number of a database"),
        ("redis://h/0?timeout=never", "in seconds"),
        ("redis://h/0?timeout=0", "in seconds"),
        ("redis://h/0?nmae=x", "no option 'nmae'"),
        ("redis://h/0?ca=/x.pem", "rediss://"),
        ("redis://h/0?cluster=maybe", "yes, no"),
    ],
)
def test_a_url_is_read_with_care(url: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        open_backend(url, Limits(), SYSTEM)


def test_names_keep_stores_apart(kind: Kind, server: Server) -> None:
    if kind.fresh is None:  # one store a server
        return
    urls = [kind.fresh(server.url, name) for name in ("apart1", "apart2")]
    with perkey.open(urls[0]) as one, perkey.open(urls[1]) as other:
        for n, store in enumerate((one, other)):
            store.put("apart", n, create=True)
        for n, store in enumerate((one, other)):
            assert store.get("apart").value == n
            assert [each.value for each in store.scan("")] == [n]


@everywhere
def test_a_store_that_is_never_closed_leaves_quietly(url: str, prefix: str) -> None:
    code = f"import perkey; perkey.open({url!r}).put({prefix!r}, 1, overwrite=True)"
    # That a connection was left open is what Python itself says of some, to whoever asks.
    warnings = ["-W", "error", "-W", "ignore::ResourceWarning"]
    command = [sys.executable, *warnings, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@everywhere
async def test_both_colours_work_beside_a_running_loop(url: str, prefix: str) -> None:
    with perkey.open(url) as store:
        assert store.put(prefix, 1, overwrite=True).version >= 1
    async with await perkey.aopen(url) as tasks:
        found = await asyncio.gather(*(tasks.get(prefix) for _ in range(5)))
        assert {each.value for each in found} == {1}
