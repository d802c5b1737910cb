"""The pytest plugin, run by pytest itself on small test files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from perkey import testing
from perkey.testing import stepped, where

LOADED = [stepped, where, *(getattr(testing, name) for name in testing.__all__)]
"""A pytest within pytest unloads what it was the first to load, and would get it twice."""

HEAD = """
import asyncio
import pytest
from perkey.testing import explore, explore_threads, step

class Bank:
    def __init__(self):
        self.balance, self.lock = 0, asyncio.Lock()
    async def deposit(self):
        async with self.lock:
            await self.careless()
    async def careless(self):
        seen = self.balance
        await step("save")
        self.balance = seen + 1
"""

FAILS = """
@explore()
def test_lost():
    bank = Bank()
    yield [bank.careless] * 2
    assert bank.balance == 2
"""

HOLDS = """
@pytest.mark.parametrize("callers", [2, 3])
@explore(failures=1)
def test_right(callers):
    bank = Bank()
    ended = yield [bank.deposit] * callers
    assert bank.balance == ended.failed.count(False)
"""

PLUGIN = "-pperkey.testing.pytest_plugin"
INI = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function"
Run = Callable[..., pytest.RunResult]


def _loading() -> tuple[str, ...]:
    """Where perkey is installed, pytest finds the plugin by its entry point."""
    return () if entry_points(group="pytest11", name="perkey") else (PLUGIN,)


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Runs a test file: what stands at its end, and more arguments of pytest."""

    def run(body: str, *args: str) -> pytest.RunResult:
        pytester.makeini(INI)
        pytester.makepyfile(test_it=HEAD + body)
        return pytester.runpytest_inprocess(*_loading(), "-p", "no:randomly", *args)

    return run


def test_the_report_is_the_story_and_the_command_that_runs_it_again(run: Run) -> None:
    result = run(FAILS)
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert "check: assert 1 == 2" in text
    assert "test_it.py:12  seen = self.balance" in text
    assert "careless#1" in text
    assert "perkey/testing" not in text  # no traceback through the explorer
    command = next(line for line in result.outlines if "--perkey-replay" in line)
    again = run(FAILS, "--perkey-replay", command.partition("--perkey-replay ")[2].strip("'"))
    again.assert_outcomes(failed=1)
    assert "test_lost fails under the schedule that was given" in again.stdout.str()
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_lost - check: assert 1 == 2"])


PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "test-your-own-code.md"


def test_the_page_shows_what_pytest_prints(pytester: pytest.Pytester) -> None:
    """The first example of the how-to and the output under it."""
    text = PAGE.read_text(encoding="utf-8")
    code, shown = re.findall(r"```(?:python|text)\n(.*?)```", text, re.DOTALL)[:2]
    pytester.makeini(INI)
    pytester.mkdir("tests").joinpath("test_bank.py").write_text(code, encoding="utf-8")
    result = pytester.runpytest_inprocess(*_loading(), "-p", "no:randomly")
    result.assert_outcomes(failed=1)
    printed, wanted = (re.sub("0x[0-9a-f]+", "0x", each) for each in (result.stdout.str(), shown))
    assert wanted in printed + "\n"


def test_the_place_is_told_from_the_working_folder(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(FAILS)
    place = next(line for line in result.outlines if line.startswith("at "))
    assert place.startswith("at test_it.py:")
    monkeypatch.chdir(pytester.mkdir("elsewhere"))  # the file lies beside it, not below
    result = pytester.runpytest_inprocess(*_loading(), "-p", "no:randomly", "../test_it.py")
    place = next(line for line in result.outlines if line.startswith("at "))
    assert place.startswith(f"at {pytester.path / 'test_it.py'}:")


def test_a_replay_belongs_to_one_test(run: Run) -> None:
    result = run(FAILS + HOLDS, "--perkey-replay", "0 1 0")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "expected one @explore test to be selected, found 3" in result.stderr.str()
    assert run(FAILS + HOLDS, "--perkey-replay", "0", "--collect-only").ret == 0


def test_a_replay_of_what_was_mended_passes(run: Run) -> None:
    run(HOLDS, "-k", "2", "--perkey-replay", "0*2 1*2").assert_outcomes(passed=1)


def test_a_replay_that_does_not_fit_says_so_in_a_word(run: Run) -> None:
    result = run(FAILS, "--perkey-replay", "7")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["Diverged: * not possible there: 7;*", "FAILED *lost - Diverged*"])


def test_what_passed_says_how_much_was_covered(run: Run) -> None:
    result = run(HOLDS, "-rP")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        ["*test_right?2?*", "exhausted", "*callers*deposit#1, deposit#2", "*injections*1 failures"]
    )
    result.stdout.fnmatch_lines(["perkey: 2 explorations, * schedules, * states"])


