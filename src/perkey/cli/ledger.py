"""``perkey ledger``: double entry in any store that commits several keys at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any

from cyclopts import App, Parameter
from msgspec import structs

from perkey import Ledger
from perkey.cli import exits, output
from perkey.cli.doc import Limit, check_limit
from perkey.cli.options import By, Common
from perkey.errors import UsageError
from perkey.flows.ledger import amounts
from perkey.ledger import Balance, Transfer

app = App(name="ledger", help="Move money between accounts; every operation has a key of its own.")

Amount = Annotated[
    str, Parameter(help="Like 12.50, in the account's unit.", allow_leading_hyphen=True)
]
Minor = Annotated[bool, Parameter(negative="", help="AMOUNT is in whole minor units.")]
Key = Annotated[str, Parameter(name="--key", help="Idempotency key; the same again is a replay.")]
Memo = Annotated[str, Parameter(name="--memo", help="Short text that stays with it.")]
Floor = Annotated[
    str,
    Parameter(help="The lowest balance, like -100, or none.", allow_leading_hyphen=True),
]


def read_amount(ledger: Ledger, account: str, text: str, minor: bool) -> int:
    """AMOUNT in minor units of ``account``."""
    return amounts.whole(text) if minor else amounts.minor(text, ledger.balance(account).scale)


@app.command(name="open")
def open_(
    account: str,
    unit: str,
    /,
    *,
    scale: int = 2,
    floor: Floor = "0",
    by: By = "",
    common: Common | None = None,
) -> None:
    """Open an account, like: perkey ledger open cash EUR.  The same again is harmless."""
    common = common or Common()
    if not 0 <= scale <= 18:
        raise UsageError(f"expected --scale from 0 to 18, found {scale}")
    lowest = None if floor == "none" else amounts.minor(floor, scale)
    with common.opened(existing=False) as store:
        opened = Ledger(store).open_account(account, unit, scale=scale, floor=lowest, by=by)
    _show_balances([opened], common)


@app.command
def transfer(
    source: str,
    target: str,
    amount: Amount,
    /,
    *,
    key: Key,
    minor: Minor = False,
    memo: Memo = "",
    by: By = "",
    common: Common | None = None,
) -> None:
    """Move AMOUNT from SOURCE to TARGET, once for --key."""
    common = common or Common()
    with common.opened() as store:
        ledger = Ledger(store)
        units = read_amount(ledger, source, amount, minor)
        _show(ledger, ledger.transfer(source, target, units, key=key, memo=memo, by=by), common)


@app.command
def hold(
    source: str,
    target: str,
    amount: Amount,
    /,
    *,
    key: Key,
    minor: Minor = False,
    expires: float | None = None,
    memo: Memo = "",
    by: By = "",
    common: Common | None = None,
) -> None:
    """Keep AMOUNT back on SOURCE for TARGET until settled, released or --expires seconds on."""
    common = common or Common()
    with common.opened() as store:
        ledger = Ledger(store)
        units = read_amount(ledger, source, amount, minor)
        held = ledger.hold(source, target, units, key=key, expires_in=expires, memo=memo, by=by)
        _show(ledger, held, common)


@app.command
def settle(
    held: str,
    amount: Amount | None = None,
    /,
    *,
    key: Key,
    minor: Minor = False,
    memo: Memo = "",
    by: By = "",
    common: Common | None = None,
) -> None:
    """Post the hold with the key HELD, or AMOUNT of it; the rest becomes available again."""
    common = common or Common()
    with common.opened() as store:
        ledger = Ledger(store)
        units = None
        if amount is not None:
            units = read_amount(ledger, _source(ledger.find(held)), amount, minor)
        _show(ledger, ledger.settle(held, key=key, amount=units, memo=memo, by=by), common)


def _source(held: Transfer) -> str:
    return held.asked[0][0]


@app.command
def release(held: str, /, *, by: By = "", common: Common | None = None) -> None:
    """End the hold with the key HELD without moving anything."""
    common = common or Common()
    with common.opened() as store:
        ledger = Ledger(store)
        _show(ledger, ledger.release(held, by=by), common)


@app.command
def reverse(moved: str, /, *, memo: Memo = "", by: By = "", common: Common | None = None) -> None:
    """Post the opposite of the transfer with the key MOVED, once; nothing is deleted."""
    common = common or Common()
    with common.opened() as store:
        ledger = Ledger(store)
        _show(ledger, ledger.reverse(moved, memo=memo, by=by), common)


def facts(moved: Transfer) -> dict[str, Any]:
    """A posting as JSON."""
    return {
        **structs.asdict(moved),
        "amount": moved.amount,
        "legs": [structs.asdict(leg) for leg in moved.legs],
    }


def _show(ledger: Ledger, moved: Transfer, common: Common) -> None:
    if common.json:
        output.as_json(facts(moved))
        return
    again = " (replayed: it was done before)" if moved.replayed else ""
    output.say(f"{moved.key}: {moved.kind} {moved.state}".rstrip() + again)
    for leg in moved.legs:
        account = ledger.balance(leg.account)
        amount, after = (amounts.decimal(n, account.scale) for n in (leg.amount, leg.balance))
        output.say(f"  {leg.account} {amount} {account.unit}, balance {after}")


# ------------------------------------------------------------------------------- looking


@app.command
def balance(account: str, /, *, common: Common | None = None) -> None:
    """An account's posted, held and available balance."""
    common = common or Common()
    with common.opened() as store:
        found = Ledger(store).balance(account)
    if common.json:
        output.as_json(asdict(found))
    else:
        _show_balances([found], common)


