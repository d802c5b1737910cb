"""``kill -9`` of one of two engines on one store, at random points.

``PERKEY_ENGINE_ROUNDS=200`` makes it the long run.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import perkey
from perkey.engine import AsyncEngine, EngineLimits
from perkey.engine.records import Stored, stored_of
from perkey.flows import steps
from perkey.store.keys import ENGINE
from tests.engine import kill_worker

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = int(os.environ.get("PERKEY_ENGINE_ROUNDS", "3"))
LINES = kill_worker.JOBS * (kill_worker.STEPS + 1)
"""How many lines an engine prints if nobody kills it."""

Seen = dict[tuple[str, str], set[str]]


class Lines:
    """Where the surviving engine, which runs in this process, prints."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._line = ""

    def write(self, text: str) -> int:
        """A print comes in pieces; the last one ends the line."""
        self._line += text
        if text.endswith("\n"):
            note(self._seen, self._line.split())
            self._line = ""
        return len(text)

    def flush(self) -> None:
        pass


def note(seen: Seen, words: list[str]) -> None:
    if words and words[0] == "seen":
        seen.setdefault((words[1], words[2]), set()).add(words[3])


@contextmanager
def heard(seen: Seen) -> Iterator[None]:
    with redirect_stdout(Lines(seen)):  # type: ignore[type-var]
        yield


async def killed(url: str, name: str, after: int, seen: Seen) -> list[str]:
    """Run an engine and kill it after so many lines; the ids that it acknowledged."""
    victim = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.engine.kill_worker", url, name,
        stdout=asyncio.subprocess.PIPE, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )  # fmt: skip
    assert victim.stdout is not None
    acknowledged: list[str] = []
    count = 0
    while count < after and (line := await victim.stdout.readline()).endswith(b"\n"):
        count += 1
        words = line.decode().split()
        note(seen, words)
        if words[0] == "acknowledged":
            acknowledged.append(words[1])
    victim.kill()
    rest = await victim.stdout.read()  # what it had printed before, its last line perhaps cut
    for line in rest.split(b"\n")[:-1]:
        note(seen, line.decode().split())
    await victim.wait()
    return acknowledged


async def instances(store: perkey.AsyncStore) -> dict[str, Stored]:
    def scan() -> Any:
        after, found = "", []
        while page := (yield steps.Scan(f"{ENGINE}i/", after, 1000)):
            found += page
            after = page[-1].key
        return found

    records = [stored_of(each.body) for each in await store.run(scan())]
    return {each.id: each for each in records if each is not None}


async def all_ended(store: perkey.AsyncStore) -> dict[str, Stored]:
    async with asyncio.timeout(120):
        while True:
            found = await instances(store)
            if all(not each.running for each in found.values()):
                return found
            await asyncio.sleep(0.05)


@pytest.mark.timeout(max(300, 60 * ROUNDS))
async def test_kill_9_of_one_of_two_engines_loses_nothing(tmp_path: Path) -> None:
    """What was acknowledged ends, and no step has two results, whoever saw them."""
    url = f"sqlite:///{tmp_path}/e.db"
    seen: Seen = {}
    resumed = 0
    async with await perkey.aopen(url) as store:
        survivor = AsyncEngine(store, limits=EngineLimits(lease_s=15))
        await survivor.register_process(kill_worker.job)
        with heard(seen):
            await survivor.run()
            acknowledged: list[str] = []
            for number in range(ROUNDS):
                after = random.Random(number).randrange(2, LINES)
                dying = asyncio.create_task(killed(url, str(number), after, seen))
                own = [await survivor.start_latest("job") for _ in range(5)]
                acknowledged += [each.id for each in own] + await dying
                resumed += sum(each.running for each in (await instances(store)).values())
            found = await all_ended(store)
            await survivor.shutdown()
    assert len(acknowledged) > 5 * ROUNDS, "every one was killed before it had begun"
    assert set(acknowledged) <= set(found)
    for stored in found.values():
        assert stored.state == "completed", stored.error
        assert stored.result == [stored.results[f"s{n}"] for n in range(kill_worker.STEPS)]
    doubled = {where: values for where, values in seen.items() if len(values) > 1}
    assert doubled == {}
    assert {where[0] for where in seen} == set(found)
    print(f"{ROUNDS} kills, {len(found):,} instances, {len(seen):,} steps, {resumed} cut off")
