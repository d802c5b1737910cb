"""A token that says who asks: fetched when it is needed, and again before it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from perkey.clock import Clock
from perkey.store.backends.port import NothingDone

EARLY_MS = 240_000
"""How long before its end a token is fetched anew; the vendors give out the old one until then."""


class Token(NamedTuple):
    """What a request carries.  Not for people's eyes."""

    text: str
    ends_ms: int
    """By the clock of whoever fetched it."""

    def __repr__(self) -> str:
        return "Token(...)"


class Bearer:
    """May be shared by connections in several threads."""

    def __init__(self, fetch: Callable[[], Token], clock: Clock, advice: str = "") -> None:
        """``advice`` stands at the end of the error where no token can be had."""
        self._fetch = fetch
        self._advice = f"; {advice}" if advice else ""
        self._clock = clock
        self._lock = threading.Lock()
        self._token: Token | None = None

    def now(self) -> str:
        """The token to ask with now.  ``NothingDone`` where none can be had: nothing was sent."""
        with self._lock:
            token, now = self._token, self._clock.now_ms()
            if token is not None and now < token.ends_ms - EARLY_MS:
                return token.text
            try:
                self._token = self._fetch()
            except Exception as error:
                if token is not None and now < token.ends_ms:
                    return token.text
                if isinstance(error, NothingDone):
                    raise
                # Its words may quote what was sent, and that is a secret.
                raise NothingDone(
                    f"no token could be had with the credentials found: {type(error).__name__}"
                    f"{self._advice}"
                ) from None
            return self._token.text


class Fixed:
    """A token that was given, for as long as it lasts."""

    def __init__(self, text: str) -> None:
        self._text = text

    def now(self) -> str:
        """The token."""
        return self._text
