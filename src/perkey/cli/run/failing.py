"""Where in the user's file an exception came from, and how a failure is shown."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from perkey.cli import output
from perkey.engine import AsyncEngine, Definition, Registration
from perkey.errors import LeaseLost

HINT = "--traceback shows every line that led there"


class Failure(NamedTuple):
    """An exception that left the user's code."""

    code: str
    """``main-failed`` or ``process-failed``."""
    what: str
    """Whose it is: ``main()``, ``order k3xz2-01``."""
    error: BaseException
    path: Path
    """The user's file."""

    def report(self, *, as_json: bool, whole: bool) -> None:
        """Say it on standard error, with the traceback if the ``whole`` of it is wanted."""
        place = innermost(self.error, self.path)
        at = f" ({place.filename}:{place.lineno} in {place.name})" if place else ""
        message = f"{self.what} failed: {type(self.error).__name__}: {self.error}{at}"
        trace = "".join(traceback.format_exception(self.error)) if whole else ""
        if as_json:
            details: dict[str, Any] = {"error": type(self.error).__name__}
            if place:
                details |= {"file": place.filename, "line": place.lineno, "in": place.name}
            if trace:
                details["traceback"] = trace
            facts = {"code": self.code, "message": message, "hint": "" if whole else HINT}
            output.error_as_json({**facts, "details": details})
            return
        output.complain(message, "" if whole else HINT)
        for line in trace.splitlines():
            output.remark(line)


def innermost(error: BaseException, path: Path) -> traceback.FrameSummary | None:
    """The innermost line of the user's file that the exception went through."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((each for each in reversed(frames) if each.filename == str(path)), None)


class Watched(AsyncEngine):
    """An engine that tells which exception a process failed with, not only its words."""

    failed: Callable[[str, Exception], None]
    """Called with the instance and the exception, on the thread where it was raised."""

    async def register_process(
        self, definition: Definition, *, manual: bool = False, dedupe: bool = False
    ) -> Registration:
        """Like ``AsyncEngine.register_process``; the digest stays the user's own."""
        return await super().register_process(
            self._watched(definition), manual=manual, dedupe=dedupe
        )

    def _watched(self, definition: Definition) -> Definition:
        async def on_loop(context: Any) -> Any:
            with self._telling(f"{definition.key} {context.id[-8:]}"):
                return await definition.body(context)

        def on_thread(context: Any) -> Any:
            with self._telling(f"{definition.key} {context.id[-8:]}"):
                return definition.body(context)

        return replace(definition, body=on_loop if definition.on_loop else on_thread)

    @contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        try:
            yield
        except LeaseLost:
            raise  # another engine goes on with it
        except Exception as error:
            self.failed(what, error)
            raise
