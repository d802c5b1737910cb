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
from perkey.store.backends.aws_wire import Wire
from perkey.store.backends.bucket import MISSING
from perkey.store.backends.http_bucket import Asked, HttpBucket, Listed
from perkey.store.backends.wire import Answer
from perkey.store.limits import Limits
from perkey.store.url import Location

OPTIONS = aws_wire.OPTIONS | {"addressing"}
"""``addressing``: whether the bucket stands in the path or in the host (virtual)."""
_CODE = re.compile(rb"<Code>([A-Za-z0-9]{1,100})</Code>")
_NAMESPACE = re.compile(r"\{.*\}")


class S3Bucket(HttpBucket[Wire]):
    """One connection.  A tag is an ETag, as it was given."""

    def __init__(
        self, location: Location, limits: Limits, clock: Clock, wire: Wire | None = None
    ) -> None:
        super().__init__(location, limits, clock, wire or _wire(location, limits, clock))
        self._root = f"/{location.host}" if _in_path(location) else ""
        self.place += self._root

    def _path(self, name: str) -> str:
        return f"{self._root}/{self._prefix}{name}"

    def _getting(self, name: str) -> Asked:
        return Asked("GET", self._path(name))

    def _putting(self, name: str, data: bytes, condition: str | None) -> Asked:
        # Without a checksum SeaweedFS 4.48 takes a request that broke off, and writes an object
        # of no bytes.
        headers = {"content-md5": b64encode(md5(data, usedforsecurity=False).digest()).decode()}
        if condition is not None:
            headers |= {"if-none-match": "*"} if condition == MISSING else {"if-match": condition}
        return Asked("PUT", self._path(name), {}, headers, data)

    def _deleting(self, name: str) -> Asked:
        return Asked("DELETE", self._path(name))

    def _listing(self, prefix: str, behind: str, most: int, onwards: str) -> Asked:
        start = onwards or (self._prefix + behind if behind else "")
        query = {
            "list-type": "2",
            "max-keys": str(min(1_000, most)),
            "prefix": self._prefix + prefix,
            # An empty one means the beginning; some servers take it for a name.
            **({"start-after": start} if start else {}),
        }
        return Asked("GET", f"{self._root}/", query)

    def _listed(self, answer: Answer) -> Listed:
        found: list[tuple[str, str]] = []
        more = False
        for each in parsed(answer.body):
            kind = _NAMESPACE.sub("", each.tag)
            if kind == "Contents":
                fields = {_NAMESPACE.sub("", field.tag): field.text or "" for field in each}
                found.append((fields["Key"], fields["ETag"]))
            elif kind == "IsTruncated":
                more = each.text == "true"
        return Listed(found, found[-1][0] if found and more else "")

    def _tag(self, answer: Answer) -> str:
        return answer.headers["etag"]

    def _code(self, answer: Answer) -> str:
        found = _CODE.search(answer.body)
        return found[1].decode() if found else ""

    def _no_object(self, answer: Answer) -> bool:
        return answer.status == 404 and self._code(answer) == "NoSuchKey"

    def _no_bucket(self, answer: Answer) -> bool:
        return self._code(answer) == "NoSuchBucket"

    def _advice(self, answer: Answer) -> str:
        region = answer.headers.get("x-amz-bucket-region", "")
        if answer.status in (301, 307, 400) and region not in ("", self._wire.region):
            return f"is in another region: say region={region} in the URL"
        return ""

    def _facts(self) -> Mapping[str, str]:
        return {"region": self._wire.region}


def parsed(body: bytes) -> ElementTree.Element:
    """The XML of a listing."""
    try:
        return ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise StoreUnavailable(f"a listing cannot be read: {error}") from error


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
