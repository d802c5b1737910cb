"""Checked JSON against bare msgspec, and the cost of a merge: ``python -m benchmarks.codec``.

Each document has about 4 KB.  Bare is encode plus decode, with no check at all.
"""

from __future__ import annotations

from typing import Any

import msgspec

from benchmarks.pairs import compare, rate, show
from benchmarks.records import record
from perkey.flows.diff import diff
from perkey.flows.merge import merge
from perkey.store import codec

COUNT = 2_000

TASKS = {
    "title": "report é",
    "tasks": [
        {"id": at, "name": f"task {at}", "done": bool(at % 2), "score": at / 7, "tags": ["a", "b"]}
        for at in range(48)
    ],
}
DOCUMENTS: dict[str, Any] = {
    "tasks: dicts in a list": TASKS,
    "prose: long texts": {f"s{at}": "lorem ipsum dolor " * 20 for at in range(11)},
    "rows: 160 small dicts": {"rows": [{"a": at, "b": "x" * 8} for at in range(160)]},
}


def checked(value: Any) -> Any:
    def use(count: int) -> None:
        for _ in range(count):
            codec.encode(value)

    return use


def bare(value: Any) -> Any:
    encode, decode = msgspec.json.encode, msgspec.json.decode

    def use(count: int) -> None:
        for _ in range(count):
            decode(encode(value))

    return use


def merged(base: Any, ours: Any, theirs: Any) -> Any:
    def use(count: int) -> None:
        for _ in range(count):
            assert not merge(base, ours, theirs).overlaps
            diff(base, ours)

    return use


def main() -> None:
    """Print one line a document, then the merge."""
    for name, value in DOCUMENTS.items():
        pair = compare(checked(value), bare(value), (COUNT, COUNT))
        show(f"{name} ({len(codec.encode(value))} bytes)", pair, "at least 0.40x")
    first, second = (codec.decode(codec.encode(TASKS)) for _ in range(2))
    first["tasks"][3]["done"] = None
    second["tasks"].append({"id": "new"})
    merging = rate(merged(TASKS, first, second), 200)
    record("merge and diff of the tasks", merging, "/s")
    print(f"{'merge and diff of the tasks':<58}{merging:>10,.0f}/s")


if __name__ == "__main__":
    main()
