"""Exact laws of what neighbours release, for mechanisms small enough to compute.

What is computed here needs no sampling: the probability, or the density on a fine grid, of every output on both of two
neighbouring tables. For linear models of at most two weights that is quadrature; for paths among few corners all paths
are enumerated. Both go through the real plans, with the noise that a fit would draw.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, log_softmax
from scipy.stats import chi2, gamma
from sklearn.base import clone

from epsilearn import erm, frank_wolfe
from epsilearn.audit.counts import clopper_pearson, log_ratio, normal_distance
from epsilearn.audit.events import Prospect
from epsilearn.audit.finding import Claim
from epsilearn.constraints import CoordinateCorners, PointCorners
from epsilearn.kernel import RandomFeatures
from epsilearn.linear.model import PrivateLinearModel
from epsilearn.losses import Loss
from epsilearn.mechanisms.release import NoiseLaw
from epsilearn.rows import as_rows
from epsilearn.rows.bounds import row_norms
from epsilearn.rows.fixed import fixed_rows
from epsilearn.solvers import Problem, minimise
from epsilearn.sparse_model import SparseModel

__all__ = ["ExactFinding", "Laws", "exact_laws", "hockey_stick", "minimiser_log_density", "real_epsilon"]

Array = NDArray[np.float64]

_MOST_PATHS = 20_000
_POINTS = {1: 20_001, 2: 301}  # of the grid, along each axis
_STEEP = 9.0  # how much finer the grid is at its centre: about e to this
_MISSED = 1e-12  # of the noise, beyond the grid
_THRESHOLDS = 500


@dataclass(frozen=True)
class Laws:
    """The logarithms of the probabilities of each outcome on two neighbours, or of cells of a grid."""

    first: Array
    second: Array

    def epsilon(self, delta: float) -> float:
        """The least epsilon that is true of these neighbours at this delta."""
        return real_epsilon(self.first, self.second, delta)

    def ideal(self, prospect: Prospect) -> float:
        """The bound that an audit which knew the laws could expect: its event is a large ratio of probabilities."""
        return max(self._one_way(self.first, self.second, prospect), self._one_way(self.second, self.first, prospect))

    @staticmethod
    def _one_way(favoured: Array, other: Array, prospect: Prospect) -> float:
        order = np.argsort(other - favoured)
        places = np.linspace(0, len(order) - 1, min(_THRESHOLDS, len(order))).astype(int)
        p, q = (np.minimum(np.cumsum(np.exp(law[order]))[places], 1.0) for law in (favoured, other))
        failure, runs = (1 - prospect.confidence) / 2, prospect.runs
        low, high = clopper_pearson(p * runs, runs, failure)[0], clopper_pearson(q * runs, runs, failure)[1]
        bounds = normal_distance(low, high) if prospect.gaussian else log_ratio(low, high, prospect.delta)
        return float(bounds.max())


@dataclass(frozen=True)
class ExactFinding:
    """What is true of two neighbours, computed and not sampled.

    Attributes
    ----------
    claim : Claim
        What was put to the test.
    real : float
        The least epsilon that is true of them at the claimed delta.
    """

    claim: Claim
    real: float

    @property
    def refuted(self) -> bool:
        """Whether the claim is false."""
        return self.real > self.claim.epsilon * (1 + 1e-9)

    def __str__(self) -> str:
        return (
            f"{'REFUTED' if self.refuted else 'not refuted'}: {self.claim}\n"
            f"epsilon is at least {self.real:.4f}, computed from the laws of what is released"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "claimed_epsilon": self.claim.epsilon,
            "delta": self.claim.delta,
            "lower_bound": self.real,
            "refuted": self.refuted,
        }


def hockey_stick(first: Array, second: Array, epsilon: float) -> float:
    """The exact delta at epsilon between two laws on the same outcomes, the larger of both directions.

    Parameters
    ----------
    first, second : ndarray
        Logarithms of the probabilities of each outcome.

    Examples
    --------
    >>> coin, other = np.log([0.75, 0.25]), np.log([0.25, 0.75])
    >>> round(hockey_stick(coin, other, 0.0), 6)
    0.5
    """

    def one_way(p: Array, q: Array) -> float:
        # p - e^epsilon q, without ever computing an e^epsilon that does not fit.
        return float(np.exp(p) @ -np.expm1(np.minimum(0.0, epsilon + q - p)))

    return max(one_way(first, second), one_way(second, first))


def real_epsilon(first: Array, second: Array, delta: float) -> float:
    """The least epsilon at which two laws are within delta of each other, to nine digits or decimals.

    Examples
    --------
    >>> coin, other = np.log([0.75, 0.25]), np.log([0.25, 0.75])
    >>> round(real_epsilon(coin, other, 0.0), 6) == round(math.log(3), 6)
    True
    """
    if delta == 0:
        return float(np.abs(first - second).max())
    low, high = 0.0, 1.0
    while hockey_stick(first, second, high) > delta:
        low, high = high, 2 * high
    while high - low > 1e-9 * max(high, 1.0):
        middle = (low + high) / 2
        low, high = (middle, high) if hockey_stick(first, second, middle) > delta else (low, middle)
    return high


def exact_laws(estimator: Any, first: Any, second: Any) -> Laws | None:
    """The laws of what an estimator releases on two tables, or None where they cannot be computed.

    A model with noise in its objective also gets a little noise on its result, which hides the solver's error. It is
    left out here: what is released tells the neighbours apart no better than the exact minimiser, and hardly worse.

    Parameters
    ----------
    estimator : estimator
        A linear model of at most two weights and one output, the intercept counted; or a sparse one with few paths.
    first, second : tuple
        What ``fit`` takes.

    Examples
    --------
    Noise on the result of a least-squares fit to one record, whose target is 1 or -1:

    >>> from epsilearn import LinearRegression
    >>> from epsilearn.audit.exact import exact_laws
    >>> model = LinearRegression(
    ...     method="output", alpha=100.0, data_norm=1.0, target_bound=1.0, fit_intercept=False, epsilon=1.0
    ... )
    >>> laws = exact_laws(model, ([[1.0]], [1.0]), ([[1.0]], [-1.0]))
    >>> 0.9 < laws.epsilon(0.0) <= 1.0
    True
    """
    # Random features are drawn anew in each fit: there is no one law to speak of.
    linear = isinstance(estimator, PrivateLinearModel) and not isinstance(estimator, RandomFeatures)
    if linear and estimator.method != "sufficient-statistics":
        return _linear_laws(estimator, first, second)
    if isinstance(estimator, SparseModel) and not estimator.refit:
        return _path_laws(estimator, first, second)
    return None


class _Stopped(Exception):
    """What a fit would have done is known."""


def _stopped_after_planning(estimator: Any, step: str, data: Any) -> tuple[Any, tuple[Any, ...], Any]:
    """A fit stopped before anything is drawn: the model, what it takes this step with, and what it then plans."""
    model = clone(estimator)
    seen: list[Any] = []
    made: list[Any] = []
    take, plan = getattr(model, step), model._planned

    def noting(*arguments: Any) -> Any:
        seen.extend(arguments)
        return take(*arguments)

    def stop(*arguments: Any) -> None:
        made.append(plan(*arguments))
        raise _Stopped

    setattr(model, step, noting)
    model._planned = stop
    with suppress(_Stopped):
        model.fit(*data)
    return model, tuple(seen), made[0]


@dataclass(frozen=True)
class _Prepared:
    """A table as the noise meets it: rows inside the bounds with the intercept's column, and the plan."""

    matrix: Array
    target: Array
    rows: Any
    loss: Loss
    plan: erm.Plan

    @staticmethod
    def of(estimator: Any, data: Any) -> _Prepared:
        """What a fit to this table would start from."""
        model, (X, target, loss, *_), plan = _stopped_after_planning(estimator, "_fit_weights", data)
        bounds = model._public_bounds()
        matrix = X * bounds.factors(row_norms(X), X.shape[1])[:, None]
        if bounds.intercept:
            matrix = np.column_stack([matrix, np.full(len(X), bounds.intercept)])
        return _Prepared(matrix, target, as_rows(X, target, bounds), loss, plan)

    @property
    def minimiser(self) -> Array:
        found = minimise(Problem(self.rows, self.loss, self.plan.strength, None), self.plan.certificate, limit=5000)
        return np.array([float(weight) for weight in found.coef])

    def log_density(self, points: Array) -> Array:
        """Of the release, at each of these weights."""
        if self.plan.method == "output":
            return _noise_log_density(self.plan.law, points - self.minimiser)
        size = len(self.matrix) * self.plan.strength
        return minimiser_log_density(self.loss, self.matrix, self.target, size, self.plan.law, points)

    def reach(self) -> Array:
        """How far the grid must go in each direction."""
        noise = _quantile(self.plan.law)
        if self.plan.method == "output":
            return np.abs(self.minimiser) + noise
        steepest = self.loss.lipschitz * float(np.linalg.norm(self.matrix, axis=1).sum())
        return np.full(self.matrix.shape[1], (noise + steepest) / (len(self.matrix) * self.plan.strength))


