"""A small process that outlives a killed test run and stops the servers it left behind.

The test process holds the write end of a pipe and writes ``+PID DIR`` and ``-PID DIR``
lines into it.  However the test process ends, the pipe closes; the guard then kills every
process tree still listed and removes its directory.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import psutil

_lock = threading.Lock()
_guard: subprocess.Popen[str] | None = None


def watch(pid: int, directory: Path) -> None:
    """Kill ``pid`` and remove ``directory`` when this process ends without ``unwatch``."""
    _tell(f"+{pid} {directory}\n")


def unwatch(pid: int, directory: Path) -> None:
    """The server was stopped in the ordinary way."""
    _tell(f"-{pid} {directory}\n")


def kill_tree(pid: int) -> None:
    """SIGKILL a process and its descendants; a process that is gone is no error."""
    for process in tree(pid):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass


def tree(pid: int) -> list[psutil.Process]:
    """The process and its descendants, the parent first; empty when it is gone."""
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _tell(line: str) -> None:
    global _guard
    with _lock:
        if _guard is None or _guard.poll() is not None:
            # A new session, so that Ctrl-C and a killed process group spare the guard.
            _guard = subprocess.Popen(
                [sys.executable, "-u", __file__],
                stdin=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            atexit.register(_end, _guard, os.getpid())
        assert _guard.stdin is not None
        _guard.stdin.write(line)
        _guard.stdin.flush()


def _end(guard: subprocess.Popen[str], owner: int) -> None:
    """This process ends as it should; a child that it forked has no guard of its own to end."""
    if os.getpid() == owner:
        assert guard.stdin is not None
        guard.stdin.close()
        guard.wait(60)


def _main() -> None:
    alive: dict[int, str] = {}
    for line in sys.stdin:
        pid, directory = line[1:].rstrip("\n").split(" ", 1)
        if line[0] == "+":
            alive[int(pid)] = directory
        else:
            alive.pop(int(pid), None)
    for pid, directory in alive.items():
        kill_tree(pid)
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    _main()
