"""Gradient descent along gradients that somebody else supplies; where they come from does not matter here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["descend"]

Array = NDArray[np.float64]


def descend(gradient: Callable[[Array], Array], dimension: int, steps: int, time: float) -> Array:
    """The point reached from 0 in so many steps, whose sizes fall as a square root and add up to ``time``.

    Parameters
    ----------
    gradient : callable
        The gradient at a point.

    Examples
    --------
    >>> descend(lambda point: point - 3.0, 1, 200, 100.0).round(3).tolist()
    [3.0]
    """
    sizes = np.sqrt(1 - np.arange(steps) / steps)
    sizes *= time / sizes.sum()
    point = np.zeros(dimension)
    for size in sizes:
        point = point - size * gradient(point)
    return point