def _linear_laws(estimator: Any, first: Any, second: Any) -> Laws | None:
    tables = [_Prepared.of(estimator, data) for data in (first, second)]
    plan, columns = tables[0].plan, tables[0].matrix.shape[1]
    one_step = plan.method in ("objective", "output") and plan.centring is None
    if columns not in _POINTS or tables[0].loss.outputs > 1 or not one_step:
        return None
    reach = np.max([table.reach() for table in tables], axis=0)
    centres = [table.minimiser for table in tables]
    axes = [_axis([centre[k] for centre in centres], reach[k], _POINTS[columns]) for k in range(columns)]
    points = np.stack([axis.ravel() for axis in np.meshgrid(*[middle for middle, _ in axes], indexing="ij")], axis=1)
    widths = np.meshgrid(*[np.log(width) for _, width in axes], indexing="ij")
    cells = np.sum([width.ravel() for width in widths], axis=0)
    return Laws(*(table.log_density(points) + cells for table in tables))


def _axis(centres: list[float], reach: float, count: int) -> tuple[Array, Array]:
    """Middles and widths of cells, finest around the minimisers and around 0, where densities have their corners."""
    spread = np.sinh(np.linspace(-_STEEP, _STEEP, count)) / math.sinh(_STEEP)
    edges = np.unique(np.concatenate([centre + 2 * reach * spread for centre in {*centres, 0.0}]))
    return (edges[1:] + edges[:-1]) / 2, np.diff(edges)


