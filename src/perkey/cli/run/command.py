"""``perkey run``: load definitions from a Python file and run an engine until it is stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

import perkey
from perkey.cli import exits, output
from perkey.cli.options import Json, StoreUrl
from perkey.cli.run import view
from perkey.cli.run.failing import Failure, Watched
from perkey.cli.run.load import Loaded, load, loaded_from, source_of
from perkey.engine import AsyncEngine
from perkey.errors import NotSupported, StillRunning, UsageError

app = App(name="run", help_format="plaintext")

REDRAW_S = 0.2
PATIENCE_S = 1.0
"""How long tasks that were cancelled are waited for at the very end, in seconds."""
FACTS = 100_000
"""How many facts may wait to be printed; more are counted, not shown."""


@app.default
def run(
    path: Annotated[
        Path, Parameter(name="FILE", help="A Python file with @process(...) definitions.")
    ],
    /,
    *,
    store: StoreUrl = "memory://",
    name: Annotated[str, Parameter(metavar="NAME", help="The engine's name in the store.")] = "run",
    until_idle: Annotated[
        bool, Parameter(negative="", help="Stop when main() is done and nothing runs.")
    ] = False,
    reload: Annotated[
        bool, Parameter(negative="", help="Deploy the file again whenever it changes.")
    ] = False,
    drain: Annotated[
        float,
        Parameter(
            metavar="S", help="Seconds in which instances may finish before they are cancelled."
        ),
    ] = 0.0,
    traceback: Annotated[
        bool, Parameter(negative="", help="Print the whole traceback of what fails.")
    ] = False,
    json: Json = False,
) -> int:
    """Run an engine with the processes of a Python file, until Ctrl-C or SIGTERM.

    Every definition in the file is registered; if the file has `async def main(engine)`, it
    runs beside the engine and may start, publish and deploy.  At a terminal a table shows
    versions, instances, steps and waits; elsewhere each fact is a line, with --json an object.

    The first Ctrl-C or SIGTERM stops the engine: nothing new starts, and what runs is
    cancelled, after --drain seconds in which it may finish.  On a durable --store, what is cut
    off goes on with the next engine.  A second one does not wait any longer.

    An exception in a process or in main() is told with the line of the file that raised it.

    Exit codes: 0 stopped or idle, 1 main() failed, 2 the file cannot be used, 3 the store
    cannot be used, 4 instances did not stop in time, 130 stopped by a second Ctrl-C.

    For example:

        perkey run examples/orders.py
        perkey run orders.py --store sqlite:///orders.db --reload --drain 10
        perkey run orders.py --until-idle --json
    """
    if not 0 <= drain < float("inf"):
        raise UsageError(f"expected --drain of 0 seconds or more, found {drain}")
    loaded = load(path)
    running = _Run(path, loaded, json, until_idle, reload, drain, traceback)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    code = loop.run_until_complete(running.run(store, name))
    _leave(loop, code)
    return code


def _leave(loop: asyncio.AbstractEventLoop, code: int) -> None:
    """Close the loop; end the process right here if something on it cannot be stopped."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        _, left = loop.run_until_complete(asyncio.wait(left, timeout=PATIENCE_S))
    if left or code in (exits.BUSY, exits.INTERRUPTED):
        # A body that swallows its cancellation, or blocks its thread, would be waited for.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    loop.run_until_complete(loop.shutdown_asyncgens())
    asyncio.set_event_loop(None)
    loop.close()


