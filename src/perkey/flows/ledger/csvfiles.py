"""Transfers from a CSV file, and all postings into one.

Every row has a key, its own or one made of the file's name and its line, so importing a file
again, or on from where a crash stopped it, moves nothing twice.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from perkey.errors import NotFound, PerkeyError, UsageError
from perkey.flows import steps
from perkey.flows.ledger import amounts, bulk
from perkey.flows.ledger.model import (
    Leg,
    Posting,
    account_key,
    decode_account,
    decode_posting,
    no_account,
)
from perkey.store.keys import TRANSFERS
from perkey.store.record import Record
from perkey.store.views import moment

Path = str | os.PathLike[str]
Progress = Callable[[int, int], object]

MAX_ERRORS = 1000
"""How many refused rows are kept; all are counted."""

CHUNK = 1000
"""How many rows are read, and moved, at a time."""
PAGE = 500

REQUIRED = {"source", "target"}
OPTIONAL = {"key", "memo"}
COLUMNS = (
    "key", "kind", "at", "by", "memo", "refers", "account", "unit", "amount", "balance", "entry",
)  # fmt: skip
"""The columns of an export: one row for each leg of each posting; ``at`` is RFC 3339, in UTC."""


@dataclass(frozen=True, slots=True)
class RowError:
    """Why a row of an import was refused."""

    line: int
    code: str
    message: str


@dataclass(slots=True)
class Imported:
    """What became of the rows of an import."""

    rows: int = 0
    moved: int = 0
    replayed: int = 0
    refused: int = 0
    errors: list[RowError] = field(default_factory=list)
    """The first refused rows."""

    def refuse(self, line: int, error: PerkeyError) -> None:
        """Count a refused row."""
        self.refused += 1
        if len(self.errors) < MAX_ERRORS:
            self.errors.append(RowError(line, error.code, error.message))


@dataclass(frozen=True, slots=True)
class Row:
    """One transfer as a line of the file has it."""

    line: int
    source: str
    target: str
    text: str
    decimal: bool
    key: str
    memo: str


class Rows:
    """The rows of a CSV file, a few at a time."""

    def __init__(self, path: Path, batch: str) -> None:
        self.batch = batch or os.path.basename(os.fspath(path))
        try:
            with open(path, "rb") as file:
                self.total = sum(1 for _ in file)
            # Closed by close(): it stays open between the chunks.
            self._file = open(path, encoding="utf-8-sig", newline="")  # noqa: SIM115
        except OSError as error:
            raise UsageError(f"cannot read {os.fspath(path)}: {error.strerror}") from None
        try:
            self._reader = csv.DictReader(self._file, strict=True)
            self._decimal = self._check_header()
        except BaseException:
            self.close()
            raise

    def _check_header(self) -> bool:
        names = set(_guarded(lambda: self._reader.fieldnames, self._reader) or ())
        kinds = names & {"amount", "minor"}
        if not names >= REQUIRED or len(kinds) != 1 or names - REQUIRED - OPTIONAL - kinds:
            raise UsageError(
                "expected the columns source, target, one of amount (like 12.50) and minor "
                "(like 1250), and perhaps key and memo; "
                f"found {', '.join(sorted(map(str, names)))[:200] or 'none'}"
            )
        return kinds == {"amount"}

    @property
    def line(self) -> int:
        return self._reader.line_num

    def take(self, count: int) -> list[Row | RowError]:
        """The next rows; fewer than ``count`` at the end."""
        found: list[Row | RowError] = []
        while len(found) < count:
            cells = _guarded(lambda: next(self._reader, None), self._reader)
            if cells is None:
                break
            found.append(self._row(cells))
        return found

    def _row(self, cells: dict[str | None, Any]) -> Row | RowError:
        line = self.line
        if None in cells or None in cells.values():
            return RowError(line, UsageError.code, "expected as many cells as there are columns")
        text = cells["amount" if self._decimal else "minor"]
        key = cells.get("key") or f"{self.batch}/{line}"
        memo = cells.get("memo") or ""
        return Row(line, cells["source"], cells["target"], text, self._decimal, key, memo)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _guarded(read: Callable[[], Any], reader: csv.DictReader[str]) -> Any:
    try:
        return read()
    except UnicodeDecodeError:
        raise UsageError(f"after line {reader.line_num} the file is not UTF-8") from None
    except csv.Error as error:
        raise UsageError(f"line {reader.line_num} is not CSV: {error}") from None


def import_csv(
    path: Path, batch: str, progress: Progress | None, by: str, room: bulk.Room
) -> steps.Flow[Imported]:
    """Transfer what each row says; a refused row leaves nothing, and the others go on."""
    rows: Rows = yield steps.Call(Rows, (path, batch))
    done, scales = Imported(), dict[str, int]()
    try:
        while True:
            chunk: list[Row | RowError] = yield steps.Call(rows.take, (CHUNK,))
            if not chunk:
                return done
            yield from _import_chunk(chunk, scales, done, by, room)
            if progress is not None:
                yield steps.Call(progress, (rows.line, rows.total))
    finally:
        rows.close()


def _import_chunk(
    chunk: Sequence[Row | RowError],
    scales: dict[str, int],
    done: Imported,
    by: str,
    room: bulk.Room,
) -> steps.Flow[None]:
    yield from _learn_scales({row.source for row in chunk if isinstance(row, Row)}, scales)
    lines: list[int] = []
    wanted: list[tuple[str, str, int, str, str]] = []
    for row in chunk:
        done.rows += 1
        if isinstance(row, RowError):
            done.refuse(row.line, UsageError(row.message))
            continue
        try:
            amount = _amount(row, scales)
        except PerkeyError as error:
            done.refuse(row.line, error)
            continue
        lines.append(row.line)
        wanted.append((row.source, row.target, amount, row.key, row.memo))
    items = yield from bulk.transfers(wanted, by, room)
    for line, item in zip(lines, items, strict=True):
        if item.error is not None:
            done.refuse(line, item.error)
        elif item.transfer is not None and item.transfer.replayed:
            done.replayed += 1
        else:
            done.moved += 1
    done.errors.sort(key=lambda error: error.line)


def _amount(row: Row, scales: dict[str, int]) -> int:
    if not row.decimal:
        return amounts.whole(row.text)
    if row.source not in scales:
        account_key(row.source)
        raise no_account(row.source)
    return amounts.minor(row.text, scales[row.source])


def _learn_scales(names: set[str], scales: dict[str, int]) -> steps.Flow[None]:
    """Look up how many decimal places each account has; that never changes."""
    keys = []
    for name in sorted(names - scales.keys()):
        try:
            keys.append(account_key(name))
        except PerkeyError:
            continue  # its row is refused for it
    if not keys:
        return
    records: list[Record | None] = yield steps.Read(keys)
    for record in records:
        if record is not None and record.body is not None:
            scales[record.key[2:]] = decode_account(record.body).scale


# ------------------------------------------------------------------------------- export


def export_csv(path: Path, progress: Progress | None) -> steps.Flow[int]:
    """Write every leg of every posting, by key; returns how many postings there were."""
    file = yield steps.Call(_create, (path,))
    units: dict[str, tuple[str, int]] = {}
    count, after = 0, ""
    try:
        writer = csv.writer(file)
        yield steps.Call(writer.writerow, (COLUMNS,))
        while True:
            records: list[Record] = yield steps.Scan(TRANSFERS, after, PAGE)
            if not records:
                return count
            after = records[-1].key
            found = [(r.key[2:], decode_posting(r.body)) for r in records if r.body is not None]
            yield from _learn_units({leg.account for _, p in found for leg in p.legs}, units)
            lines = [line for key, posting in found for line in _lines(key, posting, units)]
            yield steps.Call(writer.writerows, (lines,))
            count += sum(bool(posting.legs) for _, posting in found)  # a hold moves nothing
            if progress is not None:
                yield steps.Call(progress, (count, 0))
    finally:
        file.close()


def _create(path: Path) -> Any:
    try:
        return open(path, "w", encoding="utf-8", newline="")
    except OSError as error:
        raise UsageError(f"cannot write {os.fspath(path)}: {error.strerror}") from None


def _learn_units(names: set[str], units: dict[str, tuple[str, int]]) -> steps.Flow[None]:
    missing = sorted(names - units.keys())
    for start in range(0, len(missing), PAGE):
        some = missing[start : start + PAGE]
        records: list[Record | None] = yield steps.Read([account_key(name) for name in some])
        for name, record in zip(some, records, strict=True):
            if record is None or record.body is None:
                raise NotFound(f"account {name!r} is missing; verify() the ledger", key=name)
            account = decode_account(record.body)
            units[name] = account.unit, account.scale


def _lines(
    key: str, posting: Posting, units: dict[str, tuple[str, int]]
) -> Iterator[tuple[object, ...]]:
    for leg in posting.legs:
        yield _line(key, posting, leg, *units[leg.account])


def _line(key: str, posting: Posting, leg: Leg, unit: str, scale: int) -> tuple[object, ...]:
    amount, balance = (amounts.decimal(each, scale) for each in (leg.amount, leg.balance))
    about = (key, posting.kind, moment(posting.at), posting.by, posting.memo, posting.refers)
    return (*about, leg.account, unit, amount, balance, leg.entry)
