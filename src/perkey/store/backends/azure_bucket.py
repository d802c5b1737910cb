"""A container of Azure Blob Storage: what is asked of it, and what its answers mean."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from hashlib import md5

from perkey.clock import Clock
from perkey.errors import UsageError
from perkey.store.backends.azure_account import account
from perkey.store.backends.azure_wire import Wire
from perkey.store.backends.bucket import MISSING
from perkey.store.backends.http_bucket import Asked, Fate, HttpBucket, Listed
from perkey.store.backends.s3_bucket import parsed
from perkey.store.backends.wire import Answer
from perkey.store.limits import Limits
from perkey.store.url import Location

OPTIONS = {"endpoint", "timeout", "ca", "addressing"}
"""``endpoint``: the URL of a server that is not Azure's; ``timeout`` in seconds; ``ca`` a PEM
file; ``addressing``: whether the account stands in the path or in the host (virtual)."""
PAGE = 5_000


class AzureBucket(HttpBucket[Wire]):
    """One connection.  A tag is an ETag without its quotes: listings leave them out."""

    def __init__(
        self, location: Location, limits: Limits, clock: Clock, wire: Wire | None = None
    ) -> None:
        super().__init__(location, limits, clock, wire or _wire(location, limits, clock))
        whose = self._wire.account
        self._root = f"/{whose.name}/{location.host}" if whose.in_path else f"/{location.host}"
        self.place += self._root

    def _path(self, name: str) -> str:
        return f"{self._root}/{self._prefix}{name}"

    def _getting(self, name: str) -> Asked:
        return Asked("GET", self._path(name))

    def _putting(self, name: str, data: bytes, condition: str | None) -> Asked:
        headers = {
            "x-ms-blob-type": "BlockBlob",
            "content-type": "application/octet-stream",
            "content-md5": b64encode(md5(data, usedforsecurity=False).digest()).decode(),
        }
        if condition == MISSING:
            headers["if-none-match"] = "*"
        elif condition is not None:
            headers["if-match"] = f'"{condition}"'
        return Asked("PUT", self._path(name), {}, headers, data)

    def _deleting(self, name: str) -> Asked:
        return Asked("DELETE", self._path(name))

    def _listing(self, prefix: str, behind: str, most: int, onwards: str) -> Asked:
        query = {
            "restype": "container",
            "comp": "list",
            "prefix": self._prefix + prefix,
            # The listing begins with ``behind`` itself, which is then left out.
            "maxresults": str(min(PAGE, most + 1)),
            **({"startFrom": self._prefix + behind} if behind else {}),
            **({"marker": onwards} if onwards else {}),
        }
        return Asked("GET", self._root, query)

    def _listed(self, answer: Answer) -> Listed:
        root = parsed(answer.body)
        found = [
            (each.findtext("Name", ""), each.findtext("Properties/Etag", "").strip('"'))
            for each in root.iterfind("Blobs/Blob")
        ]
        return Listed(found, root.findtext("NextMarker") or "")

    def _tag(self, answer: Answer) -> str:
        return str(answer.headers["etag"]).strip('"')

    def _code(self, answer: Answer) -> str:
        return str(answer.headers.get("x-ms-error-code", ""))

    def _no_object(self, answer: Answer) -> bool:
        return answer.status == 404 and self._code(answer) == "BlobNotFound"

    def _no_bucket(self, answer: Answer) -> bool:
        return self._code(answer) == "ContainerNotFound"

    def _fate(self, answer: Answer) -> Fate:
        # 409 is the state that something is in, and 412 also a lease of Azure's own on the blob.
        if answer.status == 409:
            exists = self._code(answer) == "BlobAlreadyExists"
            return Fate.LOST if exists else Fate.REFUSED
        if answer.status == 412 and self._code(answer).startswith("Lease"):
            return Fate.REFUSED
        return super()._fate(answer)

    def _facts(self) -> Mapping[str, str]:
        return {"account": self._wire.account.name}


def _wire(location: Location, limits: Limits, clock: Clock) -> Wire:
    location.check_options(OPTIONS)
    if location.port is not None or not location.host:
        raise UsageError(
            "expected az://account@container/prefix, and for a server of your own "
            "?endpoint=http://host:port"
        )
    return Wire(account(location), location, location.request_s(limits), clock)
