"""A bucket behind HTTP: what S3, Google Cloud Storage and Azure Blob Storage have in common.

A vendor's bucket says how a request looks and what an answer means; when something is sent
again, and what a refusal is to its caller, is decided here, once for all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import Enum, auto
from typing import Generic, NamedTuple, Self, TypeVar

from perkey.clock import Clock
from perkey.errors import StoreUnavailable
from perkey.store.backends.bucket import Stored
from perkey.store.backends.port import NothingDone
from perkey.store.backends.wire import Answer, Wire
from perkey.store.limits import Limits, backoff
from perkey.store.url import Location

W = TypeVar("W", bound=Wire)

ASKED_AGAIN = 5
"""How often a request is sent again that the store refused because it was busy."""
TOO_OFTEN_S = 1.0
"""How long an object is left alone, give or take half, whose store says that it was written too
often: Google takes about one write a second."""
BUSY = {429, 503}
"""Nothing was wrong with the question: a read may be asked again a little later."""


class Asked(NamedTuple):
    """A request."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: bytes = b""


class Listed(NamedTuple):
    """A part of a listing: whole names with their tags, and what asks for the next part."""

    objects: list[tuple[str, str]]
    onwards: str
    """Empty at the end."""


class Fate(Enum):
    """What became of a write."""

    WRITTEN = auto()
    LOST = auto()
    """Its condition did not hold."""
    BUSY = auto()
    """It was not done, and may be sent again."""
    REFUSED = auto()
    """It was not done, and never would be."""
    UNKNOWN = auto()


class HttpBucket(ABC, Generic[W]):
    """One connection."""

    def __init__(self, location: Location, limits: Limits, clock: Clock, wire: W) -> None:
        prefix = location.path.strip("/")
        self._location = location
        self._limits = limits
        self._clock = clock
        self._wire = wire
        self._prefix = f"{prefix}/" if prefix else ""
        self.place = wire.place
        """Where the bucket is; each vendor adds its name."""

    # ------------------------------------------------------------- for each vendor

    @abstractmethod
    def _getting(self, name: str) -> Asked: ...

    @abstractmethod
    def _putting(self, name: str, data: bytes, condition: str | None) -> Asked: ...

    @abstractmethod
    def _deleting(self, name: str) -> Asked: ...

    @abstractmethod
    def _listing(self, prefix: str, behind: str, most: int, onwards: str) -> Asked:
        """Names that begin with ``prefix``; those up to ``behind`` may be left out."""

    @abstractmethod
    def _listed(self, answer: Answer) -> Listed: ...

    @abstractmethod
    def _tag(self, answer: Answer) -> str:
        """The tag of an object that was read."""

    @abstractmethod
    def _code(self, answer: Answer) -> str:
        """The vendor's word for what is wrong; "" where there is none."""

    @abstractmethod
    def _no_object(self, answer: Answer) -> bool:
        """Whether the answer says that there is no such object, rather than no such bucket."""

    @abstractmethod
    def _no_bucket(self, answer: Answer) -> bool: ...

    def _fate(self, answer: Answer) -> Fate:
        """What became of a write that was answered so."""
        status = answer.status
        if status in (200, 201):
            return Fate.WRITTEN
        if status == 412:
            return Fate.LOST
        # 409: another request for this object was under way; 429: there were too many.
        if status in (409, 429):
            return Fate.BUSY
        # What a server says when it fails half-way promises nothing, nor that it stopped waiting.
        return Fate.REFUSED if 400 <= status < 500 and status != 408 else Fate.UNKNOWN

    def _advice(self, answer: Answer) -> str:
        """What the caller should do, in the vendor's own case; mostly nothing is known."""
        return ""

    # ------------------------------------------------------------------------ reading

    def get(self, name: str) -> Stored | None:
        answer = self._read(self._getting(name))
        if self._no_object(answer):
            return None
        self._expect(answer, 200)
        return Stored(answer.body, self._tag(answer))

    def names(self, prefix: str, behind: str, limit: int) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        cut, onwards = len(self._prefix), ""
        while len(found) < limit:
            answer = self._read(self._listing(prefix, behind, limit - len(found), onwards))
            self._expect(answer, 200)
            page, onwards = self._listed(answer)
            found += [(name[cut:], tag) for name, tag in page if name[cut:] > behind]
            if not onwards:
                break
        return found[:limit]

    def _read(self, asked: Asked) -> Answer:
        """Ask, and once more a little later where the store is busy."""
        for attempt in range(1, ASKED_AGAIN):
            answer = self._wire.ask(*asked, again=True)
            if answer.status not in BUSY:
                return answer
            self._clock.sleep(backoff(attempt, self._limits, self._clock.random()))
        return self._wire.ask(*asked, again=True)

    # ------------------------------------------------------------------------ writing

    def put(self, name: str, data: bytes, condition: str | None) -> bool:
        asked = self._putting(name, data, condition)
        for attempt in range(1, ASKED_AGAIN + 1):
            answer = self._wire.ask(*asked)
            match self._fate(answer):
                case Fate.WRITTEN:
                    return True
                case Fate.LOST:
                    return False
                case Fate.BUSY:
                    self._clock.sleep(self._pause(answer, attempt))
                case Fate.REFUSED:
                    raise NothingDone(self._refusal(answer, condition))
                case Fate.UNKNOWN:
                    raise StoreUnavailable(self._said(answer))
        return False

    def _pause(self, answer: Answer, attempt: int) -> float:
        chance = self._clock.random()
        if answer.status == 429:
            return TOO_OFTEN_S * (0.5 + chance)
        return backoff(attempt, self._limits, chance)

    def _refusal(self, answer: Answer, condition: str | None) -> str:
        if condition and self._no_object(answer):
            return (
                f"{self.place}: the object that was to be replaced has been deleted by something "
                "other than perkey; nothing was written"
            )
        return self._said(answer)

    def delete(self, name: str) -> None:
        answer = self._read(self._deleting(name))
        if not self._no_object(answer):
            self._expect(answer, 200, 202, 204)

    # ------------------------------------------------------------------------ the rest

    def _expect(self, answer: Answer, *statuses: int) -> None:
        if answer.status not in statuses:
            raise StoreUnavailable(self._said(answer))

    def _said(self, answer: Answer) -> str:
        if self._no_bucket(answer):
            return f"{self.place}: there is no such bucket; make it first"
        advice = self._advice(answer)
        if advice:
            return f"{self.place} {advice}"
        return f"{self.place} refused with {answer.status} {self._code(answer)}".rstrip()

    def now_ms(self) -> int:
        return self._wire.time.now_ms()

    def not_before(self, at: int) -> None:
        self._wire.time.not_before(at)

    def describe(self) -> Mapping[str, str]:
        off = abs(self._wire.time.off_ms)
        return {
            "address": self.place,
            "prefix": self._prefix,
            **self._facts(),
            "clock": f"this client's, {off} ms off what the server's allows",
        }

    def _facts(self) -> Mapping[str, str]:
        """What else there is to say of the place."""
        return {}

    def another(self) -> Self:
        return type(self)(self._location, self._limits, self._clock, self._wire.another())

    def close(self) -> None:
        self._wire.close()
