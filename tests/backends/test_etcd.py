"""What only etcd has: its limits, its compaction, its users, its certificates, its members."""

from __future__ import annotations

import multiprocessing
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import perkey
from perkey import Change, LimitExceeded, Store, StoreUnavailable, Synced
from perkey.clock import SYSTEM
from perkey.store.backends import etcd_client
from perkey.store.backends import etcd_messages as messages
from perkey.store.backends.etcd_client import Wire
from perkey.store.limits import Limits
from perkey.store.transaction import Tx
from perkey.store.url import parse
from tests.backends.secrets import SECRET, hidden, hidden_by
from tests.races.processes import Process, finished
from tests.servers.base import HOST, free_ports
from tests.servers.etcd import Etcd
from tests.servers.proxy import Proxy


@pytest.fixture
def wire(etcd_server: Etcd) -> Iterator[Wire]:
    wire = Wire(parse(etcd_server.url), Limits())
    yield wire
    wire.close()


def compact(wire: Wire) -> int:
    """Drop all old revisions; returns how far."""
    now = messages.found(wire.call(messages.RANGE, messages.range_request(b"x"))).revision
    wire.call(messages.COMPACT, messages.compact_request(now))
    return now


class Small(Etcd):
    """A server whose operator set lower limits."""

    def command(self) -> list[str]:
        return [*super().command(), "--max-txn-ops=16", "--max-request-bytes=65536"]


class Full(Etcd):
    """A server with next to no room."""

    def command(self) -> list[str]:
        return [*super().command(), "--quota-backend-bytes=200000"]


def filling(names: list[str], tx: Tx) -> None:
    for name in names:
        tx[name] = 1


# --------------------------------------------------------------------------------- limits


def test_names_keep_stores_apart(etcd_server: Etcd) -> None:
    url = etcd_server.url
    with perkey.open(url) as one, perkey.open(f"{url}?name=perkey.two") as two:
        one.put("apart", 1, overwrite=True)
        two.put("apart", 2, overwrite=True)
        assert (one.get("apart").value, two.get("apart").value) == (1, 2)
        assert [each.value for each in two.scan("apart")] == [2]
        told = two.backend.describe()
        assert told["name"] == "perkey.two"
        assert told["server"].startswith("etcd 3.5")
        assert int(told["revision"]) > 0
        assert [each[:11] for each in two.backend.concerns()] == ["etcd 3.5.1 "]


def test_the_longest_value_fits_and_one_more_does_not(etcd_server: Etcd) -> None:
    with perkey.open(etcd_server.url) as store:
        limit = store.limits.value_bytes
        name = "\U0010ffff" * 128
        store.put(name, "x" * (limit - 2), overwrite=True, by="\U0010ffff" * 200)
        assert len(store.get(name).value) == limit - 2
        with pytest.raises(LimitExceeded, match=str(limit)):
            store.put(name, "x" * (limit - 1), overwrite=True)


def test_a_server_with_lower_limits_says_so() -> None:
    """Nothing is lost: what can be split is split, what cannot is refused with the reason."""
    with Small() as server, perkey.open(server.url) as store:
        names = [f"{n}" for n in range(20)]
        with pytest.raises(LimitExceeded, match="too many operations"):
            store.transact(names, lambda tx: filling(names, tx))
        with pytest.raises(LimitExceeded, match="too large"):
            store.put("long", "x" * 60_000, create=True)
        assert list(store.scan("")) == []
        assert store.put("short", 1, create=True).version == 1


def test_a_full_database_is_a_plain_failure() -> None:
    with Full() as server, perkey.open(server.url) as store:

        def fill() -> None:
            for n in range(100):
                store.put(f"{n}", "x" * 10_000, create=True)

        with pytest.raises(StoreUnavailable, match="database space exceeded"):
            fill()
        assert "NOSPACE" in store.backend.concerns()[0]
        assert store.get("0").version == 1


# ----------------------------------------------------------------------------- compaction


