"""Newton's method to a certified gradient norm.

Small problems factor the Hessian; large or sparse ones solve with it by conjugate gradients. Either way the result
is only accepted with a certificate: the computed norm of the gradient plus a rigorous bound on its rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from epsilearn.errors import ConvergenceError
from epsilearn.losses import Loss
from epsilearn.rows.interface import Rows
from epsilearn.solvers.refine import ExactRows, refine

__all__ = [
    "DIRECT", "Point", "Problem", "Solution", "by_stages", "easier_problems", "line_search", "minimise", "not_reached",
]  # fmt: skip

Array = NDArray[np.float64]

_DENSE_LIMIT = 1500  # beyond this many columns a Cholesky factor costs more than a few products
_UNIT = 2.0**-53
_PATIENCE = 4  # steps that gain next to nothing, before a sample is given up
_PLENTY = 300.0  # a step that gains so much leaves a Hessian that is good enough to the end
# Up to this many weights a Hessian of all rows costs little beside reading them; beyond, one of a sample has to do.
_FEW_WEIGHTS = 128
# Conjugate gradients in doubles leave about this share of a right-hand side.
_LEAST_SHARE = 2.0**-48
# A step is accepted where the slope along it lies between these parts of the slope at its start.
_FLAT_BELOW, _FLAT_ABOVE = 0.9, 0.4
# Passes that are given to a start that may be far off. Most fits take a tenth of them.
DIRECT = 250
# By how much the regularisation falls from stage to stage, the share of its first gradient that is good enough, and
# the most steps a stage, and passes a step, are given.
_STAGE, _STAGE_ENOUGH, _STAGE_STEPS, _STAGE_PASSES = 4.0, 0.01, 20, 60


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

    def at(self, coef: Array, hessian: bool = False) -> Point:
        """Value, gradient and certificate at a point; rows are told if their Hessian will be wanted there too."""
        sums = self.rows.sums(self.loss, coef, hessian)
        linear = np.zeros_like(coef) if self.tilt is None else self.tilt / self.rows.n
        gradient = sums.gradient + (self.strength * coef + linear)
        value = sums.value + self.strength / 2 * float(coef @ coef) + float(linear @ coef)
        added = 4 * _UNIT * (self.strength * _norm(coef) + _norm(linear) + _norm(sums.gradient))
        # The norm itself is a sum of d squares.
        rounding = 1.01 * (sums.error + added)
        bound = _norm(gradient) * (1 + (len(coef) + 4) * _UNIT) + rounding
        return Point(coef, value, gradient, rounding, bound)


@dataclass(frozen=True)
class Point:
    """A point and what is known there; ``bound`` is a rigorous bound on the norm of the exact gradient."""

    coef: Array
    value: float
    gradient: Array
    rounding: float
    bound: float


AnyPoint = TypeVar("AnyPoint", bound=Point)


@dataclass(frozen=True)
class Solution:
    """A point whose exact gradient has a norm of at most ``certificate``; fractions where doubles do not suffice.

    How many passes it took depends on the data; it is for the data holder's eyes only and is not kept.
    """

    coef: Array | list[Fraction]
    certificate: float


# A look at a point.
At = Callable[[Array], AnyPoint]
# From a residual to the step that, by the Hessian at some point near by, removes it.
Steer = Callable[[Array], Array]


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
    small = _small(problem)
    start, steer = _warm_start(problem, small, target)
    # From a start that is far off steps can go on and on: few passes are given to it where there are more.
    direct = min(limit, DIRECT)
    found = _descend(problem, small, start, steer, target, direct, progress)
    if found is None and limit > direct:
        start, left = _by_stages(problem, limit - direct)
        found = _descend(problem, small, start, None, target, left, progress)
    if found is None:
        raise not_reached(target)
    return found


def _descend(
    problem: Problem,
    small: Problem | None,
    start: Array,
    steer: Steer | None,
    target: float,
    limit: int,
    progress: Callable[[float], None] | None = None,
) -> Solution | None:
    """Newton's method from a start: the solution, if it is reached within so many passes."""
    elsewhere, curved = problem.rows.elsewhere, _is_curved(problem)
    point, used = problem.at(start, curved), 1
    # Where each look at all rows is a pass over them, a sample of them has to do, unless a pass can bring both.
    look = _how_to_steer(problem if small is None or curved or not elsewhere else small)
    if steer is None or curved:
        steer = look(point.coef)
    misled, gained = 0, 1.0
    # Said this way round, a bound that is not a number is never good enough.
    while not point.bound <= target:
        stuck = _norm(point.gradient) <= 2 * point.rounding
        if stuck and problem.loss.exact and isinstance(problem.rows, ExactRows):
            return _beyond_doubles(problem, problem.rows, point, steer, target)
        with_hessian = curved and gained < _PLENTY
        found = line_search(partial(problem.at, hessian=with_hessian), point, steer(-point.gradient), limit - used)
        if found is None:
            return None
        before, (point, passes) = point, found
        used += passes
        # A Hessian is dear unless it is there, and the last one is good enough as long as each step gains a digit.
        gained = _norm(before.gradient) / max(_norm(point.gradient), math.ulp(0.0))
        misled += gained < 2
        if misled == _PATIENCE:
            look = _how_to_steer(problem)  # the sample does not resemble the rest
        if (elsewhere and with_hessian) or gained < 10:
            steer = look(point.coef)
        if progress is not None:
            progress(point.bound)
    return Solution(point.coef, point.bound)


