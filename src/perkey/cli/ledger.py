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
from perkey.ledger import Balance, Difference, Transfer
from perkey.store.views import moment

HELP = """Move money between accounts; every operation has a key of its own.

The same key again moves nothing: it shows what was done before. The store is the one that
--store or PERKEY_STORE names; open makes an SQLite file.

For example:

    export PERKEY_STORE=sqlite:///work.db
    perkey ledger open bank EUR --floor none
    perkey ledger open alice EUR
    perkey ledger transfer bank alice 12.50 --key pay/1
    perkey ledger statement alice
    perkey ledger verify
"""

app = App(name="ledger", help=HELP)

Amount = Annotated[
    str, Parameter(help="Like 12.50, in the account's unit.", allow_leading_hyphen=True)
]
Minor = Annotated[bool, Parameter(negative="", help="AMOUNT is in whole minor units, like 1250.")]
Key = Annotated[
    str,
    Parameter(name="--key", metavar="KEY", help="Idempotency key; the same again is a replay."),
]
Memo = Annotated[
    str, Parameter(name="--memo", metavar="TEXT", help="Short text that stays with it.")
]
Floor = Annotated[
    str,
    Parameter(
        metavar="AMOUNT", help="The lowest balance, like -100, or none.", allow_leading_hyphen=True
    ),
]
Account = Annotated[str, Parameter(help="The account's name.")]
Unit = Annotated[str, Parameter(help="What it counts, like EUR.")]
Scale = Annotated[int, Parameter(metavar="N", help="Decimal places, from 0 to 18.")]
Source = Annotated[str, Parameter(help="The account that gives.")]
Target = Annotated[str, Parameter(help="The account that takes.")]
Held = Annotated[str, Parameter(help="The key of the hold.")]
Moved = Annotated[str, Parameter(help="The key of the transfer.")]
Part = Annotated[
    str | None,
    Parameter(help="How much of it, like 12.50; default: all of it.", allow_leading_hyphen=True),
]
Expires = Annotated[
    float | None, Parameter(metavar="S", help="It ends by itself after this many seconds.")
]
NamePrefix = Annotated[str, Parameter(help="What the names begin with.")]
AfterName = Annotated[str, Parameter(metavar="NAME", help="Only names that sort after this one.")]
AfterEntry = Annotated[int, Parameter(metavar="NUMBER", help="Only later entries.")]
Batch = Annotated[
    str, Parameter(metavar="NAME", help="Names the keys of rows without one; default: the file's.")
]


def read_amount(ledger: Ledger, account: str, text: str, minor: bool) -> int:
    """AMOUNT in minor units of ``account``."""
    return amounts.whole(text) if minor else amounts.minor(text, ledger.balance(account).scale)


@app.command(name="open")
def open_(
    account: Account,
    unit: Unit,
    /,
    *,
    scale: Scale = 2,
    floor: Floor = "0",
    by: By = "",
    common: Common | None = None,
) -> None:
    """Open an account.  The same again is harmless.

    For example:

        perkey ledger open alice EUR
        perkey ledger open bank EUR --floor none
        perkey ledger open stock apples --scale 0
    """
    common = common or Common()
    if not 0 <= scale <= 18:
        raise UsageError(f"expected --scale from 0 to 18, found {scale}")
    lowest = None if floor == "none" else amounts.minor(floor, scale)
    with common.opened(existing=False) as store:
        opened = Ledger(store).open_account(account, unit, scale=scale, floor=lowest, by=by)
    _show_balances([opened], common)


@app.command
def transfer(
    source: Source,
    target: Target,
    amount: Amount,
    /,
    *,
    key: Key,
    minor: Minor = False,
    memo: Memo = "",
    by: By = "",
    common: Common | None = None,
) -> None:
    """Move AMOUNT from SOURCE to TARGET, once for --key.

    For example:

        perkey ledger transfer bank alice 12.50 --key pay/1 --memo "May"
    """
    common = common or Common()
    with common.opened() as store:
        ledger = Ledger(store)
        units = read_amount(ledger, source, amount, minor)
        _show(ledger, ledger.transfer(source, target, units, key=key, memo=memo, by=by), common)


@app.command
def hold(
    source: Source,
    target: Target,
    amount: Amount,
    /,
    *,
    key: Key,
    minor: Minor = False,
    expires: Expires = None,
    memo: Memo = "",
    by: By = "",
    common: Common | None = None,
) -> None:
    """Keep AMOUNT back on SOURCE for TARGET until it is settled or released, or expires.

    For example:

        perkey ledger hold alice shop 20 --key order/7 --expires 3600
    """
    common = common or Common()
    with common.opened() as store:
        ledger = Ledger(store)
        units = read_amount(ledger, source, amount, minor)
        held = ledger.hold(source, target, units, key=key, expires_in=expires, memo=memo, by=by)
        _show(ledger, held, common)


@app.command
def settle(
    held: Held,
    amount: Part = None,
    /,
    *,
    key: Key,
    minor: Minor = False,
    memo: Memo = "",
    by: By = "",
    common: Common | None = None,
) -> None:
    """Post the hold with the key HELD, or AMOUNT of it; the rest becomes available again.

    For example:

        perkey ledger settle order/7 17.50 --key order/7/settled
    """
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
def release(held: Held, /, *, by: By = "", common: Common | None = None) -> None:
    """End the hold with the key HELD without moving anything.

    For example:

        perkey ledger release order/7
    """
    common = common or Common()
    with common.opened() as store:
        ledger = Ledger(store)
        _show(ledger, ledger.release(held, by=by), common)


