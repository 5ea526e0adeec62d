"""Data on which every private sparse regression errs, after Talwar, Thakurta and Zhang (2015, section 3).

A few records carry a fingerprinting code whose columns are nearly all constant: a good model follows the signs of the
constant columns, and whoever publishes them betrays the records. Many more records hold orthogonal columns: a good
model has to spread its weight over all features, so that one right sign is not enough.

The paper needs about 10^11 features before its constants apply. :func:`hard_instance` builds the same data at sizes
that fit into memory, where they show the shape of the problem and prove nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from epsilearn.checks import check_integer, check_positive
from epsilearn.errors import ConvergenceError, InvalidInput

__all__ = ["HardInstance", "Minimum", "Quadratic", "hard_instance", "instance_sizes", "least_over_l1_ball"]

Array = NDArray[np.float64]
Signs = NDArray[np.int8]

SIZES = range(1, 11)
# Orthogonal records for each code record and feature; the paper calls it tau.
ORTHOGONAL_SHARE = 0.1
# One column in so many is a genuine code column, the others are padding.
PADDING = 1000
MOST_STEPS = 100_000


@dataclass(frozen=True)
class Quadratic:
    """The risk ``theta' H theta - 2 linear' theta + constant`` of a linear model under squared loss.

    Attributes
    ----------
    product : callable
        What multiplies a vector by H.
    linear : ndarray of shape (p,)
        Half of the gradient at zero, with the opposite sign.
    constant : float
        The risk of the model that is zero everywhere.
    curvature : float
        The largest eigenvalue of H, or more.

    Examples
    --------
    >>> square = Quadratic(lambda theta: 4 * theta, linear=np.array([4.0]), constant=5.0, curvature=4.0)
    >>> square(np.array([0.5]))
    2.0
    """

    product: Callable[[Array], Array]
    linear: Array
    constant: float
    curvature: float

    def __call__(self, theta: Array) -> float:
        return float(theta @ (self.product(theta) - 2 * self.linear)) + self.constant


@dataclass(frozen=True)
class Minimum:
    """Where a risk is least, its value there, and how far that value can be above the least, at most."""

    theta: Array
    value: float
    gap: float


@dataclass(frozen=True, eq=False)
class HardInstance:
    """One data set of the construction; made by :func:`hard_instance`.

    Attributes
    ----------
    X : ndarray of int8, shape (rows, features)
        Only +1 and -1: the code records, then the orthogonal ones.
    y : ndarray of shape (rows,)
        One for the code records, zero for the others.
    consensus : ndarray of int8, shape (features,)
        The sign of each column that is constant over the code records, and zero for the other columns.
    size : int
        What all other sizes follow from, 1 to 10.
    """

    X: Signs
    y: Array
    consensus: Signs
    size: int

    @property
    def rows(self) -> int:
        """How many records there are."""
        return len(self.y)

    @property
    def features(self) -> int:
        """How many columns there are."""
        return len(self.consensus)

    @property
    def code(self) -> Signs:
        """The features of the code records, those whose target is one."""
        return self.X[: _code_rows(self.size)]

    def risk(self, theta: ArrayLike) -> float:
        """The mean of ``(x @ theta - y)**2`` over all records, from the code records alone.

        The other records' columns are orthogonal, so their part is a multiple of the squared length of ``theta``.

        Examples
        --------
        >>> instance = hard_instance(138, random_state=0)
        >>> theta = instance.consensus / 100
        >>> bool(np.isclose(instance.risk(theta), np.mean((instance.X @ theta - instance.y) ** 2)))
        True
        """
        weights = np.asarray(theta, dtype=np.float64)
        if weights.shape != (self.features,):
            raise InvalidInput(f"theta must have shape ({self.features},), got {weights.shape}")
        missed = self.code @ weights - 1
        return float(missed @ missed + self._orthogonal_rows * (weights @ weights)) / self.rows

    def least_risk(self, radius: float = 1.0) -> float:
        """The least risk over all ``theta`` whose absolute values add up to at most ``radius``.

        It is too large by less than a part in 10^9, which a duality gap certifies.

        Examples
        --------
        >>> instance = hard_instance(138, random_state=0)
        >>> instance.least_risk() < instance.risk(instance.consensus / 100)
        True
        """
        return least_over_l1_ball(self._quadratic(), radius).value

    @property
    def _orthogonal_rows(self) -> int:
        return self.rows - _code_rows(self.size)

    def _quadratic(self) -> Quadratic:
        code = self.code.astype(np.float64)
        largest = float(np.linalg.eigvalsh(code @ code.T)[-1])
        return Quadratic(
            product=lambda theta: (code.T @ (code @ theta) + self._orthogonal_rows * theta) / self.rows,
            linear=code.sum(axis=0) / self.rows,
            constant=len(code) / self.rows,
            curvature=(largest + self._orthogonal_rows) / self.rows,
        )


def hard_instance(n: int, *, random_state: int | np.random.Generator | None) -> HardInstance:
    """The largest hard data set with at most ``n`` records.

    With a size s from 1 to 10 it has 100 s^2 features, 10 s code records with target 1, and orthogonal records with
    target 0, as many as the next power of two from 100 s^3 on. One feature in a thousand (at least one) is a
    column of a fingerprinting code with an arcsine-distributed bias; the others are constant over the code records,
    half of them +1 and half of them -1. The code has one row more than is used: which one is left out is drawn too.

    The lower bound that this construction was made for does **not** apply at these sizes: the constants in its
    proof need many orders of magnitude more features. What a method loses here is a measurement, not a proven
    limit.

    Parameters
    ----------
    n : int
        The most records wanted; at least 138. :func:`instance_sizes` lists what there is.
    random_state : int, Generator or None
        What code, order of columns and row left out follow from. The data are not private; a seed does no harm.

    Returns
    -------
    HardInstance
        At the largest size the data take 1.3 GB.

    Examples
    --------
    >>> instance = hard_instance(5000, random_state=0)
    >>> instance.size, instance.rows, instance.features
    (3, 4126, 900)
    >>> int((instance.consensus == 0).sum())
    1
    """
    size = _size(check_integer("n", n))
    generator = np.random.default_rng(random_state)
    code_rows, features, orthogonal = _code_rows(size), _features(size), _orthogonal_rows(size)
    code = _padded_code(code_rows + 1, features, generator)
    left_out = generator.integers(code_rows + 1)
    X = np.empty((code_rows + orthogonal, features), dtype=np.int8)
    X[:code_rows] = np.delete(code, left_out, axis=0)
    _fill_with_hadamard_columns(X[code_rows:])
    y = np.zeros(len(X))
    y[:code_rows] = 1
    return HardInstance(X, y, _consensus(X[:code_rows]), size)


def instance_sizes() -> list[tuple[int, int, int]]:
    """Size, records and features of each data set that :func:`hard_instance` makes.

    Examples
    --------
    >>> instance_sizes()[:3]
    [(1, 138, 100), (2, 1044, 400), (3, 4126, 900)]
    """
    return [(size, _code_rows(size) + _orthogonal_rows(size), _features(size)) for size in SIZES]


def _size(n: int) -> int:
    fitting = [size for size, rows, _ in instance_sizes() if rows <= n]
    if not fitting:
        raise InvalidInput(f"n must be at least {instance_sizes()[0][1]}, the smallest hard data set, got {n}")
    return fitting[-1]


def _code_rows(size: int) -> int:
    return 10 * size


def _features(size: int) -> int:
    return 100 * size**2


def _orthogonal_rows(size: int) -> int:
    """A tenth of code rows times features, and then up to a power of two, where Hadamard matrices are easy."""
    wanted = math.ceil(ORTHOGONAL_SHARE * _code_rows(size) * _features(size))
    return 1 << (wanted - 1).bit_length()


def _padded_code(rows: int, features: int, generator: np.random.Generator) -> Signs:
    """A code of ``rows`` rows between constant columns, in random order."""
    columns = max(1, features // PADDING)
    # The bias keeps away from 0 and 1 by a distance that shrinks with the number of records that use the code.
    cutoff = math.asin(math.sqrt(1 / (300 * (rows - 1))))
    bias = np.sin(generator.uniform(cutoff, math.pi / 2 - cutoff, size=columns)) ** 2
    code = np.ones((rows, features), dtype=np.int8)
    code[:, :columns] = np.where(generator.random((rows, columns)) < bias, 1, -1)
    code[:, columns + math.ceil((features - columns) / 2) :] = -1
    return code[:, generator.permutation(features)]


def _fill_with_hadamard_columns(block: Signs) -> None:
    """Write the first columns of Sylvester's matrix of as many rows as the block has, a power of two.

    Each round doubles what is there to the right and below, in place: a second copy would not fit everywhere.
    """
    rows, columns = block.shape
    block[0, 0] = 1
    done = 1
    while done < rows:
        old, right = min(done, columns), min(2 * done, columns)
        block[done : 2 * done, :old] = block[:done, :old]
        block[:done, old:right] = block[:done, : right - old]
        np.negative(block[:done, : right - old], out=block[done : 2 * done, old:right])
        done *= 2


def _consensus(code: Signs) -> Signs:
    """The sign of constant columns, zero elsewhere."""
    return np.where((code == code[0]).all(axis=0), code[0], 0).astype(np.int8)


def least_over_l1_ball(risk: Quadratic, radius: float = 1.0, *, tolerance: float = 1e-9) -> Minimum:
    """The least risk over the l1 ball, by accelerated projected gradient steps.

    Parameters
    ----------
    risk : Quadratic
        Positive on the whole ball.
    radius : float
        The most that absolute values of the coefficients may add up to.
    tolerance : float
        How far the value may be above the least, as a share of itself.

    Returns
    -------
    Minimum
        Its gap is the most that any linear step inside the ball could gain, which bounds the error of the value.

    Examples
    --------
    >>> square = Quadratic(lambda theta: 4 * theta, linear=np.array([4.0]), constant=5.0, curvature=4.0)
    >>> least_over_l1_ball(square, radius=0.5).value
    2.0
    """
    radius, tolerance = check_positive("radius", radius), check_positive("tolerance", tolerance)
    theta = image = np.zeros(len(risk.linear))
    ahead, ahead_image, momentum = theta, image, 1.0
    for _ in range(MOST_STEPS):
        half_gradient = image - risk.linear
        value = float(theta @ (image - 2 * risk.linear)) + risk.constant
        gap = 2 * float(theta @ half_gradient + radius * np.abs(half_gradient).max())
        if gap <= tolerance * value:
            return Minimum(theta, value, gap)
        moved = _project_to_l1_ball(ahead - (ahead_image - risk.linear) / risk.curvature, radius)
        moved_image = risk.product(moved)
        # Momentum that points uphill is dropped; without that the steps circle the minimum.
        if (ahead - moved) @ (moved - theta) > 0:
            momentum = 1.0
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        push = (momentum - 1) / following
        # The product is linear, so the point ahead needs none of its own.
        ahead, ahead_image = moved + push * (moved - theta), moved_image + push * (moved_image - image)
        theta, image, momentum = moved, moved_image, following
    raise ConvergenceError(f"no point within {tolerance:g} of the least risk after {MOST_STEPS:,} steps")


def _project_to_l1_ball(point: Array, radius: float) -> Array:
    """The nearest point of the ball: all absolute values shrink by the same amount, down to zero at most."""
    absolute = np.abs(point)
    if absolute.sum() <= radius:
        return point
    descending = np.sort(absolute)[::-1]
    shrinkages = (np.cumsum(descending) - radius) / np.arange(1, len(point) + 1)
    shrinkage = shrinkages[np.flatnonzero(descending > shrinkages)[-1]]
    shrunk: Array = np.sign(point) * np.maximum(absolute - shrinkage, 0)
    return shrunk
