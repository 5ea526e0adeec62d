"""Hostile neighbours: tables that differ from a given one in one record, which is as awkward as records can be.

Records of the declared universe are finite numbers of any size and declared labels. Code that is wrong about clipping,
overflow, rounding, a count or a bound is wrong about such records first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from epsilearn.errors import InvalidInput

__all__ = ["HOSTILE_NUMBERS", "hostile_neighbours"]

# In the order in which they are tried; the first dozen go the farthest.
HOSTILE_NUMBERS = (
    0.0, 1e6, -1e6, 1e200, sys.float_info.max, -sys.float_info.max, sys.float_info.min, 5e-324, -0.0, 1e-170, 0.5, -1.0,
    1.0, 40.0, 2.0**53 + 2, -(2.0**31), 1e-8, 1 / 3, 1e16, -1e300, 1e38, 3.4e38, -5e-324, 2.0**-1022,
)  # fmt: skip


def hostile_neighbours(
    table: tuple[Any, ...],
    count: int = 100,
    *,
    labels: tuple[bool, ...] | None = None,
    seed: int = 0,
) -> Iterator[tuple[Any, ...]]:
    """Neighbours of a table, each with another record replaced by an awkward one.

    Parameters
    ----------
    table : tuple of array, data frame, sparse matrix or list
        Columns of one length, such as (X, y).
    count : int
        How many.
    labels : tuple of bool, optional
        For each of them, whether its values are labels, which are replaced by others that occur. If left out, whatever
        is not a floating-point number is.
    seed : int
        Which records are replaced.

    Yields
    ------
    tuple
        Of the same kinds as the table.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.ones((3, 2)), np.array([0, 1, 1])
    >>> first, second = hostile_neighbours((X, y), 2)
    >>> bool((first[0] != X).any(axis=1).sum() <= 1), set(second[1].tolist()) <= {0, 1}
    (True, True)
    """
    rows = {len(column) if not hasattr(column, "tocsr") else column.shape[0] for column in table}
    if len(rows) != 1:
        raise InvalidInput("a table's columns have one length; these have several")
    kinds = labels or tuple(_are_labels(column) for column in table)
    generator = np.random.default_rng(seed)
    order = generator.permutation(*rows)
    for number in range(count):
        row = int(order[number % len(order)])
        yield tuple(
            _replaced(column, row, number, is_label, generator) for column, is_label in zip(table, kinds, strict=True)
        )


def _are_labels(column: Any) -> bool:
    if hasattr(column, "tocsr") or hasattr(column, "columns"):
        return False
    return not np.issubdtype(np.asarray(column).dtype, np.floating)


def _replaced(column: Any, row: int, number: int, is_label: bool, generator: np.random.Generator) -> Any:
    if hasattr(column, "tocsr"):
        return _in_sparse(column, row, _numbers(column.shape[1], number, generator))
    if hasattr(column, "iloc"):
        return _in_frame(column, row, number, generator)
    if isinstance(column, list):
        other = column[int(generator.integers(len(column)))] if is_label else _numbers(1, number, generator)[0]
        return [*column[:row], other, *column[row + 1 :]]
    changed = column.copy()
    changed[row] = generator.choice(column) if is_label else _like(column, number, generator)
    return changed


def _like(column: Any, number: int, generator: np.random.Generator) -> Any:
    values = _numbers(max(1, int(np.prod(column.shape[1:]))), number, generator).reshape(column.shape[1:])
    if not np.issubdtype(column.dtype, np.floating):
        limits = np.iinfo(column.dtype) if np.issubdtype(column.dtype, np.integer) else None
        values = values != 0 if limits is None else np.clip(values, limits.min // 2, limits.max // 2)
    with np.errstate(over="ignore"):
        cast = values.astype(column.dtype)
    # A narrower type turns the largest doubles into infinities, which no universe has.
    return np.nan_to_num(cast, posinf=None, neginf=None) if np.issubdtype(column.dtype, np.floating) else cast


def _numbers(count: int, number: int, generator: np.random.Generator) -> Any:
    """All alike at first, then one among zeros, then mixed."""
    one = HOSTILE_NUMBERS[number % len(HOSTILE_NUMBERS)]
    style = number // len(HOSTILE_NUMBERS) % 3
    if style == 0:
        return np.full(count, one)
    if style == 1:
        values = np.zeros(count)
        values[int(generator.integers(count))] = one
        return values
    return generator.choice(HOSTILE_NUMBERS, size=count)


def _in_sparse(column: Any, row: int, values: Any) -> Any:
    changed = column.tolil(copy=True)
    changed[[row], :] = values[None, :]
    return changed.asformat(column.format)


def _in_frame(column: Any, row: int, number: int, generator: np.random.Generator) -> Any:
    changed = column.copy()
    names = list(column.columns) if hasattr(column, "columns") else [None]
    numbers = _numbers(len(names), number, generator)
    for position, (name, value) in enumerate(zip(names, numbers, strict=True)):
        series = column if name is None else column[name]
        new = value if str(series.dtype).startswith("float") else series.iloc[int(generator.integers(len(series)))]
        if name is None:
            changed.iloc[row] = new
        else:
            changed.iloc[row, position] = new
    return changed
