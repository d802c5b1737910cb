"""Each failure is found in the ways that have it, and every schedule of the others is right."""

from __future__ import annotations

import pytest

from perkey.lab import catalogue, running, stress
from perkey.lab.catalogue import Chosen
from perkey.lab.examine import Report
from tests.lab import page

EVERYTHING = catalogue.choose([])
WRONG = [each for each in EVERYTHING if catalogue.find(each)[1].kind == "wrong"]
OTHERS = [each for each in EVERYTHING if each not in WRONG]
ROUNDS = 100

Reports = dict[Chosen, Report]


def label(chosen: Chosen) -> str:
    return "/".join(chosen)


@pytest.fixture(scope="module")
def reports() -> Reports:
    """The whole lab, run once in two worker processes, with short stress tests."""
    found = running.everything(EVERYTHING, ROUNDS, jobs=2)
    return dict(zip(EVERYTHING, found, strict=True))


@pytest.mark.parametrize("chosen", WRONG, ids=label)
def test_a_wrong_way_is_found_counted_and_drawn(reports: Reports, chosen: Chosen) -> None:
    report = reports[chosen]
    assert report.as_expected
    assert report.result.failure is not None
    assert 0 < report.count.failing < report.count.schedules
    assert report.drawing is not None
    assert report.drawing.verdict
    assert len(report.drawing.rows) > 3
    assert report.variant.why


@pytest.mark.parametrize("chosen", OTHERS, ids=label)
def test_no_schedule_of_another_way_fails(reports: Reports, chosen: Chosen) -> None:
    report = reports[chosen]
    assert report.as_expected
    assert report.result.verdict == "exhausted"
    assert report.count.failing == 0
    assert report.count.schedules >= 100
    assert report.stress.found == 0
    assert report.drawing is None
    assert bool(report.cost) == (report.variant.kind == "costly")


def test_each_failure_has_ways_of_each_kind() -> None:
    for scenario in catalogue.SCENARIOS.values():
        kinds = [variant.kind for variant in scenario.variants]
        assert kinds.count("wrong") >= 2
        assert "right" in kinds
        assert any(variant.title.startswith("perkey: ") for variant in scenario.variants)


@pytest.mark.parametrize("chosen", WRONG, ids=label)
def test_the_drawing_has_as_few_callers_as_it_takes(reports: Reports, chosen: Chosen) -> None:
    """A failed attempt, a waiter and a late arrival make three; all the others take two."""
    drawing = reports[chosen].drawing
    assert drawing is not None
    assert len(drawing.names) == (3 if chosen[0] == "double-move" else 2)


def test_what_the_drawings_say(reports: Reports) -> None:
    verdicts = {
        chosen[1]: report.drawing.verdict for chosen, report in reports.items() if report.drawing
    }
    assert verdicts == {
        "whole-document": "agent b wrote, was told so, and what it wrote is gone",
        "jitter": "agent b wrote, was told so, and what it wrote is gone",
        "turn-lock-row": "agent b waits for ever",
        "delete": "one payment moved the money 2 times",
        "delete-if-mine": "one payment moved the money 2 times",
        "no-section": "the view went back from state 1 to state 0",
        "lock-the-send": "the view went back from state 1 to state 0",
        "state-under-the-lock": "run 1 waits for ever",
        "check-then-set": "it was started 2 times",
        "started-too-early": "a message was sent to a started engine and is gone",
    }


def test_the_known_numbers(reports: Reports) -> None:
    """9! / (3! 3! 3!) schedules of three writers of three steps; nine of ten lose a section."""
    count = reports["lost-update", "whole-document"].count
    assert (count.schedules, count.failing) == (1680, 1512)
    count = reports["double-move", "delete"].count
    assert (count.schedules, count.failing) == (78, 24)


def test_stress_repeats_one_order(reports: Reports) -> None:
    """In asyncio's own order some failures come every time, and the others never."""
    for chosen in WRONG:
        seen = reports[chosen].stress
        assert seen.orderly in (0, seen.orderly_rounds)
    assert reports["double-move", "delete"].stress.orderly == 0
    assert reports["lost-update", "whole-document"].stress.orderly == 100


def test_the_reports_come_as_they_are_done() -> None:
    heard: list[str] = []
    chosen = catalogue.choose(["half-open/check-then-set", "half-open/compare-and-swap"])
    found = running.everything(chosen, 1, jobs=1, done=lambda each: heard.append(each.variant.name))
    assert heard == [each.variant.name for each in found]
    assert heard == ["check-then-set", "compare-and-swap"]


# ---------------------------------------------------------------------- the page


def test_the_page_shows_what_the_lab_finds(reports: Reports) -> None:
    """``python -m tests.lab.page`` makes it anew."""
    text = page.PAGE.read_text(encoding="utf-8")
    assert text == page.made_anew(text, reports)
    assert page.PLOT.read_text(encoding="utf-8") == page.plotted()


def test_the_page_shows_each_failure(reports: Reports) -> None:
    shown = {found[2] for found in page.BLOCK.finditer(page.PAGE.read_text(encoding="utf-8"))}
    for scenario in catalogue.SCENARIOS:
        assert scenario in shown
        assert any(name.startswith(f"{scenario}/") for name in shown)


def test_the_run_on_the_page_was_of_this_code(reports: Reports) -> None:
    """Its stress tests are chance, how many schedules there are is not."""
    run = {(each["scenario"], each["variant"]): each for each in page.recorded()}
    assert list(run) == list(reports)
    for chosen, report in reports.items():
        each = run[chosen]
        assert each["schedules"] == report.as_dict()["schedules"]
        assert (each["kind"], each["title"]) == (report.variant.kind, report.variant.title)
        assert each["stress"]["rounds"] == stress.ROUNDS
        assert each["stress"]["orderly_rounds"] == stress.ORDERLY
        if each["kind"] != "wrong":
            assert not each["stress"]["jittered"] + (each["stress"]["threads"] or 0)


def test_what_the_page_says_of_the_run_is_so() -> None:
    text = " ".join(page.PAGE.read_text(encoding="utf-8").split())
    wrong = [each["stress"] for each in page.recorded() if each["kind"] == "wrong"]
    unseen = sum(not seen["orderly"] for seen in wrong)
    numbers = [
        "none",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
    ]
    assert f"{numbers[unseen]} of these {numbers[len(wrong)]} pass every test" in text
    assert f"{stress.ROUNDS:,} rounds on asyncio" in text
    assert f"{stress.ORDERLY} rounds as asyncio itself orders them" in text


def test_a_page_that_was_changed_by_hand_is_seen(reports: Reports) -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert "24 of 78" in text
    changed = text.replace("24 of 78", "2 of 78")
    assert page.made_anew(changed, reports) == text
