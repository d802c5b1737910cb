"""A client that calls the application in this process, byte for byte as it wishes."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from starlette.types import Message

from perkey.server.app import Application

Headers = dict[str, str] | Sequence[tuple[str, str]]


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        """The value of a header that comes once at most."""
        found = [value for each, value in self.headers if each == name]
        assert len(found) <= 1, found
        return found[0] if found else None

    @property
    def etag(self) -> str:
        """The entity tag."""
        found = self.header("etag")
        assert found is not None
        return found

    @property
    def json(self) -> Any:
        """The body as JSON, decompressed."""
        packed = self.header("content-encoding") == "gzip"
        return json.loads(gzip.decompress(self.body) if packed else self.body)

    def problem(self, status: int, code: str) -> dict[str, Any]:
        """The problem document, checked as far as every problem is the same."""
        assert self.status == status, self
        assert self.header("content-type") == "application/problem+json"
        found: dict[str, Any] = self.json
        assert (found["status"], found["code"]) == (status, code), found
        assert found["type"] == f"/problems/{code}"
        assert found["title"]
        assert found["detail"]
        return found


class Client:
    """Calls one application; ``headers`` go with every request."""

    def __init__(self, app: Application, **headers: str) -> None:
        self.app = app
        self.always = {"host": "localhost", **headers}

    def as_(self, token: str) -> Client:
        """The same with a bearer token."""
        return Client(self.app, **{**self.always, "authorization": f"Bearer {token}"})

    async def send(
        self,
        method: str,
        target: str,
        body: bytes | Iterable[bytes] = b"",
        headers: Headers = (),
        parts: list[bytes] | None = None,
    ) -> Answer:
        """One request; a body of several parts is sent chunked.  ``parts``: what comes of it,
        whatever its length says; after the last of them nothing comes any more."""
        path, _, query = target.partition("?")
        given = list(headers.items() if isinstance(headers, dict) else headers)
        names = {name for name, _ in given}
        lines = [*given, *((n, v) for n, v in self.always.items() if n not in names)]
        if parts is None:
            parts = [body] if isinstance(body, bytes) else list(body)
        if isinstance(body, bytes):
            lines += [("content-length", str(len(body)))] if body else []
        else:
            lines.append(("transfer-encoding", "chunked"))
        scope = {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(n.lower().encode(), v.encode("latin-1")) for n, v in lines],
            "extensions": {},
        }
        return await self._exchange(scope, parts)

    async def _exchange(self, scope: dict[str, Any], parts: list[bytes]) -> Answer:
        sent: list[Message] = []
        left = [*parts]

        async def receive() -> Message:
            if not left:
                await asyncio.Event().wait()
            chunk = left.pop(0)
            return {"type": "http.request", "body": chunk, "more_body": bool(left)}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        start, *chunks = sent
        assert start["type"] == "http.response.start"
        assert not chunks[-1].get("more_body", False)
        whole = b"".join(each.get("body", b"") for each in chunks)
        headers = [(n.decode(), v.decode("latin-1")) for n, v in start["headers"]]
        length = [value for name, value in headers if name == "content-length"]
        if scope["method"] != "HEAD" and length:
            assert [str(len(whole))] == length
        return Answer(start["status"], headers, whole)

    # ------------------------------------------------------------------ documents

    async def get(self, key: str, **headers: str) -> Answer:
        """``GET`` a document."""
        return await self.send("GET", document(key), headers=_names(headers))

    async def put(self, key: str, value: Any, **headers: str) -> Answer:
        """``PUT`` a document."""
        body = json.dumps(value).encode()
        return await self.send("PUT", document(key), body, _names(headers))

    async def create(self, key: str, value: Any) -> Answer:
        """``PUT`` a document where there is none."""
        answer = await self.put(key, value, if_none_match="*")
        assert answer.status == 201, answer
        return answer

    async def patch(self, key: str, change: Any, kind: str, **headers: str) -> Answer:
        """``PATCH`` a document."""
        body = json.dumps(change).encode()
        return await self.send(
            "PATCH", document(key), body, {**_names(headers), "content-type": kind}
        )

    async def delete(self, key: str, **headers: str) -> Answer:
        """``DELETE`` a document."""
        return await self.send("DELETE", document(key), headers=_names(headers))


def document(key: str) -> str:
    """A document's path."""
    return "/v1/documents/" + quote(key, safe="")


def _names(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