def minimiser_log_density(loss: Any, matrix: Array, target: Array, size: Any, law: NoiseLaw, points: Array) -> Array:
    """Of the minimiser of sum of losses + (size / 2) |w|**2 + <b, w> with noise b, at each of these points.

    b is a function of w, minus the gradient of the rest; its density times the determinant of the curvature is that of
    w. ``size`` is n lambda, or one for each weight where some are regularised less.
    """
    columns = matrix.shape[1]
    gradient, curvature = size * points, np.tile(size * np.eye(columns), (len(points), 1, 1))
    for row, label in zip(matrix, target, strict=True):
        scores, labels = points @ row, np.full(len(points), label)
        gradient = gradient + loss.slope(scores, labels)[:, None] * row
        curvature += loss.curvature(scores, labels)[:, None, None] * np.outer(row, row)
    density: Array = _noise_log_density(law, gradient) + np.linalg.slogdet(curvature)[1]
    return density


def _noise_log_density(law: NoiseLaw, vectors: Array) -> Array:
    columns, scale = vectors.shape[1], law.scale
    density: Array
    if law.kind == "gaussian":
        density = -np.sum(vectors**2, axis=1) / (2 * scale**2) - columns * math.log(scale * math.sqrt(2 * math.pi))
    elif law.kind == "laplace":
        density = -np.abs(vectors).sum(axis=1) / scale - columns * math.log(2 * scale)
    else:
        # The surface of the unit ball is 2 pi^(d/2) / Gamma(d/2); the length is Gamma distributed.
        surface = math.log(2) + columns / 2 * math.log(math.pi) - gammaln(columns / 2)
        density = -np.linalg.norm(vectors, axis=1) / scale - columns * math.log(scale) - gammaln(columns) - surface
    return density


