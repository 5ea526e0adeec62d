"""Correlated Gaussian noise: linear combinations of exact normals, rounded at the door.

The covariance of ``factor @ normals`` is ``factor @ factor.T`` with the factor's doubles taken as exact
numbers, so whatever a caller proves about that matrix holds for the noise.
"""

from __future__ import annotations

import math

import numpy as np
from flint import arb
from numpy.typing import NDArray

from epsilearn.balls import ball, precision
from epsilearn.noise.bits import BitSource
from epsilearn.noise.door import Number, round_exactly
from epsilearn.noise.quantiles import NORMAL
from epsilearn.noise.variates import FIRST_BITS, Uniform, Variate

__all__ = ["Normals"]


class Normals:
    """A growing list of independent standard normals, each known as finely as anyone has asked."""

    def __init__(self, source: BitSource) -> None:
        self._source = source
        self._exact: list[Variate] = []
        self._middle = np.empty(0)
        self._error = np.empty(0)

    def __len__(self) -> int:
        return len(self._exact)

    def grow(self, count: int) -> None:
        """Draw until there are ``count`` normals. Those already there stay as they are."""
        self._append([Variate(NORMAL, self._source) for _ in range(count - len(self))])

    def digits(self) -> list[tuple[int, int]]:
        """The random digits of each normal drawn so far, and how many they are."""
        return [normal.digits() for normal in self._exact]

    def restore(self, digits: list[tuple[int, int]]) -> None:
        """Replace all normals by those with these digits."""
        self._exact, self._middle, self._error = [], np.empty(0), np.empty(0)
        self._append([Variate(NORMAL, self._source, Uniform(self._source, *known)) for known in digits])

    def _append(self, fresh: list[Variate]) -> None:
        with precision(2 * FIRST_BITS):
            balls = [normal.ball(FIRST_BITS) for normal in fresh]
            middles = [float(b.mid()) if b.is_finite() else 0.0 for b in balls]
            errors = [
                math.nextafter(float((b - ball(m)).abs_upper()), math.inf) if b.is_finite() else math.inf
                for b, m in zip(balls, middles, strict=True)
            ]
        self._exact += fresh
        self._middle = np.concatenate([self._middle, middles])
        self._error = np.concatenate([self._error, errors])

    def release(self, value: Number, weights: NDArray[np.float64], scale: float, grid: int) -> float:
        """``value + scale * (weights @ normals)``, rounded to a multiple of ``2**grid``."""
        rounded = self._in_floats(value, weights, scale, grid) if isinstance(value, float) else None
        if rounded is not None:
            return rounded
        return round_exactly(lambda bits: ball(value) + ball(scale) * self._combine(weights, bits), grid)

    def _combine(self, weights: NDArray[np.float64], bits: int) -> arb:
        return sum(
            (ball(float(w)) * normal.ball(bits) for w, normal in zip(weights, self._exact, strict=False) if w),
            arb(0),
        )

    def _in_floats(self, value: float, weights: NDArray[np.float64], scale: float, grid: int) -> float | None:
        """The same in floats, or None where a rigorous error bound leaves the rounding open."""
        used = slice(0, len(weights))
        sizes = np.abs(weights) @ (np.abs(self._middle[used]) + self._error[used])
        total = value + scale * float(weights @ self._middle[used])
        # Each of the n products and sums errs by at most half an ulp of a partial sum of sizes.
        rounding = 2.0**-52 * ((len(weights) + 3) * scale * sizes + abs(total))
        bound = 1.001 * (scale * float(np.abs(weights) @ self._error[used]) + rounding) + 2.0**-1000
        steps = total * 2.0**-grid
        nearest = np.rint(steps)
        if abs(steps) < 2.0**51 and 0.5 - abs(steps - nearest) > 1.001 * bound * 2.0**-grid:
            return float(nearest * 2.0**grid + 0.0)  # never -0.0
        return None
