"""``GET /ui/events``: tells an open page when to look again, so that it need not ask all the time.

What it tells is only *that* something happened; the page then asks for itself, with all that
decides what its reader may see.  A page names what it shows: documents or runs under a prefix,
the charts' samples, or anything that this process commits, for what has no feed of its own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable

import msgspec
from starlette.responses import Response

from perkey.errors import PerkeyError
from perkey.server.calls import Call
from perkey.server.events import RETRY_MS, Stream, streamed
from perkey.server.refusals import BadRequest, Overloaded
from perkey.server.routes import Route
from perkey.store.keys import BOARDS, DOCUMENTS
from perkey.store.record import Page

SPACES = {"documents": DOCUMENTS, "runs": BOARDS}
SAMPLES, COMMITS = "samples", "commits"
KINDS = (*SPACES, SAMPLES, COMMITS)
GAP_S = 0.1
"""How long a page is told nothing more after it was told something, in seconds."""
_MOMENT = re.compile(r"[0-9]{1,18}")
CHANGED = b"event: changed\ndata: {}\n\n"


async def follow(call: Call) -> Response:
    """Tell the page of what it shows until it is left."""
    services = call.services
    wanted = frozenset(call.text("of").split(","))
    if not wanted <= {*KINDS}:
        raise BadRequest(f"expected ?of= {', '.join(KINDS)}, found {call.text('of')!r:.80}")
    if services.watching >= services.settings.page_streams:
        raise Overloaded(
            f"{services.watching} pages are told of changes and the limit is "
            f"{services.settings.page_streams}; this one has to ask"
        )
    services.watching += 1
    try:
        return await streamed(call, Following(call, wanted))
    finally:
        services.watching -= 1


class Following(Stream):
    """One open page."""

    def __init__(self, call: Call, wanted: frozenset[str]) -> None:
        super().__init__(call)
        self._begins = tuple(
            space + call.text("prefix") for name, space in SPACES.items() if name in wanted
        )
        self._wanted = wanted
        last = call.header("last-event-id") or ""
        self._sampled = int(last) if _MOMENT.fullmatch(last) else 0
        """The moment of the latest sample that the page has, in milliseconds."""
        self._committed = False

    async def texts(self, cursor: str, gone: asyncio.Future[None]) -> AsyncGenerator[bytes, None]:
        """``changed`` and ``samples``."""
        yield b"retry: %d\n\n" % RETRY_MS
        pulse, undo = self._call.services.pulse, self._mind_commits()
        pulse.wakers |= {self._waker} if SAMPLES in self._wanted else set()
        try:
            while not self._feed.stopping and not gone.done():
                self._waker.clear()
                try:
                    page = await self._feed.after(cursor)
                except PerkeyError:
                    return  # the store cannot be read: the page comes back
                cursor = page.cursor
                text = self._told(page)
                if text:
                    yield text
                    await asyncio.sleep(GAP_S)
                if page.live and not self._waker.is_set():
                    text = await self._patience()
                    if text:
                        yield text
        finally:
            undo()
            pulse.wakers.discard(self._waker)

    def _mind_commits(self) -> Callable[[], object]:
        """Be woken by each commit of this process, where the page wants that; the undo."""
        if COMMITS not in self._wanted:
            return lambda: None
        loop = asyncio.get_running_loop()

        def note() -> None:
            self._committed = True
            self._waker.set()

        def committed(_: None) -> None:
            if not self._committed:
                try:
                    loop.call_soon_threadsafe(note)
                except RuntimeError:  # that loop is closed, and the page with it
                    return

        return self._call.services.store.core.on_commit(self._waker, committed)

    def _told(self, page: Page) -> bytes:
        """The events for what has come."""
        text = b""
        if self._committed or page.gap or any(map(self._shows, (r.key for r in page.records))):
            self._committed = False
            text = CHANGED
        if SAMPLES in self._wanted:
            found = self._call.services.pulse.after(self._sampled)
            if found:
                self._sampled = found[-1].at
                data = msgspec.json.encode(found)
                text += b"event: samples\nid: %d\ndata: %b\n\n" % (self._sampled, data)
        return text

    def _shows(self, key: str) -> bool:
        """Whether the page shows that record, and its reader may know of it."""
        return key.startswith(self._begins) and self._call.caller.covers(key[2:])


ROUTES = [Route("GET", "/ui/events", follow, query=("of", "prefix"), page=True)]
