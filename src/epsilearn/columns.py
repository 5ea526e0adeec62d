"""Columns of numbers from anywhere: numpy, pandas, polars, Arrow, plain lists. Checked, never quoted."""

from __future__ import annotations

import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn.errors import InvalidInput
from epsilearn.quiet import quietly

__all__ = ["as_booleans", "as_labels", "as_numbers", "numbers_in"]

_NUMBERS = (bool, int, float, Decimal, Fraction, np.bool_, np.integer, np.floating)


@quietly()
def as_numbers(column: Any, name: str = "the column") -> NDArray[np.float64]:
    """The column as finite doubles; anything else is an error before anything is spent."""
    array = _as_array(column, name)
    if array.dtype.kind == "O" and all(isinstance(v, _NUMBERS) for v in array):
        array = np.array([_as_float(v) for v in array])
    if array.dtype.kind not in "biuf":
        raise InvalidInput(f"{name} holds something that is not a number, or missing values; convert it first")
    array = array.astype(np.float64, copy=False)
    if not np.isfinite(array).all():
        raise InvalidInput(
            f"{name} has missing, NaN or infinite values; drop or fill them by a rule that does not look at the data"
        )
    return array


def _as_float(number: Any) -> float:
    """A number too large for doubles will be clipped to the bounds anyway: the largest double stands for it."""
    try:
        return float(number)
    except OverflowError:
        return sys.float_info.max if number > 0 else -sys.float_info.max


@quietly()
def as_booleans(column: Any, name: str = "the column") -> NDArray[np.bool_]:
    """The column as true and false; 0 and 1 will do."""
    array = _as_array(column, name)
    if array.dtype.kind == "O" and all(isinstance(v, _NUMBERS) for v in array):
        array = np.array([_as_float(v) for v in array])
    if array.dtype.kind in "iuf" and np.isin(array, (0, 1)).all():
        array = array.astype(np.bool_)
    if array.dtype.kind != "b":
        raise InvalidInput(f"{name} must hold true/false or 0/1, one for each row")
    return array


@quietly()
def as_labels(column: Any, categories: list[Any], name: str = "the column") -> NDArray[np.int64]:
    """The position of each value among the public categories; an unknown value is an error."""
    if len(set(categories)) != len(categories) or not categories:
        raise InvalidInput("categories must be a list of different values, at least one")
    array = _as_array(column, name)
    positions = {category: i for i, category in enumerate(categories)}
    try:
        if array.dtype.kind in "iu" and categories == list(range(len(categories))):
            found = np.where((array >= 0) & (array < len(categories)), array, -1).astype(np.int64)
        else:
            found = np.array([positions.get(value, -1) for value in array.tolist()], np.int64)
    except TypeError:  # a value that cannot be looked up
        found = np.array([-1])
    # Raised out here: even a suppressed KeyError would carry the private value along.
    if found.min() < 0:
        raise InvalidInput(
            f"{name} has a value that is missing or not among the declared categories; declare every category"
        )
    return found


def numbers_in(texts: Any) -> Any | None:
    """An Arrow column of texts as one of doubles, null where a text is empty; None if one is not a number."""
    import pyarrow as pa
    from pyarrow import compute

    filled = compute.if_else(compute.equal(texts, ""), pa.scalar(None, texts.type), texts)
    try:
        return filled.cast(pa.float64())
    except pa.ArrowInvalid:  # whose text quotes the value
        return None


def _as_array(column: Any, name: str) -> NDArray[Any]:
    if isinstance(column, (str, bytes, dict)) or column is None:
        raise InvalidInput(f"{name} must be a column of values, got {type(column).__name__}")
    if isinstance(column, np.ma.MaskedArray) and np.ma.is_masked(column):
        raise InvalidInput(f"{name} has masked values; drop or fill them by a rule that does not look at the data")
    try:
        array: NDArray[Any] | None = _values_of(column)
    except (TypeError, ValueError, NotImplementedError):
        array = None
    # Raised out here: even a suppressed error would carry the private value along.
    if array is None:
        raise InvalidInput(f"{name} cannot be read as one column of values")
    if array.ndim != 1:
        raise InvalidInput(f"{name} must be one-dimensional, got {array.ndim} dimensions; choose one column")
    if array.size == 0:
        raise InvalidInput(f"{name} is empty; there must be at least one row")
    return array


def _values_of(column: Any) -> NDArray[Any]:
    if hasattr(column, "__arrow_c_stream__") or hasattr(column, "__arrow_c_array__"):
        return _through_arrow(column)
    # Lists become objects first: numpy would let one odd value decide the type of all the others.
    return np.array(column, dtype=object) if isinstance(column, (list, tuple)) else np.asarray(column)


def _through_arrow(column: Any) -> NDArray[Any]:
    """pandas, polars and Arrow columns speak Arrow's C interface; nulls become NaN or None, never a guess."""
    import pyarrow as pa

    chunked = pa.chunked_array(column if hasattr(column, "__arrow_c_stream__") else [pa.array(column)])
    if pa.types.is_decimal(chunked.type) or (pa.types.is_integer(chunked.type) and chunked.null_count):
        chunked = chunked.cast(pa.float64())
    if pa.types.is_integer(chunked.type) or pa.types.is_floating(chunked.type):
        return np.asarray(chunked.to_numpy())
    return np.array(chunked.to_pylist(), dtype=object)
