"""Rows of whole numbers: features cut to a public bound and to a public number of levels.

Sums over such rows are exact: they depend on no order, no thread and no machine, and a record changes them by what its
own numbers allow and nothing more. Cutting is each record's own affair, like clipping.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from epsilearn.checks import check_positive
from epsilearn.errors import InvalidInput
from epsilearn.quiet import quietly
from epsilearn.rows import fixed_passes as passes
from epsilearn.rows.bounds import row_norms
from epsilearn.threads import in_threads

__all__ = ["DenseFixedRows", "FixedRows", "Levels", "SparseFixedRows", "fixed_rows"]

Integers = NDArray[np.int64]
Array = NDArray[np.float64]

_STRETCH = 1 << 14  # rows cut at a time
_WORTH = 1 << 18  # numbers that are worth a thread


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


@quietly()
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
    present : array of int64
        The columns that are not zero in every record, increasing; sums are over these, by position.
    """

    n: int
    d: int
    levels: Levels
    present: Integers

    @abstractmethod
    def combine(self, weights: Integers, out: Integers | None = None) -> Integers:
        """The sum of the rows, each times its weight."""

    @abstractmethod
    def product(self, vector: Integers) -> Integers:
        """Each row's product with a vector."""

    @abstractmethod
    def column(self, index: int) -> tuple[Any, Integers]:
        """Where a column (of all) is not zero, as an index of rows, and its values there."""

    @abstractmethod
    def few(self, rows: Any) -> bool:
        """Whether it is quicker to `add` these rows than to `combine` all."""

    @abstractmethod
    def add(self, rows: Any, weights: Integers, total: RunningSum) -> None:
        """Add some rows, each times its weight, to a running sum."""

    def spread(self, values: Integers) -> Integers:
        """Numbers of the columns that are present as numbers of all columns."""
        everywhere = np.zeros(self.d, np.int64)
        everywhere[self.present] = values
        return everywhere


class RunningSum:
    """A sum over rows that is kept for the columns it has touched, in the order in which it did.

    Attributes
    ----------
    generation : int
        Changes when the columns are put into another order.
    """

    def __init__(self, columns: int) -> None:
        self.place = np.full(columns, -1, np.int64)
        self.order = np.empty(columns, np.int64)
        self._values = np.zeros(columns, np.int64)
        self.count = 0
        self.generation = 0

    @property
    def columns(self) -> Integers:
        """The columns touched, by position among those present."""
        return self.order[: self.count]

    @property
    def values(self) -> Integers:
        """Their sums."""
        return self._values[: self.count]

    def touch_all(self) -> Integers:
        """All columns in their own order, and room for their sums."""
        if self.generation == 0:
            values = np.zeros_like(self._values)
            values[self.columns] = self.values
            self._values = values
            self.order = np.arange(len(values))
            self.place = self.order
            self.count = len(self.order)
            self.generation = 1
        return self._values


