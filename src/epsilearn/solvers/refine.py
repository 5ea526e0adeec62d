"""Beyond the precision of doubles: Newton's corrections from gradients in ball arithmetic.

A certificate may be asked for that is smaller than the rounding of a gradient in doubles, above all when the noise in
an objective happens to be enormous. That must not be an error, since which objectives fail would depend on the data.
The point becomes a sum of double vectors, kept as exact fractions, and its gradient a vector of balls; the factor of
the Hessian in doubles is good enough for the corrections, each of which gains several digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Protocol, runtime_checkable

import numpy as np
from flint import arb
from numpy.typing import NDArray

from epsilearn.balls import ball, precision
from epsilearn.losses import Loss

__all__ = ["ExactRows", "refine"]

Array = NDArray[np.float64]

_BITS = 256


@runtime_checkable
class ExactRows(Protocol):
    """Rows that can also be summed in ball arithmetic, slowly."""

    n: int

    def gradient_in_balls(self, loss: Loss, coef: list[Fraction]) -> list[arb]:
        """The mean gradient at an exact point."""


def refine(
    rows: ExactRows,
    loss: Loss,
    strength: float,
    tilt: Array,
    start: Array,
    correct: Callable[[Array], Array],
    target: float,
) -> tuple[list[Fraction], float] | None:
    """Correct ``start`` until the exact gradient's norm is certainly at most ``target``; None if that fails."""
    point = [Fraction(float(c)) for c in start]
    for _ in range(60):
        with precision(_BITS):
            gradient = [
                g + ball(strength) * ball(p) + ball(float(b)) / rows.n
                for g, p, b in zip(rows.gradient_in_balls(loss, point), point, tilt, strict=True)
            ]
            bound = sum((g * g for g in gradient), arb(0)).sqrt().abs_upper()
        if bound <= ball(target):
            return point, math.nextafter(float(bound), math.inf)
        step = correct(np.array([-float(g.mid()) for g in gradient]))
        point = [p + Fraction(float(s)) for p, s in zip(point, step, strict=True)]
    return None
