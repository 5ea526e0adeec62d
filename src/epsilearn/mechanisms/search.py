"""Private choices of a point; whoever calls has debited for them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from epsilearn.mechanisms.tape import answered
from epsilearn.noise.bits import BitSource
from epsilearn.noise.choice import noisy_argmax, prepare
from epsilearn.noise.directions import draw_in_ball
from epsilearn.noise.door import grid_of

__all__ = ["choose_in_ball", "choose_index", "prepare_choice"]

Array = NDArray[np.float64]


def prepare_choice(count: int) -> None:
    """Load what `choose_index` of so many scores will need, before anything is debited."""
    prepare(count)


def choose_index(scores: Array, scale: float, source: BitSource) -> int:
    """An index with probability proportional to exp(score / scale), exactly."""
    return answered(source, "choice", (scale,), lambda: scores / scale, lambda: noisy_argmax(scores, scale, source))


def choose_in_ball(vector: list[Fraction], rate: float, radius: float, source: BitSource) -> Array:
    """A point of the ball with density proportional to exp(rate |<point, vector>|), rounded to a public grid.

    The grid is a millionth of the radius over all coordinates, so the point is no longer than (1 + 2**-20) radius.
    """
    grid = grid_of(radius / math.sqrt(len(vector)))
    return answered(
        source, "ball", (rate, radius, grid), lambda: vector, lambda: draw_in_ball(vector, rate, radius, source, grid)
    )
