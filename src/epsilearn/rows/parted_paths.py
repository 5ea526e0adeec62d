"""Mean gradients along a path, for tables in parts: one pass a step, in whole numbers.

The sums are those of `paths`, number by number: whole numbers do not mind in which parts they are added up.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn.rows.fixed import FixedRows, Levels, fixed_rows
from epsilearn.rows.parts import Checked, Parts, Targets, Task
from epsilearn.rows.paths import MeanGradient, Path, gradient_at, slope_sum, squared_sums, target_sum

__all__ = ["PartedFixedRows", "PartedPath"]

Integers = NDArray[np.int64]
Array = NDArray[np.float64]
# A block's rows, and their targets.
_Block = tuple[FixedRows, Array]


class PartedFixedRows:
    """Rows of whole numbers in parts, with their targets, checked: every record has been seen once.

    Attributes
    ----------
    n, d : int
        How many records and columns. Public.
    levels : Levels
        The grid of the features. Public.
    """

    def __init__(self, parts: Parts, targets: Targets, levels: Levels, length: float, intercept: bool) -> None:
        self.n, features = parts.shape
        self.d, self.levels = features + intercept, levels
        self._table = Checked(parts, targets)
        self.seen = self._table.seen
        self._build = partial(_fixed, levels, length, intercept)

    def sums(self, task: Task) -> Integers:
        """One pass: the sum over blocks of what a task makes of each."""
        found: Integers = self._table.sums(self._build, task)[0]
        return found

    def gradient_at(self, point: Array, scale: float, code: int, levels: Levels) -> Integers:
        """The sum over records of z times the slope at any point, in levels."""
        return self.sums(partial(_gradient_at, point, scale, code, levels))


class PartedPath(Path):
    """The gradient of one loss at a point that moves along columns, by one pass for each look at it.

    ``levels`` are those of the targets for the squared loss, whose ``code`` is None, and those of the slopes otherwise.
    """

    def __init__(self, rows: PartedFixedRows, levels: Levels, code: int | None) -> None:
        self._parted, self._levels, self._code = rows, levels, code
        self._weights = np.zeros(rows.d, np.int64)
        everywhere = np.zeros(rows.d, np.int64)
        self._constant = everywhere if code is not None else rows.sums(partial(_target_sum, levels))

    def gradient(self, shrink: Fraction) -> MeanGradient:
        rows, unit = self._parted, self._parted.levels.unit
        if self._code is None:
            first, second = 2 * unit * unit * shrink / rows.n, -2 * unit * self._levels.unit / rows.n
            moved = rows.sums(partial(_squared_sums, self._weights)) if self._weights.any() else self._weights * 0
        else:
            first = second = unit * self._levels.unit / rows.n
            moved = rows.sums(partial(_slope_sum, self._weights, shrink, self._code, self._levels))
        columns = np.arange(rows.d)
        return MeanGradient(rows.d, columns, self._constant, columns, moved, first, second, 1)

    def move(self, column: int, weight: int) -> None:
        self._weights[column] += weight


def _fixed(levels: Levels, length: float, intercept: bool, X: Any, target: Array) -> _Block:
    return fixed_rows(X, levels, length=length, intercept=intercept), target


def _gradient_at(point: Array, scale: float, code: int, levels: Levels, block: _Block) -> list[Integers]:
    rows, target = block
    return [gradient_at(rows, point, scale, target, code, levels)]


def _target_sum(levels: Levels, block: _Block) -> list[Integers]:
    rows, target = block
    return [rows.spread(target_sum(rows, target, levels))]


def _squared_sums(weights: Integers, block: _Block) -> list[Integers]:
    rows, _ = block
    return [rows.spread(squared_sums(rows, weights))]


def _slope_sum(weights: Integers, shrink: Fraction, code: int, levels: Levels, block: _Block) -> list[Integers]:
    rows, target = block
    return [rows.spread(slope_sum(rows, weights, shrink, target, code, levels))]
