"""CSV files through the library: amounts as text, progress, both colours, many rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perkey
from perkey import AsyncLedger, InvalidAmount, Ledger
from perkey.flows.ledger import amounts, csvfiles


@given(st.integers(-(2**63), 2**63), st.integers(0, 18))
def test_amounts_survive_text(amount: int, scale: int) -> None:
    text = amounts.decimal(amount, scale)
    assert amounts.minor(text, scale) == amount
    assert ("." in text) is (scale > 0)


@pytest.mark.parametrize(
    ("text", "scale", "amount"),
    [("12", 2, 1200), ("12.5", 2, 1250), ("12.500", 2, 1250), (" 0.01 ", 2, 1), ("-3", 0, -3)],
)
def test_amounts_from_text(text: str, scale: int, amount: int) -> None:
    assert amounts.minor(text, scale) == amount


@pytest.mark.parametrize("text", ["", ".", "1.", ".5", "+1", "1_0", "0x1", "1.005", "1 0", "١"])
def test_text_that_is_no_amount(text: str) -> None:
    with pytest.raises(InvalidAmount):
        amounts.minor(text, 2)


def test_many_rows_in_chunks_with_progress(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csvfiles, "CHUNK", 250)
    path = tmp_path / "many.csv"
    path.write_text("source,target,minor\n" + "a,b,1\n" * 900)
    seen: list[tuple[int, int]] = []
    done = ledger.import_csv(path, progress=lambda *where: seen.append(where), by="importer")
    assert (done.rows, done.moved, done.errors) == (900, 900, [])
    assert seen[-1] == (901, 901)
    assert len(seen) > 2
    assert ledger.import_csv(path).replayed == 900
    assert ledger.balance("b").posted == 900
    assert ledger.find("many.csv/2").by == "importer"
    assert ledger.verify() is None


def test_errors_are_bounded_and_counted(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csvfiles, "MAX_ERRORS", 3)
    path = tmp_path / "bad.csv"
    path.write_text("source,target,minor\n" + "a,b,0\n" * 9)
    done = ledger.import_csv(path)
    assert (done.refused, len(done.errors)) == (9, 3)


@pytest.mark.parametrize("name", ["", "x" * 600, "none"])
def test_an_account_that_cannot_be_is_an_error_of_its_row(
    ledger: Ledger, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"source,target,amount\n{name},b,1\na,b,1\n")
    done = ledger.import_csv(path)
    assert (done.moved, [error.line for error in done.errors]) == (1, [2])


async def test_on_asyncio(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("source,target,amount\nworld,a,1.25\n")
    async with await perkey.aopen("memory://") as store:
        ledger = AsyncLedger(store)
        await ledger.open_account("world", "EUR", floor=None)
        await ledger.open_account("a", "EUR")
        assert (await ledger.import_csv(tmp_path / "in.csv")).moved == 1
        seen: list[int] = []
        count = await ledger.export_csv(
            tmp_path / "out.csv", progress=lambda done, _: seen.append(done)
        )
    assert (count, seen) == (1, [1])
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 3
