"""Opening a directory as a store: recognised, made, or refused."""

from __future__ import annotations

import json
import os
import string
from contextlib import suppress

from perkey.clock import Clock
from perkey.errors import (
    BackendNotConditional,
    SchemaMismatch,
    StoreCorrupt,
    StoreUnavailable,
    UsageError,
)
from perkey.store.backends.files_disk import MARKER, sync_folder, unavailable, write_file
from perkey.store.url import Location

FORMAT = 1
ASIDE_S = 3600
"""How old a file set aside may grow before opening removes it.  Its writer is dead, or has
slept for that long and will be told that nothing was done."""
_OURS = ".perkey-"


def root_of(location: Location) -> str:
    """The directory that a ``file:///absolute/path`` URL names."""
    location.check_options({"create"})
    if location.host not in ("", "localhost") or location.user or location.port:
        raise UsageError(
            f"a file URL has three slashes before an absolute path: expected file:///path, found "
            f"file://{location.host}"
        )
    if not location.path.strip("/") or "\0" in location.path:
        raise UsageError("expected a directory, as in file:///var/lib/app, found none")
    return os.path.abspath("/" + location.path.lstrip("/"))


def may_create(location: Location) -> bool:
    """Whether a store may be made where there is none."""
    return location.option("create", ("true", "false"), "true") == "true"


def opened(root: str, clock: Clock, *, create: bool = True) -> str:
    """Make (unless ``create`` is False) or recognise the store at ``root``; returns ``root``."""
    if not create and not os.path.exists(f"{root}/{MARKER}"):
        raise StoreUnavailable(
            f"there is no store at {root}, and nothing was made there; check the path, or make "
            "one with create=true in the URL",
            missing=root,
        )
    try:
        if not os.path.isdir(os.path.dirname(root)):
            raise StoreUnavailable(f"{root} cannot be made: the directory above does not exist")
        os.makedirs(root, exist_ok=True)
        if not os.path.exists(f"{root}/{MARKER}"):
            _mark(root, clock)
        _check_format(root)
        for name in ("aside", "keys", *(f"keys/{letter}" for letter in string.ascii_lowercase)):
            os.makedirs(f"{root}/{name}", exist_ok=True)
        sync_folder(f"{root}/keys")
        sync_folder(root)
        _tidy(root, clock)
    except OSError as error:
        raise unavailable(root, error) from error
    return root


def _mark(root: str, clock: Clock) -> None:
    """Put the marker there by a link, which also shows that this file system has links."""
    others = [name for name in os.listdir(root) if not name.startswith(_OURS) and name != MARKER]
    if others and not os.path.exists(f"{root}/{MARKER}"):
        raise UsageError(
            f"{root} is not empty and no perkey store (it has {min(others)!r}); nothing was "
            "written: name an empty or a new directory"
        )
    aside = f"{root}/{_OURS}{clock.token()}"
    write_file(aside, json.dumps({"format": FORMAT}).encode())
    try:
        with suppress(FileExistsError):
            os.link(aside, f"{root}/{MARKER}")
    except OSError as error:
        raise BackendNotConditional(
            f"the file system of {root} has no hard links ({error.strerror}), and without them "
            "two writers could both win; use another file system, or sqlite:/// on this host"
        ) from error
    finally:
        os.unlink(aside)


def _check_format(root: str) -> None:
    try:
        with open(f"{root}/{MARKER}", "rb") as file:
            found = json.load(file)["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreCorrupt(f"{root}/{MARKER} cannot be read; nothing was written") from error
    if found != FORMAT:
        raise SchemaMismatch(
            f"the store at {root} has format {found}, this perkey knows {FORMAT}; use a newer one"
        )


def _tidy(root: str, clock: Clock) -> None:
    """Remove what killed writers left aside, by the file system's own time."""
    mine = f"{root}/aside/{clock.token()}"
    write_file(mine, b"")
    now = os.stat(mine).st_mtime
    os.unlink(mine)
    for name in os.listdir(f"{root}/aside"):
        path = f"{root}/aside/{name}"
        with suppress(OSError):  # its writer may be alive, and finish meanwhile
            if os.stat(path).st_mtime < now - ASIDE_S:
                os.unlink(path)
