"""One key's versions as files: written aside, made visible by a link, removed oldest first.

``keys/<space>/<digest of key>/<version>`` is one immutable file.  ``link`` fails where the name
exists, which is the conflict.  Since the oldest go first, a version that is still there says
that none above it has ever been removed; everything here rests on that.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple
from zlib import crc32

from perkey.clock import Clock
from perkey.errors import StoreCorrupt, StoreUnavailable
from perkey.store.backends.envelope import pack, unpack
from perkey.store.backends.port import NothingDone
from perkey.store.record import Record, op_at

WINDOW = 32
"""Versions that stay on the disk whatever retention says: at least as many as ops are
remembered, and far more than one slow writer falls behind."""
PRUNE_EVERY = 16
"""How many versions of a key go by between two removals of its old files."""
KNOWN_KEYS = 10_000
"""How many keys' last known heads are remembered, to find the head without a listing."""
ATTEMPTS = 100
MARKER = "perkey-store"
_HEADER = struct.Struct(">4sI")
_FLOOR = struct.Struct(">Q")
_MAGIC = b"PKF1"


class Kept(NamedTuple):
    """What one file holds."""

    record: Record
    floor: int
    """The oldest version that history shows, as of this one."""


class Mark(NamedTuple):
    """Which version was the head when it was last looked at."""

    version: int
    op: str
    floor: int


def digest(key: str) -> str:
    """The name of a key's folder: keys come from outside and never become a path."""
    return hashlib.sha256(key.encode()).hexdigest()


def line(version: int, floor: int) -> int:
    """The oldest version whose file is not removed while ``version`` is the head."""
    return min(floor, version - WINDOW + 1)