def _quantile(law: NoiseLaw) -> float:
    """What the noise's length hardly ever exceeds."""
    if law.kind == "gaussian":
        return float(law.scale * math.sqrt(chi2.isf(_MISSED, law.dimension)))
    return float(gamma.isf(_MISSED, law.dimension, scale=law.scale))


@dataclass
class _Followed:
    """In the place of private steps: takes the steps it is told to, and adds up the logarithm of their probability."""

    scale: float
    path: tuple[int, ...]
    step: int = 0
    log_probability: float = 0.0

    def column(self, scores: Any, size: Any, signed: bool) -> int:
        values = float(size) * scores.floats()
        corners = np.column_stack([values, -values]).ravel() if signed else values
        return self._take(log_softmax(-corners / self.scale))

    def corner(self, points: Array, sums: Any, unit: Any) -> int:
        return self._take(log_softmax(-float(unit) * (points @ sums) / self.scale))

    def laplace_corner(self, scores: Array) -> int:
        return self._take(_log_noisy_minimum(scores, self.scale))

    def _take(self, logs: Array) -> int:
        chosen = self.path[self.step]
        self.log_probability += float(logs[chosen])
        self.step += 1
        return chosen


def _log_noisy_minimum(scores: Array, scale: float) -> Array:
    """Of each score to be the least once all have Laplace noise of this scale, by quadrature."""
    size = scores / scale
    grid = np.linspace(size.min() - 40, size.max() + 40, 8001)
    away = grid[None, :] - size[:, None]
    log_density = -np.abs(away) - math.log(2)
    log_above = np.where(away > 0, -away - math.log(2), np.log1p(-np.exp(np.minimum(away, 0)) / 2))
    others = log_above.sum(axis=0) - log_above
    chances = np.trapezoid(np.exp(log_density + others), grid, axis=1)
    logs: Array = np.log(chances / chances.sum())
    return logs


def _path_laws(estimator: Any, first: Any, second: Any) -> Laws | None:
    tables = [_walk_of(estimator, data) for data in (first, second)]
    plan, rows, _ = tables[0]
    if not isinstance(plan.corners, (CoordinateCorners, PointCorners)) or plan.law.kind == "gaussian":
        return None
    corners = plan.corners.count(rows.d)
    if corners ** (plan.steps - 1) > _MOST_PATHS:
        return None
    paths = list(product(range(corners), repeat=plan.steps - 1))
    return Laws(*(np.array([_log_probability(*table, path) for path in paths]) for table in tables))


def _walk_of(estimator: Any, data: Any) -> tuple[Any, Any, Array]:
    """The plan, the rows and the targets that a fit to this table would walk with; stopped before the first step."""
    _, (X, target, *_), (plan, (_, length), _) = _stopped_after_planning(estimator, "_walk", data)
    rows = fixed_rows(X, plan.features, length=length, intercept=bool(estimator.fit_intercept))
    return plan, rows, target


def _log_probability(plan: Any, rows: Any, target: Array, path: tuple[int, ...]) -> float:
    steps: Any = _Followed(plan.law.scale, path)
    frank_wolfe.walk(plan, rows, target, steps)
    return float(steps.log_probability)