class DenseFixedRows(FixedRows):
    """Rows of a dense array, as whole numbers in C order."""

    def __init__(self, X: NDArray[Any], levels: Levels, length: float, intercept: bool) -> None:
        if X.ndim != 2 or 0 in X.shape:
            raise InvalidInput(f"features must be a table of at least one row and one column, got shape {X.shape}")
        self.n, features = X.shape
        self.d, self.levels = features + intercept, levels
        self.present = np.arange(self.d)
        self._Z = np.empty((self.n, self.d), levels.kind)
        for start in range(0, self.n, _STRETCH):
            part = slice(start, start + _STRETCH)
            self._Z[part, :features] = _shortened(levels.cut(X[part]), levels, length)
        if intercept:
            self._Z[:, -1] = levels.count

    def combine(self, weights: Integers, out: Integers | None = None) -> Integers:
        def work(part: slice) -> Integers:
            own = np.zeros(self.d, np.int64)
            passes.dense_combine(self._Z[part], weights[part], own)
            return own

        total: Integers = np.sum(in_threads(work, self.n, _WORTH // self.d + 1), axis=0, dtype=np.int64, out=out)
        return total

    def product(self, vector: Integers) -> Integers:
        out = np.empty(self.n, np.int64)

        def work(part: slice) -> None:
            passes.dense_product(self._Z[part], vector, out[part])

        in_threads(work, self.n, _WORTH // self.d + 1)
        return out

    def column(self, index: int) -> tuple[Any, Integers]:
        return slice(None), self._Z[:, index].astype(np.int64)

    def few(self, rows: Any) -> bool:
        return not isinstance(rows, slice) and 4 * len(rows) < self.n

    def add(self, rows: Any, weights: Integers, total: RunningSum) -> None:
        passes.dense_combine(self._Z[rows], weights, total.touch_all())


class SparseFixedRows(FixedRows):
    """Rows of a sparse matrix, by rows and by columns, never made dense; columns without entries take no room."""

    def __init__(self, X: Any, levels: Levels, length: float, intercept: bool) -> None:
        matrix = sparse.csr_array(X)
        if 0 in matrix.shape:
            raise InvalidInput(f"features must have at least one row and one column, got shape {matrix.shape}")
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        if matrix.dtype == np.bool_:
            # Entries of booleans are then all alike, whatever a record stores.
            matrix = matrix.copy()
            matrix.eliminate_zeros()
        data = levels.cut(matrix.data, levels.kind)
        rows = sparse.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
        if math.isfinite(length):
            rows.data[:] = _shortened_sparse(rows, levels, length)
        if intercept:
            constant = sparse.csr_array(np.full((matrix.shape[0], 1), levels.count, levels.kind))
            rows = sparse.csr_array(sparse.hstack([rows, constant], format="csr"))
        self.n, self.d = rows.shape
        self.levels = levels
        self.size = int(rows.nnz)
        data = rows.data
        if self.size and data.min() == data.max():
            # Where all entries are alike, as in binary tables, one stands for all: 15 to 42 % less time. One record can
            # undo it, which shows in the time and in nothing else (docs/sharp-edges.md).
            data = data[:1].copy()
        self._pack(data, rows.indices, rows.indptr)

    def _pack(self, data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any]) -> None:
        """Keep the entries by rows and by columns, both under the positions of the columns that are present."""
        counts = np.zeros(self.d, np.int64)
        passes.count_columns(indices, counts)
        self.present = np.flatnonzero(counts)
        place = np.zeros(self.d, np.int32 if self.d < 2**31 else np.int64)
        place[self.present] = np.arange(len(self.present), dtype=place.dtype)
        beginnings = np.concatenate([[0], np.cumsum(counts[self.present])])
        # Half the memory to read, where it suffices: the sums over columns read all of it.
        where = np.empty(self.size, np.uint16 if self.n <= 1 << 16 else np.int32 if self.n < 2**31 else np.int64)
        values = data if len(data) == 1 else np.empty_like(data)
        packed = np.empty(self.size, place.dtype)
        passes.by_columns(data, indices, indptr, place, beginnings, where, values, packed)
        self._rows, self._columns = (data, packed, indptr), (values, where, beginnings)

    def combine(self, weights: Integers, out: Integers | None = None) -> Integers:
        out = np.empty(len(self.present), np.int64) if out is None else out
        beginnings = self._columns[2]
        narrow = weights.astype(np.int32) if np.abs(weights).max(initial=0) < 2**31 else weights

        def work(part: slice) -> None:
            # Stretches of equally many entries, whichever columns they end in.
            first, last = np.searchsorted(beginnings, (part.start, part.stop))
            data, indices, _ = self._columns
            passes.sparse_gather(data, indices, beginnings[first : last + 1], narrow, out[first:last])

        in_threads(work, self.size, _WORTH)
        return out

    def product(self, vector: Integers) -> Integers:
        out = np.empty(self.n, np.int64)
        passes.sparse_product(*self._rows, vector[self.present], out)
        return out

    def column(self, index: int) -> tuple[Any, Integers]:
        position = int(np.searchsorted(self.present, index))
        if position == len(self.present) or self.present[position] != index:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        data, indices, indptr = self._columns
        here = slice(indptr[position], indptr[position + 1])
        values = np.full(here.stop - here.start, data[0]) if len(data) == 1 else data[here]
        return indices[here].astype(np.int64), values.astype(np.int64)

    def add(self, rows: Any, weights: Integers, total: RunningSum) -> None:
        total.count = passes.sparse_add(
            *self._rows, rows, weights, total.place, total.order, total._values, total.count
        )

    def few(self, rows: Any) -> bool:
        indptr = self._rows[2]
        # Adding jumps about in memory, combining reads straight through.
        return 4 * int((indptr[rows + 1] - indptr[rows]).sum()) < self.size


def _shortened(Z: NDArray[Any], levels: Levels, length: float) -> NDArray[Any]:
    """Rows longer than the bound brought down to it, again towards zero."""
    if math.isinf(length):
        return Z
    return np.trunc(Z * _factors(Z, levels, length)[:, None]).astype(Z.dtype)


def _shortened_sparse(rows: Any, levels: Levels, length: float) -> NDArray[Any]:
    factors = np.repeat(_factors(rows, levels, length), np.diff(rows.indptr))
    shortened: NDArray[Any] = np.trunc(rows.data * factors).astype(rows.data.dtype)
    return shortened


def _factors(Z: Any, levels: Levels, length: float) -> Array:
    # A sum of up to 2**26 squares errs by 2**-27 at most: aim below that.
    most = length / float(levels.unit) * (1 - 2.0**-26)
    factors: Array = np.minimum(1.0, most / row_norms(Z))
    return factors
