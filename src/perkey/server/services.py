"""What the handlers of one server share: the open store and the faces on it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import cached_property

from perkey.clock import Clock
from perkey.flows.documents import Book
from perkey.ledger import AsyncLedger
from perkey.locks import KeyedLocks, Sections
from perkey.server.feed import Feed
from perkey.server.hosting import Hosted
from perkey.server.identity import Tokens
from perkey.server.metrics import Meters
from perkey.server.pulse import Pulse
from perkey.server.routes import Route
from perkey.server.settings import Settings
from perkey.stores import AsyncStore


class Services:
    """One of each for the life of a server."""

    def __init__(self, store: AsyncStore, settings: Settings, clock: Clock) -> None:
        self.store = store
        self.settings = settings
        self.clock = clock
        self.tokens = Tokens(settings.tokens, clock)
        self.book = Book(store.limits)
        self.feed = Feed(store)
        self.meters = Meters()
        self.pulse = Pulse(store, self.feed, self.meters, clock)
        self.hosted: Hosted | None = None
        """The engine that this server runs, if it runs one."""
        self.locks: Mapping[str, Sections | KeyedLocks] = {}
        """In-process locks that the application wants to see on the page, by a name of its own."""
        self.watching = 0
        """How many pages are open that are told of what happens."""
        self.claiming = 0
        """How many claims wait for a task."""
        self.sent_away = 0
        """How many of them were told to ask another server, when this one stopped."""
        self.stopping = asyncio.Event()
        """Set when the server was told to stop: nobody waits for anything any more."""
        self.routes: Sequence[Route] = ()
        """Every route, for the description of them."""
        self.ready = False
        """From when the server has started until it is told to stop."""

    @cached_property
    def ledger(self) -> AsyncLedger:
        """The one ledger of all requests: transfers that arrive together share a transaction.

        ``NotSupported`` where the store commits too few keys at once.
        """
        return AsyncLedger(self.store)
