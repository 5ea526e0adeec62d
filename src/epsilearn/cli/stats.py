"""``epsilearn stats``: one statistic of one column."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from epsilearn.cli.common import AsJson, Dataset, app, named_ledger, print_json, reserved, show
from epsilearn.errors import InvalidInput

__all__ = ["stats"]


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

    request, bins = _request(statistic, bounds, equals, edges, categories, q, delta), _bins(edges, categories)
    budget = named_ledger(ledger, dataset, purpose)
    labels = statistic == "count" or categories is not None
    values = read_column(file, column, as_text=labels)
    with reserved(guarantee) as write:
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
        print_json(data)
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
    show(rows)
    if ledger is not None:
        label = "remaining".ljust(max(len(name) for name, _ in rows))
        show([(label, f"epsilon {ledger.balance().remaining_epsilon:g}")])


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
