"""Conditional requests, RFC 9110 section 13: entity tags, ``If-Match``, ``If-None-Match``.

A document's strong tag is its version in quotes.  The tag of a compressed reply ends in
``-gzip`` and names the same version, so it can be sent back as it came.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from perkey.errors import Conflict
from perkey.server.refusals import BadRequest
from perkey.store.record import Record, signed

GZIP = "-gzip"
_TAG = re.compile(r'[ \t]*(W/)?"([\x21\x23-\x7e\x80-\xff]*)"[ \t]*')
_EMPTY = re.compile(r"[ \t]*")
_VERSION = re.compile(r"[1-9][0-9]{0,18}")
_ONE = re.compile(r'"([1-9][0-9]{0,18})"')
"""What most conditions are: one strong tag, of a version."""


class Tag(msgspec.Struct, frozen=True):
    """One entity tag of a condition."""

    opaque: str
    weak: bool = False

    @property
    def version(self) -> int | None:
        """The version it names; None for a tag that this server never gave out."""
        number = self.opaque.removesuffix(GZIP)
        return int(number) if _VERSION.fullmatch(number) else None


class Tags(msgspec.Struct, frozen=True):
    """The value of one condition: ``*``, or a list of tags."""

    anything: bool = False
    tags: tuple[Tag, ...] = ()

    def strong(self) -> frozenset[int]:
        """The versions that its strong tags name: weak ones never match."""
        return frozenset(v for t in self.tags if not t.weak and (v := t.version) is not None)

    def names(self, version: int, *, weak: bool) -> bool:
        """Whether one of its tags is that of ``version``; a weak one only where it may be."""
        wanted = str(version)
        for each in self.tags:
            if (weak or not each.weak) and each.opaque.removesuffix(GZIP) == wanted:
                return True
        return False


def parse(name: str, lines: Sequence[str]) -> Tags | None:
    """The tags in all header lines of this name; None without a line.

    Raises ``BadRequest`` for what the grammar does not know: guessing what an unreadable
    condition meant would drop it.
    """
    if not lines:
        return None
    text = ",".join(lines)
    one = _ONE.fullmatch(text)
    if one is not None:
        return Tags(tags=(Tag(one[1]),))
    if text.strip(" \t") == "*":
        return Tags(anything=True)
    tags: list[Tag] = []
    at = 0
    while True:
        found = _TAG.match(text, at) or _EMPTY.match(text, at)
        assert found is not None
        if found.re is _TAG:
            tags.append(Tag(found[2], bool(found[1])))
        at = found.end()
        if at == len(text):
            break
        if text[at] != ",":
            raise BadRequest(
                f'expected {name}: * or a list of quoted tags, like "61", "62"; found {text!r:.100}'
            )
        at += 1
    if not tags:
        raise BadRequest(f"expected {name}: * or a list of quoted tags, found an empty list")
    return Tags(tags=tuple(tags))


class Condition(msgspec.Struct, frozen=True):
    """What a request demands of the current version; ``If-Match`` is looked at first."""

    match: Tags | None = None
    none_match: Tags | None = None

    @property
    def protects(self) -> bool:
        """Whether a write under it overwrites nothing its author does not know of."""
        return self.match is not None or (self.none_match is not None and self.none_match.anything)

    @property
    def version(self) -> int | None:
        """The one version that ``If-Match`` names; None for several, none, or ``*``."""
        versions = frozenset() if self.match is None else self.match.strong()
        return next(iter(versions)) if len(versions) == 1 else None

    def check(self, key: str, head: Record | None) -> None:
        """Raise ``Conflict`` (412) unless the head allows a write.  Pure: runs in the commit."""
        self.check_match(key, head)
        if self.none_match is None or head is None or head.deleted:
            return
        if self.none_match.anything:
            raise _conflict(key, head, "with nothing there", self.version or 0)
        if self.none_match.names(head.version, weak=True):
            raise _conflict(key, head, f"with a version other than {head.version}", self.version)

    def check_match(self, key: str, head: Record | None) -> None:
        """Only ``If-Match``: of a read, ``If-None-Match`` is no condition but a question."""
        if self.match is None:
            return
        live = head is not None and not head.deleted
        match = self.match
        if not (live and (match.anything or match.names(_version(head), weak=False))):
            raise _conflict(key, head, _wanted(match), self.version)

    def unchanged(self, version: int) -> bool:
        """Whether a read of ``version`` is to be answered 304."""
        if self.none_match is None:
            return False
        return self.none_match.anything or self.none_match.names(version, weak=True)


def _conflict(key: str, head: Record | None, wanted: str, expected: int | None) -> Conflict:
    """The refusal; ``expected`` is the one version that would have done, 0 for none at all, and
    is not told where the condition names no single one."""
    found, advice = "nothing", "create it with If-None-Match: * if that is what you want"
    if head is not None:
        deleted = "deleted " if head.deleted else ""
        found = f"{deleted}version {head.version}{signed(head.by)}"
        if not head.deleted:
            advice = "read it again and redo the change"
    return Conflict(
        f"expected {key!r} {wanted}, found {found}; {advice}",
        key=key,
        **({} if expected is None else {"expected": expected}),
        found=_version(head),
        by="" if head is None else head.by,
    )


def _version(head: Record | None) -> int:
    return 0 if head is None else head.version


def _wanted(tags: Tags) -> str:
    if tags.anything:
        return "to be there, at whatever version (If-Match: *)"
    versions = ", ".join(map(str, sorted(tags.strong())))
    if versions:
        return f"with version {versions}"
    return "with a strong tag of this server, and weak tags never match"
