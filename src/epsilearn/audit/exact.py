"""Exact laws of what neighbours release, for mechanisms small enough to compute.

What is computed here needs no sampling: the probability, or the density on a fine grid, of every output on both of two
neighbouring tables. For linear models of at most two weights that is quadrature; for paths among few corners all paths
are enumerated. Both go through the real plans, with the noise that a fit would draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln
from scipy.stats import chi2, gamma

from epsilearn import erm
from epsilearn.audit.laws import ExactFinding, Laws, hockey_stick, real_epsilon
from epsilearn.audit.paths import path_laws
from epsilearn.audit.quadrature import graded_edges, product_nodes
from epsilearn.audit.stopped import stopped_after_planning
from epsilearn.kernel import RandomFeatures
from epsilearn.linear.model import PrivateLinearModel
from epsilearn.losses import Loss
from epsilearn.mechanisms.release import NoiseLaw
from epsilearn.rows import as_rows
from epsilearn.rows.bounds import row_norms
from epsilearn.solvers import Problem, minimise
from epsilearn.sparse_model import SparseModel

__all__ = [
    "COARSER", "ExactFinding", "Laws", "exact_laws", "hockey_stick", "minimiser_log_density", "real_epsilon",
]  # fmt: skip

Array = NDArray[np.float64]

_EDGES = {1: 10_001, 2: 151}  # of the grid, along each axis and around each centre
COARSER = (0.7, 0.5)  # of the edges, to see how much they matter: two grids, because one may be right by accident
_ANGLE = 0.4  # radians
_MISSED = 1e-12  # of the noise, beyond the grid


def exact_laws(estimator: Any, first: Any, second: Any, fineness: float = 1.0) -> Laws | None:
    """The laws of what an estimator releases on two tables, or None where they cannot be computed.

    A model with noise in its objective also gets a little noise on its result, which hides the solver's error. It is
    left out here: the law is that of the exact minimiser, and what is released tells the neighbours apart no better.

    Parameters
    ----------
    estimator : estimator
        A linear model of at most two weights and one output, the intercept counted; or a sparse one with few paths.
    first, second : tuple
        What ``fit`` takes.
    fineness : float
        Of the grid, where there is one: fewer points show how much they matter.

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
        return _linear_laws(estimator, first, second, fineness)
    if isinstance(estimator, SparseModel) and not estimator.refit:
        return path_laws(estimator, first, second)
    return None


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
        model, (X, target, loss, *_), plan = stopped_after_planning(estimator, "_fit_weights", data)
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

    def extent(self) -> float:
        """How far from 0 the grid must go."""
        noise = _quantile(self.plan.law)
        if self.plan.method == "output":
            return float(np.linalg.norm(self.minimiser)) + noise
        steepest = self.loss.lipschitz * float(np.linalg.norm(self.matrix, axis=1).sum())
        return (noise + steepest) / (len(self.matrix) * self.plan.strength)


def _linear_laws(estimator: Any, first: Any, second: Any, fineness: float) -> Laws | None:
    tables = [_Prepared.of(estimator, data) for data in (first, second)]
    plan, columns = tables[0].plan, tables[0].matrix.shape[1]
    one_step = plan.method in ("objective", "output") and plan.centring is None
    if columns not in _EDGES or tables[0].loss.outputs > 1 or not one_step:
        return None
    count = round(fineness * _EDGES[columns])
    extent = 2 * max(table.extent() for table in tables)
    turn = _turn(columns)
    centres = np.array([*(table.minimiser for table in tables), np.zeros(columns)]) @ turn.T
    points, widths = product_nodes([graded_edges(centres[:, k].tolist(), extent, count) for k in range(columns)])
    points = points @ turn
    first, second = (table.log_density(points) + widths for table in tables)
    return Laws(first, second, points, before_polish=plan.polish is not None)


def _turn(columns: int) -> Array:
    """A rotation of the grid: where the worst neighbours' laws cross, along an axis, no row of cells should lie."""
    if columns == 1:
        return np.eye(1)
    sine, cosine = math.sin(_ANGLE), math.cos(_ANGLE)
    return np.array([[cosine, sine], [-sine, cosine]])


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
