"""Rows in memory: dense or sparse, float32 or float64, without a copy where possible.

Clipping is a factor for each row, applied inside the passes: the caller's array is neither copied nor changed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from flint import arb
from numpy.typing import NDArray
from scipy import sparse

from epsilearn.balls import ball
from epsilearn.errors import InvalidInput
from epsilearn.losses import Loss, Squared
from epsilearn.losses.interface import UNIT
from epsilearn.quiet import quietly
from epsilearn.rows import passes
from epsilearn.rows.bounds import Bounds, without_giants
from epsilearn.rows.interface import Array, Moments, Rows, Sums
from epsilearn.rows.rounding import (
    LONG_STRETCH,
    OUTER_STRETCH,
    SHORT_STRETCH,
    Rounding,
    public_moments_error,
    public_rounding,
    sparse_stretch,
)
from epsilearn.rows.totals import Total, roundings
from epsilearn.threads import in_order

__all__ = ["MOST_COLUMNS", "DenseRows", "SparseRows", "check_finite", "memory_rows"]

Result = TypeVar("Result")

MOST_COLUMNS = 2000  # of rows whose Hessian is still formed
_MANY_ROWS, _STRIDE = 1 << 15, 16  # from so many rows on, every so manieth is a sample


def memory_rows(X: Any, targets: Any, bounds: Bounds) -> Rows:
    """Rows from an array, a data frame or a sparse matrix, clipped to the bounds."""
    target = np.ascontiguousarray(targets, np.float64)
    return SparseRows(X, target, bounds) if sparse.issparse(X) else DenseRows(X, target, bounds)


def check_finite(X: Any, target: Array) -> None:
    """Refuse features that are not numbers, and numbers that are not finite."""
    _check_numbers(X.dtype, X.data if sparse.issparse(X) else X)
    _check_targets(target)


class _MemoryRows(ABC):
    """What dense and sparse rows share: stretches of rows, threads, and adding up in a fixed order."""

    _X: Any

    def __init__(self, shape: tuple[int, int], target: Array, bounds: Bounds, factors: Array, terms: int) -> None:
        if target.shape != shape[:1]:
            raise InvalidInput(f"expected one target for each of the {shape[0]} rows, got shape {target.shape}")
        _check_targets(target)
        self.n, self._features = shape
        self.d = self._features + (bounds.intercept != 0)
        self.norm = bounds.norm
        self._bounds, self._target, self._factors, self._terms = bounds, target, factors, terms
        self._curvature, self._loss = np.empty(self.n), Loss()
        self._at: Array | None = None

    @property
    def bounds(self) -> Bounds:
        """The bounds that rows are inside of. Public."""
        return self._bounds

    @property
    def dense(self) -> bool:
        """Whether a Hessian matrix can be had: one of few columns fits, however many rows there are."""
        return self.d <= MOST_COLUMNS

    @property
    def elsewhere(self) -> bool:
        """Whether every look at them is a pass that is dear."""
        return False

    def is_at(self, coef: Array) -> bool:
        """Whether this was the ``coef`` of the last `sums`."""
        return self._at is not None and bool(np.array_equal(self._at, coef))

    def sums(self, loss: Loss, coef: Array, hessian: bool = False) -> Sums:  # noqa: ARG002 - it is near at hand
        """Value and gradient at ``coef``."""
        code = passes.code_of(loss) if self._compiled else None
        rows, _ = self._stretch(code is not None)
        self._remember(loss, coef)

        def first_order(part: slice) -> tuple[float, Array]:
            return self._by_numpy(part, loss, coef) if code is None else self._by_pass(part, *code, coef)

        value, gradient = 0.0, Total()
        for part_value, part_gradient in _in_threads(first_order, self._parts(rows)):
            value += part_value
            gradient.add(part_gradient)
        length = float(np.linalg.norm(coef)) * (1 + (len(coef) + 2) * UNIT)
        error = Rounding(self._terms, self._additions(code is not None), self.norm)(loss, length)
        return Sums(value / self.n, gradient.value / self.n, error)

    def gradient(self, loss: Loss, coef: Array) -> Array:
        """The mean gradient alone; `rounding` bounds its error too."""
        if self._compiled and passes.code_of(loss) is not None:
            return self.sums(loss, coef).gradient

        def part_gradient(part: slice) -> Array:
            return self._combined(part, coef, lambda score: loss.slope(score, self._target[part]))

        return _total(part_gradient, self._parts(self._stretch(False)[0])) / self.n

    def _remember(self, loss: Loss, coef: Array) -> None:
        """Make room for the curvatures of this loss here."""
        self._at = coef.copy()
        shape = (self.n,) if loss.kept == 1 else (loss.kept, self.n)
        if self._curvature.shape != shape:
            self._curvature = np.empty(shape)
        self._loss = loss

    @property
    def rounding(self) -> Rounding:
        """The bound on the gradient's rounding error at any point of at most this norm. Public, without the records."""
        return public_rounding(self.n, self._features, self._bounds)

    def _additions(self, compiled: bool) -> float:
        """How many additions an addend of the gradient passes through."""
        rows, additions = self._stretch(compiled)
        return additions + roundings(math.ceil(self.n / rows))

    def gradient_in_balls(self, loss: Loss, coef: list[Fraction]) -> list[arb]:
        """The mean gradient at an exact point, in ball arithmetic: thousands of times slower than `sums`."""
        weights, total = [ball(c) for c in coef], [arb(0)] * len(coef)
        starts = range(0, len(coef), self.d)
        for i in range(self.n):
            columns, values = self._row(i)
            factor, target = ball(float(self._factors[i])), ball(float(self._target[i]))
            row = [factor * ball(float(v)) for v in values]
            if self._bounds.intercept:
                columns, row = [*columns, self._features], [*row, ball(self._bounds.intercept)]
            entries = list(zip(columns, row, strict=True))
            scores = [sum((v * weights[start + j] for j, v in entries), arb(0)) for start in starts]
            for start, slope in zip(starts, loss.slopes_in_balls(scores, target), strict=True):
                for j, v in entries:
                    total[start + j] += slope * v
        return [t / self.n for t in total]

    def product(self, vector: Array) -> Array:
        """The mean Hessian at the last ``coef`` times a vector."""
        return _total(lambda part: self._product(part, vector), self._parts(SHORT_STRETCH)) / self.n

    def moments(self) -> Moments:
        """The sums of x x' and x y."""
        loss = Squared()
        gradient = self.sums(loss, np.zeros(self.d)).gradient
        error = public_moments_error(self.n, self._features)
        return Moments(self.hessian() * self.n, -gradient * self.n, error)

    def total(self, units: int) -> NDArray[np.int64]:
        """The sum of the rows without the intercept, each rounded to whole units, of which the bound is so many."""
        return _total(lambda part: self._total(part, units), self._parts(OUTER_STRETCH))

    def _total(self, part: slice, units: int) -> NDArray[np.int64]:
        total = np.zeros(self._features, np.int64)
        passes.dense_total(self._block(part), self._lengths(part), units, total)
        return total

    def spread(self, centre: Array, units: int) -> int:
        """The sum of the squared distances from ``centre``, as shares of the bound's square, cut at 1, in units."""
        return sum(_in_threads(lambda part: self._spread(part, centre, units), self._parts(OUTER_STRETCH)))

    def _spread(self, part: slice, centre: Array, units: int) -> int:
        return int(passes.dense_spread(self._block(part), self._lengths(part), centre, units))

    def moved(self, centre: Array, radius: float, intercept: float) -> Rows:
        """The rows moved by ``centre`` and scaled to a bound of 1, both in shares of their bound."""
        # Each moved row is a function of its record whatever it is rounded to, and singles take half the memory.
        moved = np.empty((self.n, self._features), np.float32)
        for _ in _in_threads(lambda part: self._move(part, centre, radius, moved[part]), self._parts(OUTER_STRETCH)):
            pass
        return DenseRows(moved, self._target, Bounds(1.0, intercept))

    def _move(self, part: slice, centre: Array, radius: float, moved: NDArray[Any]) -> None:
        passes.dense_move(self._block(part), self._lengths(part), centre, radius, moved)

    def _block(self, part: slice) -> NDArray[Any]:
        """Some rows without the intercept, dense and in C order.

        Always in C order, so that what a row adds to a sum does not depend on how the others made the table be kept.
        """
        block = self._X[part]
        return np.ascontiguousarray(block.toarray() if sparse.issparse(block) else block)

    def _lengths(self, part: slice) -> Array:
        """What turns some rows into shares of their bound."""
        lengths: Array = self._factors[part] / self._bounds.data_norm
        return lengths

    def sample(self) -> Rows | None:
        """Every sixteenth row, if there are many."""
        if self.n < _MANY_ROWS:
            return None
        return memory_rows(self._X[::_STRIDE], self._target[::_STRIDE], self._bounds)

    def hessian(self) -> Array:
        """The mean Hessian at the last ``coef``; with several outputs its mean over them."""
        return _total(self._outer, self._parts(OUTER_STRETCH)) / self.n

    def _parts(self, rows: int) -> list[slice]:
        return [slice(start, min(start + rows, self.n)) for start in range(0, self.n, rows)]

    def _by_numpy(self, part: slice, loss: Loss, coef: Array) -> tuple[float, Array]:
        """Any loss: scores, slopes, and the product with the rows."""
        target, values = self._target[part], []

        def slope(score: Array) -> Array:
            self._curvature[..., part] = loss.curvature(score, target)
            values.append(float(loss.value(score, target).sum()))
            return loss.slope(score, target)

        gradient = self._combined(part, coef, slope)
        return values[0], gradient

    def _product(self, part: slice, vector: Array) -> Array:
        return self._combined(part, vector, lambda score: self._loss.bend(self._curvature[..., part], score))

    def _combined(self, part: slice, coef: Array, weigh: Callable[[Array], Array]) -> Array:
        """The sum of the rows, each with a weight for its score, for each output, one after the other.

        Scores and weights are of shape (rows,), or (outputs, rows) where ``coef`` holds several outputs.
        """
        matrix, factors, intercept = self._matrix(part), self._factors[part], self._bounds.intercept
        coef = coef if len(coef) == self.d else coef.reshape(-1, self.d)
        # In this order: with several outputs the linear algebra library takes half as long again for the other.
        score: Array = coef[..., : self._features] @ matrix.T
        score *= factors
        if intercept:
            score += intercept * coef[..., -1:]
        weights = weigh(score)
        combined = np.empty((*coef.shape[:-1], self.d))
        combined[..., : self._features] = (weights * factors) @ matrix
        if intercept:
            combined[..., -1] = intercept * weights.sum(axis=-1)
        return combined.ravel()

    @property
    @abstractmethod
    def _compiled(self) -> bool:
        """Whether the compiled passes can read these rows."""

    @abstractmethod
    def _stretch(self, compiled: bool) -> tuple[int, int]:
        """How many rows to hand out at a time, and how many additions an addend then passes through."""

    @abstractmethod
    def _matrix(self, part: slice) -> Any:
        """Some rows' features, as something that multiplies."""

    @abstractmethod
    def _row(self, index: int) -> tuple[list[int], NDArray[Any]]:
        """One row's columns and values."""

    @abstractmethod
    def _by_pass(self, part: slice, code: int, parameter: float, coef: Array) -> tuple[float, Array]:
        """Value and gradient of some rows, by a compiled pass."""

    @abstractmethod
    def _outer(self, part: slice) -> Array:
        """The sum of curvature times the outer product of each of some rows with itself."""