@app.command
def reverse(moved: Moved, /, *, memo: Memo = "", by: By = "", common: Common | None = None) -> None:
    """Post the opposite of the transfer with the key MOVED, once; nothing is deleted.

    For example:

        perkey ledger reverse pay/1 --memo "wrong account"
    """
    common = common or Common()
    with common.opened() as store:
        ledger = Ledger(store)
        _show(ledger, ledger.reverse(moved, memo=memo, by=by), common)


def facts(moved: Transfer) -> dict[str, Any]:
    """A posting as JSON."""
    return {
        **structs.asdict(moved),
        "at": moment(moved.at),
        "expires": None if moved.expires is None else moment(moved.expires),
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
    if moved.kind == "hold":
        (source, _), (target, units) = moved.asked
        account = ledger.balance(source)
        kept, left = (amounts.decimal(n, account.scale) for n in (units, account.available))
        output.say(f"  {kept} {account.unit} from {source} to {target}, available {left}")


# ------------------------------------------------------------------------------- looking


@app.command
def balance(account: Account, /, *, common: Common | None = None) -> None:
    """Show an account's posted, held and available balance.

    For example:

        perkey ledger balance alice
    """
    common = common or Common()
    with common.opened() as store:
        found = Ledger(store).balance(account)
    if common.json:
        output.as_json(asdict(found))
    else:
        _show_balances([found], common)


@app.command
def accounts(
    prefix: NamePrefix = "",
    /,
    *,
    after: AfterName = "",
    limit: Limit = 1000,
    common: Common | None = None,
) -> None:
    """List the accounts whose name has a prefix, by name.

    For example:

        perkey ledger accounts customers/ --json
    """
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
    account: Account,
    /,
    *,
    after: AfterEntry = 0,
    limit: Limit = 100,
    common: Common | None = None,
) -> None:
    """List an account's entries in order, with running balances.

    For example:

        perkey ledger statement alice --after 100
    """
    common = common or Common()
    with common.opened() as store:
        ledger = Ledger(store)
        scale = ledger.balance(account).scale
        lines = ledger.statement(account, after=after, limit=check_limit(limit))
    if common.json:
        output.as_json([{**asdict(line), "at": moment(line.at)} for line in lines])
        return
    rows = [
        (line.number, *(amounts.decimal(n, scale) for n in (line.amount, line.balance)),
         line.transfer)
        for line in lines
    ]  # fmt: skip
    output.table(("entry", "amount", "balance", "key"), rows)


@app.command
def verify(*, common: Common | None = None) -> int:
    """Recompute every balance from its entries; exit code 1 names the first difference.

    For example:

        perkey ledger verify --json
    """
    common = common or Common()
    with common.opened() as store:
        ledger = Ledger(store)
        wrong, sums = ledger.verify(), ledger.trial_balance()
        account = None if wrong is None else ledger.balance(wrong.account)
    sound = wrong is None and sums.balanced
    if common.json:
        first = None if wrong is None else asdict(wrong)
        output.as_json({"sound": sound, "difference": first, **asdict(sums)})
    elif wrong is not None:
        output.say(_differs(wrong, account), style="red")
    elif not sums.balanced:
        output.say(
            f"debits {sums.debits} are not credits {sums.credits} (in minor units)", style="red"
        )
    else:
        output.say(f"{sums.accounts} accounts, all balances agree with their entries")
    return exits.DONE if sound else exits.REFUSED


def _differs(wrong: Difference, account: Balance | None) -> str:
    """The first difference in words; amounts in the account's unit."""
    expected, found = str(wrong.expected), str(wrong.found)
    amount = wrong.what in ("debits", "credits") or wrong.what.startswith("the balance")
    if account is not None and amount:
        expected = amounts.money(wrong.expected, account.scale, account.unit)
        found = amounts.money(wrong.found, account.scale, account.unit)
    return f"{wrong.account}: {wrong.what} should be {expected} and is {found}"


# --------------------------------------------------------------------------------- files


@app.command(name="import")
def import_(
    path: Annotated[str, Parameter(help="The CSV file to read.")],
    /,
    *,
    batch: Batch = "",
    by: By = "",
    common: Common | None = None,
) -> int:
    """Transfer what each row of a CSV file says; again, it moves nothing twice.

    Columns: source, target, amount (like 12.50) or minor (like 1250), and perhaps key and memo.
    A row without a key has BATCH/LINE, BATCH being the file's name unless --batch names it.
    Exit code 1: some rows were refused; the others are done.

    For example:

        perkey ledger import may.csv --batch may
    """
    common = common or Common()
    with common.opened() as store, _bar("importing", common) as progress:
        done = Ledger(store).import_csv(path, batch=batch, progress=progress, by=by)
    if common.json:
        output.as_json(asdict(done))
    else:
        for error in done.errors:
            output.say(f"line {error.line}: {error.code}: {error.message}", style="red")
        rows = "1 row" if done.rows == 1 else f"{done.rows} rows"
        output.say(
            f"{rows}: {done.moved} moved, {done.replayed} done before, {done.refused} refused"
        )
    return exits.REFUSED if done.refused else exits.DONE


@app.command
def export(
    path: Annotated[str, Parameter(help="The CSV file to write.")],
    /,
    *,
    common: Common | None = None,
) -> None:
    """Write every leg of every posting into a CSV file.

    For example:

        perkey ledger export postings.csv
    """
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
