"""What only Redis and Valkey have: persistence settings, databases, a cluster, passwords."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

import perkey
from perkey import StoreCorrupt, StoreUnavailable
from perkey.store.abc import Backend
from perkey.store.limits import Limits
from perkey.store.url import open_backend, parse
from perkey.testing.conformance import check_backend
from tests.backends.secrets import SECRET, hidden, hidden_by
from tests.servers.base import HOST
from tests.servers.valkey import Valkey
from tests.unit.manual_clock import ManualClock


def opened(url: str) -> Backend:
    return open_backend(url, Limits(), perkey.clock.SYSTEM)


class Cluster(Valkey):
    """One node that has all slots."""

    ports_needed = 2

    def command(self) -> list[str]:
        more = ["--cluster-enabled", "yes", "--cluster-port", str(self.ports[1])]
        return [*super().command(), *more]

    def ready(self) -> bool:
        if not super().ready():
            return False
        with redis.Redis(HOST, self.port) as client:
            if client.cluster("INFO")["cluster_slots_assigned"] == "0":
                client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
            return bool(client.cluster("INFO")["cluster_state"] == "ok")


@pytest.fixture
def plain(valkey_server: Valkey) -> Iterator[redis.Redis]:
    with redis.Redis(HOST, valkey_server.port) as client:
        yield client


@pytest.mark.parametrize(
    ("appendfsync", "promise"),
    [("always", "flushed to the server's disk"), ("everysec", "last second"), ("off", "snapshots")],
)
def test_it_says_what_a_crash_may_lose(appendfsync: str, promise: str) -> None:
    with Valkey(appendfsync=appendfsync) as server, perkey.open(server.url) as store:
        told = store.backend.describe()
        assert promise in store.backend.durability
        assert told["appendonly"] == ("no" if appendfsync == "off" else "yes")
        assert told["server"].startswith("valkey 9.")
        assert told["maxmemory-policy"] == "noeviction"
        lost = [each for each in store.backend.concerns() if "crash" in each]
        assert len(lost) == (appendfsync != "always")


def test_it_warns_of_eviction(valkey_server: Valkey, plain: redis.Redis) -> None:
    plain.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with perkey.open(valkey_server.url) as store:
            assert "noeviction" in " ".join(store.backend.concerns())
    finally:
        plain.config_set("maxmemory-policy", "noeviction")


def test_a_cluster_of_one_slot() -> None:
    with Cluster() as server:
        url = f"{server.url}?cluster=yes"
        wanted = ["all_or_nothing_over_several_keys", "changes_resume_at_each_cursor"]
        wanted += ["a_lost_reply_over_several_keys", "scans_go_by_utf8_bytes", "retention_by_age"]
        check_backend(url, only=wanted).raise_if_failed()
        with perkey.open(url) as store:
            assert store.backend.describe()["appendfsync"] == "always"


def test_names_and_databases_keep_stores_apart(valkey_server: Valkey) -> None:
    url = valkey_server.url
    urls = [url, f"{url}?name=other", url.replace("/0", "/1")]
    for n, each in enumerate(urls):
        with perkey.open(each) as store:
            store.put("apart", n, overwrite=True)
    for n, each in enumerate(urls):
        with perkey.open(each) as store:
            assert store.get("apart").value == n
            assert [change.key for change in store.scan("apart")] == ["apart"]


def test_a_password_never_shows(valkey_server: Valkey, plain: redis.Redis) -> None:
    plain.execute_command("ACL SETUSER", "someone", "on", f">{SECRET}", "~*", "+@all")
    place = f"{HOST}:{valkey_server.port}"
    with perkey.open(f"redis://someone:{SECRET}@{place}/0") as store:
        hidden_by(store)
    for wrong in (f"redis://someone:{SECRET}x@{place}", f"redis://someone:{SECRET}@{HOST}:1/0"):
        with pytest.raises(StoreUnavailable) as caught:
            perkey.open(wrong)
        hidden(caught.value)


def test_tls_options_reach_the_client() -> None:
    from perkey.store.backends import redis_client

    url = "rediss://h/0?ca=/ca.pem&cert=/c.pem&key=/k.pem"
    given = redis_client.connect(parse(url), Limits()).connection_pool.connection_kwargs
    assert given["ssl_ca_certs"] == "/ca.pem"
    assert (given["ssl_certfile"], given["ssl_keyfile"]) == ("/c.pem", "/k.pem")
    assert given["retry"].get_retries() == 0
    trusting = redis_client.connect(parse("valkeys://h/0?verify=no"), Limits())
    assert trusting.connection_pool.connection_kwargs["ssl_cert_reqs"] == "none"


def test_damage_is_told_and_not_written_over(valkey_server: Valkey, plain: redis.Redis) -> None:
    with perkey.open(valkey_server.url) as store:
        store.put("damaged", 1, overwrite=True)
        plain.set("{perkey}:h:d/damaged", b"not a record")
        for act in (lambda: store.get("damaged"), lambda: store.put("damaged", 2, overwrite=True)):
            with pytest.raises(StoreCorrupt):
                act()
        assert plain.get("{perkey}:h:d/damaged") == b"not a record"
        plain.delete("{perkey}:h:d/damaged")


def test_a_script_that_the_server_forgot_is_sent_again(
    valkey_server: Valkey, plain: redis.Redis
) -> None:
    with perkey.open(valkey_server.url) as store:
        plain.script_flush()
        assert store.put("forgotten", 1, create=True).version == 1


def test_a_read_only_server_changes_nothing(valkey_server: Valkey, plain: redis.Redis) -> None:
    """A replica refuses writes: a plain failure, at once, not an unknown outcome."""
    with perkey.open(valkey_server.url) as store:
        plain.replicaof(HOST, "1")
        try:
            with pytest.raises(StoreUnavailable, match=r"READONLY|read only"):
                store.put("replica", 1, create=True)
        finally:
            plain.replicaof("NO", "ONE")
        assert store.put("replica", 1, create=True).version == 1


def test_time_is_the_servers_and_never_goes_back(valkey_server: Valkey, plain: redis.Redis) -> None:
    clock = ManualClock()
    backend = open_backend(valkey_server.url, Limits(), clock)
    seconds, micros = plain.time()
    assert backend.now_ms() >= seconds * 1000 + micros // 1000
    backend._latest = later = backend.now_ms() + 3_600_000  # type: ignore[attr-defined]
    assert backend.now_ms() == later
    backend.close()


def test_an_operation_that_runs_once_is_two_requests(valkey_server: Valkey) -> None:
    clock = ManualClock()
    backend = open_backend(f"{valkey_server.url}?name=two-requests", Limits(), clock)
    with perkey.Store(backend, clock=clock) as store:
        runner = perkey.Once(store)
        runner.run("first", 1, lambda context: 1)
        asked: list[str] = []
        execute = backend._client.execute_command  # type: ignore[attr-defined]

        def counted(*words: object) -> object:
            asked.append(str(words[0]))
            return execute(*words)

        backend._client.execute_command = counted  # type: ignore[attr-defined]
        for n in range(5):
            assert not runner.run(f"next/{n}", 1, lambda context: 1).replayed
        assert asked == ["EVALSHA"] * 10
        assert runner.run("next/0", 1, lambda context: 2).value == 1
