"""The exponential mechanism over a ball: a random point that leans along a vector, either way.

The point z of the ball of radius r in R^d has density proportional to exp(q |<z, v>|). With c = q r ||v|| and
k = (d - 1) / 2, its component t along v, as a share of r, has density proportional to exp(c |t|) (1 - t**2)**k.
Given t the rest is uniform in the ball of radius r sqrt(1 - t**2) orthogonal to v: with g a normal vector in that
space and E exponential, g / sqrt(||g||**2 + 2 E) is uniform in its unit ball (Barthe, Guédon, Mendelson and Naor 2005).

The component is drawn by rejection, exact over the reals; every comparison is decided in ball arithmetic with bits
that are extended and never redrawn. So the point is a real random vector with just that density, known as finely as
anyone asks, and what leaves is a function of it alone: each coordinate rounded to a public grid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache, partial

import numpy as np
from flint import arb
from numpy.typing import NDArray

from epsilearn.balls import as_fraction, ball, precision
from epsilearn.noise.bits import BitSource
from epsilearn.noise.door import Number, round_exactly
from epsilearn.noise.quantiles import EXPONENTIAL, NORMAL
from epsilearn.noise.variates import FIRST_BITS, Gamma, Uniform, Variate, decide

__all__ = ["Component", "draw_in_ball"]

Balls = Callable[[int], arb]  # ever tighter balls around a real number, by the bits used
Proposal = tuple[Balls, Balls]  # the gap s = 1 - |t|, and the logarithm of the probability to accept it


def draw_in_ball(
    vector: Sequence[Number] | NDArray[np.float64], rate: Number, radius: Number, source: BitSource, grid: int
) -> NDArray[np.float64]:
    """A point z with ``||z|| <= radius`` and density proportional to ``exp(rate * |<z, vector>|)``, rounded.

    Parameters
    ----------
    vector : sequence of numbers or float64 array
        Taken as exact numbers. The zero vector gives a uniform point.
    rate, radius : number
        Positive, and taken as exact numbers.
    source : BitSource
        Where the random bits come from.
    grid : int
        Every coordinate of the exact point is rounded to a multiple of ``2**grid``.

    Returns
    -------
    ndarray of float64
        The rounded point. Rounding can carry it out of the ball by at most ``2**(grid - 1)`` in every coordinate.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn.noise.bits import SeededBits
    >>> point = draw_in_ball(np.array([3.0, -4.0]), 2.0, 10.0, SeededBits(0), grid=-20)
    >>> point.shape, bool(np.linalg.norm(point) <= 10 + 2**-20), bool((point * 2**20 % 1 == 0).all())
    ((2,), True, True)
    """
    if not (rate > 0 and radius > 0 and len(vector)):
        raise ValueError("the sampler needs a vector, a positive rate and a positive radius")
    numbers = [as_fraction(number) for number in vector]
    tilt = as_fraction(rate) * as_fraction(radius)
    if not any(numbers):
        # No direction is favoured, so any will do.
        numbers[0], tilt = Fraction(1), Fraction(0)
    point = _point(numbers, tilt, as_fraction(radius), source)
    return np.array([round_exactly(partial(_coordinate, point, index), grid) for index in range(len(numbers))])


def _point(
    numbers: Sequence[Fraction], tilt: Fraction, radius: Fraction, source: BitSource
) -> Callable[[int], list[arb]]:
    """The exact point, as ever tighter balls around its coordinates. They share all the randomness, computed once."""

    @cache
    def axis(bits: int) -> tuple[list[arb], arb]:  # noqa: ARG001 - `refine` sets the precision by them
        entries = [ball(number) for number in numbers]
        return entries, _dot(entries, entries).sqrt()

    component = Component(len(numbers), lambda bits: ball(tilt) * axis(bits)[1], source)
    normals = [Variate(NORMAL, source, Uniform(source, int(word))) for word in source.words(len(numbers))]
    exponential = Variate(EXPONENTIAL, source)

    @cache
    def point(bits: int) -> list[arb]:
        entries, length = axis(bits)
        g = [normal.ball(bits) for normal in normals]
        along = _dot(g, entries) / length
        norm = (_dot(g, g) - along * along + 2 * exponential.ball(bits)).sqrt()
        # The rest is g without its part along the vector, times `across`: the vector's share makes up for that part.
        across = ball(radius) * component.complement(bits) / norm
        lean = (ball(radius) * component.ball(bits) - across * along) / length
        return [lean * entry + across * x for entry, x in zip(entries, g, strict=True)]

    return point


def _coordinate(point: Callable[[int], list[arb]], index: int, bits: int) -> arb:
    return point(bits)[index]


def _dot(left: Sequence[arb], right: Sequence[arb]) -> arb:
    return sum((x * y for x, y in zip(left, right, strict=True)), arb(0))


class Component:
    """The component t in [-1, 1], of density proportional to ``exp(tilt * |t|) * (1 - t**2)**((dimension - 1) / 2)``.

    ``tilt(bits)`` gives ever tighter balls around the tilt. Two proposals share the work, so that more than a third
    are accepted whatever the tilt and the dimension. Either is exact: which one is used is only a matter of speed.
    """

    __slots__ = ("_gap", "_positive")

    def __init__(self, dimension: int, tilt: Balls, source: BitSource) -> None:
        self._positive = bool(source.integer(1))
        k = Fraction(dimension - 1, 2)
        with precision(2 * FIRST_BITS):
            near = tilt(FIRST_BITS)
            propose = partial(_steep, _slope(k, near)) if near > 1 else _flat
        while True:
            self._gap, log_weight = propose(k, tilt, source)
            if decide(lambda bits: 1 - self._gap(bits)) and _accepts(log_weight, Uniform(source)):
                return

    def ball(self, bits: int) -> arb:
        size = 1 - self._gap(bits)
        return size if self._positive else -size

    def complement(self, bits: int) -> arb:
        """``sqrt(1 - t**2)``, from the gap 1 - abs(t), which may be too small to see in t."""
        gap = self._gap(bits)
        return (gap * (2 - gap)).sqrt()


def _flat(k: Fraction, tilt: Balls, source: BitSource) -> Proposal:
    """As if the tilt c were 0, accepted with probability exp(-c s): for a tilt of about 1 or less.

    A uniform point of the ball has the component x / sqrt(x**2 + 2 G), x normal and G of law Gamma(k + 1).
    """
    normal, gamma = Variate(NORMAL, source), Gamma(k + 1, source)

    @cache
    def gap(bits: int) -> arb:
        x = normal.ball(bits)
        return 1 - abs(x) / (x * x + 2 * gamma.ball(bits)).sqrt()

    return gap, lambda bits: -tilt(bits) * gap(bits)


def _steep(slope: float, k: Fraction, tilt: Balls, source: BitSource) -> Proposal:
    """From a Gamma law above the gap's density exp(-c s) s**k (2 - s)**k: for a tilt c of about 1 or more.

    With y = a (2 - s), log y <= y - 1 bounds (2 - s)**k by a multiple of exp(-a k s), for any slope a > 0. So
    s = G / (c + a k), G of law Gamma(k + 1), is accepted with probability (y exp(1 - y))**k if it is at most 1.
    """
    gamma = Gamma(k + 1, source)

    @cache
    def gap(bits: int) -> arb:
        return gamma.ball(bits) / (tilt(bits) + ball(slope) * ball(k))

    def log_weight(bits: int) -> arb:
        y = ball(slope) * (2 - gap(bits))
        return ball(k) * (y.log() + 1 - y)

    return gap, log_weight


def _slope(k: Fraction, tilt: arb) -> float:
    """The slope at which the bound touches the density at its mode t = m, or a double near it: 1 / (1 + m)."""
    mode = tilt / (ball(k) + (ball(k) ** 2 + tilt**2).sqrt())
    return float((1 / (1 + mode)).mid())


def _accepts(log_weight: Balls, uniform: Uniform) -> bool:
    def slack(bits: int) -> arb:
        tail, upper = uniform.tail(bits)
        return log_weight(bits) - ((-tail).log1p() if upper else tail.log())

    return decide(slack)
