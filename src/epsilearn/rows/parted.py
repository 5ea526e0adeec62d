"""Rows that live in parts: what the solvers need of them, one pass over all parts at a time."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray
from scipy import sparse

from epsilearn.balls import ball, precision
from epsilearn.forks import process_mark
from epsilearn.losses import Loss
from epsilearn.rows.bounds import Bounds
from epsilearn.rows.interface import Array, Moments, Rows, Sums
from epsilearn.rows.memory import MOST_COLUMNS, memory_rows
from epsilearn.rows.parts import Build, Checked, Parts, Targets, Task
from epsilearn.rows.rounding import Rounding, public_moments_error, public_rounding

__all__ = ["PartedRows"]

_FEW_BYTES = 1 << 27  # of the records that are kept for a start
_UNIT = 2.0**-53


class PartedRows:
    """Rows in parts, checked: every record has been seen once.

    Parameters
    ----------
    parts : Parts
        Where they are.
    targets : Targets
        What is to be made of their targets.
    bounds : Bounds
        What rows are scaled down to.
    """

    def __init__(self, parts: Parts, targets: Targets, bounds: Bounds) -> None:
        self.n, self._features = parts.shape
        self._table = Checked(parts, targets, _FEW_BYTES)
        self._set_build(partial(_bounded, bounds), bounds)
        self._few: Rows | None = _joined(self._table.kept, self._build)
        self._table.kept = []

    def _set_build(self, build: Build, bounds: Bounds) -> None:
        self._build, self.bounds = build, bounds
        self.d, self.norm = self._features + (bounds.intercept != 0), bounds.norm
        self._at: tuple[Loss, Array] | None = None
        self._hessian: Array | None = None

    def _pass(self, task: Task) -> list[NDArray[Any]]:
        return self._table.sums(self._build, task)

    @property
    def dense(self) -> bool:
        """Whether a Hessian matrix can be had: one of few columns fits, however many rows there are."""
        return self.d <= MOST_COLUMNS

    @property
    def elsewhere(self) -> bool:
        """Whether every look at them is a pass that is dear."""
        return True

    def is_at(self, coef: Array) -> bool:
        """Whether this was the ``coef`` of the last `sums`."""
        return self._at is not None and bool(np.array_equal(self._at[1], coef))

    @property
    def rounding(self) -> Rounding:
        """The bound on the gradient's rounding error at any point of at most this norm. Public, without the records."""
        return public_rounding(self.n, self._features, self.bounds)

    def sums(self, loss: Loss, coef: Array, hessian: bool = False) -> Sums:
        """Value and gradient at ``coef``, and the Hessian by the same pass if it will be wanted."""
        self._at = loss, coef.copy()
        hessian = hessian and self.dense
        value, gradient, *curved = self._pass(partial(_second_order if hessian else _first_order, loss, coef))
        self._hessian = curved[0] / self.n if curved else None
        length = float(np.linalg.norm(coef)) * (1 + (len(coef) + 2) * _UNIT)
        return Sums(float(value) / self.n, gradient / self.n, self.rounding(loss, length))

    def gradient(self, loss: Loss, coef: Array) -> Array:
        """The mean gradient alone; `rounding` bounds its error too."""
        mean: Array = self._pass(partial(_gradient, loss, coef))[0] / self.n
        return mean

    def product(self, vector: Array) -> Array:
        """The mean Hessian at the last ``coef`` times a vector."""
        mean: Array = self._pass(partial(_product, *self._last, vector))[0] / self.n
        return mean

    def hessian(self) -> Array:
        """The mean Hessian at the last ``coef``; with several outputs its mean over them."""
        if self._hessian is None:
            self._hessian = self._pass(partial(_second_order, *self._last))[2] / self.n
        return self._hessian

    @property
    def _last(self) -> tuple[Loss, Array]:
        assert self._at is not None
        return self._at

    def moments(self) -> Moments:
        """The sums of x x' and x y, in one pass."""
        gram, cross = self._pass(_moments)
        return Moments(gram, cross, public_moments_error(self.n, self._features))

    def total(self, units: int) -> NDArray[Any]:
        """The sum of the rows without the intercept, each rounded to whole units, of which the bound is so many."""
        return self._pass(partial(_total, units))[0]

    def spread(self, centre: Array, units: int) -> int:
        """The sum of the squared distances from ``centre``, as shares of the bound's square, cut at 1, in units."""
        return int(self._pass(partial(_spread, centre, units))[0][0])

    def moved(self, centre: Array, radius: float, intercept: float) -> Rows:
        """The rows moved by ``centre`` and scaled to a bound of 1, both in shares of their bound; never all at once."""
        moved = copy.copy(self)
        moved._set_build(partial(_moved, self._build, centre, radius, intercept), Bounds(1.0, intercept))
        moved._few = None if self._few is None else self._few.moved(centre, radius, intercept)
        return moved

    def sample(self) -> Rows | None:
        """Some of the rows, in memory, which differ from the others in no way that is known."""
        return self._few

    def gradient_in_balls(self, loss: Loss, coef: list[Fraction]) -> list[arb]:
        """The mean gradient at an exact point, in ball arithmetic: thousands of times slower than `sums`."""
        middles, radii = self._pass(partial(_in_balls, loss, coef, ctx.prec, process_mark()))
        return [
            (ball(middle) + arb(0, ball(radius).abs_upper())) / self.n
            for middle, radius in zip(middles, radii, strict=True)
        ]


