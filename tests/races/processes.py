"""Real processes that a test talks to, line by line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 600

# Many processes on one key may lose for long where each of them is slow: no failure either.
PRELUDE = """
import functools
import sys
import perkey
from perkey import *
perkey.open = functools.partial(perkey.open, limits=perkey.Limits(timeout_s=600))
url, *arguments = sys.argv[1:]

def say(*words):
    print(*words, flush=True)

def hear():
    return sys.stdin.readline().strip()
"""


class Process:
    """A Python process that runs ``code``; in it ``say`` and ``hear`` talk to the test."""

    def __init__(self, code: str, url: str, *arguments: object) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code, url, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "error"},
        )

    def hear(self) -> str:
        """The next line that the process said; "" when it has ended."""
        assert self._child.stdout is not None
        return self._child.stdout.readline().strip()

    def say(self, line: str = "") -> None:
        """Send the process a line."""
        assert self._child.stdin is not None
        self._child.stdin.write(f"{line}\n")
        self._child.stdin.flush()

    def signal(self, number: int) -> None:
        """Send a signal: stop, continue, kill."""
        self._child.send_signal(number)

    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._child.poll() is None

    def end(self) -> int:
        """Wait for the end and return the exit status."""
        return self._child.wait(PATIENCE_S)

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()


def finished(processes: Sequence[Process]) -> None:
    """Wait for all; each must have ended well."""
    assert [process.end() for process in processes] == [0] * len(processes)