class DenseRows(_MemoryRows):
    """Rows of a dense array. C order is read in compiled passes, other layouts through BLAS.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn.losses import Logistic
    >>> rows = DenseRows(np.array([[0.6, 0.0], [30.0, 40.0]]), np.ones(2), Bounds(1.0, intercept=0.0))
    >>> sums = rows.sums(Logistic(), np.zeros(2))
    >>> round(sums.value, 4), sums.gradient.round(3).tolist(), sums.error < 1e-12
    (0.6931, [-0.3, -0.2], True)
    """

    def __init__(self, X: Any, target: Array, bounds: Bounds) -> None:
        matrix = _as_matrix(X)
        self._X, norms = without_giants(matrix)
        columns = self._X.shape[1]
        super().__init__(self._X.shape, target, bounds, bounds.factors(norms, columns), columns)

    @property
    def _compiled(self) -> bool:
        return bool(self._X.flags.c_contiguous)

    def _stretch(self, compiled: bool) -> tuple[int, int]:
        return (LONG_STRETCH, passes.BLOCK + LONG_STRETCH // passes.BLOCK) if compiled else (SHORT_STRETCH,) * 2

    def _matrix(self, part: slice) -> Any:
        return self._X[part].astype(np.float64, copy=False)

    def _row(self, index: int) -> tuple[list[int], NDArray[Any]]:
        return list(range(self._features)), self._X[index]

    def _by_pass(self, part: slice, code: int, parameter: float, coef: Array) -> tuple[float, Array]:
        gradient = np.zeros(self.d)
        value = passes.dense_pass(
            self._X[part], self._factors[part], self._bounds.intercept, self._target[part], coef, code, parameter,
            gradient, self._curvature[part],
        )  # fmt: skip
        return value, gradient

    def _outer(self, part: slice) -> Array:
        root = np.sqrt(self._loss.weights(self._curvature[..., part]))
        scaled = np.empty((len(root), self.d))
        np.multiply(self._X[part], (root * self._factors[part])[:, None], out=scaled[:, : self._features])
        if self._bounds.intercept:
            scaled[:, -1] = root * self._bounds.intercept
        product: Array = scaled.T @ scaled
        return product


class SparseRows(_MemoryRows):
    """Rows of a sparse matrix, never made dense.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from epsilearn.losses import Logistic
    >>> X = sparse.csr_array(np.array([[0.6, 0.0], [30.0, 40.0]]))
    >>> SparseRows(X, np.ones(2), Bounds(1.0)).sums(Logistic(), np.zeros(3)).gradient.round(3).tolist()
    [-0.3, -0.2, -0.5]
    """

    def __init__(self, X: Any, target: Array, bounds: Bounds) -> None:
        matrix = sparse.csr_array(X)
        _check_numbers(matrix.dtype, matrix.data)
        if 0 in matrix.shape:
            raise InvalidInput(f"features must have at least one row and one column, got shape {matrix.shape}")
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            with quietly():
                matrix.sum_duplicates()
            # Once more: numbers that share a place can add up to one that is none.
            _check_numbers(matrix.dtype, matrix.data)
        if matrix.dtype not in (np.float64, np.float32):
            matrix = matrix.astype(np.float64)
        lengths = np.diff(matrix.indptr)
        self._X, norms = without_giants(matrix)
        super().__init__(matrix.shape, target, bounds, bounds.factors(norms, lengths), int(lengths.max()))

    @property
    def _compiled(self) -> bool:
        return True

    def _stretch(self, compiled: bool) -> tuple[int, int]:  # noqa: ARG002
        return (sparse_stretch(self._features),) * 2

    def _matrix(self, part: slice) -> Any:
        return self._X[part]

    def _row(self, index: int) -> tuple[list[int], NDArray[Any]]:
        here = slice(self._X.indptr[index], self._X.indptr[index + 1])
        return self._X.indices[here].tolist(), self._X.data[here]

    def _arrays(self, part: slice) -> tuple[Any, Any, Any]:
        return self._X.data, self._X.indices, self._X.indptr[part.start : part.stop + 1]

    def _by_pass(self, part: slice, code: int, parameter: float, coef: Array) -> tuple[float, Array]:
        gradient = np.zeros(self.d)
        value = passes.sparse_pass(
            *self._arrays(part), self._factors[part], self._bounds.intercept, self._target[part], coef, code, parameter,
            gradient, self._curvature[part],
        )  # fmt: skip
        return value, gradient

    def _product(self, part: slice, vector: Array) -> Array:
        if len(vector) != self.d:
            return super()._product(part, vector)
        out = np.zeros(self.d)
        passes.sparse_product(
            *self._arrays(part), self._factors[part], self._bounds.intercept, self._curvature[part], vector, out
        )
        return out

    def _outer(self, part: slice) -> Array:
        out = np.zeros((self.d, self.d))
        weights = self._loss.weights(self._curvature[..., part])
        passes.sparse_outer(*self._arrays(part), self._factors[part], self._bounds.intercept, weights, out)
        return out


def _as_matrix(X: Any) -> NDArray[Any]:
    array = np.asarray(X)
    if array.ndim != 2 or 0 in array.shape:
        raise InvalidInput(f"features must be a table of at least one row and one column, got shape {array.shape}")
    _check_numbers(array.dtype, array)
    return array if array.dtype in (np.float64, np.float32) else array.astype(np.float64)


def _check_targets(target: Array) -> None:
    if not np.isfinite(target).all():
        raise InvalidInput("targets have NaN or infinite values; drop or fill them by a rule fixed beforehand")


def _check_numbers(dtype: np.dtype[Any], values: NDArray[Any]) -> None:
    if dtype.kind not in "fiub" or dtype.itemsize > 8:
        raise InvalidInput(f"features must be numbers, got {dtype}")
    if dtype.kind == "f" and not np.isfinite(values).all():
        raise InvalidInput("features have NaN or infinite values; drop or fill them by a rule fixed beforehand")


def _total(work: Callable[[slice], NDArray[Any]], parts: list[slice]) -> NDArray[Any]:
    total = Total()
    for addend in _in_threads(work, parts):
        total.add(addend)
    return total.value


def _in_threads(work: Callable[[slice], Result], parts: list[slice]) -> Iterator[Result]:
    """The results in order; a single part needs no thread, and may then use those of the linear algebra library."""
    return map(quietly()(work), parts) if len(parts) == 1 else in_order(work, parts)
