"""Newton's method to a certified gradient norm.

Small problems factor the Hessian; large or sparse ones solve with it by conjugate gradients. Either way the result
is only accepted with a certificate: the computed norm of the gradient plus a rigorous bound on its rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from epsilearn.errors import ConvergenceError
from epsilearn.losses import Loss
from epsilearn.rows.interface import Rows
from epsilearn.solvers.refine import ExactRows, refine

__all__ = ["Problem", "Solution", "minimise"]

Array = NDArray[np.float64]

_DENSE_LIMIT = 1500  # beyond this many columns a Cholesky factor costs more than a few products
_UNIT = 2.0**-53
# A step is accepted where the slope along it lies between these parts of the slope at its start.
_FLAT_BELOW, _FLAT_ABOVE = 0.9, 0.4


@dataclass(frozen=True)
class Problem:
    """F(w) = mean loss + (strength / 2) ||w||**2 + <tilt, w> / n."""

    rows: Rows
    loss: Loss
    strength: float
    tilt: Array | None = None

    @property
    def dimension(self) -> int:
        """How many weights there are."""
        return self.rows.d * self.loss.outputs

    def at(self, coef: Array, *, hessian: bool = False) -> Point:
        """Value, gradient and the certificate at a point."""
        sums = self.rows.sums(self.loss, coef, hessian=hessian)
        linear = np.zeros_like(coef) if self.tilt is None else self.tilt / self.rows.n
        gradient = sums.gradient + (self.strength * coef + linear)
        value = sums.value + self.strength / 2 * float(coef @ coef) + float(linear @ coef)
        added = 4 * _UNIT * (self.strength * _norm(coef) + _norm(linear) + _norm(sums.gradient))
        # The norm itself is a sum of d squares.
        rounding = 1.01 * (sums.error + added)
        bound = _norm(gradient) * (1 + (len(coef) + 4) * _UNIT) + rounding
        matrix = None if sums.hessian is None else sums.hessian + self.strength * np.eye(self.rows.d)
        return Point(coef, value, gradient, rounding, bound, matrix)


@dataclass(frozen=True)
class Point:
    """A point and what is known there; ``bound`` is a rigorous bound on the norm of the exact gradient."""

    coef: Array
    value: float
    gradient: Array
    rounding: float
    bound: float
    hessian: Array | None


@dataclass(frozen=True)
class Solution:
    """A point whose exact gradient has a norm of at most ``certificate``; fractions where doubles do not suffice.

    How many passes it took depends on the data; it is for the data holder's eyes only and is not kept.
    """

    coef: Array | list[Fraction]
    certificate: float


Direction = Callable[[Problem, Point, Array], Array]


def minimise(
    problem: Problem, target: float, *, limit: int = 5000, progress: Callable[[float], None] | None = None
) -> Solution:
    """Minimise to a gradient norm of at most ``target``, certified.

    Parameters
    ----------
    problem : Problem
        What to minimise.
    target : float
        The certificate to reach. It must come from public numbers.
    limit : int
        The most passes over the rows.
    progress : callable, optional
        Told the current bound after each step, for a bar on the data holder's terminal.

    Raises
    ------
    ConvergenceError
        If the limit is reached first. There is no partial result.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn.losses import Logistic
    >>> from epsilearn.rows import Bounds, as_rows
    >>> rows = as_rows(np.array([[1.0], [-1.0]]), np.array([1.0, -1.0]), Bounds(1.0, intercept=0.0))
    >>> solution = minimise(Problem(rows, Logistic(), 0.1), 1e-10)
    >>> solution.coef.round(3).tolist(), solution.certificate <= 1e-10
    ([1.634], True)
    """
    small = problem.rows.dense and problem.rows.d <= _DENSE_LIMIT
    point, used = problem.at(np.zeros(problem.dimension), hessian=small), 1
    direction = _direction(problem, point)
    small = small and direction is _by_factor
    while point.bound > target:
        stuck = _norm(point.gradient) <= 2 * point.rounding
        if stuck and problem.loss.exact and isinstance(problem.rows, ExactRows):
            return _beyond_doubles(problem, problem.rows, point, direction, target)
        found = _line_search(problem, point, direction(problem, point, -point.gradient), small, limit - used)
        if found is None:
            raise _not_reached(target)
        point, passes = found
        used += passes
        if progress is not None:
            progress(point.bound)
    return Solution(point.coef, point.bound)


def _beyond_doubles(problem: Problem, rows: ExactRows, point: Point, direction: Direction, target: float) -> Solution:
    tilt = np.zeros_like(point.coef) if problem.tilt is None else problem.tilt
    found = refine(
        rows, problem.loss, problem.strength, tilt, point.coef,
        lambda residual: direction(problem, point, residual), target,
    )  # fmt: skip
    if found is None:
        raise _not_reached(target)
    return Solution(*found)


def _not_reached(target: float) -> ConvergenceError:
    return ConvergenceError(
        f"the solver did not reach a gradient norm of {target:.3g}; nothing was released. "
        "Use a larger alpha, or rescale the features"
    )


def _by_factor(problem: Problem, point: Point, residual: Array) -> Array:
    """The Hessian's inverse times a residual, by Cholesky's factor."""
    del problem
    step: Array = cho_solve(cho_factor(point.hessian), residual)
    return step


def _direction(problem: Problem, start: Point) -> Direction:
    """How to solve with the Hessian: by its factor, by products, or by products with an approximate factor.

    With several outputs to a record the whole Hessian is too large to factor. Its mean over the outputs at the start
    is not, and steers products well enough.
    """
    if start.hessian is None:
        return partial(_by_products, ease=lambda residual: residual)
    if problem.loss.outputs == 1:
        return _by_factor
    factor = cho_factor(start.hessian)

    def ease(residual: Array) -> Array:
        eased: Array = cho_solve(factor, residual.reshape(-1, problem.rows.d).T).T
        return eased.ravel()

    return partial(_by_products, ease=ease)


def _by_products(problem: Problem, point: Point, residual: Array, ease: Callable[[Array], Array]) -> Array:
    """The same by conjugate gradients, preconditioned by ``ease``, as far as the residual's size warrants."""
    del point
    size = _norm(residual)
    tolerance = min(0.1, math.sqrt(size)) * size
    step = np.zeros_like(residual)
    towards = eased = ease(residual)
    square = float(residual @ eased)
    for _ in range(10 * len(step)):
        if _norm(residual) <= tolerance:
            break
        curved = problem.rows.product(towards) + problem.strength * towards
        length = square / float(towards @ curved)
        step += length * towards
        residual = residual - length * curved
        eased = ease(residual)
        before, square = square, float(residual @ eased)
        towards = eased + (square / before) * towards
    return step


