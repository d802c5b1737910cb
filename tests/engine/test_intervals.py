"""An interval is shown as somebody would write it."""

from __future__ import annotations

import io
import random

import pytest
from rich.console import Console

from perkey.cli.run.view import drawn
from perkey.engine import AsyncEngine, cron, every, message
from perkey.engine.cron import interval_ms, interval_text
from perkey.engine.definitions import spoken
from tests.engine.processes import order, quick


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("1ms", "1ms"),
        ("500ms", "500ms"),
        ("1500ms", "1500ms"),
        ("1.5s", "1500ms"),
        ("30s", "30s"),
        (0.25, "250ms"),
        ("60s", "1m"),
        ("5m", "5m"),
        ("90m", "90m"),
        ("60m", "1h"),
        ("36h", "36h"),
        ("24h", "1d"),
        ("366d", "366d"),
    ],
)
def test_an_interval_is_as_short_as_it_goes(written: str | float, shown: str) -> None:
    assert interval_text(interval_ms(written)) == shown


def test_every_interval_is_read_back_as_what_it_was() -> None:
    chance = random.Random(1)
    for _ in range(2000):
        ms = chance.randrange(1, 10 ** chance.randrange(1, 11)) * chance.choice((1, 1000, 60_000))
        if ms <= 366 * 86_400_000:
            assert interval_ms(interval_text(ms)) == ms


def test_only_an_interval_is_said_in_other_words() -> None:
    assert spoken(every("5m").trigger) == "every 5m"
    assert spoken(every(0.5).trigger) == "every 500ms"
    for each in (message("every"), message("every:5"), cron("0 7 * * MON")):
        assert spoken(each.trigger) == each.trigger


async def test_the_live_table_shows_it_like_that_on_80_columns() -> None:
    engine = AsyncEngine()
    starts = [message("order placed"), every("500ms")]
    await engine.register_process(order(quick, *starts))
    await engine.run()
    await engine.start_latest("order")
    out = io.StringIO()
    Console(file=out, width=80).print(drawn(engine))
    await engine.shutdown(60)
    assert "every 500ms" in out.getvalue()
    assert max(map(len, out.getvalue().splitlines())) <= 80