def test_an_ordinary_test_that_explores_is_reported_alike(run: Run) -> None:
    result = run("def test_it():\n    explore(Bank, [Bank.careless] * 2, "
                 "check=lambda bank: bank.balance == 2).assert_holds()\n")  # fmt: skip
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_it - check: *"])
    result.stdout.fnmatch_lines(["perkey: 1 exploration, * schedules, * states"])
    assert "careless#2" in result.stdout.str()


def test_an_incomplete_search_fails_with_its_certificate(run: Run) -> None:
    result = run(HOLDS.replace("failures=1", "limit=1"), "-k", "3")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["incomplete: more than 1 states", "FAILED *incomplete: more*"])


def test_explored_tests_carry_a_marker_and_methods_do_too(run: Run) -> None:
    body = (
        HOLDS
        + "\nclass TestIt:\n    @explore()\n    async def test_whole(self):\n"
        + (
            "        bank = Bank()\n        await asyncio.gather(bank.deposit(), bank.deposit())\n"
            "        assert bank.balance == 2\n\ndef test_plain(): ...\n"
        )
    )
    run(body, "-m", "explore").assert_outcomes(passed=3, deselected=1)
    run(body, "-m", "not explore", "--strict-markers").assert_outcomes(passed=1, deselected=3)


def test_other_async_tests_stay_with_their_plugin(run: Run) -> None:
    run("async def test_plain():\n    await step('save')\n" + HOLDS).assert_outcomes(passed=3)


FIXTURES = """
import perkey
from perkey.testing import AsyncFaultyStore, FaultyStore, Sequencer, VirtualClock

opened = []

def test_fixtures(faulty_store, virtual_clock, sequencer):
    store = faulty_store("memory://", fail={1}, clock=virtual_clock)
    opened.append(store)
    assert type(store) is FaultyStore
    assert type(faulty_store.aio(store)) is AsyncFaultyStore
    with pytest.raises(perkey.StoreUnavailable):
        store.put("n", 1, create=True)
    store.put("n", 1, create=True)
    virtual_clock.advance(3)
    with sequencer(0):
        assert store.counts["failed"] == 1

def test_closed():
    with pytest.raises(perkey.StoreClosed):
        opened[0].get("n")

@explore()
def test_anew(sequencer, virtual_clock):
    bank = Bank()
    async def second():
        async with sequencer(1):
            await bank.careless()
    async def first():
        async with sequencer(0):
            virtual_clock.advance(2)
            await bank.careless()
    yield [second, first]
    assert bank.balance == virtual_clock.monotonic() == 2

@explore_threads(preemptions=1)
def test_store(faulty_store):
    store = faulty_store(fail={2})
    def add():
        for _ in range(2):
            try:
                store.transact("n", lambda tx: tx.__setitem__("n", tx.get("n", 0) + 1))
                return
            except perkey.StoreUnavailable:
                pass
    yield [add] * 2
    assert store.get("n").value == 2
"""


def test_the_fixtures_and_an_explored_test_gets_them_anew(run: Run) -> None:
    run(FIXTURES).assert_outcomes(passed=4)


def test_a_type_that_cannot_be_seen_into_is_named_without_a_traceback(run: Run) -> None:
    result = run("""
@explore()
def test_opaque():
    import zlib
    kept = zlib.compressobj()
    bank = Bank()
    yield [bank.deposit] * 2
    assert kept is not None
""")
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert "CannotFingerprint: expected only objects whose state can be seen" in text
    assert "fingerprint.py" not in text


def test_a_report_survives_the_way_from_another_process(
    run: Run, pytester: pytest.Pytester
) -> None:
    """As pytest-xdist sends it."""
    run(FAILS)
    record = pytester.inline_run(*_loading(), "-p", "no:randomly")
    (report,) = record.getfailures()
    sent = pytest.TestReport._from_json(json.loads(json.dumps(report._to_json())))
    assert "test_it.py:12  seen = self.balance" in sent.longreprtext
    assert dict(sent.user_properties).keys() == {"perkey explored"}


def test_the_plugin_alone_loads_next_to_nothing() -> None:
    """It is imported in every pytest run wherever perkey is installed."""
    code = (
        "import sys, pytest; before = set(sys.modules); import perkey.testing.pytest_plugin; "
        "print(*sorted(m for m in set(sys.modules) - before if '.' not in m or 'perkey' in m))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert [name for name in loaded if name.startswith("perkey")] == [
        "perkey", "perkey.errors", "perkey.testing", "perkey.testing.pytest_plugin",
        "perkey.testing.session",
    ]  # fmt: skip
    assert "msgspec" not in loaded