def _line_search(problem: Problem, point: Point, step: Array, small: bool, left: int) -> tuple[Point, int] | None:
    """A length at which the slope along the step has all but vanished; None if passes run out.

    The objective is convex along the step, so the sign of the slope says on which side of the minimum a length lies.
    Values would say the same, but close to the minimum they no longer differ in floats; slopes still do. Descent
    alone is not enough: the losses with kinks can then cycle.
    """
    start = float(point.gradient @ step)
    low, low_slope, high, high_slope = 0.0, start, math.inf, math.inf
    length = 1.0
    for used in range(1, left + 1):
        trial = problem.at(point.coef + length * step, hessian=small)
        slope = float(trial.gradient @ step)
        if _FLAT_BELOW * start <= slope <= -_FLAT_ABOVE * start or trial.bound <= 4 * trial.rounding:
            return trial, used
        if slope < 0:
            low, low_slope = length, slope
        else:
            high, high_slope = length, slope
        length = 4 * length if math.isinf(high) else _between(low, low_slope, high, high_slope)
    return None


def _between(low: float, low_slope: float, high: float, high_slope: float) -> float:
    """Where the line through two slopes of opposite sign crosses zero, kept away from both ends."""
    share = low_slope / (low_slope - high_slope)
    return low + min(max(share, 0.1), 0.9) * (high - low)


def _norm(vector: Array) -> float:
    return float(np.linalg.norm(vector))
