"""A store with something on every page, written through the server itself."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import perkey
from perkey import Board, Documents, Leases, Ledger, Store

HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'

PROCESSES = """
from perkey.engine import message, process

@process("order", starts=[message("order placed", key="order_id")])
async def order(ctx):
    await ctx.step("reserve stock", lambda: {"reserved": True})
    return await ctx.receive("paid", timeout="2h")

@process("reminder")
async def reminder(ctx):
    await ctx.sleep("1h")

@process("broken")
async def broken(ctx):
    raise ValueError("the printer is <b>gone</b>")
"""


def processes(folder: Path) -> str:
    """A file with processes for ``perkey serve --engine``."""
    path = folder / "processes.py"
    path.write_text(PROCESSES)
    return str(path)


def fill(url: str) -> None:
    """Something for every page."""
    with perkey.open(url) as store:
        _report(store)
        for number in range(12):
            store.put(f"orders/{number:03}", {"id": number, "state": "new"}, create=True, by="shop")
        store.put(HOSTILE, {HOSTILE: [HOSTILE]}, create=True, by=HOSTILE)
        _books(Ledger(store))
        _board(Board(store, "audit/q3"))
        Leases(store).acquire("printer/1", ttl=600, holder="ann")
    post(url, "/v1/engine/publish", {"name": "order placed", "payload": {"order_id": "o-1"}})
    post(url, "/v1/engine/publish", {"name": "order placed", "payload": {"order_id": "o-2"}})
    post(url, "/v1/engine/publish", {"name": "paid", "key": "o-1", "payload": {"eur": 12}})
    for name in ("reminder", "broken"):
        post(url, f"/v1/engine/processes/{name}/start", {"variables": {"lines": [1, {"n": 2}]}})


def _report(store: Store) -> None:
    docs = Documents(store)
    docs.put("audit/report", {"title": "Audit", "sections": {}}, create=True, by="demo")
    names = ["links", "inventory", "style", "claims", "tests", "licences"]
    for number, name in enumerate(names):
        section = {"found": number, "items": [f"{name}: something to look at"], "ok": True}

        def add(value: Any, name: str = name, section: Any = section) -> Any:
            return {**value, "sections": {**value["sections"], name: section}}

        docs.update("audit/report", add, by=f"worker-{number % 4 + 1}")
    stale = docs.at("audit/report", 5).value
    docs.put("audit/report", {**stale, "title": "Audit 2"}, overwrite=True, base=5, by="bob")


def _books(ledger: Ledger) -> None:
    ledger.open_account("bank", unit="EUR", floor=None)
    for name in ("ann", "bob"):
        ledger.open_account(name, unit="EUR")
    ledger.transfer("bank", "ann", 125_000, key="pay-1", memo="salary", by="boss")
    ledger.transfer("ann", "bob", 3_050, key="rent-1", memo=HOSTILE, by="ann")
    ledger.hold("ann", "bob", 1_000, key="hold-1", expires_in=3600, by="ann")
    ledger.hold("ann", "bob", 250, key="deposit-1", by="ann")


def _board(board: Board) -> None:
    board.create(["links", "inventory", "style", "claims"], by="demo")
    done = board.claim("worker-1", lease=600)
    assert done is not None
    board.finish(done, {"found": 2})
    assert board.claim("worker-2", lease=600) is not None
    failed = board.claim("worker-3", lease=600)
    assert failed is not None
    board.fail(failed, "no network")


def post(url: str, path: str, body: Any) -> Any:
    """``POST`` some JSON and have the answer's."""
    request = urllib.request.Request(
        url + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def get(url: str, path: str) -> Any:
    """``GET`` some JSON."""
    with urllib.request.urlopen(url + path, timeout=60) as answer:
        return json.load(answer)