def _bounded(bounds: Bounds, X: Any, target: Array) -> Rows:
    return memory_rows(X, target, bounds)


def _moved(build: Build, centre: Array, radius: float, intercept: float, X: Any, target: Array) -> Rows:
    rows: Rows = build(X, target).moved(centre, radius, intercept)
    return rows


def _joined(kept: list[tuple[Any, Array]], build: Build) -> Rows | None:
    """The records that were kept, as rows."""
    if not kept:
        return None
    features = [X for X, _ in kept]
    X = sparse.vstack(features, format="csr") if sparse.issparse(features[0]) else np.concatenate(features)
    rows: Rows = build(X, np.concatenate([target for _, target in kept]))
    return rows


# What is made of a block. Means times how many they are of: two roundings more, which `rounding` counts.


def _first_order(loss: Loss, coef: Array, rows: Rows) -> list[NDArray[Any]]:
    sums = rows.sums(loss, coef)
    return [np.asarray(sums.value * rows.n), sums.gradient * rows.n]


def _gradient(loss: Loss, coef: Array, rows: Rows) -> list[NDArray[Any]]:
    return [rows.gradient(loss, coef) * rows.n]


def _product(loss: Loss, coef: Array, vector: Array, rows: Rows) -> list[NDArray[Any]]:
    rows.sums(loss, coef)
    return [rows.product(vector) * rows.n]


def _second_order(loss: Loss, coef: Array, rows: Rows) -> list[NDArray[Any]]:
    return [*_first_order(loss, coef, rows), rows.hessian() * rows.n]


def _moments(rows: Rows) -> list[NDArray[Any]]:
    moments = rows.moments()
    return [moments.gram, moments.cross]


def _total(units: int, rows: Rows) -> list[NDArray[Any]]:
    # Python's own whole numbers: beyond 2**33 rows the sum would leave the 64 bits.
    return [rows.total(units).astype(object)]


def _spread(centre: Array, units: int, rows: Rows) -> list[NDArray[Any]]:
    # As one of one: sums of Python's numbers without a dimension would turn into 64 bits.
    return [np.array([rows.spread(centre, units)], dtype=object)]


def _in_balls(
    loss: Loss, coef: list[Fraction], bits: int, asking: tuple[str, int, int], rows: Any
) -> list[NDArray[Any]]:
    """Middles and radii of the balls, exactly: balls themselves do not travel."""
    # In the process that asks, the precision is set already, and held by the thread that waits for this one. Process
    # numbers would not tell: in containers the one that asks and the one that works are often both number 1.
    with nullcontext() if process_mark() == asking else precision(bits):
        sums = [mean * rows.n for mean in rows.gradient_in_balls(loss, coef)]
    return [np.array([_fraction(s.mid()) for s in sums]), np.array([_fraction(s.rad()) for s in sums])]


def _fraction(number: arb) -> Fraction:
    mantissa, exponent = number.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
