"""A private path, walked as planned: debit, private steps, release.

Talwar, Thakurta and Zhang (2015). Every step is private by itself: the exponential mechanism chooses among few corners,
or the gradient is released with Gaussian noise and the set's own minimiser does the rest. What is released is the path.
Proofs: ``docs/theory/frank-wolfe.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn.constraints import ConstraintSet, CoordinateCorners, PointCorners
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee
from epsilearn.mechanisms.path import PrivateSteps, private_steps
from epsilearn.mechanisms.release import Spender
from epsilearn.path_plan import PathPlan, PathTable, plan
from epsilearn.rows.fixed import FixedRows
from epsilearn.rows.parted_paths import PartedFixedRows, PartedPath
from epsilearn.rows.paths import MeanGradient, Path, SlopePath, SquaredPath, gradient_at
from epsilearn.solvers.frank_wolfe import along_columns, along_points, shrinkage

__all__ = ["PathPlan", "PathTable", "Walked", "execute", "plan", "walk"]

Array = NDArray[np.float64]
AnyRows = FixedRows | PartedFixedRows


@dataclass(frozen=True)
class Walked:
    """A private path's end, the corners chosen on it (None for noisy gradients), and the stamped promise."""

    point: Array
    chosen: list[int] | None
    guarantee: Guarantee


def execute(
    plan: PathPlan,
    rows: AnyRows,
    target: Any,
    *,
    after: Callable[[Array, list[int], Any], Array] | None = None,
    ledger: Spender | None = None,
    purpose: str = "fit",
    random_state: Any = None,
    progress: Callable[[int], None] | None = None,
) -> Walked:
    """Debit, walk and release, as planned.

    Rows in parts bring their targets along. ``after(point, chosen, source)`` is what follows on the path under the same
    debit, with bits of the same source; the plan's promise must then cover both.
    """
    with private_steps(plan.law, plan.promise, ledger, purpose, random_state) as (steps, stamped):
        point, chosen = walk(plan, rows, target, steps, progress)
        if after is not None:
            point = after(point, chosen or [], steps.source)
        return Walked(point, chosen, stamped)


def walk(
    plan: PathPlan, rows: AnyRows, target: Any, steps: PrivateSteps, progress: Callable[[int], None] | None = None
) -> tuple[Array, list[int] | None]:
    """The end of the path, and the corners chosen on the way; None for noisy gradients."""
    if plan.law.kind == "gaussian":
        return _along_gradients(plan, rows, target, steps, progress), None
    if isinstance(plan.corners, CoordinateCorners):
        return _along_axes(plan, plan.corners, rows, target, steps, progress)
    assert plan.corners is not None
    return _along_corners(plan, plan.corners, rows, target, steps, progress)


def _path(plan: PathPlan, rows: AnyRows, target: Any) -> Path:
    if isinstance(rows, PartedFixedRows):
        return PartedPath(rows, plan.targets, None) if plan.affine else PartedPath(rows, plan.slopes, plan.code)
    return SquaredPath(rows, target, plan.targets) if plan.affine else SlopePath(rows, target, plan.code, plan.slopes)


def _gradient_at(plan: PathPlan, rows: AnyRows, target: Any, point: Array, size: float) -> NDArray[np.int64]:
    if isinstance(rows, PartedFixedRows):
        return rows.gradient_at(point, size, plan.code, plan.slopes)
    return gradient_at(rows, point, size, target, plan.code, plan.slopes)


def _along_axes(
    plan: PathPlan, corners: CoordinateCorners, rows: AnyRows, target: Any, steps: PrivateSteps, progress: Any
) -> tuple[Array, list[int]]:
    radius, signed = Fraction(corners.radius), corners.signed
    path = _path(plan, rows, target)

    def choose(gradient: MeanGradient) -> int:
        if plan.law.kind == "gumbel":
            return steps.column(gradient, radius, signed)
        scores = float(radius) * gradient.floats()
        return steps.laplace_corner(np.column_stack([scores, -scores]).ravel() if signed else scores)

    weights = np.zeros(rows.d, np.int64)
    if not signed:
        # The simplex does not hold 0; any corner may be the first point, and which is public.
        weights[0] = 1
    chosen = along_columns(path, radius, signed, choose, plan.steps, weights=weights, progress=progress)
    return weights.astype(np.float64) * float(radius * shrinkage(plan.steps)), chosen


def _along_corners(
    plan: PathPlan, corners: PointCorners, rows: AnyRows, target: Any, steps: PrivateSteps, progress: Any
) -> tuple[Array, list[int]]:
    points = corners.points
    size = float(np.abs(points).sum(axis=1).max()) * (1 + 1e-9)
    unit = rows.levels.unit * plan.slopes.unit / rows.n
    chosen: list[int] = []

    def towards(point: Array) -> Array:
        sums = _gradient_at(plan, rows, target, point, size)
        if plan.law.kind == "gumbel":
            chosen.append(steps.corner(points, sums, unit))
        else:
            chosen.append(steps.laplace_corner(float(unit) * (points @ sums)))
        corner: Array = points[chosen[-1]]
        return corner

    return along_points(towards, points.mean(axis=0), plan.steps, progress), chosen


def _along_gradients(plan: PathPlan, rows: AnyRows, target: Any, steps: PrivateSteps, progress: Any) -> Array:
    size = plan.constraint.l1_norm(rows.d)
    unit = float(rows.levels.unit * plan.slopes.unit / rows.n)

    def towards(point: Array) -> Array:
        sums = _gradient_at(plan, rows, target, point, size)
        chosen = np.asarray(plan.constraint.minimiser(steps.gradient(sums, unit)), np.float64)
        if chosen.shape != point.shape or not np.isfinite(chosen).all():
            raise InvalidInput("the constraint set's minimiser returned something other than finite weights")
        return chosen

    return along_points(towards, _start(plan.constraint, rows.d), plan.steps, progress)


def _start(constraint: ConstraintSet, columns: int) -> Array:
    origin = np.zeros(columns)
    return origin if constraint.contains(origin) else constraint.minimiser(np.ones(columns))
