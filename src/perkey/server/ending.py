"""What a server's end came to: how long it took, what it waited for, and what it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from perkey.server.app import Application


class Ending(msgspec.Struct, frozen=True):
    """Counted when a server is told to stop, and once more when it has."""

    seconds: float
    """From the one to the other."""
    finished: int = 0
    """Requests that were being worked on and were answered."""
    cut: int = 0
    """Requests that took longer than ``Settings.stop_s``, or that a second signal cut off."""
    claims: int = 0
    """Claims that waited for a task and were told to ask elsewhere."""
    streams: int = 0
    """Event streams that were ended; their clients come back."""
    pages: int = 0
    """Open pages that are told nothing more."""

    def as_json(self) -> dict[str, Any]:
        """All of it, whatever is none too."""
        return {**msgspec.structs.asdict(self), "seconds": round(self.seconds, 3)}

    def __str__(self) -> str:
        parts = [
            (self.finished, "request finished", "requests finished"),
            (self.cut, "request cut off", "requests cut off"),
            (self.claims, "waiting claim sent away", "waiting claims sent away"),
            (self.streams, "event stream ended", "event streams ended"),
            (self.pages, "open page let go", "open pages let go"),
        ]
        told = [f"{count} {one if count == 1 else many}" for count, one, many in parts if count]
        return f"stopped in {self.seconds:.1f} s: {', '.join(told) or 'nothing was running'}"


class Watch:
    """Takes the counts; one for the life of a server."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._began: float | None = None
        self._requests = self._streams = self._pages = 0

    def begin(self) -> None:
        """The server was told to stop; only the first time counts."""
        services = self._app.services
        if self._began is None:
            self._began = services.clock.monotonic()
            self._requests = self._app.running
            self._streams = services.feed.streams - services.watching
            self._pages = services.watching

    def end(self) -> Ending | None:
        """It has stopped; None where nobody told it to."""
        if self._began is None:
            return None
        cut, claims = self._app.cut, self._app.services.sent_away
        return Ending(
            seconds=self._app.services.clock.monotonic() - self._began,
            finished=max(0, self._requests - claims - cut),
            cut=cut,
            claims=claims,
            streams=self._streams,
            pages=self._pages,
        )
