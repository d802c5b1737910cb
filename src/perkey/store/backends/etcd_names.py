"""Keys as etcd keeps them, in order of their UTF-8 bytes.

    NAME/h/KEY                    the head: the predecessor's revision and the packed record
    NAME/v/KEY 0xFF VERSION       the same, for each kept version, the version in eight bytes

UTF-8 has no byte 0xFF, so it ends a key that may hold anything, and no key's versions lie among
those of another.
"""

from __future__ import annotations

import re
import struct

from perkey.errors import StoreCorrupt, UsageError
from perkey.store.backends.envelope import pack, unpack
from perkey.store.record import Record

END = b"\xff"
LATEST = 2**63 - 1
SAME = -1
"""What stands for the predecessor's revision where it is in the same commit."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_number = struct.Struct(">q")


class Names:
    """The names of one store among the others of a cluster."""

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"expected name= of letters, digits, _, . and - in the URL, found {name!r}"
            )
        self._heads = f"{name}/h/".encode()
        self._versions = f"{name}/v/".encode()

    def head(self, key: str) -> bytes:
        """Where the head of ``key`` is."""
        return self._heads + key.encode()

    def heads(self, prefix: str, after: str = "") -> tuple[bytes, bytes]:
        """From where up to below where the heads under ``prefix`` are that come after a key."""
        start = self.head(prefix)
        # No key lies between ``after`` and ``after`` with a byte 0 behind it.
        return max(start, self.head(after) + b"\0" if after else start), start + END

    def version(self, key: str, version: int) -> bytes:
        """Where a kept version of ``key`` is."""
        return self._versions + key.encode() + END + _number.pack(version)

    def versions(self, key: str, first: int = 0, last: int = LATEST) -> tuple[bytes, bytes]:
        """From where up to below where versions ``first`` to ``last`` of ``key`` are."""
        end = (
            self.version(key, last + 1)
            if last < LATEST
            else self._versions + key.encode() + END * 2
        )
        return self.version(key, max(0, first)), end

    def all_versions(self, prefix: str) -> tuple[bytes, bytes]:
        """From where up to below where the versions of all keys under ``prefix`` are."""
        start = self._versions + prefix.encode()
        return start, start + END * 2

    def key_of_head(self, name: bytes) -> str:
        """The key whose head is there."""
        return name.removeprefix(self._heads).decode()

    def key_of_version(self, name: bytes) -> tuple[str, int]:
        """The key and the version that are there."""
        rest = name.removeprefix(self._versions)
        return rest[:-9].decode(), int(_number.unpack(rest[-8:])[0])


def pack_after(record: Record, predecessor: int) -> bytes:
    """``record`` with the revision of the commit that wrote the version before it.

    0 where there was none, ``SAME`` where it is the same commit.
    """
    return _number.pack(predecessor) + pack(record)


def unpack_after(data: bytes) -> tuple[Record, int]:
    """What ``pack_after`` was given."""
    if len(data) <= _number.size:
        raise StoreCorrupt(f"a stored record of {len(data)} bytes is not one that perkey wrote")
    return unpack(data[_number.size :]), int(_number.unpack_from(data)[0])
