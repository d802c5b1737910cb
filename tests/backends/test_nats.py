"""What only NATS has: streams, subjects, batches, an event loop inside."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perkey
from perkey import (
    InvalidKey,
    LimitExceeded,
    NotSupported,
    SchemaMismatch,
    StoreUnavailable,
)
from perkey.clock import SYSTEM
from perkey.store.backends.nats import NatsBackend
from perkey.store.backends.nats_client import Wire
from perkey.store.backends.nats_names import key_of, subject, under
from perkey.store.keys import Key
from perkey.store.limits import Limits
from perkey.store.url import parse
from perkey.testing.conformance import CHECKS, check_backend
from tests.backends.secrets import SECRET, hidden
from tests.servers.base import HOST
from tests.servers.nats import Nats

ONE, TWO = Key("a/one"), Key("a/two")
names = st.text(st.sampled_from("ab/-.*> é\U0001f600\0"), min_size=1, max_size=20)


@pytest.fixture
def wire(nats_server: Nats) -> Iterator[Wire]:
    wire = Wire(parse(nats_server.url), Limits())
    yield wire
    wire.close()


# -------------------------------------------------------------------------------- subjects


@given(names)
def test_a_subject_is_a_key_and_back(name: str) -> None:
    made = subject("s", f"d/{name}")
    assert key_of(made) == f"d/{name}"
    assert all(piece and not set(piece) & set("*> \r\n\0") for piece in made.split("."))


@given(names, names)
def test_a_wildcard_covers_its_prefix(name: str, prefix: str) -> None:
    wildcard = under("s", f"d/{prefix}").removesuffix(">")
    if name.startswith(prefix):
        assert subject("s", f"d/{name}").startswith(wildcard)
    assert subject("s", f"d/{prefix}{name}").startswith(wildcard)


def test_a_key_beyond_a_servers_control_line_is_refused() -> None:
    assert len(subject("perkey", "r/" + "x" * 2_100)) < 4_096
    with pytest.raises(InvalidKey, match="up to 2187 bytes"):
        subject("perkey", "r/" + "x" * 2_300)


# --------------------------------------------------------------------------------- streams


def test_streams_keep_stores_apart(nats_server: Nats) -> None:
    with perkey.open(nats_server.url) as one, perkey.open(f"{nats_server.url}?name=two") as two:
        one.put("apart", 1, overwrite=True)
        two.put("apart", 2, overwrite=True)
        assert (one.get("apart").value, two.get("apart").value) == (1, 2)
        told = two.backend.describe()
        assert (told["stream"], told["storage"], told["replicas"]) == ("two", "file", "1")
        assert told["server"].startswith("nats 2.")


@pytest.mark.parametrize(
    "wrong",
    [
        {"subjects": ["elsewhere.>"]},
        {"max_msgs_per_subject": 5},
        {"max_age": 1_000_000_000},
        {"allow_direct": False},
    ],
)
def test_a_stream_that_would_lose_records_is_refused(
    nats_server: Nats, wire: Wire, wrong: dict[str, object]
) -> None:
    config = {"name": "foreign", "subjects": ["foreign.>"], "allow_direct": True}
    config |= {"allow_rollup_hdrs": True, **wrong}
    assert "error" not in wire.api("STREAM.CREATE.foreign", config)
    try:
        with pytest.raises(SchemaMismatch, match="foreign"):
            perkey.open(f"{nats_server.url}?name=foreign")
    finally:
        wire.api("STREAM.DELETE.foreign")


def test_records_without_history_leave_one_message(nats_server: Nats, wire: Wire) -> None:
    with perkey.open(f"{nats_server.url}?name=small") as store:
        for n in range(20):
            store.transact([ONE, TWO], lambda tx, n=n: tx.__setitem__(ONE, n))
            store.transact(TWO, lambda tx, n=n: tx.__setitem__(TWO, n))
    told = wire.api("STREAM.INFO.small", {"subjects_filter": "small.a.>"})
    assert set(told["state"]["subjects"].values()) == {1}


# ---------------------------------------------------------------------------- several keys


class Old(NatsBackend):
    """As on a server before 2.12, which knows no batches."""

    def _become(self, atomic: bool) -> None:
        super()._become(False)

    def _another(self) -> NatsBackend:
        return Old(self._location, self.limits, self._clock)


def test_a_server_without_batches_commits_one_key(nats_server: Nats) -> None:
    def source(limits: Limits) -> NatsBackend:
        backend = Old(parse(f"{nats_server.url}?name=old"), limits, SYSTEM)
        backend.check()
        return backend

    report = check_backend(source).raise_if_failed()
    statuses = {result.name: result.status for result in report.results}
    assert set(statuses) == set(CHECKS)
    assert statuses["all_or_nothing_over_several_keys"] != "passed"
    with perkey.Store(source(Limits())) as store, pytest.raises(NotSupported, match="nats"):
        store.transact(["a", "b"], lambda tx: None)


# ----------------------------------------------------------------------------------- limits


def test_the_servers_payload_is_the_limit(nats_server: Nats) -> None:
    with perkey.open(nats_server.url) as store:
        limit = store.limits.value_bytes
        assert 1_000_000 < limit < 1_048_576
        store.put("long", "x" * (limit - 2), overwrite=True)
        with pytest.raises(LimitExceeded, match=str(limit)):
            store.put("long", "x" * (limit - 1), overwrite=True)
        assert len(store.get("long").value) == limit - 2


def test_a_password_never_shows() -> None:
    with pytest.raises(StoreUnavailable) as caught:
        perkey.open(f"nats://someone:{SECRET}@{HOST}:1")
    hidden(caught.value)
