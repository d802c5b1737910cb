"""The suite of every backend, on objects in memory; once with heads that are soon full."""

from __future__ import annotations

import pytest

from perkey.clock import SYSTEM
from perkey.store.backends import object_frames
from perkey.store.backends.objects import ObjectsBackend
from perkey.store.limits import Limits
from perkey.testing.conformance import CHECKS, check_backend
from tests.unit.objects.buckets import MemoryBucket


@pytest.mark.parametrize("tail", [2, 100])
def test_objects_in_memory(tail: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_frames, "TAIL_VERSIONS", tail)
    bucket = MemoryBucket()

    def source(limits: Limits) -> ObjectsBackend:
        return ObjectsBackend(bucket.another(), limits, SYSTEM)

    report = check_backend(source).raise_if_failed()
    assert {result.name: result.status for result in report.results} == {
        name: "passed" if check.keys == 1 else "excused" for name, check in CHECKS.items()
    }
    assert any(name.startswith("v/") for name in bucket.objects)
