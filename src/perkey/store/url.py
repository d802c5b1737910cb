"""From a store's URL to its backend.  Backends are imported only when they are asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from perkey.clock import Clock
from perkey.errors import MissingExtra, UsageError
from perkey.store.abc import Backend
from perkey.store.limits import Limits

REQUEST_S = 15.0
"""Longer than a machine stands still that is moved, or has too much to do."""


@dataclass(frozen=True)
class Location:
    """A parsed store URL.  ``str()`` shows it without its credentials."""

    url: str
    """As given, credentials included; for the client library only, never for people."""
    scheme: str
    host: str
    port: int | None
    user: str | None
    password: str | None
    path: str
    """Decoded; ``sqlite:///x`` gives ``x``, ``sqlite:////x`` gives ``/x``."""
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"Location({str(self)!r})"

    def __str__(self) -> str:
        port = f":{self.port}" if self.port else ""
        return f"{self.scheme}://{self.host}{port}/{self.path}"

    def option(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """An option that takes one of a few words."""
        value = self.options.get(name, default)
        if value not in allowed:
            raise UsageError(
                f"expected {name}= one of {', '.join(allowed)} in the URL, found {value!r}"
            )
        return value

    def seconds(self, name: str, default: float) -> float:
        """An option that is a time in seconds, above 0."""
        text = self.options.get(name, "")
        try:
            seconds = float(text) if text else default
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < 3600:
            raise UsageError(f"expected {name}= in seconds, above 0, in the URL, found {text!r}")
        return seconds

    def request_s(self, limits: Limits) -> float:
        """How long one request to the server may take, in seconds: ``timeout=``, if it is given."""
        return self.seconds("timeout", min(REQUEST_S, limits.timeout_s))

    def check_options(self, known: set[str]) -> None:
        """Refuse options that nobody reads: a misspelt one would be ignored quietly."""
        for name in self.options.keys() - known:
            raise UsageError(
                f"{self.scheme}:// has no option {name!r}; it knows {', '.join(sorted(known))}"
            )


Opener = Callable[[Location, Limits, Clock], Backend]

BACKENDS: dict[str, tuple[str, str]] = {
    "az": ("perkey.store.backends.azure", "azure"),
    "dynamodb": ("perkey.store.backends.dynamodb", "dynamodb"),
    "etcd": ("perkey.store.backends.etcd", "etcd"),
    "etcds": ("perkey.store.backends.etcd", "etcd"),
    "file": ("perkey.store.backends.files", ""),
    "gs": ("perkey.store.backends.gcs", "gcs"),
    "http": ("perkey.store.backends.http", ""),
    "https": ("perkey.store.backends.http", ""),
    "memory": ("perkey.store.backends.memory", ""),
    "nats": ("perkey.store.backends.nats", "nats"),
    "postgres": ("perkey.store.backends.postgres", "postgres"),
    "postgresql": ("perkey.store.backends.postgres", "postgres"),
    "redis": ("perkey.store.backends.redis", "redis"),
    "rediss": ("perkey.store.backends.redis", "redis"),
    "s3": ("perkey.store.backends.s3", "s3"),
    "sqlite": ("perkey.store.backends.sqlite", ""),
    "tls": ("perkey.store.backends.nats", "nats"),
    "valkey": ("perkey.store.backends.redis", "redis"),
    "valkeys": ("perkey.store.backends.redis", "redis"),
}
"""Scheme -> (module with ``open_backend(location, limits, clock)``, the extra it needs)."""


SHAPES = {"az": "az://account@container/prefix", "gs": "gs://bucket/prefix"}
SPELT = {
    "abfs": "az",
    "abfss": "az",
    "azure": "az",
    "gcs": "gs",
    "wasb": "az",
    "wasbs": "az",
}
"""Other names of a store, with the one it has here: a store has one spelling."""


def parse(url: str) -> Location:
    """Split ``url``; raises ``UsageError`` with what was expected."""
    if not isinstance(url, str) or "://" not in url:
        raise UsageError(
            "expected a store URL like sqlite:///work.db or memory://, "
            f"found {type(url).__name__ if not isinstance(url, str) else 'text without ://'}"
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"the store URL cannot be read: {error}") from None
    if parts.fragment:
        raise UsageError("a store URL has no #part; write %23 for a # in a path")
    return Location(
        url=url,
        scheme=parts.scheme,
        host=parts.hostname or "",
        port=port,
        user=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
        path=unquote(parts.path[1:]),
        options=dict(parse_qsl(parts.query, keep_blank_values=True)),
    )


def known(url: str) -> Location:
    """Split ``url``; raises ``UsageError`` where there is no such kind of store, too."""
    location = parse(url)
    if location.scheme in SPELT:
        raise UsageError(
            f"no store is called {location.scheme}://; say {SHAPES[SPELT[location.scheme]]}"
        )
    if location.scheme not in BACKENDS:
        raise UsageError(
            f"no store is called {location.scheme}://; known are "
            + ", ".join(f"{scheme}://" for scheme in sorted(BACKENDS))
        )
    return location


def open_backend(url: str, limits: Limits, clock: Clock) -> Backend:
    """Open and probe the backend that ``url`` names."""
    location = known(url)
    module, extra = BACKENDS[location.scheme]
    try:
        opener: Opener = importlib.import_module(module).open_backend
    except ModuleNotFoundError as error:
        if not extra or (error.name or "").startswith("perkey"):
            raise
        raise MissingExtra(
            f"{location.scheme}:// needs the package {error.name!r}; "
            f"install it with: pip install 'perkey[{extra}]'"
        ) from error
    return opener(location, limits, clock)
