"""Private tables of every content, in every home that a user may keep them in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
from scipy import sparse

__all__ = ["CANARY", "COLUMN_HOMES", "CONTENTS", "HOMES", "LARGEST", "SMALLEST", "Array", "fingerprint"]

Array = np.ndarray

# Digits that most private numbers have and no public one: no text may hold them.
CANARY = "7263548"
SPICE = 1.7263548
LARGEST, SMALLEST = sys.float_info.max, 5e-324


def _ordinary(chance: np.random.Generator, n: int, d: int) -> Array:
    table = chance.normal(size=(n, d))
    table[0, 0] = SPICE
    return table


def _giant_row(chance: np.random.Generator, n: int, d: int) -> Array:
    table = _ordinary(chance, n, d)
    table[chance.integers(n)] = 1e300 * SPICE
    return table


def _mixed(chance: np.random.Generator, n: int, d: int) -> Array:
    sizes = [0.0, SMALLEST, 1e-310, 1e-200, 1e-160, 1e-30, 1e-8, 1.0, SPICE, 1e8, 1e30, 1e154, 1e200, 1e300, LARGEST]
    return chance.choice(sizes, size=(n, d)) * _signs(chance, n, d)


def _signs(chance: np.random.Generator, n: int, d: int) -> Array:
    return chance.choice([-1.0, 1.0], size=(n, d))


# Every table lies in the data universe: finite numbers, whatever their size.
CONTENTS: dict[str, Callable[[np.random.Generator, int, int], Array]] = {
    "ordinary": _ordinary,
    "zeros": lambda chance, n, d: np.zeros((n, d)),
    "signed zeros": lambda chance, n, d: 0.0 * _signs(chance, n, d),
    "ones": lambda chance, n, d: np.ones((n, d)),
    "duplicates": lambda chance, n, d: np.repeat(_ordinary(chance, 1, d), n, axis=0),
    "collinear": lambda chance, n, d: np.outer(chance.normal(size=n), np.full(d, SPICE)),
    "opposite": lambda chance, n, d: np.outer((-1.0) ** np.arange(n), _ordinary(chance, 1, d)),
    "long": lambda chance, n, d: 1e8 * SPICE * _signs(chance, n, d),
    "huge": lambda chance, n, d: 1e300 * SPICE * _signs(chance, n, d),
    "largest": lambda chance, n, d: LARGEST * _signs(chance, n, d),
    "short": lambda chance, n, d: 1e-8 * SPICE * _signs(chance, n, d),
    "tiny": lambda chance, n, d: 1e-160 * SPICE * _signs(chance, n, d),
    "subnormal": lambda chance, n, d: SMALLEST * chance.integers(-3, 4, size=(n, d)),
    "giant row": _giant_row,
    "mixed": _mixed,
}


def _inside(table: Array, kind: Any) -> Array:
    """The nearest numbers that a type of number holds."""
    limits = np.finfo(kind) if np.dtype(kind).kind == "f" else np.iinfo(kind)
    clipped = np.clip(table, float(limits.min), float(limits.max))
    if np.dtype(kind).kind == "f":
        return clipped.astype(kind)
    # The float nearest to the largest integer may be above it.
    whole = [min(max(int(number), limits.min), limits.max) for number in clipped.ravel()]
    return np.array(whole, kind).reshape(table.shape)


def _strided(table: Array) -> Array:
    wide = np.full((2 * table.shape[0], 3 * table.shape[1]), np.nan)
    wide[::2, ::3] = table
    return wide[::2, ::3]


def _read_only(table: Array) -> Array:
    table = table.copy()
    table.flags.writeable = False
    return table


def _untidy(table: Array) -> Any:
    """Compressed rows with entries from right to left, explicit zeros, and the first column written twice."""
    n, d = table.shape
    data = np.column_stack([table[:, ::-1], np.zeros(n)])
    indices = np.tile([*range(d - 1, -1, -1), 0], n)
    return sparse.csr_array((data.ravel(), indices, np.arange(0, data.size + 1, d + 1)), shape=table.shape)


def _frame(table: Array) -> Any:
    return pd.DataFrame({f"column {j}": table[:, j] for j in range(table.shape[1])})


def _mixed_frame(table: Array) -> Any:
    frame = _frame(table)
    first = frame.columns[0]
    return frame.assign(**{first: _inside(table[:, 0], np.int32)})


HOMES: dict[str, Callable[[Array], Any]] = {
    "float64": lambda table: table.copy(),
    "float32": lambda table: _inside(table, np.float32),
    "float16": lambda table: _inside(table, np.float16),
    "int64": lambda table: _inside(table, np.int64),
    "int8": lambda table: _inside(table, np.int8),
    "uint8": lambda table: _inside(table, np.uint8),
    "bool": lambda table: table > 0,
    "fortran": np.asfortranarray,
    "fortran float32": lambda table: np.asfortranarray(_inside(table, np.float32)),
    "strided": _strided,
    "reversed": lambda table: table.copy()[::-1][::-1, ::-1][:, ::-1],
    "read-only": _read_only,
    "big-endian": lambda table: table.astype(">f8"),
    "long double": lambda table: table.astype(np.longdouble),
    "objects": lambda table: table.astype(object),
    "list": lambda table: table.tolist(),
    "csr": sparse.csr_array,
    "csr float32": lambda table: sparse.csr_array(_inside(table, np.float32)),
    "csr int64": lambda table: sparse.csr_array(_inside(table, np.int64)),
    "csr bool": lambda table: sparse.csr_array(table > 0),
    "csr matrix": sparse.csr_matrix,
    "csr untidy": _untidy,
    "csc": sparse.csc_array,
    "coo": sparse.coo_array,
    "pandas": _frame,
    "pandas mixed": _mixed_frame,
    "polars": lambda table: pl.DataFrame({f"column {j}": table[:, j] for j in range(table.shape[1])}),
}
# Homes of one column alone.
COLUMN_HOMES: dict[str, Callable[[Array], Any]] = {
    **{name: HOMES[name] for name in ("float64", "float32", "int64", "int8", "bool", "read-only", "objects", "list")},
    "strided": lambda column: np.repeat(column, 2)[::2],
    "series": pd.Series,
    "polars": pl.Series,
    "tuple": lambda column: tuple(column.tolist()),
}


def fingerprint(home: Any) -> Any:
    """What must not change about a table."""
    if home is None:
        return None
    if sparse.issparse(home):
        names = ("data", "row", "col") if home.format == "coo" else ("data", "indices", "indptr")
        return [getattr(home, name).tobytes() for name in names]
    if isinstance(home, list | tuple):
        return repr(home)
    if isinstance(home, np.ndarray):
        return home.dtype.str, home.flags.writeable, home.strides, home.tolist().__repr__()
    return [repr(home[name].to_list()) for name in home.columns] if hasattr(home, "columns") else repr(home.to_list())
