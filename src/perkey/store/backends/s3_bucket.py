"""An S3 bucket: what is asked of it, and what its answers mean."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import md5
from xml.etree import ElementTree

from perkey.clock import Clock
from perkey.errors import StoreUnavailable, UsageError
from perkey.store.backends import aws_wire
from perkey.store.backends.aws_wire import Answer, Wire
from perkey.store.backends.bucket import MISSING, Stored
from perkey.store.backends.port import NothingDone
from perkey.store.limits import Limits, backoff
from perkey.store.url import Location

OPTIONS = aws_wire.OPTIONS | {"addressing"}
"""``addressing``: whether the bucket stands in the path or in the host (virtual)."""
ASKED_AGAIN = 5
"""How often a write is sent again that the store refused because another was under way."""
_CODE = re.compile(rb"<Code>([A-Za-z0-9]{1,100})</Code>")
_NAMESPACE = re.compile(r"\{.*\}")


class S3Bucket:
    """One connection."""

    def __init__(
        self, location: Location, limits: Limits, clock: Clock, wire: Wire | None = None
    ) -> None:
        self._location = location
        self._limits = limits
        self._clock = clock
        self._wire = wire or _wire(location, limits, clock)
        prefix = location.path.strip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._root = f"/{location.host}" if _in_path(location) else ""
        self.place = f"{self._wire.place}{self._root}"

    # ------------------------------------------------------------------------ reading

    def get(self, name: str) -> Stored | None:
        answer = self._ask("GET", name, again=True)
        if answer.status == 404 and _code(answer) == "NoSuchKey":
            return None
        self._expect(answer, 200)
        return Stored(answer.body, answer.headers["etag"])

    def names(self, prefix: str, behind: str, limit: int) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        while len(found) < limit:
            query = {
                "list-type": "2",
                "max-keys": str(min(1_000, limit - len(found))),
                "prefix": self._prefix + prefix,
                # An empty one means the beginning; some servers take it for a name.
                **({"start-after": self._prefix + behind} if behind else {}),
            }
            answer = self._wire.ask("GET", f"{self._root}/", query, again=True)
            self._expect(answer, 200)
            page, more = _listed(answer.body)
            found += [(name[len(self._prefix) :], tag) for name, tag in page]
            if not page or not more:
                break
            behind = found[-1][0]
        return found

    # ------------------------------------------------------------------------ writing

    def put(self, name: str, data: bytes, condition: str | None) -> bool:
        # Without a checksum SeaweedFS 4.48 takes a request that broke off, and writes an object
        # of no bytes.
        headers = {"content-md5": b64encode(md5(data, usedforsecurity=False).digest()).decode()}
        if condition is not None:
            headers |= {"if-none-match": "*"} if condition == MISSING else {"if-match": condition}
        for attempt in range(1, ASKED_AGAIN + 1):
            answer = self._ask("PUT", name, headers, data)
            if answer.status == 200:
                return True
            if answer.status == 412:
                return False
            if answer.status != 409:
                raise self._refused(answer, condition)
            # Another request for this object was under way; this one was not done.
            self._clock.sleep(backoff(attempt, self._limits, self._clock.random()))
        return False

    def _refused(self, answer: Answer, condition: str | None) -> StoreUnavailable:
        if _code(answer) == "NoSuchKey" and condition:
            return NothingDone(
                f"{self.place}: the object that was to be replaced has been deleted by something "
                "other than perkey; nothing was written"
            )
        # What a server says when it fails half-way promises nothing.
        kind = NothingDone if 400 <= answer.status < 500 else StoreUnavailable
        return kind(self._said(answer))

    def delete(self, name: str) -> None:
        answer = self._ask("DELETE", name, again=True)
        if answer.status != 404 or _code(answer) != "NoSuchKey":
            self._expect(answer, 200, 204)

    # ------------------------------------------------------------------------ the rest

    def _ask(
        self,
        method: str,
        name: str,
        headers: Mapping[str, str] = {},
        body: bytes = b"",
        *,
        again: bool = False,
    ) -> Answer:
        path = f"{self._root}/{self._prefix}{name}"
        return self._wire.ask(method, path, {}, headers, body, again=again)

    def _expect(self, answer: Answer, *statuses: int) -> None:
        if answer.status not in statuses:
            raise StoreUnavailable(self._said(answer))

    def _said(self, answer: Answer) -> str:
        region = answer.headers.get("x-amz-bucket-region", "")
        if _code(answer) == "NoSuchBucket":
            return f"{self.place}: there is no such bucket; make it first"
        if answer.status in (301, 307, 400) and region not in ("", self._wire.region):
            return f"{self.place} is in another region: say region={region} in the URL"
        return f"{self.place} refused with {answer.status} {_code(answer)}".rstrip()

    def now_ms(self) -> int:
        return self._wire.time.now_ms()

    def not_before(self, at: int) -> None:
        self._wire.time.not_before(at)

    def describe(self) -> Mapping[str, str]:
        off = abs(self._wire.time.off_ms)
        return {
            "address": self.place,
            "prefix": self._prefix,
            "region": self._wire.region,
            "clock": f"this client's, {off} ms off what the server's allows",
        }

    def another(self) -> S3Bucket:
        return S3Bucket(self._location, self._limits, self._clock, self._wire.another())

    def close(self) -> None:
        self._wire.close()


def _in_path(location: Location) -> bool:
    default = "path" if "endpoint" in location.options or "." in location.host else "virtual"
    return location.option("addressing", ("path", "virtual"), default) == "path"


def _wire(location: Location, limits: Limits, clock: Clock) -> Wire:
    location.check_options(OPTIONS)
    if location.port is not None or not location.host:
        raise UsageError(
            "expected s3://bucket/prefix, and for a server of your own ?endpoint=http://host:port"
        )
    seconds = location.request_s(limits)
    host = "s3.{region}.amazonaws.com"
    if aws_wire.region_of(location).startswith("cn-"):
        host += ".cn"
    if not _in_path(location):
        host = f"{location.host}.{host}"
    return Wire("s3", host, location, seconds, clock)


def _code(answer: Answer) -> str:
    found = _CODE.search(answer.body)
    return found[1].decode() if found else ""


def _listed(body: bytes) -> tuple[list[tuple[str, str]], bool]:
    """((name, tag) of each object, whether more follow)."""
    try:
        root = ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise StoreUnavailable(f"a listing cannot be read: {error}") from error
    found: list[tuple[str, str]] = []
    more = False
    for each in root:
        kind = _NAMESPACE.sub("", each.tag)
        if kind == "Contents":
            fields = {_NAMESPACE.sub("", field.tag): field.text or "" for field in each}
            found.append((fields["Key"], fields["ETag"]))
        elif kind == "IsTruncated":
            more = each.text == "true"
    return found, more
