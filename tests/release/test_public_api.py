"""The public interface is pinned: what is removed or changed is seen in ``public_api.txt``."""

from __future__ import annotations

import difflib
from pathlib import Path

from tests.release import public_api

PINNED = Path(__file__).with_name("public_api.txt")

ADVICE = """
{diff}

The public interface is not what tests/release/public_api.txt says.  What was removed or changed
breaks somebody: see docs/policy.md.  If it is meant, say so in CHANGELOG.md and write it down:

    python -m tests.release.public_api > tests/release/public_api.txt
"""


def broken(pinned: list[str], found: list[str]) -> str:
    """The pinned lines that are no more, beside what is there instead; empty if none."""
    if set(pinned) <= set(found):
        return ""
    return "\n".join(difflib.unified_diff(pinned, found, "pinned", "found", n=0, lineterm=""))


def test_nothing_public_was_removed_or_changed() -> None:
    diff = broken(PINNED.read_text("utf-8").splitlines(), public_api.lines())
    assert not diff, ADVICE.format(diff=diff)


def test_every_public_name_is_pinned_or_new() -> None:
    """An addition breaks nobody; the release check (tools/release.py) asks for it to be pinned."""
    names = {line.split("(")[0] for line in public_api.lines()}
    pinned = {line.split("(")[0] for line in PINNED.read_text("utf-8").splitlines()}
    print(f"not pinned yet: {sorted(names - pinned)}")
    assert len(pinned) > 400
    assert {"class perkey.Store", "def perkey.open", "def perkey.testing.explore"} <= pinned


def test_a_change_is_told_from_an_addition() -> None:
    pinned = ["def perkey.a(x: int) -> None", "def perkey.b()"]
    assert broken(pinned, [*pinned, "def perkey.c()"]) == ""
    diff = broken(pinned, ["def perkey.a(x: str) -> None", "def perkey.b()"])
    assert "-def perkey.a(x: int) -> None\n+def perkey.a(x: str) -> None" in diff
    assert "-def perkey.b()" in broken(pinned, pinned[:1])


class Sample:
    """What the lines are made from."""

    def __init__(self, by: str = "", marker: object = object()) -> None: ...
    async def wait(self, seconds: float = 1.0) -> None: ...
    @property
    def size(self) -> int:
        return 0

    @classmethod
    def made(cls) -> Sample:
        return cls()


def test_lines_say_what_a_caller_sees_and_nothing_that_varies() -> None:
    def lines(kind: type) -> list[str]:
        kind.__module__ = "perkey.sample"
        return sorted(public_api.described("perkey.Sample", kind))

    assert lines(Sample) == [
        "async def perkey.Sample.wait(self, seconds: float = 1.0) -> None",
        "class perkey.Sample()(by: str = '', marker: object = <object object>)",
        "classmethod perkey.Sample.made(cls) -> Sample",
        "property perkey.Sample.size",
    ]