def test_compaction_takes_nothing_from_anybody(etcd_server: Etcd, wire: Wire) -> None:
    with perkey.open(f"{etcd_server.url}?name=compacted") as store:
        for n in range(50):
            store.put("a", n, overwrite=True)
        watch = store.watch("a", after="")
        first = next(watch)
        assert isinstance(first, Change)
        compact(wire)
        rest = [next(watch) for _ in range(50)]
        assert [each.document.value for each in rest[:-1] if isinstance(each, Change)] == [
            *range(1, 50)
        ]
        assert isinstance(rest[-1], Synced)
        assert [each.value for each in store.history("a", limit=100)] == [*range(50)]
        with store.watch("a", after=first.cursor) as resumed:
            item = next(resumed)
            assert isinstance(item, Change)
            assert item.document.value == 1
        watch.close()


WRITER = """
key = arguments[0]
store = perkey.open(url, limits=perkey.Limits(attempts=60, timeout_s=600))

def add(tx):
    tx[key] = tx.get(key, 0) + 1

say("ready")
hear()
for n in range(150):
    store.transact(key, add)
"""


def test_a_watcher_beside_writers_and_compaction(etcd_server: Etcd, wire: Wire) -> None:
    """Every version once and in order, while the operator drops what is old all the time."""
    with (
        perkey.open(etcd_server.url) as store,
        store.watch("tail/", after=store.backend.cursor("d/tail/")) as watch,
        Process(WRITER, etcd_server.url, "tail/a") as one,
        Process(WRITER, etcd_server.url, "tail/a") as two,
    ):
        for each in (one, two):
            assert each.hear() == "ready"
        for each in (one, two):
            each.say("go")
        seen: list[int] = []
        while len(seen) < 300:
            item = next(watch)
            assert isinstance(item, Change | Synced), item
            if isinstance(item, Change):
                seen.append(item.document.value)
            elif len(seen) % 3 == 0:
                compact(wire)
        finished([one, two])
    assert seen == [*range(1, 301)]


def test_the_servers_clock_is_looked_at(etcd_server: Etcd, wire: Wire) -> None:
    with perkey.open(etcd_server.url) as store:
        assert clock_is_told(store)
        assert not [each for each in store.backend.concerns() if "NTP" in each]
    nobody = Wire(parse(f"etcd://{HOST}:1"), Limits())
    assert nobody.server_ms() is None


# -------------------------------------------------------------------- users, certificates


def ctl(server: Etcd, *arguments: str) -> None:
    """``etcdctl``, from the same wheel."""
    from tests.servers.etcd import _program

    program = _program().with_name("etcdctl")
    command = [str(program), f"--endpoints=http://{HOST}:{server.port}", *arguments]
    subprocess.run(
        command, check=True, capture_output=True, timeout=60, env={"ETCDCTL_API": "3", "PATH": ""}
    )


@pytest.fixture(scope="module")
def guarded() -> Iterator[Etcd]:
    """A server that asks who one is."""
    with Etcd() as server:
        ctl(server, "user", "add", f"root:{SECRET}root")
        ctl(server, "user", "grant-role", "root", "root")
        ctl(server, "role", "add", "perkey")
        ctl(server, "role", "grant-permission", "perkey", "--prefix=true", "readwrite", "perkey/")
        ctl(server, "user", "add", f"someone:{SECRET}")
        ctl(server, "user", "grant-role", "someone", "perkey")
        ctl(server, "auth", "enable")
        yield server


def test_a_user_with_a_password(guarded: Etcd) -> None:
    with perkey.open(f"etcd://someone:{SECRET}@{HOST}:{guarded.port}") as store:
        assert store.put("a", 1, overwrite=True).version >= 1
        assert store.get("a").value == 1
        repr(store), repr(store.backend), str(store.backend.describe())
        hidden_by(store)


def test_a_token_that_the_server_forgot_is_asked_for_again(guarded: Etcd) -> None:
    with perkey.open(f"etcd://someone:{SECRET}@{HOST}:{guarded.port}") as store:
        first = store.put("forgotten", 1, overwrite=True).version
        wire = store.backend._wire  # type: ignore[attr-defined]
        for token in ("nonsense", "nonsense.2"):
            wire._metadata = [("token", token)]
            first += 1
            assert store.put("forgotten", 1, overwrite=True).version == first