class _Run:
    """One run of the command."""

    def __init__(
        self,
        path: Path,
        loaded: Loaded,
        as_json: bool,
        until_idle: bool,
        again: bool,
        drain: float,
        whole: bool,
    ) -> None:
        self._path = path
        self._loaded = loaded
        self._json = as_json
        self._until_idle = until_idle
        self._again = again
        self._drain = drain
        self._whole = whole
        self._stop = asyncio.Event()
        self._asked = 0

    async def run(self, url: str, name: str) -> int:
        """Open the store, run the engine, stop it; the exit code."""
        try:
            with self._signals():
                return await self._run(url, name)
        except asyncio.CancelledError:
            return exits.INTERRUPTED

    async def _run(self, url: str, name: str) -> int:
        async with await perkey.aopen(url) as store:
            engine = Watched(store, name=name)
            shown = view.chosen(engine, self._json)
            engine.failed = lambda what, error: shown.failed(
                lambda: self._failed("process-failed", what, error)
            )
            facts = engine.observe(shown.fact, limit=FACTS)
            with shown:
                code = await self._life(engine, shown)
                await facts.flush()
            said = view.summary(engine, facts.dropped)
        if self._json:
            output.as_json({"summary": said}, pretty=False)
        else:
            counted = ", ".join(f"{n} {state}" for state, n in said["instances"].items() if n)
            output.say()
            output.say(f"in all: {counted or 'no instances'}")
        return code

    async def _life(self, engine: AsyncEngine, shown: view.Lines) -> int:
        for definition in self._loaded.definitions:
            await engine.register_process(definition)
        await engine.run()
        beside = [asyncio.create_task(self._redraw(shown))]
        if self._again:
            beside.append(asyncio.create_task(self._redeploy(engine)))
        main = asyncio.create_task(self._main(engine))
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({main, stopped}, return_when=asyncio.FIRST_COMPLETED)
            failed = main.done() and not main.cancelled() and main.exception()
            if not failed and not self._until_idle:
                await stopped
            left = await self._end(engine, main, bool(failed))
        finally:
            for task in (*beside, main, stopped):
                task.cancel()
            await asyncio.gather(*beside, main, stopped, return_exceptions=True)
        if isinstance(failed, BaseException):
            shown.failed(lambda: self._failed("main-failed", "main()", failed))
            return exits.REFUSED
        return left

    def _failed(self, code: str, what: str, error: BaseException) -> None:
        failure = Failure(code, what, error, self._path)
        failure.report(as_json=self._json, whole=self._whole)

    async def _main(self, engine: AsyncEngine) -> None:
        if self._loaded.main is not None:
            await self._loaded.main(engine)

    async def _end(self, engine: AsyncEngine, main: asyncio.Task[None], failed: bool) -> int:
        """Let instances finish, as long as was asked for, then stop; the exit code."""
        if not self._stop.is_set() and not failed:  # --until-idle, and main() is done
            idle = asyncio.create_task(_idle(engine))
            stopped = asyncio.create_task(self._stop.wait())
            await asyncio.wait({idle, stopped}, return_when=asyncio.FIRST_COMPLETED)
            idle.cancel()
            stopped.cancel()
        main.cancel()
        try:
            if self._drain and not failed:
                await engine.drain(self._drain)
            else:
                await engine.shutdown()
        except StillRunning:
            pass  # now they are cancelled
        try:
            await engine.shutdown()
        except StillRunning as left:
            output.complain(f"{left.message}: {', '.join(left.ids[:8])}")
            return exits.BUSY
        return exits.DONE

    async def _redraw(self, shown: view.Lines) -> None:
        while True:
            shown.refresh()
            await asyncio.sleep(REDRAW_S)

    async def _redeploy(self, engine: AsyncEngine) -> None:
        """Register what the file says now whenever it has changed; a bad one changes nothing.

        Its bytes are compared, not its time: a file that was written before the first look, or
        twice within one tick of the file system's clock, has changed all the same.
        """
        seen = self._loaded.source
        while True:
            await asyncio.sleep(REDRAW_S)
            try:
                now = source_of(self._path)
                if now == seen:
                    continue
                seen = now
                for definition in loaded_from(self._path, now).definitions:
                    await engine.register_process(definition, dedupe=True)
            except perkey.PerkeyError as error:
                output.complain(f"not deployed: {error}")

    # ---------------------------------------------------------------------------- signals

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first Ctrl-C or SIGTERM stops the engine, a second one stops waiting for it."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None

        def asked() -> None:
            self._asked += 1
            self._stop.set()
            if self._asked > 1:
                task.cancel()

        for each in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(each, asked)
            except (ValueError, RuntimeError):
                raise NotSupported("perkey run needs a main thread and POSIX signals") from None
        try:
            yield
        finally:
            for each in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(each)


async def _idle(engine: AsyncEngine) -> None:
    """Return when nothing runs."""
    while any(not each.state.ended for each in engine.instances()):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
