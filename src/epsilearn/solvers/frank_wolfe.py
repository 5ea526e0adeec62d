"""Frank-Wolfe: steps towards one point of a convex set at a time, whoever chooses the point.

    theta_1 = 0,  theta_{t+1} = (1 - mu_t) theta_t + mu_t s_t,  mu_t = 2 / (t + 2),  t = 1 ... T - 1.

Written out, theta_{t+1} = 2 / ((t + 1)(t + 2)) times the sum over k <= t of (k + 1) s_k: whole weights and one factor,
so on corners along the coordinates every point of the path is known exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from epsilearn.rows.paths import MeanGradient, Path

__all__ = ["along_columns", "along_points", "greedy", "shrinkage", "total_weight"]

Array = NDArray[np.float64]
Progress = Callable[[int], None]


def shrinkage(step: int) -> Fraction:
    """What the whole weights are multiplied by at theta_step.

    Examples
    --------
    >>> shrinkage(3)
    Fraction(1, 6)
    """
    return Fraction(2, step * (step + 1))


def total_weight(steps: int) -> int:
    """The sum of the weights 2, 3, ... of all moves."""
    return (steps - 1) * (steps + 2) // 2


def along_columns(
    path: Path,
    radius: Fraction,
    signed: bool,
    choose: Callable[[MeanGradient], int],
    steps: int,
    *,
    weights: NDArray[np.int64],
    progress: Progress | None = None,
) -> list[int]:
    """The corners chosen, in order: a column, or twice the column plus 1 for its negative where ``signed``.

    ``weights`` has the whole weights of the path's first point, and is added to.
    """
    for first in np.flatnonzero(weights).tolist():
        path.move(first, int(weights[first]))
    chosen = []
    for step in range(1, steps):
        corner = choose(path.gradient(radius * shrinkage(step)))
        column, negative = divmod(corner, 2) if signed else (corner, 0)
        weight = -(step + 1) if negative else step + 1
        path.move(column, weight)
        weights[column] += weight
        chosen.append(corner)
        if progress is not None:
            progress(step)
    return chosen


def along_points(
    point_towards: Callable[[Array], Array], start: Array, steps: int, progress: Progress | None = None
) -> Array:
    """The last point of a path whose steps go towards ``point_towards(theta_t)``."""
    weighted = start.copy()
    for step in range(1, steps):
        weighted += (step + 1) * point_towards(float(shrinkage(step)) * weighted)
        if progress is not None:
            progress(step)
    point: Array = float(shrinkage(steps)) * weighted
    return point


def greedy(gradient: MeanGradient, signed: bool = True) -> int:
    """The best corner: the choice without privacy, for comparison."""
    values = gradient.floats()
    if not signed:
        return int(values.argmin())
    column = int(np.abs(values).argmax())
    return 2 * column + int(values[column] > 0)
