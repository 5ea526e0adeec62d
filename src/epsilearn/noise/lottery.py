"""The exponential mechanism from one uniform variate: the ticket in which it falls, exactly.

Tickets lie side by side in a fixed order, each as wide as its weight exp(logit). A uniform variate times the total
falls into one of them, and that one is drawn: its probability is its weight over the total. Weights and sums are
computed in floats with a rigorous bound; if the bound leaves open on which side of a boundary the variate fell, the
whole comparison is made again in ball arithmetic, with the same bits extended. So the ticket drawn is a function of
the variate and of the exact logits alone, however it was found. Proof: ``docs/theory/frank-wolfe.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb
from numpy.typing import NDArray

from epsilearn.balls import ball
from epsilearn.exponentials import EXPONENTIAL_ERROR, exponentials
from epsilearn.noise import weights as passes
from epsilearn.noise.bits import BitSource
from epsilearn.noise.variates import FIRST_BITS, Uniform, refine

__all__ = ["ColumnLottery", "Columns", "draw_ticket"]

Integers = NDArray[np.int64]

_UNIT = 2.0**-53
_SLACK = 1.0 + 2.0**-20  # covers the roundings of the bound itself
# The ranges of logits and totals in which no weight that matters is lost at the ends of the doubles.
_NEAR, _HIGHEST = 300.0, 500.0
_LEAST, _MOST = 2.0**-200, 2.0**900
_VANISHED = 2.0**-1000  # what a weight beyond the doubles' range is taken for, and a bound on it


@dataclass(frozen=True)
class Columns:
    """Logits ``first * moved + second * still``, of exact numbers, one for each column.

    Attributes
    ----------
    moved, still : arrays of int64
        Below 2**62. ``moved`` may change from draw to draw, ``still`` never does.
    first, second : Fraction
        Their factors. ``second`` never changes.
    touched : array of int64
        The columns whose ``moved`` is not zero (others may be among them).
    signed : bool
        Whether a column stands for two tickets, of its logit and of its negative.
    """

    moved: Integers
    still: Integers
    first: Fraction
    second: Fraction
    touched: Integers
    signed: bool


class ColumnLottery:
    """Draws from many columns again and again, at the cost of those that were ever touched.

    Columns never touched keep the weight they had, and their sums: a block's sum is that of its columns that stand
    still plus those of the touched ones.
    """

    def __init__(self, source: BitSource) -> None:
        self._source = source
        self._shift = math.nan
        self._size = 0.0

    def draw(self, columns: Columns) -> int:
        """The ticket drawn: a column, or twice the column plus 1 for its negative if ``signed``."""
        uniform = Uniform(self._source)
        if math.isnan(self._shift):
            self._start(columns)
        total, most = self._weigh(columns)
        if not (most - self._shift < _HIGHEST and _LEAST < total < _MOST):
            self._start(columns)
            total, _ = self._weigh(columns)
        found = self._in_floats(columns, uniform, total)
        return exact_ticket(uniform, *_classes(columns)) if found is None else found

    def _start(self, columns: Columns) -> None:
        """Weigh every column as it stands, relative to the largest if that is far from 1."""
        count = len(columns.moved)
        first, second = float(columns.first), float(columns.second)
        most = passes.largest_logit(columns.moved, columns.still, first, second, columns.signed)
        self._shift = 0.0 if abs(most) < _NEAR else most
        self._weights, self._seen = np.empty(count), np.zeros(count, np.bool_)
        self._still_sums = np.zeros(-(-count // passes.BLOCK))
        _, self._size = passes.weigh(
            columns.moved, columns.still, first, second, self._shift, columns.signed, np.arange(count), self._weights,
            self._still_sums,
        )  # fmt: skip

    def _weigh(self, columns: Columns) -> tuple[float, float]:
        """Bring the touched columns' weights and the sums up to date; the total, and the largest touched logit."""
        passes.touch(columns.touched, self._seen, self._weights, self._still_sums)
        self._sums = self._still_sums.copy()
        most, size = passes.weigh(
            columns.moved, columns.still, float(columns.first), float(columns.second), self._shift, columns.signed,
            columns.touched, self._weights, self._sums,
        )  # fmt: skip
        self._size = max(self._size, size)
        return float(passes.sum_blocks(self._sums)), most

    def _in_floats(self, columns: Columns, uniform: Uniform, total: float) -> int | None:
        point, margin = _point(uniform, total, self._error(), len(self._weights))
        column, into = passes.locate(self._weights, self._sums, point, margin)
        if column < 0:
            return None
        if not columns.signed:
            return int(column)
        logit = float(columns.first) * columns.moved[column] + float(columns.second) * columns.still[column]
        own = np.empty(1)
        exponentials(np.array([logit - self._shift]), own)
        if abs(into - own[0]) < margin:
            return None
        return int(2 * column + (into > own[0]))

    def _error(self) -> float:
        """A bound on the relative error of every weight, and of every sum of weights."""
        # Factors, whole numbers and products are each rounded once, the sum and the difference with the shift too.
        logit = 8 * _UNIT * (self._size + abs(self._shift))
        return (2 * EXPONENTIAL_ERROR + logit + 2 * (passes.BLOCK + 16) * _UNIT) * _SLACK


