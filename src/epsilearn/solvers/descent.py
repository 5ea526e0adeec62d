"""Gradient descent along gradients that somebody else supplies; where they come from does not matter here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["descend"]

Array = NDArray[np.float64]

_MOMENTUM = 0.9


def descend(gradient: Callable[[Array], Array], dimension: int, steps: int, time: float) -> Array:
    """The point reached from 0 in so many steps whose sizes fall evenly to nothing and add up to ``time``.

    Parameters
    ----------
    gradient : callable
        The gradient at a point.

    Examples
    --------
    >>> descend(lambda point: point - 3.0, 1, 200, 100.0).round(3).tolist()
    [3.0]
    """
    point, speed = np.zeros(dimension), np.zeros(dimension)
    first = 2 * time / (steps + 1)
    for step in range(steps):
        speed = _MOMENTUM * speed + (1 - _MOMENTUM) * gradient(point)
        point = point - first * (1 - step / steps) * speed
    return point
