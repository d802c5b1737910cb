"""Mutation testing of flows/, locks/ and engine/: ``make mutants MUTANTS_ARGS="--sample 60"``.

    python -m tools.mutants [--sample N] [--seed S] [--seconds T] [--only flows/merge.py,locks]

Changes one place of one module at a time (a comparison, a branch, a number, a call left out)
and runs the quick tests that execute it.  A mutant *survives* when they all pass.  The places are
drawn with a seed, or are all (``--sample 0``).  Survivors that were looked at are explained in
``tools/mutants.md``.  Each mutant is a forked process; the source on disk is never touched.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tools.mutating import ROOT, SRC, Finder, Mutant, mutants
from tools.trials import ANEW, KILLED, STUCK, SURVIVED, Trials, forked, pooled

ROOMS = {
    "flows": [
        "tests/unit/flows", "tests/unit/ledger", "tests/unit/once", "tests/unit/publishing",
        "tests/unit/store/test_hooks.py", "tests/unit/test_arguments.py",
        "tests/unit/test_board.py",
        "tests/unit/test_document_merging.py", "tests/unit/test_document_rules.py",
        "tests/unit/test_documents.py", "tests/unit/test_documents_model.py",
        "tests/unit/test_leases.py", "tests/unit/test_store_delete.py",
        "tests/unit/test_single_key.py",
        "tests/explore/test_board.py", "tests/explore/test_documents.py",
        "tests/explore/test_leases.py", "tests/explore/test_ledger.py",
        "tests/explore/test_once.py", "tests/explore/test_publisher.py",
    ],
    "locks": [
        "tests/unit/locks", "tests/unit/publishing", "tests/explore/test_locks.py",
        "tests/explore/test_lock_threads.py", "tests/races/test_reported_locks.py",
    ],
    "engine": [
        "tests/engine/test_boxes.py", "tests/engine/test_durable.py", "tests/engine/test_engine.py",
        "tests/engine/test_guarded.py", "tests/engine/test_instances.py",
        "tests/engine/test_looking.py", "tests/engine/test_messages.py",
        "tests/engine/test_neighbours.py", "tests/engine/test_redeploys.py",
        "tests/engine/test_threads.py", "tests/engine/test_tidying.py",
        "tests/explore/test_engine.py", "tests/explore/test_engines.py",
    ],
}  # fmt: skip
"""The quick tests of each room.  A test of one that takes long is left out by itself."""

OPTIONS = [
    "-q", "--capture=no", "--timeout=60", "-p", "no:cacheprovider",
    "-o", "tmp_path_retention_policy=none",
]  # fmt: skip

PLUGINS = ["pytest_asyncio.plugin", "pytest_timeout"]

Say = Callable[[dict[str, Any]], None]


def chosen(only: Sequence[str]) -> list[Mutant]:
    """All mutants of the rooms or modules named."""
    found = []
    for path in sorted((SRC / "perkey").glob("*/**/*.py")):
        module = path.relative_to(SRC / "perkey").as_posix()
        if module.partition("/")[0] in ROOMS and any(module.startswith(each) for each in only):
            found += mutants(module, path.read_text("utf-8"))
    return found


def tests_of(drawn: Iterable[Mutant]) -> list[str]:
    """The quick tests of the rooms of these mutants."""
    rooms = sorted({mutant.module.partition("/")[0] for mutant in drawn})
    return list(dict.fromkeys(test for room in rooms for test in ROOMS[room]))


def said(child: Callable[[Say], int]) -> Iterator[dict[str, Any]]:
    """What ``child`` says in a process of its own, as it says it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        code = 70
        try:
            log = open(writing, "w", encoding="utf-8")  # noqa: SIM115
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 1)
            code = child(lambda fact: print(json.dumps(fact), file=log, flush=True))
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 5):
        raise SystemExit(f"the session of the tests ended with {status}")


def imported(mutant: Mutant, tests: Sequence[str]) -> int:
    """Start the tests in a fork that imports the changed module."""

    def child() -> int:
        import pytest

        sys.meta_path.insert(0, Finder(mutant.name, mutant.code(), mutant.path))
        result = pytest.main(["-x", *OPTIONS, *tests], plugins=PLUGINS)
        return 0 if result == 0 else 1

    return forked(child, 60)


def tried(asked: argparse.Namespace, drawn: list[Mutant]) -> Iterator[tuple[Mutant, str]]:
    """Each mutant with its verdict.  This process never imports perkey, its children do."""
    which = {(mutant.module, mutant.number, mutant.kind): mutant for mutant in drawn}
    tests = asked.tests.split(",") if asked.tests else tests_of(drawn)
    end = time.monotonic() + asked.seconds

    def session(say: Say) -> int:
        import pytest

        in_time = (mutant for mutant in drawn if time.monotonic() < end)
        trials = Trials(in_time, say, asked.jobs, asked.each)
        plugins = [*PLUGINS, trials]
        return int(pytest.main([*OPTIONS, *tests], plugins=plugins))

    anew = []
    for fact in said(session):
        if "learnt" in fact:
            print(f"{fact['learnt']} tests looked at in {fact['seconds']:.0f} s; too slow or "
                  f"failing: {fact['left_out'] or 'none'}", flush=True)  # fmt: skip
            continue
        mutant = which[fact["module"], fact["number"], fact["kind"]]
        if fact["verdict"] == ANEW:
            anew.append((mutant, fact["tests"]))
        else:
            yield mutant, fact["verdict"]
    in_time = (each for each in anew if time.monotonic() < end)
    for (mutant, _), code in pooled(in_time, lambda each: imported(*each), asked.jobs):
        yield mutant, {0: SURVIVED, 1: KILLED}.get(code, STUCK)


def scores(verdicts: Sequence[tuple[Mutant, str]]) -> Iterator[str]:
    """A line for each module, and one for each room."""
    for name in (lambda m: m.module, lambda m: m.module.partition("/")[0] + "/ in all"):
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for mutant, verdict in verdicts:
            counts[name(mutant)][verdict] += 1
        for each, count in sorted(counts.items()):
            noticed = count[KILLED] + count[STUCK]
            yield (f"{each}: {noticed} of {count.total()} noticed, {noticed / count.total():.0%}"
                   f" ({count[STUCK]} of them hang)")  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Print one line a survivor, and the score of each module and room."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=120, help="how many; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no mutant after these")
    parser.add_argument("--only", default="flows,locks,engine")
    parser.add_argument("--tests", default="", help="test files in place of the rooms' own")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--each", type=int, default=20, help="processor seconds for one mutant")
    parser.add_argument("--verbose", action="store_true", help="a line for those noticed, too")
    asked = parser.parse_args(arguments)
    os.chdir(ROOT)
    sys.path[:0] = [str(SRC)]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import hypothesis  # noqa: F401  # what every child would import again
    import pytest_asyncio  # noqa: F401

    every = chosen(asked.only.split(","))
    drawn = random.Random(asked.seed).sample(every, min(asked.sample or len(every), len(every)))
    print(f"{len(every):,} mutants, {len(drawn):,} drawn with seed {asked.seed}", flush=True)
    verdicts = []
    for mutant, verdict in tried(asked, drawn):
        verdicts.append((mutant, verdict))
        if asked.verbose or verdict not in (KILLED, STUCK):
            print(f"{verdict:<9} {mutant}", flush=True)
    if len(verdicts) < len(drawn):
        print(f"the time was up: {len(drawn) - len(verdicts):,} were not tried")
    print(*scores(verdicts), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
