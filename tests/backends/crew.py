"""Several processes at once, ended whatever happens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from tests.races.processes import Process


@contextmanager
def crew(code: str, url: str, arguments: Sequence[Sequence[object]]) -> Iterator[list[Process]]:
    """One process for each tuple of arguments, all of them ready and let go together."""
    with ExitStack() as stack:
        members = [stack.enter_context(Process(code, url, *each)) for each in arguments]
        for member in members:
            assert member.hear() == "ready"
        for member in members:
            member.say("go")
        yield members
