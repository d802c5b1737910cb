"""``If-Match`` and ``If-None-Match`` as RFC 9110 writes them: read whole, or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perkey.errors import Conflict
from perkey.server.conditions import Condition, Tag, Tags, parse
from perkey.server.refusals import BadRequest
from perkey.store.record import Record

LIVE = Record("d/k", 61, b"1", "ann")
DELETED = Record("d/k", 62, None, "bob")


@pytest.mark.parametrize(
    ("lines", "tags"),
    [
        (['"61"'], [Tag("61")]),
        (['"61", "62"'], [Tag("61"), Tag("62")]),
        (['"61"', ' "62"\t'], [Tag("61"), Tag("62")]),
        ([',, "61" ,,"62",'], [Tag("61"), Tag("62")]),
        (['W/"61"'], [Tag("61", weak=True)]),
        (['"a,b", W/"c,\\"'], [Tag("a,b"), Tag("c,\\", weak=True)]),
        (['""'], [Tag("")]),
        (['"\xe9\xff"'], [Tag("\xe9\xff")]),
        (['"W/"'], [Tag("W/")]),
    ],
)
def test_lists_of_tags(lines: list[str], tags: list[Tag]) -> None:
    assert parse("If-Match", lines) == Tags(tags=tuple(tags))


def test_a_star_stands_alone() -> None:
    assert parse("If-Match", ["*"]) == parse("If-Match", [" *\t"]) == Tags(anything=True)
    assert parse("If-Match", []) is None


@pytest.mark.parametrize(
    "lines",
    [
        ["61"],
        ['"61'],
        ['61"'],
        ['"61" "62"'],
        ['w/"61"'],
        ['W/ "61"'],
        ['*, "61"'],
        ['"61"', "*"],
        [""],
        [" , ,"],
        ['"a b"'],
        ['"a\x7f"'],
        ["'61'"],
        ['"61";x'],
        ["**"],
    ],
)
def test_what_cannot_be_read_is_refused(lines: list[str]) -> None:
    with pytest.raises(BadRequest, match="expected If-Match"):
        parse("If-Match", lines)


OPAQUE = st.text(st.characters(codec="latin-1", exclude_characters='"\x7f', min_codepoint=0x21))
TAGS = st.builds(Tag, OPAQUE.filter(lambda t: not set(t) & set(map(chr, range(0x7F, 0xA0)))))


@given(st.lists(TAGS, min_size=1, max_size=5), st.integers(0, 4))
def test_every_list_comes_back_however_it_is_cut_into_lines(tags: list[Tag], cut: int) -> None:
    written = [f'"{tag.opaque}"' for tag in tags]
    lines = [each for each in (", ".join(written[:cut]), ", ".join(written[cut:])) if each]
    assert parse("If-Match", lines) == Tags(tags=tuple(tags))


@given(st.text(st.characters(codec="latin-1"), max_size=30))
def test_no_text_breaks_it(text: str) -> None:
    try:
        found = parse("If-Match", [text])
    except BadRequest:
        return
    assert found is not None
    assert found.anything or found.tags


def test_which_version_a_tag_names() -> None:
    named = {"61": 61, "61-gzip": 61, "061": None, "0": None, "-1": None, "61x": None, "": None}
    assert {text: Tag(text).version for text in named} == named
    assert Tag("9" * 40).version is None
    assert Tag("\u0661").version is None


def met(
    head: Record | None, match: list[str] | None = None, none: list[str] | None = None
) -> Conflict | None:
    condition = Condition(parse("If-Match", match or []), parse("If-None-Match", none or []))
    try:
        condition.check("k", head)
    except Conflict as conflict:
        return conflict
    return None


@pytest.mark.parametrize("match", ['"61"', '"7", "61"', "*", '"61-gzip"'])
def test_a_match_that_holds(match: str) -> None:
    assert met(LIVE, [match]) is None


@pytest.mark.parametrize("match", ['"60"', 'W/"61"', 'W/"61", "60"', '"061"', '"x"'])
def test_a_match_that_does_not_hold(match: str) -> None:
    refused = met(LIVE, [match])
    assert refused is not None
    assert (refused.found, refused.by, refused.key) == (61, "ann", "k")


@pytest.mark.parametrize("match", ['"62"', '"61"', "*"])
def test_nothing_matches_where_nothing_is(match: str) -> None:
    assert met(DELETED, [match]) is not None
    assert met(None, [match]) is not None


@pytest.mark.parametrize("head", [None, DELETED])
def test_a_star_needs_something_to_be_there(head: Record | None) -> None:
    refused = met(head, ["*"])
    assert refused is not None
    assert "expected 'k' to be there, at whatever version (If-Match: *), found " in str(refused)
    assert str(refused).endswith("; create it with If-None-Match: * if that is what you want")
    assert "expected" not in refused.details, "no single version would have done"
    assert refused.found == (62 if head else 0)


@pytest.mark.parametrize(
    ("match", "none", "expected"),
    [
        (['"60"'], None, 60),
        (['"60", "59"'], None, None),
        (['W/"61"'], None, None),
        (None, ["*"], 0),
        (None, ['"61"'], None),
    ],
)
def test_which_version_a_refusal_says_was_expected(
    match: list[str] | None, none: list[str] | None, expected: int | None
) -> None:
    refused = met(LIVE, match, none)
    assert refused is not None
    assert refused.details.get("expected") == expected
    assert str(refused).endswith("; read it again and redo the change")


def test_none_match() -> None:
    assert met(None, none=["*"]) is None
    assert met(DELETED, none=["*"]) is None
    assert met(LIVE, none=["*"]) is not None
    assert met(LIVE, none=['"60"']) is None
    assert met(LIVE, none=['"61"']) is not None
    assert met(LIVE, none=['W/"61"']) is not None, "it compares weakly"


def test_match_is_looked_at_first() -> None:
    """Both fail: the refusal is that of If-Match."""
    refused = met(LIVE, ['"60"'], ['"61"'])
    assert refused is not None
    assert "with version 60" in str(refused)
    refused = met(LIVE, ['"61"'], ["*"])
    assert refused is not None
    assert "with nothing there" in str(refused)


def test_what_protects_a_write() -> None:
    def protects(match: list[str], none: list[str]) -> bool:
        return Condition(parse("If-Match", match), parse("If-None-Match", none)).protects

    assert protects(["*"], [])
    assert protects(['"1"'], [])
    assert protects([], ["*"])
    assert not protects([], [])
    assert not protects([], ['"1"']), "the write would go through at every version but one"
