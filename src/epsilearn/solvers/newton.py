"""Newton's method to a certified gradient norm.

Small problems factor the Hessian; large or sparse ones solve with it by conjugate gradients. Either way the result
is only accepted with a certificate: the computed norm of the gradient plus a rigorous bound on its rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

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


@dataclass(frozen=True)
class Problem:
    """F(w) = mean loss + (strength / 2) ||w||**2 + <tilt, w> / n."""

    rows: Rows
    loss: Loss
    strength: float
    tilt: Array | None = None

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
        matrix = None if sums.hessian is None else sums.hessian + self.strength * np.eye(len(coef))
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
    problem: Problem, target: float, *, limit: int = 200, progress: Callable[[float], None] | None = None
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
    direction = _by_factor if small else _by_products
    point, used = problem.at(np.zeros(problem.rows.d), hessian=small), 1
    while point.bound > target:
        if _norm(point.gradient) <= 2 * point.rounding and isinstance(problem.rows, ExactRows):
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


def _by_products(problem: Problem, point: Point, residual: Array) -> Array:
    """The same by conjugate gradients, as far as the residual's size warrants."""
    del point
    size = _norm(residual)
    tolerance = min(0.1, math.sqrt(size)) * size
    step = np.zeros_like(residual)
    towards, square = residual.copy(), float(residual @ residual)
    for _ in range(10 * len(step)):
        if math.sqrt(square) <= tolerance:
            break
        curved = problem.rows.product(towards) + problem.strength * towards
        length = square / float(towards @ curved)
        step += length * towards
        residual = residual - length * curved
        before, square = square, float(residual @ residual)
        towards = residual + (square / before) * towards
    return step


def _line_search(problem: Problem, point: Point, step: Array, small: bool, left: int) -> tuple[Point, int] | None:
    """The first of 1, 1/2, 1/4, ... that lowers the value enough, or the gradient; None if passes run out."""
    slope, length = float(point.gradient @ step), 1.0
    for used in range(1, left + 1):
        trial = problem.at(point.coef + length * step, hessian=small)
        lower = trial.value <= point.value + 1e-4 * length * slope
        # Close to the minimum values no longer differ in floats; gradients still do.
        flatter = _norm(trial.gradient) <= (1 - 1e-4 * length) * _norm(point.gradient)
        if lower or flatter:
            return trial, used
        length /= 2
    return None


def _norm(vector: Array) -> float:
    return float(np.linalg.norm(vector))
