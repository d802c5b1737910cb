"""A record's memory of the writes before it: their ids, and which of them deleted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perkey.store.record import (
    RECENT_OPS_CHARS,
    Record,
    erased_since,
    following,
    has_op,
    op_at,
    op_of,
)

BODIES = st.lists(st.sampled_from([b"1", None]), min_size=1, max_size=60)
SIZES = st.integers(1, 40)


def written(bodies: list[bytes | None], size: int) -> list[Record]:
    """One key's versions with these bodies, by writes whose ids are ``size`` long."""
    versions: list[Record] = []
    for number, body in enumerate(bodies, 1):
        version, ops, fence = following(versions[-1] if versions else None)
        op = f"{number}-".rjust(size, "x")
        versions.append(Record("d/k", version, body, op=op, ops=ops, fence=fence))
    return versions


@given(BODIES, SIZES)
def test_a_record_tells_no_wrong_id_and_no_wrong_deletion(
    bodies: list[bytes | None], size: int
) -> None:
    versions = written(bodies, size)
    head = versions[-1]
    assert len(head.ops) <= RECENT_OPS_CHARS
    for record in versions:
        known = op_at(head, record.version)
        assert known in (record.op, None)
        assert has_op(head, record.op) == (known is not None)
        between = bodies[record.version : head.version - 1]
        assert erased_since(head, record.version) in (None in between, None)
    assert not has_op(head, "none of these")
    assert op_at(head, head.version + 1) is None


@given(BODIES)
def test_the_memory_reaches_back_some_versions(bodies: list[bytes | None]) -> None:
    head = written(bodies, 20)[-1]
    for version in range(max(1, head.version - 10), head.version + 1):
        assert op_at(head, version) is not None
        assert erased_since(head, version) == (None in bodies[version : head.version - 1])


def test_what_lies_out_of_the_window_is_not_known() -> None:
    head = written([b"1"] * 60, 20)[-1]
    assert erased_since(head, 1) is None
    deleted_lately = written([b"1"] * 58 + [None, b"1"], 20)[-1]
    assert erased_since(deleted_lately, 1) is True
    assert erased_since(Record("d/k", 5, b"1"), 3) is None
    assert erased_since(Record("d/k", 5, b"1"), 4) is False


@given(BODIES, st.integers(1, 70))
def test_the_op_of_a_version_comes_from_a_history_that_begins_with_it(
    bodies: list[bytes | None], version: int
) -> None:
    versions = written(bodies, 9)
    kept = [each for each in versions if each.version >= version]
    there = version <= len(versions)
    assert op_of(kept, version) == (versions[version - 1].op if there else None)
    assert op_of(kept[1:], version) is None, "retention has dropped it"
