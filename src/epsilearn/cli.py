"""The command line. Exit codes: 0 done, 2 bad use, 3 refused by the ledger."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from epsilearn.errors import BudgetExceeded, EpsilearnError, InvalidInput, LedgerError, TamperedLedger

__all__ = ["app", "main"]

DONE, FAILED, BAD_USE, REFUSED, INTERRUPTED = 0, 1, 2, 3, 130

app = typer.Typer(
    name="epsilearn",
    help="Differentially private statistics and models, with promises you can check.",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
ledger_app = typer.Typer(help="The privacy budget of a data set.")
app.add_typer(ledger_app, name="ledger")

console = Console(highlight=False)

# Typer carries its own copy of click; this is the base of everything it says about wrong words.
_UsageError: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Url = Annotated[str, typer.Argument(metavar="URL", help="A file, or postgresql://user@host/name.")]
Dataset = Annotated[str | None, typer.Option(help="Which data set, if the database holds several.")]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code; an error is one line, never a traceback."""
    words = sys.argv[1:] if arguments is None else arguments
    sys.exit(_run(words, as_json="--json" in words))


def _run(words: list[str], *, as_json: bool) -> int:
    try:
        result = app(words or ["--help"], standalone_mode=False)
        return result if isinstance(result, int) else DONE
    except EpsilearnError as error:
        return _complain(str(error), _code(error), as_json)
    except _UsageError as error:
        return _complain(error.format_message(), BAD_USE, as_json)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", INTERRUPTED, as_json)
    except BrokenPipeError:
        # The reader went away (`| head`): point stdout nowhere so that Python's exit stays quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _code(error: EpsilearnError) -> int:
    if isinstance(error, (BudgetExceeded, TamperedLedger)):
        return REFUSED
    return BAD_USE if isinstance(error, (InvalidInput, LedgerError)) else FAILED


def _complain(message: str, code: int, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"error": message, "code": code}))
    else:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"[bold red]error:[/] {escape(message)}")
    return code


def _print_json(data: Any) -> None:
    print(json.dumps(_finite(data), indent=2))


def _finite(data: Any) -> Any:
    """JSON has no infinity: say it in words."""
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_finite(value) for value in data]
    return "infinity" if isinstance(data, float) and math.isinf(data) else data


def _show(rows: list[tuple[str, str]]) -> None:
    table = Table.grid(padding=(0, 3))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(escape(name), escape(value))
    console.print(table)


