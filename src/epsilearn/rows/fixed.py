"""Rows of whole numbers: features cut to a public bound and to a public number of levels.

Sums over such rows are exact: they depend on no order, no thread and no machine, and a record changes them by what its
own numbers allow and nothing more. Cutting is each record's own affair, like clipping.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from epsilearn.checks import check_positive
from epsilearn.errors import InvalidInput
from epsilearn.rows import fixed_passes as passes

__all__ = ["DenseFixedRows", "FixedRows", "Levels", "SparseFixedRows", "fixed_rows"]

Integers = NDArray[np.int64]
Array = NDArray[np.float64]

_STRETCH = 1 << 14  # rows a thread takes at a time
_SMALL_WORK = 1 << 16  # numbers that are not worth a second thread


@dataclass(frozen=True)
class Levels:
    """A public grid: ``count`` levels on either side of zero, up to ``bound``.

    Examples
    --------
    >>> Levels(2.0, 1024).unit
    Fraction(1, 512)
    """

    bound: float
    count: int

    def __post_init__(self) -> None:
        check_positive("bound", self.bound)

    @property
    def unit(self) -> Fraction:
        """What one level is worth."""
        return Fraction(self.bound) / self.count

    def cut(self, values: NDArray[Any], kind: Any = np.int64) -> NDArray[Any]:
        """Numbers as levels, towards zero; whatever lies beyond the bound is brought inside."""
        flat = np.ascontiguousarray(values).reshape(-1)
        out = np.empty(flat.shape, kind)
        passes.quantise(flat, self.count / self.bound, float(self.count), out)
        return out.reshape(values.shape)

    @property
    def kind(self) -> Any:
        """The smallest integers that hold a level."""
        return next(kind for kind in (np.int8, np.int16, np.int32) if self.count <= np.iinfo(kind).max)


def fixed_rows(X: Any, levels: Levels, *, length: float = math.inf, intercept: bool = False) -> FixedRows:
    """Features as whole numbers: each cut to the levels, each row to the length, a constant column at the end."""
    if sparse.issparse(X):
        return SparseFixedRows(X, levels, length, intercept)
    return DenseFixedRows(np.asarray(X), levels, length, intercept)


class FixedRows(ABC):
    """What dense and sparse rows of whole numbers offer.

    Attributes
    ----------
    n, d : int
        How many records and columns. Public.
    levels : Levels
        The grid of the features. Public.
    """

    n: int
    d: int
    levels: Levels

    @abstractmethod
    def combine(self, weights: Integers) -> Integers:
        """The sum of the rows, each times its weight."""

    @abstractmethod
    def product(self, vector: Integers) -> Integers:
        """Each row's product with a vector."""

    @abstractmethod
    def column(self, index: int) -> tuple[Any, Integers]:
        """Where a column is not zero (an index of rows), and its values there."""

    @abstractmethod
    def add(self, rows: Any, weights: Integers, total: Touched) -> None:
        """Add some rows, each times its weight, to a running sum."""


class Touched:
    """A running sum over rows, and which of its columns were ever touched."""

    def __init__(self, columns: int) -> None:
        self.values = np.zeros(columns, np.int64)
        self.seen = np.zeros(columns, np.bool_)
        self.order = np.empty(columns, np.int64)
        self.count = 0

    @property
    def columns(self) -> Integers:
        return self.order[: self.count]

    def touch_all(self) -> None:
        if self.count < len(self.order):
            self.order[:] = np.arange(len(self.order))
            self.seen[:] = True
            self.count = len(self.order)


class DenseFixedRows(FixedRows):
    """Rows of a dense array, as whole numbers in C order."""

    def __init__(self, X: NDArray[Any], levels: Levels, length: float, intercept: bool) -> None:
        if X.ndim != 2 or 0 in X.shape:
            raise InvalidInput(f"features must be a table of at least one row and one column, got shape {X.shape}")
        self.n, features = X.shape
        self.d, self.levels = features + intercept, levels
        self._Z = np.empty((self.n, self.d), levels.kind)
        for part in _parts(self.n, _STRETCH):
            self._Z[part, :features] = _shortened(levels.cut(X[part]), levels, length)
        if intercept:
            self._Z[:, -1] = levels.count

    def combine(self, weights: Integers) -> Integers:
        def work(part: slice) -> Integers:
            out = np.zeros(self.d, np.int64)
            passes.dense_combine(self._Z[part], weights[part], out)
            return out

        total: Integers = sum(_in_threads(work, _parts(self.n, _STRETCH), self._Z.size))
        return total

    def product(self, vector: Integers) -> Integers:
        out = np.empty(self.n, np.int64)

        def work(part: slice) -> None:
            passes.dense_product(self._Z[part], vector, out[part])

        _in_threads(work, _parts(self.n, _STRETCH), self._Z.size)
        return out

    def column(self, index: int) -> tuple[Any, Integers]:
        return slice(None), self._Z[:, index].astype(np.int64)

    def add(self, rows: Any, weights: Integers, total: Touched) -> None:
        # A dense column touches everything.
        if isinstance(rows, slice):
            total.values += self.combine(weights)
        else:
            passes.dense_combine(self._Z[rows], weights, total.values)
        total.touch_all()


