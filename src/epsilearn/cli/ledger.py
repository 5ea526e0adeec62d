"""``epsilearn ledger``: the budget of a data set."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer
from rich.table import Table

from epsilearn.cli.common import AsJson, Dataset, app, console, print_json, show

__all__ = ["ledger_app"]

ledger_app = typer.Typer(help="The privacy budget of a data set.")
app.add_typer(ledger_app, name="ledger")

Url = Annotated[str, typer.Argument(metavar="URL", help="A file, or postgresql://user@host/name.")]


@ledger_app.command("create")
def ledger_create(
    url: Url,
    dataset: Annotated[str, typer.Option(help="The data set's name.")],
    epsilon: Annotated[float, typer.Option(help="The total budget.")],
    delta: Annotated[float, typer.Option(help="The total budget's delta.")] = 0.0,
    rule: Annotated[str | None, typer.Option(help="pure, zcdp or renyi; fixed for good.")] = None,
    rows_per_person: Annotated[int, typer.Option(help="How many rows one person may have.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Start a ledger with a total budget."""
    from epsilearn.ledger import Ledger

    ledger = Ledger.create(
        url, dataset=dataset, epsilon=epsilon, delta=delta, rule=rule, rows_per_person=rows_per_person
    )
    _show_balance(ledger, as_json)


@ledger_app.command("show")
def ledger_show(url: Url, dataset: Dataset = None, as_json: AsJson = False) -> None:
    """Show budget, spent and remaining."""
    from epsilearn.ledger import Ledger

    _show_balance(Ledger(url, dataset=dataset), as_json)


def _show_balance(ledger: Any, as_json: bool) -> None:
    balance = ledger.balance()
    if as_json:
        print_json(vars(balance))
        return
    delta = f", delta {balance.delta:g}" if balance.delta else ""
    width = 30
    filled = min(width, math.ceil(balance.used * width))
    show(
        [
            ("data set", balance.dataset),
            ("budget", f"epsilon {balance.epsilon:g}{delta}, {balance.rule} rule"),
            (
                "unit",
                f"one person with up to {balance.rows_per_person} rows" if balance.rows_per_person > 1 else "one row",
            ),
            ("used", f"{'█' * filled}{'░' * (width - filled)} {balance.used:.1%}"),
            (
                "plain sums",
                f"epsilon {balance.spent_epsilon:g}, delta {balance.spent_delta:g} in {balance.debits} debits",
            ),
            ("remaining", f"one more pure release of up to epsilon {balance.remaining_epsilon:g}"),
            ("head", balance.head),
        ]
    )


@ledger_app.command("history")
def ledger_history(url: Url, dataset: Dataset = None, as_json: AsJson = False) -> None:
    """List every debit."""
    from epsilearn.ledger import Ledger

    history = Ledger(url, dataset=dataset).history()
    if as_json:
        print_json(history)
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("entry", "epsilon", "delta"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, fold in (("time (UTC)", False), ("who", True), ("purpose", True), ("status", False)):
        table.add_column(name, overflow="fold", no_wrap=not fold)
    for row in history:
        promise = row["guarantee"]
        table.add_row(
            str(row["entry"]),
            _number(promise, "epsilon"),
            _number(promise, "delta"),
            row["time"][:16].replace("T", " "),
            row["who"],
            row["purpose"],
            row["status"],
        )
    console.print(table if history else "no debits yet")


def _number(promise: dict[str, Any], name: str) -> str:
    """A number of an entry; listing is no verifying, so it may be none."""
    try:
        return f"{float(promise[name]):g}"
    except (LookupError, TypeError, ValueError):
        return "damaged"


@ledger_app.command("verify")
def ledger_verify(
    url: Url,
    dataset: Dataset = None,
    head: Annotated[str | None, typer.Option(help="A head published earlier; it must still be in the chain.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check the hash chain and every total; exit code 3 if the ledger was edited or rolled back."""
    from epsilearn.ledger import Ledger

    ledger = Ledger(url, dataset=dataset)
    found = ledger.verify(head)
    if as_json:
        print_json({"dataset": ledger.dataset, "intact": True, "head": found})
        return
    show([("data set", ledger.dataset), ("chain", "intact"), ("head", found)])
