"""OpenTelemetry: a span for each request and each transaction, and never a key in one."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import perkey
from perkey import AsyncStore
from perkey.errors import Conflict, MissingExtra
from perkey.server.app import application
from perkey.server.settings import Settings
from perkey.server.spans import RequestSpans
from tests.server.client import Client

SECRET = "a-secret-key"


class Exported:
    """What was exported, and the provider that does it."""

    def __init__(self) -> None:
        self._kept = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))

    def spans(self) -> list[ReadableSpan]:
        return list(self._kept.get_finished_spans())

    def take(self) -> list[ReadableSpan]:
        found = self.spans()
        self._kept.clear()
        return found


@pytest.fixture
def exported() -> Exported:
    return Exported()


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def traced(store: AsyncStore, exported: Exported) -> Client:
    app = application(store)
    app.spans = RequestSpans(exported.provider)
    store.trace(exported.provider)
    return Client(app)


async def test_a_request_and_its_transaction(tmp_path: Path, exported: Exported) -> None:
    """On SQLite a worker thread commits; the transaction is the request's all the same."""
    async with await perkey.aopen(f"sqlite:///{tmp_path}/store.db") as store:
        client = traced(store, exported)
        await client.create(SECRET, {"a": 1})
        inner, outer = exported.take()
    assert (outer.name, outer.kind) == ("PUT /v1/documents/{key}", SpanKind.SERVER)
    assert facts(outer) == {
        "http.request.method": "PUT",
        "http.route": "/v1/documents/{key}",
        "http.response.status_code": 201,
    }
    assert inner.name == "perkey.transaction"
    assert facts(inner) == {
        "perkey.store": "sqlite",
        "perkey.keys.count": 1,
        "perkey.writes": 1,
        "perkey.attempts": 1,
        "perkey.replayed": False,
    }
    assert inner.parent is not None
    assert outer.context is not None
    assert inner.parent.span_id == outer.context.span_id


async def test_many_at_once_keep_their_parents(store: AsyncStore, exported: Exported) -> None:
    """Also where one of them commits for all."""
    client = traced(store, exported)
    await asyncio.gather(*(client.create(f"k{n}", n) for n in range(20)))
    spans = exported.take()
    roots = {each.context.span_id for each in spans if each.parent is None and each.context}
    parents = [each.parent.span_id for each in spans if each.parent is not None]
    assert len(roots) == 20
    assert sorted(parents) == sorted(roots)


async def test_the_caller_s_trace_goes_on(store: AsyncStore, exported: Exported) -> None:
    client = traced(store, exported)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await client.send("GET", "/healthz", headers={"traceparent": parent})
    await client.send("GET", "/healthz", headers={"traceparent": "nonsense"})
    first, second = exported.take()
    assert first.parent is not None
    assert f"{first.parent.trace_id:032x}-{first.parent.span_id:016x}" in parent
    assert second.parent is None


async def test_a_key_is_never_in_a_span(store: AsyncStore, exported: Exported) -> None:
    """Not in its name, its attributes, its events, nor what is said of an error."""
    client = traced(store, exported)
    await client.create(SECRET, 1)
    await client.put(SECRET, 2, if_match='"9"')
    await client.put(SECRET, 2, if_match="*")
    await client.get(SECRET)
    await client.get(f"{SECRET}/none")
    await client.send("GET", f"/nothing/{SECRET}")
    spans = exported.take()
    assert len(spans) >= 9
    for span in spans:
        assert SECRET not in span.to_json()
    refused = [each for each in spans if facts(each).get("error.type") == "conflict"]
    assert [each.status.status_code for each in refused] == [StatusCode.UNSET]
    told = {event.name for each in spans for event in each.events}
    assert "perkey.Conflicted" in told


async def test_keys_where_they_are_asked_for(store: AsyncStore, exported: Exported) -> None:
    store.trace(exported.provider, keys=True)
    await store.put(SECRET, 1, create=True)
    (span,) = exported.take()
    assert facts(span)["perkey.keys"] == (SECRET,)
    store.trace(exported.provider)
    await store.put(SECRET, 2, overwrite=True)
    (span,) = exported.take()
    assert "perkey.keys" not in facts(span)


async def test_what_fails(store: AsyncStore, exported: Exported) -> None:
    store.trace(exported.provider)

    def fails(tx: Any) -> None:
        raise ZeroDivisionError(SECRET)

    with pytest.raises(ZeroDivisionError):
        await store.transact("k", fails)
    with pytest.raises(Conflict):
        await store.put("k", 1, if_match=7)
    failed, refused = exported.take()
    assert (failed.status.status_code, facts(failed)["error.type"]) == (
        StatusCode.ERROR,
        "ZeroDivisionError",
    )
    assert (refused.status.status_code, facts(refused)["error.type"]) == (
        StatusCode.UNSET,
        "conflict",
    )
    assert SECRET not in failed.to_json()


async def test_a_failure_of_the_server_is_an_error(
    store: AsyncStore, exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = traced(store, exported)

    async def broken() -> int:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(store, "now_ms", broken)
    assert (await client.send("GET", "/readyz")).status == 503
    client.app.services.ready = True
    assert (await client.send("GET", "/readyz")).status == 500
    for span in exported.take():
        assert span.status.status_code is StatusCode.ERROR
        assert SECRET not in span.to_json()


def test_for_threads_too(exported: Exported) -> None:
    with perkey.open("memory://") as store:
        store.trace(exported.provider)
        tracer = exported.provider.get_tracer("test")

        def write(n: int) -> None:
            with tracer.start_as_current_span(f"caller {n}"):
                store.put(f"k{n}", n, create=True)

        threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    spans = exported.take()
    callers = {each.context.span_id for each in spans if each.parent is None and each.context}
    parents = {each.parent.span_id for each in spans if each.parent is not None}
    assert (len(spans), callers) == (8, parents)


async def test_as_it_is_configured(store: AsyncStore) -> None:
    """With the program's own provider, which may be none: nothing is recorded, all else goes on."""
    app = application(store, Settings(spans=True))
    assert app.spans is not None
    assert store.core.spans is not None
    assert (await Client(app).create("k", 1)).json["version"] == 1
    assert json.loads((await Client(app).get("k")).body) == 1


async def test_without_the_package(store: AsyncStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingExtra, match=r"perkey\[otel\]"):
        store.trace()
    assert store.core.spans is None
    await store.put("k", 1, create=True)
