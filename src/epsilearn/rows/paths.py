"""Mean gradients along a path of moves, kept up to date in whole numbers.

A point is ``shrink`` times a vector of whole weights on a few columns. Each gradient here is

    first * moved + second * still,

two vectors of whole numbers that are exact sums over the records, and two public factors. A move adds to the weight
of one column; what that changes is all that is computed anew.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn.linear_scores import LinearScores
from epsilearn.rows import fixed_passes as passes
from epsilearn.rows.fixed import FixedRows, Levels, RunningSum

__all__ = [
    "MeanGradient", "Path", "SlopePath", "SquaredPath", "gradient_at", "slope_sum", "squared_sums", "target_sum",
]  # fmt: skip

Integers = NDArray[np.int64]
Array = NDArray[np.float64]

_KEPT = 1 << 24  # numbers of remembered products


class MeanGradient(LinearScores):
    """A mean gradient; columns that are zero in every record are absent."""

    def floats(self) -> Array:
        """The gradient in doubles, each number off by a few roundings of its two terms."""
        values = float(self.second) * self.still
        values[self.touched] += float(self.first) * self.moved
        everywhere = np.zeros(self.count)
        everywhere[self.present] = values
        return everywhere


class Path(ABC):
    """The gradient of one loss, at a point that moves along columns."""

    @abstractmethod
    def gradient(self, shrink: Fraction) -> MeanGradient:
        """The mean gradient at ``shrink`` times the weights moved so far."""

    @abstractmethod
    def move(self, column: int, weight: int) -> None:
        """Add ``weight`` to a column."""


class _MemoryPath(Path):
    """One over rows in memory, whose sum is kept up to date."""

    _rows: FixedRows
    _total: RunningSum
    _still: Integers

    def _gradient(self, first: Fraction, second: Fraction) -> MeanGradient:
        total = self._total
        return MeanGradient(
            self._rows.d, self._rows.present, self._still, total.columns, total.values, first, second, total.generation
        )


class SquaredPath(_MemoryPath):
    """The mean of (<x, theta> - y)**2: its gradient is affine, so only the moved column's rows matter.

    ``moved`` is the sum over records of z <z, weights>, ``still`` that of z y, in levels.
    """

    def __init__(self, rows: FixedRows, target: Array, levels: Levels) -> None:
        self._rows, self._levels = rows, levels
        self._still = target_sum(rows, target, levels)
        self._total = RunningSum(len(rows.present))
        # A column that reaches many records is likely to be chosen again, and moves the same numbers again.
        self._known: OrderedDict[int, Integers] = OrderedDict()

    def gradient(self, shrink: Fraction) -> MeanGradient:
        unit = self._rows.levels.unit
        first = 2 * unit * unit * shrink / self._rows.n
        second = -2 * unit * self._levels.unit / self._rows.n
        return self._gradient(first, second)

    def move(self, column: int, weight: int) -> None:
        where, values = self._rows.column(column)
        if self._rows.few(where):
            self._rows.add(where, weight * values, self._total)
            return
        total = self._total.touch_all()
        total += weight * self._products(column, where, values)

    def _products(self, column: int, where: Any, values: Integers) -> Integers:
        """The sum over records of z times its entry in a column."""
        if column not in self._known:
            entries = np.zeros(self._rows.n, np.int64)
            entries[where] = values
            self._known[column] = self._rows.combine(entries)
            if len(self._known) * len(self._still) > _KEPT and len(self._known) > 1:
                self._known.popitem(last=False)
        self._known.move_to_end(column)
        return self._known[column]


class SlopePath(_MemoryPath):
    """The mean of a loss of bounded slope: each record's slope is a whole number of levels.

    ``still`` is the sum over records of z times the slope at zero, ``moved`` what has changed since. Shrinking moves
    every score that is not zero, so all records ever reached are looked at again; those whose slope stays on its
    level cost nothing more.
    """

    def __init__(self, rows: FixedRows, target: Array, code: int, levels: Levels) -> None:
        self._rows, self._target, self._code, self._levels = rows, target, code, levels
        self._scores = np.zeros(rows.n, np.int64)
        self._reached = np.zeros(rows.n, np.bool_)
        self._slopes = self._slopes_at(np.arange(rows.n), Fraction(0))
        self._still = rows.combine(self._slopes)
        self._total = RunningSum(len(rows.present))

    def gradient(self, shrink: Fraction) -> MeanGradient:
        self._renew(shrink)
        factor = self._rows.levels.unit * self._levels.unit / self._rows.n
        return self._gradient(factor, factor)

    def move(self, column: int, weight: int) -> None:
        where, values = self._rows.column(column)
        self._scores[where] += weight * values
        self._reached[where] = True

    def _renew(self, shrink: Fraction) -> None:
        reached = np.flatnonzero(self._reached)
        renewed = self._slopes_at(reached, shrink)
        change = renewed - self._slopes[reached]
        changed = np.flatnonzero(change)
        rows, change = reached[changed], change[changed]
        self._slopes[reached] = renewed
        if self._rows.few(rows):
            self._rows.add(rows, change, self._total)
        elif len(rows):
            total = self._rows.combine(self._slopes, out=self._total.touch_all())
            total -= self._still

    def _slopes_at(self, rows: Integers, shrink: Fraction) -> Integers:
        return _slopes(
            self._scores[rows], self._rows.levels.unit * shrink, self._target[rows], self._code, self._levels
        )


def target_sum(rows: FixedRows, target: Array, levels: Levels) -> Integers:
    """The sum over records of z y, in levels."""
    return rows.combine(levels.cut(target))


def squared_sums(rows: FixedRows, weights: Integers) -> Integers:
    """The sum over records of z <z, weights>."""
    return rows.combine(rows.product(weights))


def slope_sum(
    rows: FixedRows, weights: Integers, shrink: Fraction, target: Array, code: int, levels: Levels
) -> Integers:
    """The sum over records of z times the slope at ``shrink`` times the weights, in levels."""
    return rows.combine(_slopes(rows.product(weights), rows.levels.unit * shrink, target, code, levels))


def gradient_at(rows: FixedRows, point: Array, scale: float, target: Array, code: int, levels: Levels) -> Integers:
    """The sum over records of z times the slope at any point, in levels.

    ``scale`` is a bound on the point's l1 norm: the point is cut to a grid far below it, so that scores are exact too.
    """
    grid = Levels(scale, 1 << 40)
    scores = rows.product(grid.cut(point))
    return rows.spread(rows.combine(_slopes(scores, rows.levels.unit * grid.unit, target, code, levels)))


def _slopes(scores: Integers, unit: Fraction, target: Array, code: int, levels: Levels) -> Integers:
    out = np.empty(len(scores), np.int64)
    passes.slopes(scores, float(unit), target, code, levels.bound, float(levels.count), out)
    return out