def draw_ticket(logits: NDArray[np.float64], error: float, exactly: Callable[[], list[arb]], source: BitSource) -> int:
    """Draw from tickets whose logits are known within ``error``; ``exactly`` gives them as balls when floats tie."""
    uniform = Uniform(source)
    shift = float(logits.max())
    weights = np.empty(len(logits))
    exponentials(logits - shift, weights)
    sums = np.add.reduceat(weights, np.arange(0, len(weights), passes.BLOCK))
    total = float(passes.sum_blocks(sums))
    size = float(np.abs(logits).max()) + abs(shift)
    relative = (EXPONENTIAL_ERROR + 2 * error + 2 * _UNIT * size + (passes.BLOCK + 16) * _UNIT) * _SLACK
    point, margin = _point(uniform, total, relative, len(logits))
    ticket, _ = passes.locate(weights, sums, point, margin)
    if ticket >= 0:
        return int(ticket)
    return exact_ticket(uniform, np.arange(len(logits)), lambda bits: exactly())  # noqa: ARG005


def _point(uniform: Uniform, total: float, error: float, count: int) -> tuple[float, float]:
    """Where the variate falls, in units of the weights, and how far that and any boundary can be off."""
    digits, known = uniform.digits(FIRST_BITS)
    point = math.ldexp(float(digits), -known) * total
    margin = total * (4 * error + 2.0 ** (2 - FIRST_BITS) + 8 * _UNIT) + count * _VANISHED
    return point, margin * _SLACK


def _classes(columns: Columns) -> tuple[Integers, Callable[[int], list[arb]]]:
    """The tickets' classes of equal logits, and those logits as balls."""
    pairs, position = np.unique(np.stack([columns.moved, columns.still]), axis=1, return_inverse=True)
    position = position.ravel()
    tickets = np.column_stack([2 * position, 2 * position + 1]).ravel() if columns.signed else position

    def logits(bits: int) -> list[arb]:  # noqa: ARG001 - exact at any precision
        each = [
            ball(columns.first) * ball(int(moved)) + ball(columns.second) * ball(int(still)) for moved, still in pairs.T
        ]
        return [signed for logit in each for signed in (logit, -logit)] if columns.signed else each

    return tickets, logits


def exact_ticket(uniform: Uniform, tickets: Integers, logits: Callable[[int], list[arb]]) -> int:
    """The ticket the variate falls in, in ball arithmetic; ``tickets`` holds each one's class, in order."""

    def attempt(bits: int) -> int | None:
        found = logits(bits)
        top = max(float(logit.mid()) for logit in found)
        weights = [(logit - ball(top)).exp() for logit in found]

        def before(ticket: int) -> arb:
            counts = np.bincount(tickets[:ticket], minlength=len(weights))
            return sum((int(counts[k]) * weights[k] for k in np.flatnonzero(counts)), arb(0))

        point = uniform.ball(bits) * before(len(tickets))
        low, high = 0, len(tickets)  # the boundary before `low` lies below the point, that before `high` above it
        while high - low > 1:
            middle = (low + high) // 2
            boundary = before(middle)
            if boundary < point:
                low = middle
            elif boundary > point:
                high = middle
            else:
                return None
        return low

    return refine(attempt)
