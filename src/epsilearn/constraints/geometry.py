"""Norms, widths and points in many dimensions, without overflow."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import gammaincc, poch

from epsilearn.errors import InvalidInput

__all__ = [
    "finite", "lengths", "mean_largest_length", "mean_length", "outward", "read_only", "row_bounds", "sampled_mean",
    "to_unit_size",
]  # fmt: skip

Array = NDArray[np.float64]


def outward(number: float) -> float:
    """A little more, to cover the roundings of a few operations, underflow among them."""
    return math.nextafter(number * (1 + 1e-12), math.inf)


def finite(direction: Any) -> Array:
    """A direction as a vector of doubles; an error if it is not one."""
    vector: Array = np.asarray(direction, dtype=np.float64)
    if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
        raise InvalidInput("direction must be a vector of finite numbers, one for each feature; rescale the features")
    return vector


def to_unit_size(direction: Any) -> Array:
    """The direction with its largest entry at 1 or -1, so that powers of it neither overflow nor all vanish."""
    vector = finite(direction)
    return vector / (float(np.abs(vector).max()) or 1.0)


def lengths(rows: Array) -> Array:
    """The l2 norm of each row, without overflow or underflow."""
    scales: Array = np.abs(rows).max(axis=1)
    shares = rows / np.where(scales > 0, scales, 1.0)[:, np.newaxis]
    lengths: Array = scales * np.sqrt((shares**2).sum(axis=1))
    return lengths


def row_bounds(largest: float, length: float, features: int) -> tuple[float, float]:
    """Each of the two norms of a row bounds the other; with both tightened, both are finite."""
    if not (largest >= 0 and length >= 0 and min(largest, length) < math.inf):
        raise InvalidInput("largest and length must be at least 0 and one of them finite; give a bound on the rows")
    largest = min(largest, length)
    return largest, min(length, outward(largest * math.sqrt(features)))


@lru_cache(maxsize=256)
def mean_largest_length(groups: tuple[tuple[int, int], ...]) -> float:
    """E max ||b_g||_2 over groups of standard normals, given as pairs (size, how many): the integral of 1 - prod F."""
    sizes, counts = np.array(groups, dtype=np.float64).T

    def exceeded(length: float) -> float:
        with np.errstate(divide="ignore"):  # log 0 is right where a group is surely longer
            return -math.expm1(counts @ np.log1p(-gammaincc(sizes / 2, length * length / 2)))

    # Lengths are 1-Lipschitz in b: below and above these limits the integrand is 1 and 0 to the last bit.
    middle = math.sqrt(sizes.max())
    low, high = max(0.0, middle - 10), middle + math.sqrt(2 * math.log(counts.sum())) + 10
    return low + float(quad(exceeded, low, high, limit=200, epsabs=0, epsrel=1e-10)[0])


def mean_length(dimension: int) -> float:
    """E ||b||_2 = sqrt(2) Gamma((p + 1) / 2) / Gamma(p / 2)."""
    return math.sqrt(2) * float(poch(dimension / 2, 0.5))


def sampled_mean(extents: Callable[[Array], Array], dimension: int) -> float:
    """The mean of extents over standard normal rows, with a deviation of 1.7 % at most (for a single segment).

    The length of a row is independent of where it points, and its mean is known: only the latter is sampled.
    """
    draws, batch = min(2000, max(16, 10**7 // dimension)), max(1, 2**20 // dimension)
    generator = np.random.default_rng(20150618)
    total = 0.0
    for start in range(0, draws, batch):
        rows = generator.standard_normal((min(batch, draws - start), dimension))
        total += float((extents(rows) / lengths(rows)).sum())
    return mean_length(dimension) * total / draws


def read_only(name: str, points: Any) -> Array:
    """A private copy of points, one in each row."""
    try:
        copy: Array = np.array(points, dtype=np.float64) + 0.0  # -0.0 equals 0.0, and must have the same hash
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be a matrix of numbers, with rows of one length, one for each point") from None
    if copy.ndim != 2 or not copy.size:
        raise InvalidInput(f"{name} must be a matrix, one point in each row, got an array of the shape {copy.shape}")
    if not (np.abs(copy) <= 1e300).all():  # so that neither sums nor differences overflow
        raise InvalidInput(f"{name} must be finite and of at most 1e300; rescale the features")
    copy.flags.writeable = False
    return copy
