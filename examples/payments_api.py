"""A payments API with FastAPI: the client's idempotency key is the transfer's key.

    pip install 'perkey[server]' fastapi
    python examples/payments_api.py

Transfer and receipt are one commit, so a payment is never in progress and never half done: a
retry gets the first answer, a failed one leaves its key free.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, Header, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

import perkey
from perkey import AsyncLedger, PerkeyError


class Payment(BaseModel):
    """Amounts are whole cents; there are no fractions to lose."""

    source: str
    target: str
    amount: int


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with await perkey.aopen("memory://") as store:  # sqlite:///payments.db to keep them
        ledger = AsyncLedger(store)
        await ledger.open_account("world", "EUR", floor=None)
        await ledger.open_account("ann", "EUR")
        await ledger.open_account("shop", "EUR")
        await ledger.transfer("world", "ann", 5_000, key="first-top-up")
        app.state.ledger = ledger
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/payments")
async def pay(
    payment: Payment, request: Request, idempotency_key: Annotated[str, Header()]
) -> dict[str, Any]:
    moved = await request.app.state.ledger.transfer(
        payment.source, payment.target, payment.amount, key=idempotency_key
    )
    return {"payment": moved.key, "amount": moved.amount, "replayed": moved.replayed}


@app.get("/accounts/{name}")
async def account(name: str, request: Request) -> dict[str, int]:
    return {"available": (await request.app.state.ledger.balance(name)).available}


@app.exception_handler(PerkeyError)
async def refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PerkeyError)
    body = {"status": error.status, "code": error.code, "detail": error.message}
    return JSONResponse(body, error.status, media_type="application/problem+json")


class Client:
    """What a browser or another service would do."""

    def __init__(self, port: int) -> None:
        self.root = f"http://127.0.0.1:{port}"

    def ask(self, path: str, body: Any = None, key: str = "") -> tuple[int, Any]:
        headers = {"content-type": "application/json", "idempotency-key": key}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.root + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)


def customers(client: Client) -> None:
    lunch = {"source": "ann", "target": "shop", "amount": 1_250}
    print("pays:         ", client.ask("/payments", lunch, "lunch-1"))
    print("retries:      ", client.ask("/payments", lunch, "lunch-1"))
    print("changes it:   ", client.ask("/payments", {**lunch, "amount": 9}, "lunch-1")[1]["code"])
    print("cannot pay:   ", client.ask("/payments", {**lunch, "amount": 9_999}, "car")[1]["code"])

    with ThreadPoolExecutor(8) as crowd:  # a double click, eight times over
        answers = list(crowd.map(lambda _: client.ask("/payments", lunch, "lunch-2"), range(8)))
    ran = [body["replayed"] for _, body in answers].count(False)
    left = client.ask("/accounts/ann")[1]["available"]
    print(f"eight at once: {ran} payment made, {left} cents left")
    assert (ran, left) == (1, 2_500)


def main() -> None:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        customers(Client(server.servers[0].sockets[0].getsockname()[1]))
    finally:
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    main()