class SparseFixedRows(FixedRows):
    """Rows of a sparse matrix, by rows and by columns, never made dense."""

    def __init__(self, X: Any, levels: Levels, length: float, intercept: bool) -> None:
        matrix = sparse.csr_array(X)
        if 0 in matrix.shape:
            raise InvalidInput(f"features must have at least one row and one column, got shape {matrix.shape}")
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        data = levels.cut(matrix.data, levels.kind)
        rows = sparse.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
        if math.isfinite(length):
            rows.data[:] = _shortened_sparse(rows, levels, length)
        if intercept:
            constant = sparse.csr_array(np.full((matrix.shape[0], 1), levels.count, levels.kind))
            rows = sparse.csr_array(sparse.hstack([rows, constant], format="csr"))
        self.n, self.d = rows.shape
        self.levels = levels
        self._rows, self._columns = rows, rows.tocsc()
        self.size = int(rows.nnz)

    def combine(self, weights: Integers) -> Integers:
        out = np.empty(self.d, np.int64)
        by_columns = self._columns

        def work(part: slice) -> None:
            passes.sparse_gather(by_columns.data, by_columns.indices, by_columns.indptr, part.start, weights, out[part])

        _in_threads(work, _parts(self.d, max(_STRETCH, self.d // 16)), by_columns.nnz)
        return out

    def product(self, vector: Integers) -> Integers:
        out = np.empty(self.n, np.int64)
        passes.sparse_product(self._rows.data, self._rows.indices, self._rows.indptr, vector, out)
        return out

    def column(self, index: int) -> tuple[Any, Integers]:
        here = slice(self._columns.indptr[index], self._columns.indptr[index + 1])
        return self._columns.indices[here], self._columns.data[here].astype(np.int64)

    def add(self, rows: Any, weights: Integers, total: Touched) -> None:
        total.count = passes.sparse_add(
            self._rows.data, self._rows.indices, self._rows.indptr, rows, weights, total.values, total.seen,
            total.order, total.count,
        )  # fmt: skip

    def entries(self, rows: Integers) -> int:
        """How many numbers some rows have together."""
        return int((self._rows.indptr[rows + 1] - self._rows.indptr[rows]).sum())


def _shortened(Z: NDArray[Any], levels: Levels, length: float) -> NDArray[Any]:
    """Rows longer than the bound brought down to it, again towards zero."""
    if math.isinf(length):
        return Z
    factors = _factors(np.einsum("ij,ij->i", Z, Z, dtype=np.float64), levels, length)
    return np.trunc(Z * factors[:, None]).astype(Z.dtype)


def _shortened_sparse(rows: Any, levels: Levels, length: float) -> NDArray[Any]:
    squares = np.append(np.square(rows.data, dtype=np.float64), 0.0)
    sums = np.add.reduceat(squares, rows.indptr[:-1])
    sums[np.diff(rows.indptr) == 0] = 0.0
    factors = np.repeat(_factors(sums, levels, length), np.diff(rows.indptr))
    shortened: NDArray[Any] = np.trunc(rows.data * factors).astype(rows.data.dtype)
    return shortened


def _factors(squares: Array, levels: Levels, length: float) -> Array:
    # A sum of up to 2**26 squares errs by 2**-27 at most: aim below that.
    most = length / float(levels.unit) * (1 - 2.0**-26)
    with np.errstate(divide="ignore"):
        factors: Array = np.minimum(1.0, most / np.sqrt(squares))
    return factors


def _parts(count: int, stretch: int) -> list[slice]:
    return [slice(start, min(start + stretch, count)) for start in range(0, count, stretch)]


def _in_threads(work: Any, parts: list[slice], size: int) -> list[Any]:
    if len(parts) == 1 or size < _SMALL_WORK:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(work, parts))
