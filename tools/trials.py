"""Forks of one collected pytest session: which test runs which line, and which notices a change.

A session is collected once.  Each test is run alone in a fork, with a trace, to learn the lines it
executes and the processor time it takes.  Then each mutant is a fork in which the functions that
are loaded are changed, and the tests that execute the changed statement run, quickest first,
until one fails.
"""

from __future__ import annotations

import _thread
import contextlib
import json
import os
import resource
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tools.mutating import SRC, Mutant, put_in

KILLED, SURVIVED, STUCK, UNSEEN = "killed", "SURVIVED", "hangs", "NOT RUN"
"""Noticed by a test; by none; a test never ended; no test executes the statement."""

ANEW = "at import"
"""Not a verdict: this one has to be imported changed, in a new process."""

ALONE = 8
"""Seconds of processor time, traced, that one test may take to be among the quick ones."""

STILL = 10.0
"""Seconds without any use of the processor after which a fork is taken to hang."""

Job = TypeVar("Job")


def forked(child: Callable[[], int], cpu: int) -> int:
    """Start ``child`` in a process of its own group, with ``cpu`` seconds of processor time."""
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        return pid
    code = 70
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        code = child()
    finally:
        os._exit(code)


class Waiting:
    """A fork that runs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._used, self._since = "", time.monotonic()

    def ended(self) -> int | None:
        """Its exit code; negative if it was killed, as it is when it stood still for long."""
        done, status = os.waitpid(self.pid, os.WNOHANG)
        if not done and self._still():
            os.killpg(self.pid, signal.SIGKILL)
            done, status = os.waitpid(self.pid, 0)
        if not done:
            return None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(status)

    def _still(self) -> bool:
        """No thread of it used the processor, or wanted to, for a long time."""
        states, used = set(), ""
        for task in Path(f"/proc/{self.pid}/task").glob("*/stat"):
            with contextlib.suppress(OSError):
                fields = task.read_text("utf-8").rpartition(")")[2].split()
                states.add(fields[0])
                used += " ".join(fields[11:13])
        if "R" in states or used != self._used:
            self._used, self._since = used, time.monotonic()
        return time.monotonic() - self._since > STILL


def pooled(
    jobs: Iterable[Job], start: Callable[[Job], int], parallel: int
) -> Iterator[tuple[Job, int]]:
    """Each job with the exit code of its fork, ``parallel`` of them at a time."""
    rest, running = iter(jobs), dict[int, tuple[Job, Waiting]]()
    more = True
    while more or running:
        while more and len(running) < parallel:
            try:
                job = next(rest)
            except StopIteration:
                more = False
                break
            pid = start(job)
            running[pid] = (job, Waiting(pid))
        for pid, (job, waiting) in list(running.items()):
            code = waiting.ended()
            if code is not None:
                del running[pid]
                yield job, code
        time.sleep(0.05)


class Trials:
    """A pytest plugin that runs mutants instead of the tests."""

    def __init__(
        self, mutants: Iterable[Mutant], say: Callable[[dict[str, Any]], None], jobs: int, each: int
    ) -> None:
        """``say`` gets a dict for each mutant; ``each`` is its share of processor seconds."""
        self._mutants, self._say, self._jobs, self._each = mutants, say, jobs, each
        self._failed = False
        self._took: dict[int, float] = {}
        self._covers: dict[tuple[str, int], set[int]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = session.items
        for item in session.items:
            _fewer_examples(item)
        self._learn()
        for (mutant, tests), code in pooled(self._planned(), self._start, self._jobs):
            verdict = {0: SURVIVED, 1: KILLED, 2: ANEW}.get(code, STUCK)
            names = [self._items[n].nodeid for n in tests] if verdict == ANEW else []
            self._tell(mutant, verdict, tests=names, ran=len(tests))
        return True

    def _tell(self, mutant: Mutant, verdict: str, **more: Any) -> None:
        self._say({"module": mutant.module, "number": mutant.number, "kind": mutant.kind,
                   "verdict": verdict, **more})  # fmt: skip

    # -------------------------------------------------------- which test runs which line

    def _learn(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            jobs = [(n, Path(folder, str(n))) for n in range(len(self._items))]
            start = time.monotonic()
            left_out = []
            for (n, path), code in pooled(jobs, self._look, self._jobs):
                if code == 0:
                    self._add(n, json.loads(path.read_text("utf-8")))
                else:
                    left_out.append(self._items[n].nodeid)
        self._say({"learnt": len(self._took), "seconds": time.monotonic() - start,
                   "left_out": left_out})  # fmt: skip

    def _look(self, job: tuple[int, Path]) -> int:
        number, path = job

        def child() -> int:
            lines = Lines()
            start = time.process_time()
            with lines:
                passed = self._passes([number])
            took = time.process_time() - start
            path.write_text(json.dumps({"took": took, "lines": lines.found}), "utf-8")
            return 0 if passed else 1

        return forked(child, ALONE)

    def _add(self, number: int, seen: dict[str, Any]) -> None:
        self._took[number] = seen["took"]
        for file, lines in seen["lines"].items():
            for line in lines:
                self._covers[file, line].add(number)

    # -------------------------------------------------------- which mutant is noticed

    def _planned(self) -> Iterator[tuple[Mutant, list[int]]]:
        """Each mutant with its tests, quickest first; one without is told of at once."""
        for mutant in self._mutants:
            tests = self._tests(mutant)
            if tests:
                yield mutant, tests
            else:
                self._tell(mutant, UNSEEN, tests=[], ran=0)

    def _tests(self, mutant: Mutant) -> list[int]:
        first, last = mutant.lines
        file = str(mutant.path)
        found = set().union(*(self._covers[file, line] for line in range(first, last + 1)))
        if not found:  # what runs at import is seen by all who use the module
            found = set().union(*(who for (each, _), who in self._covers.items() if each == file))
            if not _at_import(mutant):
                return []
        chosen, spent = [], 0.0
        for number in sorted(found, key=lambda n: self._took[n]):
            spent += self._took[number]
            if chosen and spent > self._each:
                break
            chosen.append(number)
        return chosen

    def _start(self, job: tuple[Mutant, list[int]]) -> int:
        mutant, tests = job

        def child() -> int:
            if not put_in(mutant):
                return 2
            return 0 if self._passes(tests) else 1

        return forked(child, 10 + int(3 * sum(self._took[n] for n in tests)))

    def _passes(self, numbers: Sequence[int]) -> bool:
        items = [self._items[n] for n in numbers]
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                return False
        return True


def _at_import(mutant: Mutant) -> bool:
    """The statement is in no function, or is the head of one."""
    code = compile(mutant.path.read_text("utf-8"), str(mutant.path), "exec")
    todo, inside = [code], False
    while todo:
        each = todo.pop()
        if each.co_flags & 0x2:  # a function's, with fast locals; a class body has none
            lines = {line for _, _, line in each.co_lines() if line} - {each.co_firstlineno}
            inside = inside or bool(lines & set(range(mutant.lines[0], mutant.lines[1] + 1)))
        todo += [const for const in each.co_consts if hasattr(const, "co_lines")]
    return not inside


def _fewer_examples(item: pytest.Item) -> None:
    """Drawn examples are few, the same each time, and not made smaller."""
    from hypothesis import Phase, settings

    test = getattr(item, "obj", None)
    test = getattr(test, "__func__", test)
    old = getattr(test, "_hypothesis_internal_use_settings", None)
    if old is not None:
        test._hypothesis_internal_use_settings = settings(
            old, max_examples=min(old.max_examples, 30), derandomize=True, database=None,
            phases=(Phase.explicit, Phase.generate),
        )  # fmt: skip


class Lines:
    """The lines of perkey that run meanwhile, in any thread, by file."""

    def __init__(self) -> None:
        self._lines: dict[str, set[int]] = defaultdict(set)
        self._start_thread = _thread.start_new_thread

    @property
    def found(self) -> dict[str, list[int]]:
        return {file: sorted(lines) for file, lines in self._lines.items()}

    def __enter__(self) -> Lines:
        _thread.start_new_thread = self._started  # type: ignore[assignment]
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(None)

    def _started(self, call: Callable[..., Any], args: Any = (), kwargs: Any = None) -> int:
        def run() -> None:
            sys.settrace(self._trace)
            call(*args, **(kwargs or {}))

        return self._start_thread(run, ())

    def _trace(self, frame: Any, event: str, arg: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(ROOMS):
            return None
        lines = self._lines[file]

        def local(frame: Any, event: str, arg: Any) -> Any:
            lines.add(frame.f_lineno)
            return local

        lines.add(frame.f_lineno)
        return local


ROOMS = tuple(f"{SRC}/perkey/{room}/" for room in ("flows", "locks", "engine"))
