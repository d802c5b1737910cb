"""Options that several commands share, and the arguments that hold JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import perkey
from perkey import Store
from perkey.errors import InvalidValue, UsageError
from perkey.store.url import parse

MAX_ARGUMENT_BYTES = 64 * 1024 * 1024
"""Read from a file or standard input at most; the store's own value limit is far below."""

StoreUrl = Annotated[
    str,
    Parameter(
        name="--store",
        env_var="PERKEY_STORE",
        metavar="URL",
        help="The store, like sqlite:///work.db.",
    ),
]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]
By = Annotated[str, Parameter(name="--by", metavar="NAME", help="Author of the write.")]
IfMatch = Annotated[
    int | None,
    Parameter(name="--if-match", metavar="VERSION", help="Only if this is its version."),
]


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """What every command on a store takes."""

    store: StoreUrl = ""
    json: Json = False

    @contextmanager
    def opened(self, *, existing: bool = True) -> Iterator[Store]:
        """The store, open.  Only a command that can begin one passes ``existing=False``: any
        other would leave an empty file behind a mistyped path."""
        if not self.store:
            raise UsageError("no store is named; give --store URL or set PERKEY_STORE")
        with perkey.open(must_exist(self.store) if existing else self.store) as store:
            yield store


def must_exist(url: str) -> str:
    """``url`` with ``create=false``, for stores that opening would make; unless it says itself."""
    location = parse(url)
    if location.scheme not in ("sqlite", "file") or "create" in location.options:
        return url
    if location.path == ":memory:":
        return url
    return f"{url}{'&' if '?' in url else '?'}create=false"


def json_argument(text: str) -> Any:
    """A value given as JSON text, as ``-`` for standard input or as ``@FILE``."""
    source = text
    if text == "-":
        try:
            source = sys.stdin.read(MAX_ARGUMENT_BYTES + 1)
        except UnicodeDecodeError:
            raise UsageError("standard input is not UTF-8") from None
    elif text.startswith("@"):
        source = _file(Path(text[1:]))
    if len(source) > MAX_ARGUMENT_BYTES:
        raise UsageError(f"the value is longer than {MAX_ARGUMENT_BYTES} bytes")
    try:
        return json.loads(source)
    except ValueError as error:
        raise InvalidValue(f"this is no JSON: {error}") from None
    except RecursionError:
        raise InvalidValue("this JSON is nested too deep") from None


def _file(path: Path) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(MAX_ARGUMENT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8") from None
