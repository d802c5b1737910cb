"""What stands at a store's URL before anything is opened, made or migrated there."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from perkey.clock import Clock
from perkey.errors import StoreUnavailable
from perkey.store.limits import Limits
from perkey.store.url import BACKENDS, Location, parse


@dataclass(frozen=True, slots=True)
class Found:
    """What a look from outside shows.  Nothing was changed by it."""

    exists: bool
    makes: str
    """What opening would make where nothing is there, in words: ``"the file /a/b.db"``."""
    schema: int = 1
    """How many steps the schema has taken; 0 where nothing is there."""
    known: int = 1
    """How many steps this perkey knows."""

    @property
    def steps(self) -> int:
        """How many steps opening would take."""
        return self.known - self.schema if self.exists else self.known


Examine = Callable[[Location, Limits, Clock], Found]


def examine(url: str, limits: Limits, clock: Clock) -> Found | None:
    """What is at ``url``; None for a store that has nothing to make and no schema.

    Raises ``StoreUnavailable`` where it cannot be reached, and what opening it would raise
    where something else is there.
    """
    location = parse(url)
    module, _ = BACKENDS.get(location.scheme, ("", ""))
    if not module:
        return None
    try:
        look: Examine | None = getattr(importlib.import_module(module), "examine", None)
    except ModuleNotFoundError:
        return None  # opening says what to install
    return None if look is None else look(location, limits, clock)


def must_exist(url: str, limits: Limits, clock: Clock) -> None:
    """Raise ``StoreUnavailable`` where opening ``url`` would make a new, empty store."""
    found = examine(url, limits, clock)
    if found is not None and not found.exists:
        raise StoreUnavailable(
            f"there is no store at {parse(url)}: opening it would make {found.makes}; "
            "check the spelling"
        )


def place(url: str) -> str:
    """Where a store is, without credentials: what tells two stores apart for people."""
    location = parse(url)
    name = location.options.get("name")
    return f"{location}?name={name}" if name else str(location)
