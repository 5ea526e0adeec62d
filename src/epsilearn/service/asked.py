"""What analysts ask: points in the schema's own words, and statistics of its columns."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from epsilearn import statistics
from epsilearn.errors import InvalidInput
from epsilearn.mechanisms.release import Release
from epsilearn.schema import Schema
from epsilearn.schema_columns import Column, one_line
from epsilearn.service.messages import AskStatistic

__all__ = ["as_table", "question_of", "request_of", "shown"]


def as_table(rows: Sequence[dict[str, Any]], schema: Schema, target: str) -> Any:
    """An Arrow table of points, checked: the asker's own mistakes are named by row and column."""
    import pyarrow as pa

    names = schema.features(target)
    for number, row in enumerate(rows):
        unknown = [name for name in row if name not in names]
        if unknown:
            raise InvalidInput(f"row {number}: {one_line(unknown[0])} is not one of the columns this release asks for")
    columns = {}
    for name in names:
        column, values = schema.columns[name], [row.get(name) for row in rows]
        for number, value in enumerate(values):
            _check(value, column, f"row {number}: column {one_line(name)}")
        columns[name] = pa.array(values, _type(column))
    return pa.table(columns)


def _type(column: Column) -> Any:
    import pyarrow as pa

    if column.categories is None or isinstance(column.categories[0], (int, float)):
        if column.categories is not None and isinstance(column.categories[0], bool):
            return pa.bool_()
        return pa.float64()
    return pa.string()


def _check(value: Any, column: Column, label: str) -> None:
    if value is None:
        if column.missing is None:
            raise InvalidInput(f"{label} is missing, and nothing stands for that; give a value")
        return
    categories = column.categories
    if categories is None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidInput(f"{label} must be a number")
        return
    kinds: tuple[type, ...] = (bool,) if isinstance(categories[0], bool) else (str,)
    if isinstance(categories[0], (int, float)) and not isinstance(categories[0], bool):
        kinds = (int, float)
    plain = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
    if not plain or (column.other is None and value not in categories and value not in column.aliases):
        raise InvalidInput(f"{label} must be one of its categories: {', '.join(map(str, categories[:20]))}")


def question_of(asked: AskStatistic, schema: Schema) -> str:
    """The question in one form, so that the same one is known again however it is spelt."""
    content = asked.model_dump(exclude_none=True)
    if asked.statistic == "median":
        content.update(statistic="quantile", q=0.5)
    if content["statistic"] != "quantile":
        content.pop("q")
    if asked.equals is not None:
        # 1, 1.0 and true are one category.
        content["equals"] = list(schema.columns[asked.column].categories or ()).index(asked.equals)
    if asked.edges is not None:
        content["edges"] = [edge + 0.0 for edge in asked.edges]
    return json.dumps(content, sort_keys=True)


def request_of(asked: AskStatistic, schema: Schema) -> tuple[Callable[..., Release], list[str] | None]:
    """The statistic as a function of the column's values, and what each number of it counts; all public."""
    if schema.sparse:
        raise InvalidInput("the columns of this table are numbered; there are no statistics of them here")
    column = schema.columns.get(asked.column)
    if column is None or column.ignored:
        raise InvalidInput(f"{one_line(asked.column)} is not a column that can be asked about")
    numbers = column.categories is None
    kind = asked.statistic
    for given, where, word in (
        (asked.equals, "count", "equals"),
        (asked.edges, "histogram", "edges"),
    ):
        if given is not None and kind != where:
            raise InvalidInput(f"{word} is for {where}, and this is {kind}")
    if kind == "count":
        if numbers or asked.equals is None or asked.equals not in (column.categories or ()):
            raise InvalidInput("count needs a column with categories, and equals = one of them")
        position = list(column.categories or ()).index(asked.equals)
        return lambda values, **options: statistics.count(values == position, **options), None
    if kind == "histogram":
        return _histogram(asked, column)
    if not numbers:
        raise InvalidInput(f"a {kind} needs a column of numbers; {one_line(asked.column)} has categories")
    bounds = column.bounds
    assert bounds is not None
    if kind in ("quantile", "median"):
        which = 0.5 if kind == "median" else asked.q
        return lambda values, **options: statistics.quantile(values, which, bounds=bounds, **options), None
    function = getattr(statistics, kind)
    return lambda values, **options: function(values, bounds=bounds, **options), None


def _histogram(asked: AskStatistic, column: Column) -> tuple[Callable[..., Release], list[str]]:
    if column.categories is not None:
        if asked.edges is not None:
            raise InvalidInput("a histogram of categories has no edges; leave them out")
        places = list(range(len(column.categories)))
        bins = [str(value) for value in column.categories]
        return lambda values, **options: statistics.histogram(values, categories=places, **options), bins
    edges = asked.edges
    if edges is None or not all(low < high for low, high in pairwise(edges)):
        raise InvalidInput("a histogram of numbers needs edges, each larger than the one before")
    bins = [f"{low:.12g} to {high:.12g}" for low, high in pairwise(edges)]
    return lambda values, **options: statistics.histogram(values, edges=edges, **options), bins


def shown(released: Release, bins: list[str] | None) -> dict[str, Any]:
    """A statistic as it is stored and told."""
    value = released.value.tolist() if hasattr(released.value, "tolist") else released.value
    width = None if released.noise is None or released.noise.kind == "gumbel" else released.noise.half_width(0.95)
    return {
        "value": value if isinstance(value, list) else float(value),
        "bins": bins,
        "half_width_95": width if width is None or math.isfinite(width) else None,
        "guarantee": released.guarantee.to_dict(),
    }