def _by_stages(problem: Problem, limit: int) -> tuple[Array, int]:
    """A start for a problem by way of easier ones, and the passes that are left."""

    def stage(loss: Loss, times: float, strength: float) -> tuple[At[Point], Callable[[Point], Array]]:
        tilt = None if problem.tilt is None else times * problem.tilt
        easier = Problem(problem.rows, loss, strength, tilt)
        look = _how_to_steer(easier)
        return partial(easier.at, hessian=_is_curved(easier)), lambda point: look(point.coef)(-point.gradient)

    path = easier_problems(problem.loss, problem.rows.norm, problem.strength)
    return by_stages((stage(*easier) for easier in path), np.zeros(problem.dimension), limit)


def easier_problems(loss: Loss, norm: float, strength: float) -> Iterator[tuple[Loss, float, float]]:
    """Ever less smooth losses, how many times the given one each is, and the strength that goes with it.

    First the regularisation falls from where it outweighs the curvature of the smoothest loss, and only then do kinks
    become as narrow as they are: they are in the right place before they are narrow.
    """
    smooth, times = loss.smoother(math.inf)
    curvature = smooth.smoothness / times
    factor = curvature * norm**2 / strength
    while factor > _STAGE:
        yield smooth, times, times * factor * strength
        factor /= _STAGE
    factor = loss.smoothness / curvature
    while factor > 1:
        smooth, times = loss.smoother(factor)
        yield smooth, times, times * strength
        factor /= _STAGE


def by_stages(
    stages: Iterable[tuple[At[AnyPoint], Callable[[AnyPoint], Array]]], coef: Array, limit: int
) -> tuple[Array, int]:
    """A point near a minimiser by way of those of easier problems, and the passes that are left.

    Far out a loss is all but flat between its kinks, and steps from afar leap from one to the other. Where the
    regularisation is strong, and kinks are wide, there is nothing to leap over; and where a problem changes little its
    minimiser moves little, so that each is a good start for the next.

    Parameters
    ----------
    stages : iterable
        For each of them how to look at a point, and how to step from it.
    coef : array
        Where to begin.
    """
    for at, step in stages:
        coef, passes = _approach(at, step, coef, limit)
        limit -= passes
    return coef, limit


def _approach(at: At[AnyPoint], step: Callable[[AnyPoint], Array], coef: Array, limit: int) -> tuple[Array, int]:
    """A point closer to the minimiser, as far as the next stage needs it, and the passes that it took."""
    point, used = at(coef), 1
    enough = max(_STAGE_ENOUGH * _norm(point.gradient), 2 * point.rounding)
    for _ in range(_STAGE_STEPS):
        if _norm(point.gradient) <= enough:
            break
        found = line_search(at, point, step(point), min(limit - used, _STAGE_PASSES))
        if found is None:
            break
        point, passes = found
        used += passes
    return point.coef, used


def _is_curved(problem: Problem) -> bool:
    """Whether sums and Hessian can be had by one pass that takes hardly longer."""
    return problem.rows.dense and problem.loss.outputs == 1 and problem.dimension <= _FEW_WEIGHTS


def _small(problem: Problem) -> Problem | None:
    """The same problem for a sample of the rows, if there are many."""
    few = problem.rows.sample()
    if few is None:
        return None
    tilt = None if problem.tilt is None else problem.tilt * (few.n / problem.rows.n)
    return Problem(few, problem.loss, problem.strength, tilt)


