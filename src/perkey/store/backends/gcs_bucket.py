"""A bucket of Google Cloud Storage: what is asked of it, and what its answers mean.

An object's tag is its generation, a number that each write changes.  Writes go out as
``multipart`` uploads of the JSON API: one request holds the condition, a checksum and the data.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import md5
from typing import Any
from urllib.parse import urlsplit

from perkey.clock import Clock
from perkey.errors import StoreUnavailable, UsageError
from perkey.store.backends.bucket import MISSING
from perkey.store.backends.gcs_wire import ENDPOINT, Wire
from perkey.store.backends.http_bucket import Asked, HttpBucket, Listed
from perkey.store.backends.wire import Answer, quoted
from perkey.store.limits import Limits
from perkey.store.url import Location

OPTIONS = {"endpoint", "timeout", "ca", "auth", "credentials"}
"""``endpoint``: the URL of a server that is not Google's; ``timeout`` in seconds; ``ca`` a PEM
file; ``credentials`` a file with some; ``auth=none`` asks without a name."""
PAGE = 1_000
NO_GENERATION = "0"
"""As a condition: there must be no object of this name."""
_REASON = re.compile(r"[A-Za-z0-9]{1,100}")


class GcsBucket(HttpBucket[Wire]):
    """One connection."""

    def __init__(
        self, location: Location, limits: Limits, clock: Clock, wire: Wire | None = None
    ) -> None:
        super().__init__(location, limits, clock, wire or _wire(location, limits, clock))
        self._objects = f"/storage/v1/b/{quoted(location.host)}/o"
        self.place += f"/{location.host}"

    def _path(self, name: str) -> str:
        return f"{self._objects}/{quoted(self._prefix + name)}"

    def _getting(self, name: str) -> Asked:
        return Asked("GET", self._path(name), {"alt": "media"})

    def _putting(self, name: str, data: bytes, condition: str | None) -> Asked:
        digest = md5(data, usedforsecurity=False)
        # A cache would show an old version of an object that everybody may read.
        about = {
            "name": self._prefix + name,
            "md5Hash": b64encode(digest.digest()).decode(),
            "cacheControl": "no-store",
        }
        boundary = f"perkey{digest.hexdigest()}"  # so it is not in the data
        query = {"uploadType": "multipart", "fields": "generation"}
        if condition is not None:
            query["ifGenerationMatch"] = NO_GENERATION if condition == MISSING else condition
        body = (
            f"--{boundary}\r\ncontent-type: application/json; charset=utf-8\r\n\r\n"
            f"{json.dumps(about)}\r\n"
            f"--{boundary}\r\ncontent-type: application/octet-stream\r\n\r\n"
        )
        return Asked(
            "POST",
            f"/upload{self._objects}",
            query,
            {"content-type": f"multipart/related; boundary={boundary}"},
            body.encode() + data + f"\r\n--{boundary}--\r\n".encode(),
        )

    def _deleting(self, name: str) -> Asked:
        return Asked("DELETE", self._path(name))

    def _listing(self, prefix: str, behind: str, most: int, onwards: str) -> Asked:
        query = {
            "prefix": self._prefix + prefix,
            # The listing begins with ``behind`` itself, which is then left out.
            "maxResults": str(min(PAGE, most + 1)),
            "fields": "items(name,generation),nextPageToken",
            **({"startOffset": self._prefix + behind} if behind else {}),
            **({"pageToken": onwards} if onwards else {}),
        }
        return Asked("GET", self._objects, query)

    def _listed(self, answer: Answer) -> Listed:
        try:
            page = json.loads(answer.body)
            items = [(each["name"], str(each["generation"])) for each in page.get("items", ())]
            return Listed(items, page.get("nextPageToken") or "")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreUnavailable(f"a listing cannot be read: {type(error).__name__}") from error

    def _tag(self, answer: Answer) -> str:
        generation = answer.headers.get("x-goog-generation")
        if not generation:  # without it nothing could be replaced on condition
            raise StoreUnavailable(f"{self.place} does not tell an object's generation")
        return str(generation)

    def _code(self, answer: Answer) -> str:
        try:
            found: Any = json.loads(answer.body)["error"]["errors"][0]["reason"]
        except (ValueError, KeyError, TypeError, IndexError):
            return ""
        said = _REASON.fullmatch(str(found).replace(" ", ""))
        return said[0] if said else ""

    def _no_object(self, answer: Answer) -> bool:
        return answer.status == 404 and b"bucket does not exist" not in answer.body

    def _no_bucket(self, answer: Answer) -> bool:
        return answer.status == 404

    def _facts(self) -> Mapping[str, str]:
        if not self.place.startswith(urlsplit(ENDPOINT).netloc):
            return {}
        return {"pace": "Google takes about one write of one object a second"}


def _wire(location: Location, limits: Limits, clock: Clock) -> Wire:
    location.check_options(OPTIONS)
    if location.port is not None or not location.host:
        raise UsageError(
            "expected gs://bucket/prefix, and for a server of your own ?endpoint=http://host:port"
        )
    return Wire(location, location.request_s(limits), clock)
