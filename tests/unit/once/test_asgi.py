"""The ``Idempotency-Key`` header: what is refused, what is replayed, and who never meets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

import perkey
from perkey import AsyncOnce, AsyncStore
from perkey.asgi import IdempotencyKey, operation, parse_key

KEY = b"8e03978e"


class Shop:
    """An application that streams a receipt and counts its orders."""

    def __init__(self) -> None:
        self.orders = 0
        self.status = 201
        self.raises: Exception | None = None
        self.chunks = [b"order ", b"\xff\x00", b" taken"]
        self.gate: asyncio.Event | None = None
        self.begun = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.extensions = scope["extensions"]
        self.body = (await receive())["body"]
        self.begun.set()
        if self.gate is not None:
            await self.gate.wait()
        self.orders += 1
        if self.raises is not None:
            raise self.raises
        headers = [
            (b"X-Order", str(self.orders).encode()),
            (b"Set-Cookie", b"a=b"),
            (b"date", b"now"),
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        for chunk in self.chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body"})


async def request(
    app: Any,
    *keys: bytes,
    body: bytes = b"{}",
    path: str = "/orders",
    user: str = "ann",
    method: str = "POST",
    query: bytes = b"",
    gone: bool = False,
) -> tuple[int, dict[str, str], bytes]:
    """One request; (status, headers, body), or (0, {}, b"") without an answer."""
    parts = [
        {"type": "http.request", "body": part, "more_body": True} for part in (body[:1], body[1:])
    ]
    parts += [{"type": "http.disconnect"} if gone else {"type": "http.request"}]
    sent: list[Any] = []

    async def receive() -> Any:
        return parts.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": method, "path": path, "query_string": query, "user": user,
        "headers": [(b"Idempotency-Key", key) for key in keys], "extensions": {"pathsend": {}},
    }  # fmt: skip
    await app(scope, receive, send)
    if not sent:
        return 0, {}, b""
    headers = {n.decode().lower(): v.decode() for n, v in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(each.get("body", b"") for each in sent[1:])


@pytest.fixture
async def store() -> AsyncIterator[AsyncStore]:
    async with await perkey.aopen("memory://") as opened:
        yield opened


@pytest.fixture
def shop() -> Shop:
    return Shop()


def guarded(shop: Shop, store: AsyncStore, **options: Any) -> IdempotencyKey:
    return IdempotencyKey(shop, once=AsyncOnce(store), user=lambda scope: scope["user"], **options)


@pytest.fixture
def app(shop: Shop, store: AsyncStore) -> IdempotencyKey:
    return guarded(shop, store)


async def test_a_repeat_is_replayed_byte_for_byte(app: IdempotencyKey, shop: Shop) -> None:
    first = await request(app, KEY)
    assert first == (
        201, {"x-order": "1", "set-cookie": "a=b", "date": "now"}, b"order \xff\x00 taken",
    )  # fmt: skip
    again = await request(app, b'"' + KEY + b'"')
    assert again == (201, {"x-order": "1"}, first[2])
    assert (shop.orders, shop.body, shop.extensions) == (1, b"{}", {})


@pytest.mark.parametrize(
    "keys", [(), (b"",), (b'""',), (KEY, KEY), (b'"a", "b"',), (b'"a',), (b"a b",), (b"\xff",),
             (b"x" * 256,), (b'"a";p=1',)]
)  # fmt: skip
async def test_a_missing_empty_doubled_or_malformed_key_is_400(
    app: IdempotencyKey, shop: Shop, keys: tuple[bytes, ...]
) -> None:
    status, headers, body = await request(app, *keys)
    assert (status, headers["content-type"]) == (400, "application/problem+json")
    assert json.loads(body)["code"] == "invalid-key"
    assert shop.orders == 0


@pytest.mark.parametrize(
    ("given", "key"), [(b"a", "a"), (b' "a" ', "a"), (b'"a\\"\\\\"', 'a"\\'), (b'"a b"', "a b")]
)
def test_quoted_and_bare_are_one_key(given: bytes, key: str) -> None:
    assert parse_key([given]) == key


@pytest.mark.parametrize("change", [{"body": b"[]"}, {"query": b"x=1"}])
async def test_another_payload_is_422(
    app: IdempotencyKey, shop: Shop, change: dict[str, Any]
) -> None:
    await request(app, KEY)
    status, _, body = await request(app, KEY, **change)
    assert (status, json.loads(body)["code"], shop.orders) == (422, "key-reused", 1)


@pytest.mark.parametrize("change", [{"user": "bob"}, {"path": "/refunds"}, {"method": "PATCH"}])
async def test_users_paths_and_methods_share_nothing(
    app: IdempotencyKey, shop: Shop, change: dict[str, Any]
) -> None:
    await request(app, KEY)
    assert (await request(app, KEY, **change))[1]["x-order"] == "2"
    assert shop.orders == 2


def test_no_separator_joins_two_users() -> None:
    names = {
        operation("a", "POST", "/b"),
        operation("aPOST ", "POST", "/b"),
        operation("", "POST", "/b"),
    }
    assert len(names) == 3


async def test_a_running_one_is_409_with_retry_after(app: IdempotencyKey, shop: Shop) -> None:
    shop.gate = asyncio.Event()
    first = asyncio.ensure_future(request(app, KEY))
    await shop.begun.wait()
    status, headers, body = await request(app, KEY)
    assert (status, json.loads(body)["code"]) == (409, "in-progress")
    assert int(headers["retry-after"]) >= 1
    shop.gate.set()
    assert (await first)[0] == 201
    assert shop.orders == 1


@pytest.mark.parametrize("status", [400, 404, 500, 503])
async def test_errors_are_not_stored_unless_asked(
    shop: Shop, store: AsyncStore, status: int
) -> None:
    shop.status = status
    app = guarded(shop, store)
    for orders in ("1", "2"):
        found = await request(app, KEY)
        assert (found[0], found[1]["x-order"]) == (status, orders)
    keeping = guarded(shop, store, store_errors=True)
    assert [(await request(keeping, b"k2"))[1]["x-order"] for _ in "12"] == ["3", "3"]


@pytest.mark.parametrize("error", [ValueError("app"), perkey.NotFound("app"), perkey.KeyReused()])
async def test_what_the_application_raises_is_its_own_and_frees_the_key(
    app: IdempotencyKey, shop: Shop, error: Exception
) -> None:
    shop.raises = error
    with pytest.raises(type(error)) as caught:
        await request(app, KEY)
    assert caught.value is error
    shop.raises = None
    assert (await request(app, KEY))[0] == 201


async def test_a_cancelled_request_goes_on_and_its_retry_finds_the_answer(
    app: IdempotencyKey, shop: Shop
) -> None:
    shop.gate = asyncio.Event()
    first = asyncio.ensure_future(request(app, KEY))
    await shop.begun.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    shop.gate.set()
    await asyncio.gather(*app._running)
    assert (await request(app, KEY))[1]["x-order"] == "1"
    assert shop.orders == 1


async def test_a_client_that_leaves_before_its_body_is_there_begins_nothing(
    app: IdempotencyKey, shop: Shop
) -> None:
    assert await request(app, KEY, gone=True) == (0, {}, b"")
    assert shop.orders == 0
    assert (await request(app, KEY))[0] == 201


async def test_bodies_are_bounded(shop: Shop, store: AsyncStore) -> None:
    app = guarded(shop, store, max_request=10, max_response=5)
    assert (await request(app, KEY, body=b"x" * 11))[0] == 413
    assert shop.orders == 0
    assert (await request(app, KEY, body=b"x" * 10))[0] == 201
    status, _, body = await request(app, KEY, body=b"x" * 10)
    assert (status, json.loads(body)["code"], shop.orders) == (409, "expired", 1)


async def test_other_methods_and_optional_keys_pass(shop: Shop, store: AsyncStore) -> None:
    app = guarded(shop, store, required=False)
    assert (await request(app, body=b""))[0] == 201
    assert (await request(app, KEY, method="PUT"))[0] == 201
    assert (await request(app, KEY, method="PUT"))[1]["x-order"] == "3"


async def test_half_a_response_is_an_error_and_leaves_nothing(store: AsyncStore) -> None:
    async def half(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    app = IdempotencyKey(half, once=AsyncOnce(store), user=lambda scope: "ann")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="complete response"):
            await request(app, KEY)
