"""Newton's method where rows are only known by their kernel values.

The minimiser of F(w) = mean loss + (strength / 2) ||w||**2 is w = sum of m_i phi(x_i), and everything about it can be
had from products with the Gram matrix. The gradient of F is then the sum of r_i phi(x_i) with
r_i = slope_i / n + strength m_i, so its norm is at most R ||r||_1: a certificate that needs no exact kernel value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from epsilearn.errors import ConvergenceError
from epsilearn.losses import Loss
from epsilearn.losses.interface import UNIT
from epsilearn.solvers.newton import DIRECT, Point, by_stages, easier_problems, line_search, not_reached

__all__ = ["DualProblem", "DualSolution", "Gram", "dual_rounding", "minimise_dual"]

Array = NDArray[np.float64]


class Gram(Protocol):
    """The kernel's values between all pairs of n points, none longer than ``norm``.

    ``error`` bounds what a product errs by in each entry, for a vector whose entries' sizes sum to 1.
    """

    n: int
    norm: float
    error: float

    def product(self, vector: Array) -> Array: ...


@dataclass(frozen=True)
class DualPoint(Point):
    """A point with what the next step needs: the residual r and each record's curvature."""

    residual: Array
    curvature: Array


@dataclass(frozen=True)
class DualSolution:
    """The m_i, at which the exact gradient has a norm of at most ``certificate``."""

    coef: Array
    certificate: float


@dataclass(frozen=True)
class DualProblem:
    """Regularised loss of a function given by its coefficients at the points."""

    gram: Gram
    target: Array
    loss: Loss
    strength: float

    def at(self, coef: Array) -> DualPoint:
        """Value, gradient (in the coefficients) and certificate at a point."""
        scores = self.gram.product(coef)
        slopes = self.loss.slope(scores, self.target)
        residual = slopes / self.gram.n + self.strength * coef
        value = float(self.loss.value(scores, self.target).mean()) + self.strength / 2 * float(coef @ scores)
        size = float(np.abs(coef).sum())
        rounding = dual_rounding(self.loss, self.gram, self.strength, size, float(np.abs(scores).max()))
        bound = self.gram.norm * float(np.abs(residual).sum()) * (1 + (len(coef) + 4) * UNIT) + rounding
        curvature = self.loss.curvature(scores, self.target)
        return DualPoint(coef, value, self.gram.product(residual), rounding, bound, residual, curvature)

    def step(self, point: DualPoint) -> Array:
        """Newton's step c: (n strength + D K) c = -n r, by way of the symmetric system for sqrt(D) K c."""
        n, root = self.gram.n, np.sqrt(point.curvature)
        heavy = n * self.strength

        def apply(vector: Array) -> Array:
            return heavy * vector + root * self.gram.product(root * vector)

        # What is left of this equation comes back multiplied by as much as curvature over strength.
        share = 0.05 / (1 + self.loss.smoothness * self.gram.norm**2 / self.strength)
        half = _conjugate_gradients(apply, -n * root * point.gradient, max(share, 2.0**-48))
        return (-n * point.residual - root * half) / heavy


def dual_rounding(loss: Loss, gram: Gram, strength: float, size: float, score: float) -> float:
    """A bound on what the certificate misses: errors of scores, and so of slopes, where the m_i sum to ``size``."""
    slope = loss.smoothness * gram.error * size + loss.slope_rounding(score)
    return 1.01 * gram.norm * (slope + 4 * UNIT * (loss.lipschitz + strength * size))


def minimise_dual(
    problem: DualProblem, target: float, *, limit: int = 5000, progress: Callable[[float], None] | None = None
) -> DualSolution:
    """Minimise to a gradient norm of at most ``target``, certified.

    Raises
    ------
    ConvergenceError
        If ``limit`` evaluations do not suffice. There is no partial result.
    """
    start = np.zeros(problem.gram.n)
    found = _descend(problem, start, target, min(limit, DIRECT), progress)
    if found is None and limit > DIRECT:
        start, left = by_stages(_stages(problem), start, limit - DIRECT)
        found = _descend(problem, start, target, left, progress)
    if found is None:
        raise not_reached(target)
    return found


def _descend(
    problem: DualProblem, start: Array, target: float, limit: int, progress: Callable[[float], None] | None
) -> DualSolution | None:
    """Newton's method from a start: the solution, if it is reached within so many evaluations."""
    point, used = problem.at(start), 1
    while not point.bound <= target:
        found = line_search(problem.at, point, problem.step(point), limit - used)
        if found is None:
            return None
        point, passes = found
        used += passes
        if progress is not None:
            progress(point.bound)
    return DualSolution(point.coef, point.bound)


def _stages(problem: DualProblem) -> Iterator[tuple[Callable[[Array], DualPoint], Callable[[DualPoint], Array]]]:
    """How to look and step in problems that are ever less easy."""
    for loss, _, strength in easier_problems(problem.loss, problem.gram.norm, problem.strength):
        easier = replace(problem, loss=loss, strength=strength)
        yield easier.at, easier.step


def _conjugate_gradients(apply: Callable[[Array], Array], wanted: Array, share: float) -> Array:
    """Solve until the residual is this share of the right-hand side."""
    largest, step = float(np.abs(wanted).max()), np.zeros_like(wanted)
    if largest == 0:
        return step
    # In units of the largest entry: squares of records' own tiny values would underflow, and be divided by.
    residual = wanted / largest
    towards, square = residual, float(residual @ residual)
    enough = share**2 * square
    for _ in range(10 * len(wanted)):
        if square <= enough:
            break
        curved = apply(towards)
        length = square / float(towards @ curved)
        step = step + length * towards
        residual = residual - length * curved
        before, square = square, float(residual @ residual)
        towards = residual + (square / before) * towards
    if not math.isfinite(square):
        raise ConvergenceError("the solver met numbers beyond the doubles; nothing was released. Use a larger alpha")
    return largest * step