def _print_version(wanted: bool) -> None:
    if wanted:
        from epsilearn import __version__

        print(f"epsilearn {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command()
def explain(
    epsilon: Annotated[float, typer.Option(help="The privacy parameter; smaller is more private.")],
    delta: Annotated[float, typer.Option(help="The probability set aside; 0 is pure.")] = 0.0,
    figure: Annotated[Path | None, typer.Option(help="Where to write the figure (.png, .svg or .pdf).")] = None,
    as_json: AsJson = False,
) -> None:
    """Say in plain words what a promise means, and draw it."""
    from epsilearn.explanation import explain as explain_budget

    meaning = explain_budget(epsilon, delta)
    path = figure or Path(f"epsilon-{epsilon:g}.png")
    _save_figure(meaning.save_figure, path)
    if as_json:
        _print_json({**meaning.to_dict(), "figure": str(path)})
        return
    for sentence in meaning.sentences():
        console.print(escape(sentence), soft_wrap=False)
        console.print()
    table = Table(box=None, padding=(0, 2), header_style="bold")
    table.add_column("at most")
    table.add_column("this bound", justify="right")
    table.add_column("the textbook's", justify="right")
    table.add_row(
        "winning probability",
        f"{meaning.winning_probability:.3f}",
        _textbook(meaning.lecture_winning_bound),
    )
    table.add_row("posterior shift", f"{meaning.posterior_shift:.3f}", _textbook(meaning.lecture_posterior_bound))
    console.print(table)
    console.print(f"\nfigure: {escape(str(path))}")


def _textbook(bound: float) -> str:
    return f"{bound:.3f}" + (" (capped at 1)" if bound >= 1 else "")


def _save_figure(save: Callable[[Path], None], path: Path) -> None:
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InvalidInput(f"cannot draw to {path.name}: the figure must be a .png, .svg or .pdf")
    try:
        save(path)
    except OSError as error:
        raise InvalidInput(f"cannot write the figure to {path}: {error.strerror}") from None


@app.command()
def stats(
    file: Annotated[Path, typer.Argument(help="A CSV, Parquet or Arrow file.")],
    column: Annotated[str, typer.Option(help="The column's name.")],
    statistic: Annotated[str, typer.Option(help="count, sum, mean, variance, histogram, quantile or median.")] = "mean",
    epsilon: Annotated[float, typer.Option(help="The budget of this release.")] = 1.0,
    delta: Annotated[float, typer.Option(help="0 adds Laplace noise, more adds Gaussian.")] = 0.0,
    bounds: Annotated[str | None, typer.Option(help="LOWER,UPPER: public; values are clipped to them.")] = None,
    equals: Annotated[str | None, typer.Option(help="For count: rows with this value.")] = None,
    edges: Annotated[str | None, typer.Option(help="For histogram: bin edges, separated by commas.")] = None,
    categories: Annotated[str | None, typer.Option(help="For histogram: every category, separated by commas.")] = None,
    q: Annotated[float, typer.Option(help="For quantile: which one, between 0 and 1.")] = 0.5,
    rows_per_person: Annotated[int, typer.Option(help="How many rows one person may have.")] = 1,
    ledger: Annotated[str | None, typer.Option(help="Debit this ledger (a file or a database URL).")] = None,
    dataset: Dataset = None,
    purpose: Annotated[str | None, typer.Option(help="Written into the ledger.")] = None,
    guarantee: Annotated[Path | None, typer.Option(help="Write the promise to this JSON file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Release one statistic of one column, privately."""
    from epsilearn.files import read_column
    from epsilearn.ledger import Ledger

    request, bins = _request(statistic, bounds, equals, edges, categories, q, delta), _bins(edges, categories)
    budget = None if ledger is None else Ledger(ledger, dataset=dataset)
    labels = statistic == "count" or categories is not None
    values = read_column(file, column, as_text=labels)
    with _reserved(guarantee) as write:
        released = request(
            values,
            epsilon=epsilon,
            rows_per_person=rows_per_person,
            ledger=budget,
            purpose=purpose or f"{statistic} of {column}",
        )
        _report(released, f"{statistic} of {column}", bins, budget, as_json)
        write(released.guarantee.to_json() + "\n")


def _request(
    statistic: str,
    bounds: str | None,
    equals: str | None,
    edges: str | None,
    categories: str | None,
    q: float,
    delta: float,
) -> Callable[..., Any]:
    """The statistic to compute, with its public parameters checked before the file is opened."""
    from epsilearn import statistics
    from epsilearn.checks import check_bounds, check_probability

    if statistic in ("sum", "mean", "variance"):
        interval = check_bounds(_numbers("--bounds", bounds))
        function = getattr(statistics, statistic)
        return lambda column, **options: function(column, bounds=interval, delta=delta, **options)
    if statistic in ("quantile", "median"):
        interval, which = check_bounds(_numbers("--bounds", bounds)), 0.5 if statistic == "median" else q
        check_probability("q", which)
        if delta:
            raise InvalidInput("a quantile is a pure release; leave --delta out")
        return lambda column, **options: statistics.quantile(column, which, bounds=interval, **options)
    if statistic == "count":
        if equals is None:
            raise InvalidInput("count needs --equals VALUE: which rows to count")
        return lambda column, **options: statistics.count(_matches(column, equals), delta=delta, **options)
    if statistic == "histogram":
        limits = None if edges is None else _numbers("--edges", edges)
        labels = None if categories is None else categories.split(",")
        if (limits is None) == (labels is None):
            raise InvalidInput("histogram needs either --edges or --categories")
        return lambda column, **options: statistics.histogram(
            column if labels is None else _as_text(column), edges=limits, categories=labels, delta=delta, **options
        )
    raise InvalidInput(
        f"unknown statistic {statistic!r}; expected count, sum, mean, variance, histogram, quantile or median"
    )


def _numbers(option: str, text: str | None) -> list[float]:
    if text is None:
        raise InvalidInput(f"{option} is missing: bounds are public knowledge and never read off the data")
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(f"{option} must be numbers separated by commas, got {text!r}") from None


def _as_text(column: Any) -> list[str | None]:
    return [None if value is None else str(value) for value in column.to_pylist()]


def _matches(column: Any, wanted: str) -> list[bool]:
    """Which rows hold the wanted value: compared as numbers where the file says they are, else as text."""
    import pyarrow as pa

    values: list[Any] = column.to_pylist()
    if any(value is None or (isinstance(value, float) and math.isnan(value)) for value in values):
        raise InvalidInput("the column has missing values; drop or fill them by a rule that does not look at the data")
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        try:
            number = Fraction(wanted)
        except ValueError:
            raise InvalidInput(f"--equals must be a number, as the column is; got {wanted!r}") from None
        return [math.isfinite(value) and Fraction(value) == number for value in values]
    return [str(value) == wanted for value in values]


def _bins(edges: str | None, categories: str | None) -> list[str]:
    """What each number of a histogram counts."""
    if categories is not None:
        return categories.split(",")
    limits = _numbers("--edges", edges) if edges is not None else []
    return [f"{low:g} to {high:g}" for low, high in pairwise(limits)]


def _report(released: Any, title: str, bins: list[str], ledger: Any, as_json: bool) -> None:
    value = released.value.tolist() if hasattr(released.value, "tolist") else released.value
    noise = released.noise
    if as_json:
        data = {"statistic": title, "value": value, "guarantee": released.guarantee.to_dict()}
        if isinstance(value, list):
            data["bins"] = bins
        if noise is not None:
            data["noise"] = {"kind": noise.kind, "scale": noise.scale, "deviation": noise.deviation}
            data["half_width_95"] = noise.half_width(0.95)
        _print_json(data)
        return
    rows = [(title, "" if isinstance(value, list) else _number(value))]
    if isinstance(value, list):
        width = max(len(_number(v)) for v in value)
        rows += [(f"  {name}", _number(v).rjust(width)) for name, v in zip(bins, value, strict=True)]
    if noise is not None:
        rows.append(("noise", f"{noise.kind}, scale {noise.scale:.4g}; within ±{noise.half_width(0.95):.4g} at 95%"))
    rows.append(("promise", str(released.guarantee)))
    rows.append(("theorem", released.guarantee.theorem))
    if ledger is not None:
        stamp = released.guarantee.ledger
        rows += [("ledger", f"{stamp.dataset}, entry {stamp.entry}"), ("head", stamp.head)]
    # What was paid for is shown first; a ledger that cannot be read now must not swallow it.
    _show(rows)
    if ledger is not None:
        label = "remaining".ljust(max(len(name) for name, _ in rows))
        _show([(label, f"epsilon {ledger.balance().remaining_epsilon:g}")])


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


@contextmanager
def _reserved(path: Path | None) -> Iterator[Callable[[str], None]]:
    """A file to be written whole or not at all, its place made sure of before anything is spent."""
    if path is None:
        yield lambda _text: None
        return
    partial = path.absolute().with_name(f".{path.name}.partial")
    try:
        if path.is_dir():
            raise InvalidInput(f"cannot write {path}: it is a folder")
        partial.touch()
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}") from None

    def write(text: str) -> None:
        partial.write_text(text)
        partial.replace(path)

    try:
        yield write
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}; the value above was released") from None
    finally:
        partial.unlink(missing_ok=True)


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
        _print_json(vars(balance))
        return
    delta = f", delta {balance.delta:g}" if balance.delta else ""
    width = 30
    filled = min(width, math.ceil(balance.used * width))
    _show(
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
        _print_json(history)
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
            f"{promise['epsilon']:g}",
            f"{promise['delta']:g}",
            row["time"][:16].replace("T", " "),
            escape(row["who"]),
            escape(row["purpose"]),
            row["status"],
        )
    console.print(table if history else "no debits yet")


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
        _print_json({"dataset": ledger.dataset, "intact": True, "head": found})
        return
    _show([("data set", ledger.dataset), ("chain", "intact"), ("head", found)])


if __name__ == "__main__":
    main()
