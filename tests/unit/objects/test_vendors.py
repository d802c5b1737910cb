"""Two increments beside a rival's, on each vendor's store, under every sequence of three faults.

Whatever the store answers, or does not, each caller is told what it did, and it was done once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

import pytest

from perkey.store.backends.azure_bucket import AzureBucket
from perkey.store.backends.http_bucket import Asked, Fate, HttpBucket
from perkey.store.backends.objects import ObjectsBackend
from perkey.store.backends.s3_bucket import S3Bucket
from perkey.store.backends.wire import Answer
from perkey.store.keys import Key
from perkey.store.limits import Limits
from perkey.testing.conformance.bench import commit, done, held
from perkey.testing.conformance.doubts import adding
from tests.unit.manual_clock import ManualClock
from tests.unit.objects.vendors import FAULTS, Amazon, Google, Microsoft, Vendor

KEY = Key("d/a")
VENDORS = [Amazon, Google, Microsoft]
every_vendor = pytest.mark.parametrize("kind", VENDORS, ids=lambda kind: kind.__name__)


def add(store: ObjectsBackend) -> int:
    (outcome,) = commit(store, adding(KEY))
    return int(done(outcome).result)


def counted(vendor: Vendor, faults: Sequence[str], times: int, kind: object = None) -> None:
    """``times`` increments that meet ``faults``: all are there, once, and told as they are."""
    mine, theirs, fresh = (
        ObjectsBackend(vendor.connect(each), Limits(), vendor.clock)  # type: ignore[arg-type]
        for each in (kind, None, None)
    )
    rivals: list[int] = []
    vendor.faults.extend(faults)

    def rival() -> None:
        waiting = list(vendor.faults)  # a rival meets none of them
        vendor.faults.clear()
        rivals.append(add(theirs))
        vendor.faults.extend(waiting)

    vendor.rival = rival
    told = [add(mine) for _ in range(times)]
    total = times + len(rivals)
    assert told == sorted(set(told))
    assert sorted([*told, *rivals]) == list(range(1, total + 1))
    assert held(fresh, KEY).version == total
    assert [each.body for each in fresh.history(KEY, 0, 1_000)] == [
        b"%d" % n for n in range(1, total + 1)
    ]


@every_vendor
def test_every_sequence_of_three_faults(kind: type[Vendor]) -> None:
    for faults in product(("", *FAULTS), repeat=3):
        counted(kind(ManualClock()), faults, 2)


@every_vendor
@pytest.mark.parametrize("seed", range(4))
def test_many_increments_with_faults_drawn_at_random(kind: type[Vendor], seed: int) -> None:
    draw = random.Random(seed)
    faults = [fault for _ in range(30) for fault in (draw.choice(FAULTS), "", "")]
    counted(kind(ManualClock()), faults, 50)


# ------------------------------------------------------------------------- the planted bugs


def caught(kind: type[Vendor], mutant: object = None, *, sends_again: bool = False) -> bool:
    """Whether some sequence of faults shows the bug."""
    for faults in product(("", *FAULTS), repeat=3):
        vendor = kind(ManualClock())
        vendor.sends_again = sends_again
        try:
            counted(vendor, faults, 2, mutant)
        except Exception:
            return True
        except AssertionError:
            return True
    return False


def mutant(kind: type[Vendor], **changes: object) -> type[HttpBucket]:  # type: ignore[type-arg]
    return type("Mutant", (kind.bucket,), changes)  # type: ignore[arg-type]


def failed_means(fate: Fate) -> object:
    """A server that failed half-way is believed to have done nothing."""

    def found(self: HttpBucket, answer: Answer) -> Fate:  # type: ignore[type-arg]
        right = super(type(self), self)._fate(answer)
        return fate if right is Fate.UNKNOWN else right

    return found


@every_vendor
@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.LOST, Fate.BUSY, Fate.WRITTEN], ids=str)
def test_a_failure_taken_for_an_answer_is_caught(kind: type[Vendor], fate: Fate) -> None:
    assert caught(kind, mutant(kind, _fate=failed_means(fate)))


@every_vendor
def test_a_client_that_sends_writes_again_is_caught(kind: type[Vendor]) -> None:
    """What landed is sent again, is refused, and counts as somebody else's."""
    assert caught(kind, sends_again=True)


@every_vendor
def test_a_condition_that_is_not_sent_is_caught(kind: type[Vendor]) -> None:
    right = kind.bucket._putting  # type: ignore[attr-defined]

    def without(self: object, name: str, data: bytes, condition: str | None) -> Asked:
        found: Asked = right(self, name, data, None)
        return found

    assert caught(kind, mutant(kind, _putting=without))


def test_azures_word_for_exists_must_be_known() -> None:
    """409 is "ask again" elsewhere; here a second creation would be refused without an end."""
    changed = mutant(Microsoft, _fate=lambda self, answer: Fate.REFUSED if answer.status == 409
                     else AzureBucket._fate(self, answer))  # fmt: skip
    assert caught(Microsoft, changed)


def test_without_a_bug_nothing_is_caught() -> None:
    """A mutant that changes nothing."""
    assert issubclass(mutant(Amazon), S3Bucket)
    assert not caught(Amazon, mutant(Amazon))
