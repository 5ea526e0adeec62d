"""What privacy can be expected to cost in accuracy, from public numbers: a range, not a theorem.

The model. Along its j-th direction the table varies by c_j, proportional to j**-p, half of what the bound on the rows
allows in all; the best scores vary by s**2 in all, and along direction j by a share proportional to j**-q. Regularising
by lambda shrinks the score along j by g_j = k c_j / (k c_j + lambda), k being the mean curvature of the loss, and noise
of deviation b in the objective adds (b/n)**2 c_j / (k c_j + lambda)**2 to its variance; noise of deviation b on the
result adds b**2 c_j. Correlation between private and best scores follows, and from it the accuracy.

Two settings of (p, q, s) stand for an easy table, whose strongest directions tell the classes apart (as in Adult), and
for a hard one, where all directions matter (as in spambase). What was measured on four real tables lies between them or
close by: ``docs/theory/strength.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from epsilearn.calibration.fit import FitNoise

__all__ = ["EASY", "HARD", "Signal", "accuracy_lost", "error_added"]

Array = NDArray[np.float64]

_GRID = np.linspace(-6, 6, 601)
_WEIGHTS = np.exp(-(_GRID**2) / 2) / np.exp(-(_GRID**2) / 2).sum()
_FILLED = 0.5  # the share of the bound on a row's square that rows have on the average
_MOST_DIRECTIONS = 10_000


@dataclass(frozen=True)
class Signal:
    """How fast a table's directions fade (p), how fast what they tell does (q), and how far scores spread (s)."""

    fading: float
    telling: float
    spread: float


EASY, HARD = Signal(1.0, 2.5, 3.0), Signal(1.25, 0.0, 5.0)


def accuracy_lost(noise: FitNoise, rows: int, columns: int, row_norm: float, signal: Signal) -> float:
    """How much less often a private classifier may be right than the best linear one, for two classes.

    Examples
    --------
    >>> from epsilearn.calibration.fit import planned_noise
    >>> from epsilearn.losses import Logistic
    >>> noise = planned_noise(Logistic(), 30_000, 100, 1.0, 3e-4, 1.0, 1e-6, "objective")
    >>> round(accuracy_lost(noise, 30_000, 100, 1.0, EASY), 3) < round(accuracy_lost(noise, 30_000, 100, 1.0, HARD), 3)
    True
    """
    curvature = float((_WEIGHTS / (2 * np.cosh(signal.spread * _GRID / 2)) ** 2).sum())
    kept, told, added = _seen(noise, rows, columns, row_norm, signal, curvature)
    seen = signal.spread * math.sqrt(float((kept**2 * told).sum()) + added)
    # With so much regularisation that nothing is left of any score, guessing is all there is.
    correlation = float((kept * told).sum()) / seen if seen > 0 else 0.0
    return _accuracy(1.0, signal.spread) - _accuracy(correlation, signal.spread)


def error_added(noise: FitNoise, rows: int, columns: int, row_norm: float, half: float, signal: Signal) -> float:
    """The root mean squared distance of a private regression's predictions from the best linear one's.

    ``half`` is half the target's range; the best predictions are taken to deviate by a third of it.
    """
    kept, told, added = _seen(noise, rows, columns, row_norm, signal, 1.0)
    told = told * (half / 3 / signal.spread) ** 2
    return math.sqrt(float(((1 - kept) ** 2 * told).sum()) + added)


def _seen(
    noise: FitNoise, rows: int, columns: int, row_norm: float, signal: Signal, curvature: float
) -> tuple[Array, Array, float]:
    """How much of each direction's score is kept, how much it varies, and the variance that noise adds to scores."""
    directions = np.arange(1.0, min(columns, _MOST_DIRECTIONS) + 1)
    spread = directions**-signal.fading
    spread *= _FILLED * row_norm**2 / spread.sum()
    told = directions**-signal.telling
    told *= signal.spread**2 / told.sum()
    stiff = curvature * spread + noise.strength
    along = noise.deviation if noise.method == "output" else noise.deviation / (rows * stiff)
    return curvature * spread / stiff, told, float((spread * along**2).sum())


def _accuracy(correlation: float, spread: float) -> float:
    """How often the sign of a score so correlated with the best one is right, the best being logistic."""
    rest = math.sqrt(max(1 - correlation**2, 1e-12))
    agreement = 2 * ndtr(correlation * _GRID / rest) - 1
    return float(0.5 + 0.5 * (_WEIGHTS * np.tanh(spread * _GRID / 2) * agreement).sum())