@pytest.mark.parametrize(
    ("who", "port"),
    [
        (f"someone:{SECRET}x@", None),
        ("", None),
        (f"someone:{SECRET}@", 1),
        (f"someone:{SECRET}@", None),
    ],
)
def test_a_password_never_shows(guarded: Etcd, who: str, port: int | None) -> None:
    """Wrong, missing, for a server that is not there, for a name that one has no right to."""
    url = f"etcd://{who}{HOST}:{port or guarded.port}?name=elsewhere"
    with pytest.raises(StoreUnavailable) as caught:
        perkey.open(url)
    hidden(caught.value)


class Encrypted(Etcd):
    """A server that speaks TLS, and asks for a certificate."""

    @property
    def url(self) -> str:
        files = {name: self.directory / f"{name}.pem" for name in ("ca", "cert", "key")}
        options = "&".join(f"{name}={path}" for name, path in files.items())
        return f"etcds://localhost:{self.port}?{options}"

    def prepare(self) -> None:
        super().prepare()
        if not (self.directory / "ca.pem").exists():
            certify(self.directory)

    def command(self) -> list[str]:
        plain = f"http://{HOST}:{self.ports[0]}"
        given = [each.replace(plain, plain.replace("http", "https")) for each in super().command()]
        return [
            *given,
            f"--cert-file={self.directory / 'cert.pem'}",
            f"--key-file={self.directory / 'key.pem'}",
            f"--trusted-ca-file={self.directory / 'ca.pem'}",
            "--client-cert-auth",
        ]

    def ready(self) -> bool:
        wire = Wire(parse(self.url), Limits())
        try:
            wire.call(messages.RANGE, messages.range_request(b"x"))
        except StoreUnavailable as error:
            raise OSError(str(error)) from error
        finally:
            wire.close()
        return True


def certify(folder: Path) -> None:
    """A certificate authority, and a certificate for localhost that it signed."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    (folder / "names.cnf").write_text("subjectAltName=DNS:localhost\n")
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(
        *new, "-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem"
    )
    openssl(*new, "-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "cert.csr")
    openssl(
        *("x509", "-req", "-days", "2", "-in", "cert.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
        *("-CAcreateserial", "-extfile", "names.cnf", "-out", "cert.pem"),
    )


def clock_is_told(store: Store) -> bool:
    told = store.backend._wire.server_ms()  # type: ignore[attr-defined]
    return abs(told - SYSTEM.now_ms()) < 60_000


def test_tls_with_certificates_on_both_sides() -> None:
    with Encrypted() as server:
        with perkey.open(server.url) as store:
            assert store.put("a", 1, create=True).version == 1
            assert clock_is_told(store)
        plain = server.url.partition("?")[0]
        for wrong in (
            plain,
            plain.replace("etcds", "etcd"),
            f"{plain}?ca={server.directory}/ca.pem",
        ):
            with pytest.raises(StoreUnavailable):
                perkey.open(f"{wrong}{'&' if '?' in wrong else '?'}timeout=2")


# ---------------------------------------------------------------- connections and processes


def test_another_member_is_asked_where_one_is_gone(etcd_server: Etcd) -> None:
    """The first address is nobody's; then a connection breaks and comes back by itself."""
    (nobody,) = free_ports(1)
    with Proxy(etcd_server.port) as proxy:
        url = f"etcd://{HOST}:{nobody}?also={HOST}:{proxy.port},{HOST}:{etcd_server.port}"
        with pytest.raises(StoreUnavailable, match=str(nobody)):
            perkey.open(url)
        wire = Wire(parse(url), Limits())
        with pytest.raises(StoreUnavailable):
            wire.call(messages.RANGE, messages.range_request(b"x"))
        for _ in range(3):
            etcd_client.again(lambda: wire.call(messages.RANGE, messages.range_request(b"x")))
            assert wire.place == f"{HOST}:{proxy.port}"
        wire.close()


def test_it_works_in_a_forked_child(etcd_server: Etcd) -> None:
    with perkey.open(etcd_server.url) as store:
        store.put("forked", 1, overwrite=True)
        context = multiprocessing.get_context("fork")
        child = context.Process(target=in_child, args=(etcd_server.url, store))
        child.start()
        child.join(60)
        assert child.exitcode == 0
        assert store.get("forked").value == 2


def in_child(url: str, inherited: Store) -> None:
    with pytest.raises(perkey.ForkedStore):
        inherited.get("forked")
    with perkey.open(url) as store:
        store.put("forked", 2, overwrite=True)
