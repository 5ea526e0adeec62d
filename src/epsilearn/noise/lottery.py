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

import numpy as np
from flint import arb
from numpy.typing import NDArray

from epsilearn.balls import ball
from epsilearn.exponentials import EXPONENTIAL_ERROR, exponentials
from epsilearn.linear_scores import LinearScores
from epsilearn.noise import weights as passes
from epsilearn.noise.bits import BitSource
from epsilearn.noise.variates import FIRST_BITS, Uniform, refine
from epsilearn.threads import in_threads

__all__ = ["ColumnLottery", "Columns", "draw_ticket"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_UNIT = 2.0**-53
_WORTH = 1 << 17  # columns that are worth a thread
_SLACK = 1.0 + 2.0**-20  # covers the roundings of the bound itself
# Logits no farther from 0 need no shift; totals outside the range may have lost a weight at the ends of the doubles.
_NEAR = 300.0
_LEAST, _MOST = 2.0**-450, 2.0**900
_VANISHED = 2.0**-1000  # a bound on a weight beyond the doubles' range, and on what it is taken for


@dataclass(frozen=True)
class Columns(LinearScores):
    """Scores as logits.

    Attributes
    ----------
    signed : bool
        Whether a column stands for two tickets, of its logit and of its negative.
    """

    signed: bool


class ColumnLottery:
    """Draws from many columns again and again, at the cost of those that were ever touched.

    Columns never touched keep the weight they had, and their sums: a block's sum is that of its columns that stand
    still plus those of the touched ones.
    """

    def __init__(self, source: BitSource) -> None:
        self._source = source
        self._generation: int | None = None

    def draw(self, columns: Columns) -> int:
        """The ticket drawn: a column, or twice the column plus 1 for its negative if ``signed``."""
        uniform = Uniform(self._source)
        if columns.generation != self._generation:
            self._start(columns)
        total = self._weigh(columns)
        if not _LEAST < total < _MOST:
            self._start(columns)
            total = self._weigh(columns)
        found = self._in_floats(columns, uniform, total)
        return _exact_column(uniform, columns) if found is None else found

    def _start(self, columns: Columns) -> None:
        """Weigh every column as if untouched, relative to the largest logit of all if that is far from 0."""
        self._generation = columns.generation
        self._shift = _shift(columns)
        self._still_weights = np.empty(len(columns.present))
        self._size = passes.weigh(
            np.zeros(len(columns.present), np.int64), columns.still, 0.0, float(columns.second), self._shift,
            columns.signed, self._still_weights,
        )  # fmt: skip
        self._still_sums = np.empty(max(1, -(-len(columns.present) // passes.BLOCK)))
        passes.sum_still(self._still_weights, self._still_sums)
        self._place = np.full(len(columns.present), -1, np.int64)
        self._known, self._ordered = 0, True
        self._touched_still = np.empty(len(columns.present), np.int64)
        self._weights = np.empty(len(columns.present))
        each = np.empty(1)
        exponentials(np.array([-self._shift]), each)
        self._absent = float(each[0]) * (2 if columns.signed else 1)
        self._absent_sums = _absent_counts(columns, len(self._still_sums)) * self._absent

    def _weigh(self, columns: Columns) -> float:
        """Bring the touched columns' weights and the sums up to date, and return the total."""
        count = len(columns.touched)
        if count > self._known:
            passes.leave_out(columns.touched, self._place, self._known, self._still_weights, self._still_sums)
            fresh = slice(self._known, count)
            self._touched_still[fresh] = columns.still[columns.touched[fresh]]
            self._ordered &= bool((np.diff(columns.touched[max(self._known - 1, 0) : count]) > 0).all())
            self._known = count
        first, second = float(columns.first), float(columns.second)

        def work(part: slice) -> float:
            size: float = passes.weigh(
                columns.moved[part], self._touched_still[part], first, second, self._shift, columns.signed,
                self._weights[part],
            )  # fmt: skip
            return size

        size = max(in_threads(work, count, _WORTH))
        self._size = max(self._size, size)
        self._sums = self._still_sums + self._absent_sums
        total: float = passes.sum_blocks(columns.touched, self._ordered, self._weights, self._sums)
        return total

    def _in_floats(self, columns: Columns, uniform: Uniform, total: float) -> int | None:
        point, margin = _point(uniform, total, self._error(), columns.count)
        column, into = passes.locate(
            self._sums, self._still_weights, self._place, self._weights, columns.present, columns.count, self._absent,
            point, margin,
        )  # fmt: skip
        if column < 0:
            return None
        if not columns.signed:
            return int(column)
        own = np.empty(1)
        exponentials(np.array([self._logit(columns, int(column)) - self._shift]), own)
        if abs(into - own[0]) < margin:
            return None
        return int(2 * column + (into > own[0]))

    def _logit(self, columns: Columns, column: int) -> float:
        position = int(np.searchsorted(columns.present, column))
        if position == len(columns.present) or columns.present[position] != column:
            return 0.0
        place = self._place[position]
        moved = float(columns.moved[place]) if place >= 0 else 0.0
        still = float(columns.still[position])
        logit: float = float(columns.first) * moved + float(columns.second) * still
        return logit

    def _error(self) -> float:
        """A bound on the relative error of every weight, and of every sum of weights."""
        # Factors, whole numbers and products are each rounded once, the sum and the difference with the shift too.
        logit = 8 * _UNIT * (self._size + 2 * abs(self._shift))
        bound: float = (2 * EXPONENTIAL_ERROR + logit + 3 * (passes.BLOCK + 16) * _UNIT) * _SLACK
        return bound


def _shift(columns: Columns) -> float:
    """The largest logit of all tickets, or 0 if it is near: what weights are taken relative to."""
    logits = float(columns.second) * columns.still
    logits[columns.touched] += float(columns.first) * columns.moved
    largest = float(np.abs(logits).max(initial=0.0) if columns.signed else logits.max(initial=-math.inf))
    if len(columns.present) < columns.count:
        largest = max(largest, 0.0)
    return 0.0 if abs(largest) < _NEAR else largest


def _absent_counts(columns: Columns, blocks: int) -> Array:
    """How many absent columns lie in each block: after its first column, in the first block also before it."""
    starts = np.append(columns.present[:: passes.BLOCK][:blocks], columns.count)
    starts[0] = 0
    if len(starts) == 1:
        starts = np.array([0, columns.count])
    held = np.full(blocks, passes.BLOCK)
    held[-1] = len(columns.present) - passes.BLOCK * (blocks - 1)
    counts: Array = (np.diff(starts) - held).astype(np.float64)
    return counts


def draw_ticket(logits: Array, error: float, exactly: Callable[[], list[arb]], source: BitSource) -> int:
    """Draw from tickets whose logits are known within ``error``; ``exactly`` gives them as balls when floats tie."""
    uniform = Uniform(source)
    shift = float(logits.max())
    weights = np.empty(len(logits))
    exponentials(logits - shift, weights)
    boundaries = np.cumsum(weights)
    total = float(boundaries[-1])
    size = float(np.abs(logits).max()) + abs(shift)
    relative = (EXPONENTIAL_ERROR + 2 * error + 2 * _UNIT * size + (len(logits) + 16) * _UNIT) * _SLACK
    point, margin = _point(uniform, total, relative, len(logits))
    ticket = int(np.searchsorted(boundaries, point, side="right"))
    below = boundaries[ticket - 1] if ticket > 0 else -math.inf
    above = boundaries[ticket] if ticket < len(logits) - 1 else math.inf
    if ticket < len(logits) and below + margin < point < above - margin:
        return ticket

    def before(count: int, weights: list[arb]) -> arb:
        return sum(weights[:count], arb(0))

    return _exact_ticket(uniform, exactly, before, len(logits))


def _point(uniform: Uniform, total: float, error: float, count: int) -> tuple[float, float]:
    """Where the variate falls, in units of the weights, and how far that and any boundary can be off."""
    digits, known = uniform.digits(FIRST_BITS)
    point = math.ldexp(float(digits), -known) * total
    margin = total * (4 * error + 2.0 ** (2 - FIRST_BITS) + 8 * _UNIT) + count * _VANISHED
    return point, margin * _SLACK


def _exact_column(uniform: Uniform, columns: Columns) -> int:
    """The same as `ColumnLottery.draw`, in ball arithmetic: columns of equal numbers are weighed once."""
    moved = np.zeros(len(columns.present), np.int64)
    moved[columns.touched] = columns.moved
    pairs, kinds = np.unique(np.stack([moved, columns.still]), axis=1, return_inverse=True)
    kinds = kinds.ravel()
    each = 2 if columns.signed else 1

    def logits() -> list[arb]:
        numbers = [*pairs.T.tolist(), (0, 0)]
        found = [ball(columns.first) * ball(m) + ball(columns.second) * ball(s) for m, s in numbers]
        return [signed for logit in found for signed in (logit, -logit)] if columns.signed else found

    def before(ticket: int, weights: list[arb]) -> arb:
        column, halves = divmod(ticket, each)
        position = int(np.searchsorted(columns.present, column))
        counts = np.bincount(kinds[:position], minlength=len(weights) // each)
        counts[-1] += column - position
        total = arb(0)
        for kind in np.flatnonzero(counts):
            total += int(counts[kind]) * sum(weights[each * kind : each * (kind + 1)], arb(0))
        if halves:
            here = position < len(kinds) and columns.present[position] == column
            total += weights[2 * (kinds[position] if here else len(weights) // 2 - 1)]
        return total

    return _exact_ticket(uniform, logits, before, each * columns.count)


def _exact_ticket(
    uniform: Uniform, logits: Callable[[], list[arb]], before: Callable[[int, list[arb]], arb], count: int
) -> int:
    """The ticket the variate falls in; ``before(k, weights)`` is the total weight of the first k of them."""

    def attempt(bits: int) -> int | None:
        found = logits()
        top = max(float(logit.mid()) for logit in found)
        weights = [(logit - ball(top)).exp() for logit in found]
        point = uniform.ball(bits) * before(count, weights)
        low, high = 0, count  # the boundary before `low` lies below the point, that before `high` above it
        while high - low > 1:
            middle = (low + high) // 2
            boundary = before(middle, weights)
            if boundary < point:
                low = middle
            elif boundary > point:
                high = middle
            else:
                return None
        return low

    return refine(attempt)