def _warm_start(problem: Problem, small: Problem | None, target: float) -> tuple[Array, Steer | None]:
    """Where to begin, and how to steer from there: the minimum over the sample, and the Hessian at it.

    Only a matter of speed: the certificate is always on all rows. It is reached as closely as so few rows resemble the
    others, and if that fails, zero will do.
    """
    nowhere = np.zeros(problem.dimension)
    if small is None:
        return nowhere, None
    enough = target
    if small.rows.n < problem.rows.n:
        enough = max(target, 0.1 * min(problem.loss.lipschitz, 1.0) * small.rows.norm / math.sqrt(small.rows.n))
    try:
        found = minimise(small, enough, limit=50)
        start = np.array([float(c) for c in found.coef])
        return start, _how_to_steer(small)(start)
    except ConvergenceError:
        return nowhere, None


def _beyond_doubles(problem: Problem, rows: ExactRows, point: Point, steer: Steer, target: float) -> Solution | None:
    tilt = np.zeros_like(point.coef) if problem.tilt is None else problem.tilt
    found = refine(rows, problem.loss, problem.strength, tilt, point.coef, steer, target)
    return None if found is None else Solution(*found)


def not_reached(target: float) -> ConvergenceError:
    """The error of a solver that ran out of passes."""
    return ConvergenceError(
        f"the solver did not reach a gradient norm of {target:.3g}; nothing was released. "
        "Use a larger alpha, or rescale the features"
    )


def _how_to_steer(problem: Problem) -> Callable[[Array], Steer]:
    """Something that looks at the Hessian at a point, where rows are summed first if need be, and then steers by it.

    Small Hessians are factored. With several outputs to a record the whole Hessian is too large for that; its mean
    over the outputs at the start is not, and eases the products well enough.
    """

    def summed(coef: Array) -> Problem:
        if not problem.rows.is_at(coef):
            problem.rows.sums(problem.loss, coef)
        return problem

    if not problem.rows.dense or problem.rows.d > _DENSE_LIMIT:
        return lambda coef: partial(_by_products, summed(coef), lambda residual: residual)
    if problem.loss.outputs == 1:
        return lambda coef: partial(cho_solve, _factor(summed(coef)))
    factor = cache(partial(_factor, problem))

    def ease(residual: Array) -> Array:
        eased: Array = cho_solve(factor(), residual.reshape(-1, problem.rows.d).T).T
        return eased.ravel()

    return lambda coef: partial(_by_products, summed(coef), ease)


def _factor(problem: Problem) -> tuple[Array, bool]:
    hessian, unit = problem.rows.hessian(), np.eye(problem.rows.d)
    # Rounding can leave a Hessian that is not quite positive; a little more on its diagonal steers as well.
    little = max(float(np.trace(hessian)), problem.strength) * 2.0**-50
    for extra in (0.0, *(little * 4.0**k for k in range(40))):
        try:
            matrix, lower = cho_factor(hessian + (problem.strength + extra) * unit)
        except (LinAlgError, ValueError):
            continue
        return matrix, lower
    raise ConvergenceError("the Hessian could not be factored; nothing was released. Rescale the features")


def _by_products(problem: Problem, ease: Steer, residual: Array) -> Array:
    """Conjugate gradients, preconditioned by ``ease``, as far as the residual's size warrants."""
    largest, step = float(np.abs(residual).max()), np.zeros_like(residual)
    if largest == 0:
        return step
    # In units of the largest entry: squares of tiny gradients would underflow, and be divided by.
    share = max(min(0.1, math.sqrt(_norm(residual))), _LEAST_SHARE)
    residual = residual / largest
    tolerance = share * _norm(residual)
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
    return largest * step


def line_search(at: Callable[[Array], AnyPoint], point: Point, step: Array, left: int) -> tuple[AnyPoint, int] | None:
    """A point along a step at which the slope has all but vanished; None if passes run out.

    The objective is convex along the step, so the sign of the slope says on which side of the minimum a length lies.
    Values would say the same, but close to the minimum they no longer differ in floats; slopes still do. Descent
    alone is not enough: the losses with kinks can then cycle.
    """
    start = float(point.gradient @ step)
    low, low_slope, high, high_slope = 0.0, start, math.inf, math.inf
    length = 1.0
    for used in range(1, left + 1):
        trial = at(point.coef + length * step)
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
    fall = low_slope - high_slope
    share = low_slope / fall if fall else 0.5  # a step along which nothing changes in doubles
    return low + min(max(share, 0.1), 0.9) * (high - low)


def _norm(vector: Array) -> float:
    return float(np.linalg.norm(vector))
