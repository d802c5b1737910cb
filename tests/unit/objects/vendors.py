"""Three vendors' object stores in memory, spoken to as they are over HTTP, with faults on order."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from email.message import Message
from http.client import HTTPMessage
from itertools import count
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

from perkey.clock import Clock
from perkey.errors import StoreUnavailable
from perkey.store.backends.azure_bucket import AzureBucket
from perkey.store.backends.gcs_bucket import GcsBucket
from perkey.store.backends.http_bucket import HttpBucket
from perkey.store.backends.s3_bucket import S3Bucket
from perkey.store.backends.wire import Answer
from perkey.store.limits import Limits
from perkey.store.url import parse

FAULTS = ("busy", "lost", "landed", "failed", "failed late", "rival")
"""What one write of a head meets: a refusal to be asked again; no answer, without and with its
effect; a failure of the server, without and with its effect; somebody who comes first."""
HEADS = "h/d/"


class Vendor(ABC):
    """The objects of one bucket; a subclass knows the vendor's words."""

    bucket: Callable[..., HttpBucket[Any]]
    url: str

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.faults: deque[str] = deque()
        self.rival: Callable[[], None] = lambda: None
        self.sends_again = False
        """Whether a request without an answer is sent again, as client libraries do."""
        self._tags = count(1)

    def connect(self, kind: Callable[..., HttpBucket[Any]] | None = None) -> HttpBucket[Any]:
        """A bucket, as one process has it."""
        wire: Any = SimpleNamespace(
            place="vendor",
            region="here",
            account=SimpleNamespace(name="acc", in_path=True),
            time=SimpleNamespace(now_ms=self.clock.now_ms, not_before=lambda at: None, off_ms=0),
            ask=self.ask,
            close=lambda: None,
        )
        wire.another = lambda: wire
        return (kind or self.bucket)(parse(self.url), Limits(), self.clock, wire)

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] = {},
        headers: Mapping[str, str] = {},
        body: bytes = b"",
        *,
        again: bool = False,
    ) -> Answer:
        """What a wire does; the next fault strikes the next write of a head."""
        if method == "GET":
            return self.read(path)
        name, data, condition = self.written(path, query, headers, body)
        fault = ""
        if HEADS in name and self.faults:
            fault = self.faults.popleft()
        if fault == "busy":
            return answer(*self.busy)
        if fault == "failed":
            return answer(503)
        if fault == "lost":
            raise StoreUnavailable("no answer")
        if fault == "rival":
            self.rival()
        done = self.write(name, data, condition)
        if fault == "failed late":
            return answer(500)
        if fault == "landed":
            if self.sends_again:
                return self.write(name, data, condition)
            raise StoreUnavailable("no answer")
        return done

    def write(self, name: str, data: bytes, condition: str | None) -> Answer:
        """``condition``: "" for nothing there, a tag, or none."""
        tag = self.objects[name][1] if name in self.objects else ""
        if condition is not None and condition != tag:
            return answer(*self.refused(condition))
        self.objects[name] = data, f"0x{next(self._tags)}"
        return answer(self.created)

    created = 200
    busy: tuple[int, str] = (429, "slow")

    def refused(self, condition: str) -> tuple[int, str]:
        """Status and code for a condition that does not hold."""
        return 412, "ConditionNotMet"

    @abstractmethod
    def read(self, path: str) -> Answer:
        """An object, or the word for none."""

    @abstractmethod
    def written(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> tuple[str, bytes, str | None]:
        """(name, data, condition) of a write."""


class Entity(Vendor):
    """Conditions are headers, objects are at their paths."""

    missing: str

    def read(self, path: str) -> Answer:
        if path not in self.objects:
            return answer(404, self.missing)
        data, tag = self.objects[path]
        return answer(200, body=data, etag=f'"{tag}"')

    def written(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> tuple[str, bytes, str | None]:
        if headers.get("if-none-match") == "*":
            return path, body, ""
        condition = headers.get("if-match")
        return path, body, condition and condition.strip('"')


class Amazon(Entity):
    bucket, url, missing, busy = S3Bucket, "s3://k:s@b", "NoSuchKey", (409, "Conflict")


class Microsoft(Entity):
    bucket, url, missing, created = AzureBucket, "az://acc@b", "BlobNotFound", 201

    def refused(self, condition: str) -> tuple[int, str]:
        return (412, "ConditionNotMet") if condition else (409, "BlobAlreadyExists")


class Google(Vendor):
    bucket, url = GcsBucket, "gs://b"

    def read(self, path: str) -> Answer:
        name = unquote(path.rpartition("/")[2])
        if name not in self.objects:
            return answer(404)
        data, tag = self.objects[name]
        return answer(200, body=data, **{"x-goog-generation": tag})

    def written(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> tuple[str, bytes, str | None]:
        boundary = headers["content-type"].partition("boundary=")[2].encode()
        _, about, data, _ = (b"\r\n" + body).split(b"\r\n--" + boundary)
        name = json.loads(about.partition(b"\r\n\r\n")[2])["name"]
        condition = query.get("ifGenerationMatch")
        return name, data.partition(b"\r\n\r\n")[2], "" if condition == "0" else condition


def answer(status: int, code: str = "", body: bytes = b"", **headers: str) -> Answer:
    """With the code where each vendor looks for it."""
    found: Message = HTTPMessage()
    for name, value in {"x-ms-error-code": code, **headers}.items():
        found[name] = value
    if code:
        body = f"<Code>{code}</Code>".encode()
    return Answer(status, found, body)  # type: ignore[arg-type]