@app.command
def accounts(
    prefix: str = "", /, *, after: str = "", limit: Limit = 1000, common: Common | None = None
) -> None:
    """The accounts whose name has a prefix, by name."""
    common = common or Common()
    with common.opened() as store:
        found = Ledger(store).accounts(prefix, after=after, limit=check_limit(limit))
    _show_balances(found, common)


def _show_balances(found: list[Balance], common: Common) -> None:
    if common.json:
        output.as_json([asdict(each) for each in found])
        return
    rows = [
        (
            each.account,
            each.unit,
            *(amounts.decimal(n, each.scale) for n in (each.posted, each.held, each.available)),
            "none" if each.floor is None else amounts.decimal(each.floor, each.scale),
            each.state,
        )
        for each in found
    ]
    headings = ("account", "unit", "posted", "held", "available", "floor", "state")
    output.table(headings, rows)


@app.command
def statement(
    account: str, /, *, after: int = 0, limit: Limit = 100, common: Common | None = None
) -> None:
    """An account's entries above number --after, with running balances."""
    common = common or Common()
    with common.opened() as store:
        ledger = Ledger(store)
        scale = ledger.balance(account).scale
        lines = ledger.statement(account, after=after, limit=check_limit(limit))
    if common.json:
        output.as_json([asdict(line) for line in lines])
        return
    rows = [
        (line.number, *(amounts.decimal(n, scale) for n in (line.amount, line.balance)),
         line.transfer)
        for line in lines
    ]  # fmt: skip
    output.table(("entry", "amount", "balance", "key"), rows)


@app.command
def verify(*, common: Common | None = None) -> int:
    """Recompute every balance from its entries; exit code 1 names the first difference."""
    common = common or Common()
    with common.opened() as store:
        ledger = Ledger(store)
        wrong, sums = ledger.verify(), ledger.trial_balance()
    sound = wrong is None and sums.balanced
    if common.json:
        first = None if wrong is None else asdict(wrong)
        output.as_json({"sound": sound, "difference": first, **asdict(sums)})
    elif wrong is not None:
        output.say(
            f"{wrong.account}: {wrong.what} should be {wrong.expected} and is {wrong.found}",
            style="red",
        )
    elif not sums.balanced:
        output.say(f"debits {sums.debits} are not credits {sums.credits}", style="red")
    else:
        output.say(f"{sums.accounts} accounts, all balances agree with their entries")
    return exits.DONE if sound else exits.REFUSED


# --------------------------------------------------------------------------------- files


@app.command(name="import")
def import_(path: str, /, *, batch: str = "", by: By = "", common: Common | None = None) -> int:
    """Transfer what each row of a CSV file says; again, it moves nothing twice.

    Columns: source, target, amount (like 12.50) or minor (like 1250), and perhaps key and memo.
    A row without a key has BATCH/LINE, BATCH being the file's name unless --batch names it.
    Exit code 1: some rows were refused; the others are done.
    """
    common = common or Common()
    with common.opened() as store, _bar("importing", common) as progress:
        done = Ledger(store).import_csv(path, batch=batch, progress=progress, by=by)
    if common.json:
        output.as_json(asdict(done))
    else:
        for error in done.errors:
            output.say(f"line {error.line}: {error.code}: {error.message}", style="red")
        output.say(
            f"{done.rows} rows: {done.moved} moved, {done.replayed} done before, "
            f"{done.refused} refused"
        )
    return exits.REFUSED if done.refused else exits.DONE


@app.command
def export(path: str, /, *, common: Common | None = None) -> None:
    """Write every leg of every posting into a CSV file."""
    common = common or Common()
    with common.opened() as store, _bar("exporting", common) as progress:
        count = Ledger(store).export_csv(path, progress=progress)
    if common.json:
        output.as_json({"path": path, "postings": count})
    else:
        output.say(f"{path}: {count} postings")


@contextmanager
def _bar(what: str, common: Common) -> Iterator[Callable[[int, int], Any] | None]:
    """A progress bar on standard error, where that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if common.json or not console.is_terminal:
        yield None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)
