"""Exact laws of paths among few corners: each is walked, with the probability that the real calibration gives it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from epsilearn import frank_wolfe
from epsilearn.audit.laws import Laws
from epsilearn.audit.quadrature import nodes
from epsilearn.audit.stopped import stopped_after_planning
from epsilearn.constraints import CoordinateCorners, PointCorners
from epsilearn.rows.fixed import fixed_rows

__all__ = ["path_laws"]

Array = NDArray[np.float64]

_MOST_PATHS = 20_000


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
    # Densities have their corners at the scores: cells end there.
    grid, widths = nodes(np.unique(np.append(np.linspace(size.min() - 40, size.max() + 40, 2001), size)), each=4)
    away = grid[None, :] - size[:, None]
    log_density = -np.abs(away) - math.log(2)
    log_above = np.where(away > 0, -away - math.log(2), np.log1p(-np.exp(np.minimum(away, 0)) / 2))
    others = log_above.sum(axis=0) - log_above
    chances = np.exp(log_density + others) @ widths
    logs: Array = np.log(chances / chances.sum())
    return logs


def path_laws(estimator: Any, first: Any, second: Any) -> Laws | None:
    """Of a sparse model on two tables, or None where there are too many paths."""
    tables = [_walk_of(estimator, data) for data in (first, second)]
    plan, rows, _ = tables[0]
    if not isinstance(plan.corners, (CoordinateCorners, PointCorners)) or plan.law.kind == "gaussian":
        return None
    corners = plan.corners.count(rows.d)
    if corners ** (plan.steps - 1) > _MOST_PATHS:
        return None
    paths = list(product(range(corners), repeat=plan.steps - 1))
    first, second = (np.array([_log_probability(*table, path) for path in paths]) for table in tables)
    return Laws(first, second)


def _walk_of(estimator: Any, data: Any) -> tuple[Any, Any, Array]:
    """The plan, the rows and the targets that a fit to this table would walk with; stopped before the first step."""
    _, (X, target, *_), (plan, (_, length), _) = stopped_after_planning(estimator, "_walk", data)
    rows = fixed_rows(X, plan.features, length=length, intercept=bool(estimator.fit_intercept))
    return plan, rows, target


def _log_probability(plan: Any, rows: Any, target: Array, path: tuple[int, ...]) -> float:
    steps: Any = _Followed(plan.law.scale, path)
    frank_wolfe.walk(plan, rows, target, steps)
    return float(steps.log_probability)
