"""What is asked of DynamoDB, and what its answers mean."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from perkey.clock import Clock
from perkey.errors import StoreUnavailable, UsageError
from perkey.store.backends import aws_wire
from perkey.store.backends.aws_wire import Wire
from perkey.store.backends.port import NothingDone
from perkey.store.backends.wire import Answer
from perkey.store.limits import Limits, backoff
from perkey.store.url import Location

OPTIONS = aws_wire.OPTIONS | {"create"}
"""``create=yes`` makes the table where there is none, paid by request."""
ASKED_AGAIN = 8
"""How often a request is sent again that the service refused because it had too much to do."""
BUSY = {
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
    "ThrottlingError",
    "ProvisionedThroughputExceeded",
}
CONFLICT = {"TransactionConflict", "TransactionConflictException"}
REFUSED = {"ConditionalCheckFailed", "ConditionalCheckFailedException"}
Item = dict[str, Any]


class Refusal(Exception):
    """The service's word that nothing was done, and why."""

    def __init__(self, code: str, reasons: Sequence[str] = (), items: Sequence[Item] = ()) -> None:
        super().__init__(code)
        self.code = code
        self.reasons = tuple(reasons)
        """Of a transaction: one code an action, "None" where it was not the action's fault."""
        self.items = tuple(items)
        """What stands there instead, where it was told."""

    def only(self, codes: set[str]) -> bool:
        """Whether all that stood against it are these."""
        found = {each for each in self.reasons if each != "None"} or {self.code}
        return found <= codes

    def any(self, codes: set[str]) -> bool:
        """Whether one of these stood against it."""
        return bool({self.code, *self.reasons} & codes)


class Client:
    """One connection and the name of one table."""

    def __init__(
        self, location: Location, limits: Limits, clock: Clock, wire: Wire | None = None
    ) -> None:
        self._location = location
        self._limits = limits
        self._clock = clock
        self.table = _table(location)
        self._wire = wire or _wire(location, limits, clock)
        self.place = f"{self._wire.place}/{self.table}"
        self.time = self._wire.time
        self.region = self._wire.region

    def another(self) -> Client:
        """A second connection."""
        return Client(self._location, self._limits, self._clock, self._wire.another())

    def ask(self, action: str, asked: Item, *, again: bool = True) -> Item:
        """One action on the table.  ``again``: it only reads, or does the same twice.

        Raises ``Refusal`` where the service says that nothing was done.
        """
        body = msgspec.json.encode({"TableName": self.table, **asked})
        return self._asked(action, body, again)

    def transact(self, action: str, actions: Sequence[Item], **more: Any) -> Item:
        """``TransactGetItems`` or ``TransactWriteItems``; each action gets the table's name."""
        items = [
            {kind: {"TableName": self.table, **what}}
            for each in actions
            for kind, what in each.items()
        ]
        body = msgspec.json.encode({"TransactItems": items, **more})
        return self._asked(action, body, again=action == "TransactGetItems")

    def _asked(self, action: str, body: bytes, again: bool) -> Item:
        headers = {
            "x-amz-target": f"DynamoDB_20120810.{action}",
            "content-type": "application/x-amz-json-1.0",
        }
        for attempt in range(1, ASKED_AGAIN + 1):
            answer = self._wire.ask("POST", "/", {}, headers, body, again=again)
            if answer.status == 200:
                found: Item = msgspec.json.decode(answer.body)
                return found
            refusal = self._refusal(answer)
            if not refusal.only(BUSY) or attempt == ASKED_AGAIN:
                raise refusal
            self._clock.sleep(backoff(attempt, self._limits, self._clock.random()))
        raise AssertionError("unreachable")

    def _refusal(self, answer: Answer) -> Refusal:
        try:
            said = msgspec.json.decode(answer.body)
            code = str(said["__type"]).rpartition("#")[2]
        except (msgspec.DecodeError, KeyError, TypeError):
            said, code = {}, f"status {answer.status}"
        # What a server says when it fails half-way promises nothing.
        if not 400 <= answer.status < 500 or code == "TransactionInProgressException":
            raise StoreUnavailable(f"{self.place} failed: {code}")
        reasons = said.get("CancellationReasons") or []
        items = [each["Item"] for each in reasons if each.get("Item")]
        items += [said["Item"]] if said.get("Item") else []
        return Refusal(code, [str(each.get("Code")) for each in reasons], items)

    def nothing_done(self, refusal: Refusal) -> NothingDone:
        """What its caller is told of a refusal that is no conflict."""
        reasons = sorted({each for each in refusal.reasons if each != "None"})
        more = f" ({', '.join(reasons)})" if reasons else ""
        if refusal.code == "ResourceNotFoundException":
            return NothingDone(
                f"{self.place}: there is no such table; make it, or say create=yes in the URL"
            )
        return NothingDone(f"{self.place} refused: {refusal.code}{more}")

    def close(self) -> None:
        """Close the connection."""
        self._wire.close()


def binary(item: Item, name: str) -> bytes:
    """A binary attribute."""
    return b64decode(item[name]["B"])


def number(item: Item, name: str) -> int:
    """A number; 0 where there is none."""
    return int(item[name]["N"]) if name in item else 0


def _table(location: Location) -> str:
    # A host's name has no capitals, a table's may.
    name = urlsplit(location.url).netloc.rpartition("@")[2]
    if not name or location.port is not None or location.path:
        raise UsageError(
            "expected dynamodb://table, and for a server of your own ?endpoint=http://host:port"
        )
    return name


def _wire(location: Location, limits: Limits, clock: Clock) -> Wire:
    location.check_options(OPTIONS)
    host = "dynamodb.{region}.amazonaws.com"
    if aws_wire.region_of(location).startswith("cn-"):
        host += ".cn"
    seconds = location.request_s(limits)
    return Wire("dynamodb", host, location, seconds, clock)
