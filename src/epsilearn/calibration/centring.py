"""Centring: rows are moved by a noisy mean and scaled by a noisy length before a model is fitted to them.

Rows that share a large mean spend most of their norm, and so most of the noise, on what they have in common. At most a
tenth of the budget finds that mean well enough to take it away. Proofs: ``docs/theory/centring.md``.

Lengths here are shares of the bound on a row's norm; sums are whole numbers of units, so that they are exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epsilearn.balls import decimal_down, decimal_up, exact, round_down, round_up
from epsilearn.calibration.additive import gaussian_shift, laplace_scale

__all__ = ["UNITS", "Centring", "leaves_room", "planned_centring", "shifted_centring"]

Array = NDArray[np.float64]

# A length of 1 is this many units: fine enough to be exact for every purpose, and few enough for 2**33 rows to add up.
UNITS = 2**30
# The most that a mean and a length may take of the budget: of epsilon, or of the squared length of the normal shift.
_MEAN_SHARE, _SPREAD_SHARE = 0.1, 0.02
# How long rows are once they are moved, for the rule that says how much their mean is worth. Bounds are often too wide,
# and then rows are short: a mean that is told too well costs little, one that is not costs all.
_MOVED = 0.1
# How far moved rows may reach, in root mean squares. Shorter is less noise; but rows that are cut in training and not
# when they are scored are scored wrongly, and a tenth of the rows of many tables is half as long again as the others.
_REACH = 1.2
# What the copy of the moved rows may take, in bytes.
_MOST_MEMORY = 2**31


@dataclass(frozen=True)
class Centring:
    """The noise on the sum of the rows, and on the sum of their squared lengths once moved. All of it is public.

    Attributes
    ----------
    rows, columns : int
        How many there are, without the intercept's column.
    mean, spread : float
        Scales of the noise on the two sums, in units: K-norm and Laplace, or normal.
    shift : float
        The length of the normal shift that both releases together amount to; 0 where the promise is pure.
    epsilon : float
        What both cost where the promise is pure, otherwise 0.
    """

    rows: int
    columns: int
    mean: float
    spread: float
    shift: float = 0.0
    epsilon: float = 0.0

    @property
    def gaussian(self) -> bool:
        """Whether the noise is normal."""
        return self.shift > 0

    @property
    def deviation(self) -> float:
        """The deviation of one coordinate of the mean by noise."""
        return self.mean * (1.0 if self.gaussian else math.sqrt(self.columns + 1)) / (self.rows * UNITS)

    @property
    def worthwhile(self) -> bool:
        """Whether the mean can be told from noise, and the moved rows fit in memory."""
        return self.deviation * math.sqrt(self.columns) <= 1 and 4 * self.rows * self.columns <= _MOST_MEMORY

    def centre(self, noisy_sum: Array) -> Array:
        """The mean that a noisy sum stands for: shrunk towards 0 by what noise adds to its length, and inside the ball.

        Examples
        --------
        >>> found = Centring(rows=1000, columns=3, mean=2.0**31, spread=2.0**30, shift=0.1)
        >>> found.centre(np.array([800.0, 0.0, 0.0]) * UNITS).round(3).tolist()
        [0.8, 0.0, 0.0]
        >>> found.centre(np.array([2.0, 1.0, 2.0]) * UNITS).tolist()
        [0.0, 0.0, 0.0]
        """
        mean: Array = noisy_sum / (self.rows * UNITS)
        square = float(mean @ mean)
        if square <= self.columns * self.deviation**2:
            return np.zeros(self.columns)
        kept = 1 - self.columns * self.deviation**2 / square
        return mean * (kept / max(1.0, kept * math.sqrt(square)))

    def radius(self, noisy_spread: float) -> float:
        """The length to scale moved rows down to: a little more than their root mean square.

        Examples
        --------
        >>> found = Centring(rows=1000, columns=3, mean=2.0**31, spread=2.0**30, shift=0.1)
        >>> round(found.radius(250 * UNITS), 3), found.radius(2000 * UNITS), round(found.radius(-5 * UNITS), 3)
        (0.601, 1.0, 0.038)
        """
        deviation = self.spread * (1.0 if self.gaussian else math.sqrt(2)) / (self.rows * UNITS)
        square = _REACH**2 * (max(0.0, noisy_spread / (self.rows * UNITS)) + deviation)
        return math.sqrt(min(1.0, max(square, 2.0**-20)))


def leaves_room(epsilon: float, delta: float, rank: int = 1) -> bool:
    """Whether noise in an objective can be hidden after a centring; ``rank`` is that of a record's curvature.

    Its delta is bounded by a sum of several tails, (rank + 1)**2 of them, of which a delta that is not small has not
    enough to give.
    """
    return delta == 0 or (rank == 1 and delta <= min(1e-3, epsilon / 100))


def planned_centring(rows: int, columns: int, epsilon: float, delta: float) -> Centring:
    """The noise of a centring, for a budget per record of which a share goes to it.

    Theorem. A row of norm at most 1, rounded to whole units, is at most UNITS + sqrt(columns) / 2 units long, so one
    row that is replaced moves the sum by at most twice that. A squared length, cut at 1 and rounded down to units,
    moves the other sum by UNITS at most. Normal noise of s1 and s2 times these amounts to a normal shift of length
    sqrt(1 / s1**2 + 1 / s2**2), also if the second depends on the first; K-norm and Laplace noise of scales 1 / e1 and
    1 / e2 times these cost e1 + e2.

    What a share is worth follows from public numbers: a share s of the squared shift costs the fit s / 2 of its noise,
    and noise of length e / sqrt(s) in the mean makes rows that are a tenth long longer by the share 50 e**2 / s.

    Examples
    --------
    >>> found = planned_centring(10_000, 20, 1.0, 1e-6)
    >>> found.gaussian, found.worthwhile, round(found.deviation, 4)
    (True, True, 0.0043)
    >>> round(planned_centring(100_000, 20, 1.0, 0.0).epsilon, 3), planned_centring(1000, 20, 1.0, 0.0).epsilon
    (0.045, 0.12)
    """
    if delta:
        return shifted_centring(rows, columns, gaussian_shift(epsilon, delta))
    mean_share = min(_MEAN_SHARE, (2 * columns / (rows * epsilon * _MOVED)) ** (2 / 3))
    spread_share = min(_SPREAD_SHARE, math.sqrt(1 / (math.sqrt(2) * rows * epsilon)) / _MOVED)
    shares = [decimal_down(exact(epsilon) * exact(share)) for share in (mean_share, spread_share)]
    scales = laplace_scale(_longest_move(columns), shares[0]), laplace_scale(UNITS, shares[1])
    return Centring(rows, columns, *scales, epsilon=decimal_up(exact(shares[0]) + exact(shares[1])))


def shifted_centring(rows: int, columns: int, whole: float) -> Centring:
    """The noise of a centring that takes its share of a normal shift of length ``whole``: see `planned_centring`."""
    mean_share = min(_MEAN_SHARE, 2 * math.sqrt(columns) / (rows * whole * _MOVED))
    spread_share = min(_SPREAD_SHARE, (1 / (2 * rows * whole * _MOVED**2)) ** (2 / 3))
    shifts = [round_down(exact(whole) * exact(math.sqrt(share))) for share in (mean_share, spread_share)]
    scales = round_up(exact(_longest_move(columns)) / exact(shifts[0])), round_up(exact(UNITS) / exact(shifts[1]))
    return Centring(rows, columns, *scales, shift=math.hypot(*shifts) * (1 + 1e-12))


def _longest_move(columns: int) -> float:
    """How far the sum of the rows can move. One unit more covers the roundings of what is rounded to units."""
    return float(2 * math.ceil(UNITS + math.sqrt(columns) / 2 + 1))
