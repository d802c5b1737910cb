"""What a key is, and how records of different kinds share one store without meeting.

A user's key is any text of 1 to 512 bytes of UTF-8.  In the store each record's key starts
with a *space*, one letter and a slash, that says what kind of record it is, so no text that a
user can choose ever names a lease or a receipt.  A key that already carries its space is a
``Key``; a plain ``str`` always means a document.
"""

from __future__ import annotations

from collections.abc import Iterable

from perkey.errors import InvalidKey

MAX_KEY_BYTES = 512
"""The longest user key, in bytes of UTF-8."""

DOCUMENTS = "d/"
BOARDS = "b/"
LEASES = "l/"
RECEIPTS = "r/"
OPEN = "o/"
ACCOUNTS = "a/"
ENTRIES = "e/"
TRANSFERS = "t/"
ENGINE = "p/"

OWN_SPACES = (RECEIPTS, OPEN, ENTRIES, ENGINE)
"""Spaces whose keys perkey composes by itself, so that they tell a person nothing."""

HISTORY_SPACES = frozenset({"d", "b"})
"""Spaces whose every version is kept in history and shown to watchers."""


class Key(str):
    """A key as the store knows it, with its space: ``Key("d/report")``."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The user's part, without the space."""
        return self[2:]


TURNS = Key("q/turn")
"""The store's own record of who may write next, where stores can only compare and swap."""


def in_space(space: str, name: str) -> Key:
    """Check ``name`` as a user's key and put it in ``space``."""
    check_name(name)
    return Key(space + name)


def stored(key: str) -> Key:
    """The stored form of what a caller named: a ``Key`` as it is, a ``str`` as a document."""
    if type(key) is Key:
        return key
    check_name(key)
    return Key(DOCUMENTS + key)


def names_of(keys: Iterable[str]) -> tuple[str, ...]:
    """What callers named among these stored keys: without spaces, without perkey's own."""
    return tuple(key[2:] for key in keys if not key.startswith(OWN_SPACES))


def keeps_history(key: str) -> bool:
    """Whether each version of this record is kept."""
    return key[0] in HISTORY_SPACES


def composite(space: str, *parts: str) -> Key:
    """A key of several texts, length-prefixed so that no text can imitate a separator.

    The total may exceed a user key's limit; each part keeps that limit.
    """
    for part in parts:
        check_name(part)
    return Key(space + "".join([f"{len(part)}:{part}" for part in parts]))


def check_name(name: object) -> None:
    """Raise ``InvalidKey`` unless ``name`` is text of 1 to 512 bytes of UTF-8."""
    if type(name) is str and name.isascii() and 0 < len(name) <= MAX_KEY_BYTES:
        return
    if not isinstance(name, str):
        raise InvalidKey(f"expected a key as text, found {type(name).__name__}; use str(...)")
    if name.isascii():
        size = len(name)
    else:
        try:
            size = len(name.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise InvalidKey(
                f"expected text that UTF-8 can carry, found a lone surrogate at index {error.start}"
            ) from None
    if size == 0:
        raise InvalidKey("expected a key of 1 to 512 bytes, found an empty text")
    if size > MAX_KEY_BYTES:
        raise InvalidKey(
            f"expected a key of at most {MAX_KEY_BYTES} bytes, found {size}; "
            "store a digest of the long text instead"
        )