class Disk:
    """The files under one root.  ``OSError`` never leaves it."""

    def __init__(self, root: str, clock: Clock) -> None:
        self.root = root
        self._clock = clock
        self._known: dict[str, Mark] = {}

    def folder(self, key: str) -> str:
        """Where the versions of ``key`` are."""
        return f"{self.root}/keys/{key[0]}/{digest(key)}"

    # ------------------------------------------------------------------------ reading

    def load(self, key: str, version: int) -> Kept | None:
        """One version; None where there is no such file.

        Raises ``StoreCorrupt`` where the file is torn or another key's, ``StoreUnavailable``
        where it cannot be read: neither is ever taken for a version that does not exist.
        """
        path = f"{self.folder(key)}/{version}"
        data = self._bytes(path)
        if data is None:
            return None
        kept = parse(data, path)
        if kept.record.key != key or kept.record.version != version:
            raise StoreCorrupt(
                f"{path} holds version {kept.record.version} of another record; "
                "it was moved or copied by hand"
            )
        return kept

    def _bytes(self, path: str) -> bytes | None:
        try:
            with open(path, "rb", buffering=0) as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unavailable(path, error) from error

    def head(self, key: str) -> Kept | None:
        """The newest version, found from the last known one or else by listing."""
        known = self._known.get(key)
        kept = self._onwards(key, known) if known is not None else None
        if kept is None:
            kept = self._listed(key)
        if kept is not None:
            self._remember(key, kept)
        return kept

    def _onwards(self, key: str, known: Mark) -> Kept | None:
        """The head by counting up from ``known``; None where that was removed meanwhile."""
        last = None
        version = known.version
        while (kept := self.load(key, version + 1)) is not None:
            last, version = kept, version + 1
        # Only now: what is still there says that nothing above it was removed before.
        base = self.load(key, known.version)
        if base is None or base.record.op != known.op:
            return None
        return last or base

    def _listed(self, key: str) -> Kept | None:
        for _ in range(ATTEMPTS):
            versions = self.versions(key)
            if not versions:
                self.check_present()
                return None
            kept = self.load(key, versions[-1])
            if kept is not None:
                return kept
        raise StoreUnavailable(f"{self.root}: the files of {key[2:]!r} vanish while they are read")

    def versions(self, key: str) -> list[int]:
        """The versions on the disk, ascending."""
        return sorted(int(name) for name in self.names(self.folder(key)) if name.isdecimal())

    def names(self, folder: str) -> list[str]:
        """What is in a folder; nothing where it does not exist."""
        try:
            return os.listdir(folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unavailable(folder, error) from error

    def folders(self, space: str) -> Iterator[str]:
        """The digests of all keys that were ever written in a space."""
        names = self.names(f"{self.root}/keys/{space}")
        if not names:
            self.check_present()
        yield from names

    def key_of(self, space: str, name: str) -> str | None:
        """The key whose folder this is; None while its first version is not there yet."""
        folder = f"{self.root}/keys/{space}/{name}"
        for _ in range(ATTEMPTS):
            versions = [each for each in self.names(folder) if each.isdecimal()]
            if not versions:
                return None
            path = f"{folder}/{max(versions, key=int)}"
            data = self._bytes(path)
            if data is not None:
                key = parse(data, path).record.key
                if digest(key) != name:
                    raise StoreCorrupt(f"{path} belongs to another key's folder")
                return key
        raise StoreUnavailable(f"{folder}: its files vanish while they are read")

    def check_present(self) -> None:
        """Nothing found may also mean that the file system is not mounted: say so."""
        if not os.path.exists(f"{self.root}/{MARKER}"):
            raise StoreUnavailable(
                f"{self.root} is not a perkey store any more: is its file system still mounted?"
            )

    def mark(self, base: Record) -> Mark:
        """What is known of a version that ``head`` has returned."""
        known = self._known.get(base.key)
        if known is not None and (known.version, known.op) == (base.version, base.op):
            return known
        kept = self.load(base.key, base.version)
        # Removed already: the write that asks will meet a conflict.
        floor = base.version if kept is None else kept.floor
        return Mark(base.version, base.op, floor)

    def _remember(self, key: str, kept: Kept) -> None:
        self._known[key] = Mark(kept.record.version, kept.record.op, kept.floor)
        while len(self._known) > KNOWN_KEYS:
            self._known.pop(next(iter(self._known)), None)

    # ------------------------------------------------------------------------ writing

    def put(self, record: Record, floor: int, base: Record | None) -> bool:
        """Make ``record`` the version after ``base``; False where another one is."""
        folder = self.folder(record.key)
        aside = f"{self.root}/aside/{self._clock.token()}"
        try:
            try:
                write_file(aside, frame(record, floor))
                if base is None:
                    make_folder(folder)
            except OSError as error:
                raise NothingDone(f"{aside} cannot be written: {error.strerror}") from error
            if not self._link(aside, f"{folder}/{record.version}"):
                return False
        finally:
            with suppress(OSError):
                os.unlink(aside)
        if not self._genuine(record, base):
            return False
        self._remember(record.key, Kept(record, floor))
        if record.version % PRUNE_EVERY == 0:
            self._prune(record.key, line(record.version, floor))
        return True

    def _link(self, aside: str, target: str) -> bool:
        try:
            try:
                os.link(aside, target)
            except FileExistsError:
                # On NFS the reply to our own link may have been lost and the request repeated.
                if os.stat(aside).st_nlink < 2:
                    return False
            sync_folder(os.path.dirname(target))
            return True
        except FileNotFoundError as error:
            raise NothingDone(f"{target} cannot be made: {error.strerror}") from error
        except OSError as error:
            raise unavailable(target, error) from error

    def _genuine(self, record: Record, base: Record | None) -> bool:
        """Whether the name that was linked had never been taken before.

        A writer that slept may link a name which others took, passed and removed.  While
        ``base`` is there that cannot have happened; otherwise the next version tells.
        """
        key, version = record.key, record.version
        if base is not None and self._is_there(key, base):
            return True
        if self.versions(key)[-1:] == [version]:
            return True
        after = self.load(key, version + 1)
        if after is None:
            if not self._is_there(key, record):
                raise StoreUnavailable(f"version {version} of {key[2:]!r} was removed meanwhile")
            # Were it genuine, it would have gone before the one after it.
        elif op_at(after.record, version) == record.op:
            return True
        with suppress(OSError):
            os.unlink(f"{self.folder(key)}/{version}")
        return False

    def _is_there(self, key: str, record: Record) -> bool:
        kept = self.load(key, record.version)
        return kept is not None and kept.record.op == record.op

    def _prune(self, key: str, below: int) -> None:
        """Remove what is older than ``below``, oldest first; a failure leaves it for later."""
        if below <= 1:
            return
        for version in self.versions(key):
            if version >= below:
                return
            try:
                os.unlink(f"{self.folder(key)}/{version}")
            except FileNotFoundError:
                continue
            except OSError:
                return

    def forget(self, key: str) -> None:
        """Remove a scratch record and its folder."""
        folder = self.folder(key)
        with suppress(OSError):
            for name in self.names(folder):
                os.unlink(f"{folder}/{name}")
            os.rmdir(folder)
        self._known.pop(key, None)


# ------------------------------------------------------------------------------- one file


def frame(record: Record, floor: int) -> bytes:
    """A file's content: a mark, a checksum, the floor of history, the envelope."""
    rest = _FLOOR.pack(floor) + pack(record)
    return _HEADER.pack(_MAGIC, crc32(rest)) + rest


def parse(data: bytes, path: str) -> Kept:
    """What ``frame`` was given; ``StoreCorrupt`` for a torn or foreign file."""
    start = _HEADER.size + _FLOOR.size
    whole = len(data) > start and data[:4] == _MAGIC
    if not whole or _HEADER.unpack_from(data)[1] != crc32(data[_HEADER.size :]):
        raise StoreCorrupt(
            f"{path} ({len(data)} bytes) is torn or was not written by perkey; restore it from a "
            "backup, it is not taken for a missing version"
        )
    (floor,) = _FLOOR.unpack_from(data, _HEADER.size)
    return Kept(unpack(data[start:]), floor)


def write_file(path: str, data: bytes) -> None:
    """A new file, on the disk when this returns."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: str) -> None:
    """A folder whose name is on the disk when this returns, whoever made it."""
    with suppress(FileExistsError):
        os.mkdir(folder)
    sync_folder(os.path.dirname(folder))


def sync_folder(folder: str) -> None:
    """Bring the names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def unavailable(path: str, error: OSError) -> StoreUnavailable:
    """For a path that exists but cannot be used."""
    return StoreUnavailable(f"{path} cannot be used: {error.strerror or error}")
