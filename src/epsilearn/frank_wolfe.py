"""A private fit by Frank-Wolfe: a plan from public numbers alone, then its execution.

Talwar, Thakurta and Zhang (2015). Every step is private by itself: the exponential mechanism chooses among few corners,
or the gradient is released with Gaussian noise and the set's own minimiser does the rest. What is released is the path.
Proofs: ``docs/theory/frank-wolfe.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn.accounting import BoundedRange, Curve, GaussianShift, Pure, ZeroConcentrated
from epsilearn.balls import round_up
from epsilearn.calibration import frank_wolfe as calibration
from epsilearn.calibration.additive import gaussian_shift
from epsilearn.checks import check_budget, check_integer, check_positive
from epsilearn.composition import Composite
from epsilearn.constraints import OWN_SETS, ConstraintSet, CoordinateCorners, Corners, PointCorners, probe
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee
from epsilearn.mechanisms.path import PrivateSteps, private_steps
from epsilearn.mechanisms.release import FAIR_BITS, NoiseLaw, Spender
from epsilearn.rows.fixed import FixedRows, Levels
from epsilearn.rows.fixed_passes import LOGISTIC, SQUARED
from epsilearn.rows.paths import Path, SlopePath, SquaredPath, gradient_at
from epsilearn.solvers.frank_wolfe import along_columns, along_points, shrinkage, total_weight

__all__ = ["PathPlan", "PathTable", "Walked", "execute", "plan"]

Array = NDArray[np.float64]

_MOST_BITS = 20  # of a feature or a slope: finer than any noise
_WHOLE, _DOUBLE = 62, 52  # bits of a sum that must fit an int64, or a double
_SMALLEST, _LARGEST = 1e-60, 1e60


@dataclass(frozen=True)
class PathTable:
    """What is public about the rows.

    Attributes
    ----------
    rows, columns : int
        How many.
    feature_bound : float
        Every feature is cut to it.
    length : float
        Every row is cut to this l2 norm; infinite if only the features are.
    integers : bool
        Whether features are whole numbers by their type.
    """

    rows: int
    columns: int
    feature_bound: float
    length: float = math.inf
    integers: bool = False


@dataclass(frozen=True)
class PathPlan:
    """Everything about a fit that does not depend on the records.

    Attributes
    ----------
    constraint : ConstraintSet
        Where the weights live.
    code : int
        Which loss.
    steps : int
        T: the path has T points and T - 1 private steps.
    law : NoiseLaw
        The noise of each step.
    features, targets, slopes : Levels
        The grids of the features, of the targets (squared loss on corners along the axes) and of the slopes.
    promise : Guarantee
        What the release will promise.
    excess_bound : float
        A bound on the mean excess empirical risk, over all rows inside the bounds. Mostly far above what is seen.
    """

    constraint: ConstraintSet
    code: int
    steps: int
    law: NoiseLaw
    features: Levels
    targets: Levels
    slopes: Levels
    promise: Guarantee
    excess_bound: float


@dataclass(frozen=True)
class Walked:
    """A private path's end, the corners chosen (None where there are no corners), and the stamped promise."""

    point: Array
    chosen: list[int] | None
    guarantee: Guarantee


def plan(
    bounds: calibration.SlopeBounds,
    table: PathTable,
    constraint: ConstraintSet,
    *,
    epsilon: float,
    delta: float = 0.0,
    steps: int | str = "auto",
    method: str = "auto",
    calibrated: str = "tight",
    rows_per_person: int = 1,
    assumptions: tuple[str, ...] = (),
) -> PathPlan:
    """Decide how to walk, from public numbers.

    Parameters
    ----------
    bounds : SlopeBounds
        The loss, by what it promises of its slope.
    table : PathTable
        What is public about the rows.
    constraint : ConstraintSet
        Where the weights live; its minimiser is tried on public directions first.
    epsilon, delta : float
        The budget, per person.
    steps : int, "auto" or "paper"
        How many points the path has.
    method : {"auto", "corners", "gradient"}
        Choose among the set's corners, or release noisy gradients; "auto" takes corners where there are few.
    calibrated : {"tight", "paper"}
        This project's theorems, or the printed noise with the epsilon that is really proven for it.
    rows_per_person : int
        How many records one person may have.
    assumptions : tuple of str
        What else the promise rests on.
    """
    epsilon, delta = check_budget(epsilon, delta)
    _check_size("feature_bound", table.feature_bound)
    if not math.isinf(table.length):
        _check_size("data_norm", table.length)
    if isinstance(bounds, calibration.SquaredSlope):
        _check_size("target_bound", bounds.target_bound)
    rows_per_person = check_integer("rows_per_person", rows_per_person)
    if calibrated not in ("tight", "paper"):
        raise InvalidInput(f"calibration must be 'tight' or 'paper', got {calibrated!r}")
    constraint.check(table.columns)
    if type(constraint) not in OWN_SETS:
        probe(constraint, table.columns)
    corners = _corners(constraint, table.columns, method)
    reach = _reach(constraint, corners, table)
    _check_size("the largest score, radius times feature_bound,", reach)
    walk = _Walk(bounds, table, constraint, corners, reach, epsilon, delta, rows_per_person)
    promise = Guarantee.from_budget(
        epsilon,
        delta,
        mechanism="private Frank-Wolfe",
        rows_per_person=rows_per_person,
        assumptions=("n is public", _stated_bounds(table), *assumptions, FAIR_BITS),
    )
    points = walk.steps(steps, calibrated)
    law, promise = walk.calibrated(points, calibrated, promise)
    return PathPlan(constraint, walk.code, points, law, *walk.levels(points), promise, walk.excess_bound(points, law))


def _check_size(name: str, size: float) -> None:
    """Refuse what would leave the doubles once it is multiplied a few times."""
    if not _SMALLEST <= check_positive(name, size) <= _LARGEST:
        raise InvalidInput(f"{name} must lie between {_SMALLEST:g} and {_LARGEST:g}, got {size:g}; rescale the columns")


def _corners(constraint: ConstraintSet, columns: int, method: str) -> Corners | None:
    if method not in ("auto", "corners", "gradient"):
        raise InvalidInput(f"method must be 'auto', 'corners' or 'gradient', got {method!r}")
    corners = None if method == "gradient" else constraint.corners(columns)
    if corners is None and method == "corners":
        raise InvalidInput("this set has no few corners to choose from; use method='gradient'")
    return corners


def _reach(constraint: ConstraintSet, corners: Corners | None, table: PathTable) -> float:
    """The largest |<x, s>|; from the corners themselves where there are any, since privacy rests on it there."""
    bounds = table.feature_bound, table.length
    if isinstance(corners, CoordinateCorners):
        return round_up(Fraction(corners.radius) * Fraction(min(bounds)))
    if isinstance(corners, PointCorners):
        sizes = np.abs(corners.points)
        lengths = np.sqrt((sizes**2).sum(axis=1)) * table.length
        longest = float(np.minimum(sizes.sum(axis=1) * table.feature_bound, lengths).max())
        return longest * (1 + 1e-9)
    return constraint.reach(*bounds, table.columns)


def _stated_bounds(table: PathTable) -> str:
    stated = f"features are cut to [-{table.feature_bound:g}, {table.feature_bound:g}]"
    return stated if math.isinf(table.length) else f"{stated}, rows to a norm of {table.length:g}"


@dataclass(frozen=True)
class _Walk:
    """The public numbers of a path, and what follows from them."""

    bounds: calibration.SlopeBounds
    table: PathTable
    constraint: ConstraintSet
    corners: Corners | None
    reach: float
    epsilon: float
    delta: float
    rows_per_person: int

    @property
    def code(self) -> int:
        return SQUARED if isinstance(self.bounds, calibration.SquaredSlope) else LOGISTIC

    @property
    def steepest(self) -> float:
        return self.bounds.steepest(self.reach)

    @property
    def length(self) -> float:
        """A bound on a row's l2 norm, rounded up."""
        return min(self.table.length, self.table.feature_bound * math.sqrt(self.table.columns) * (1 + 1e-12))

    @property
    def corner_count(self) -> int:
        assert self.corners is not None
        return self.corners.count(self.table.columns)

    def steps(self, wanted: int | str, calibrated: str) -> int:
        if not isinstance(wanted, str):
            return check_integer("n_steps", wanted, 2)
        if wanted == "paper":
            curvature = calibration.worst_curvature(self.bounds.smoothness, self.reach)
            return calibration.paper_steps(self.table.rows, self.steepest * self.reach, curvature, self.epsilon)
        if wanted != "auto":
            raise InvalidInput(f"n_steps must be a whole number of at least 2, 'auto' or 'paper', got {wanted!r}")
        return calibration.automatic_steps(
            self.bounds.smoothness, self.reach, lambda steps: self._error(steps, calibrated)
        )

    def _error(self, steps: int, calibrated: str) -> float:
        """What the rule for the number of steps weighs against the curvature."""
        scale = self._scale(steps, calibrated)
        if self.corners is None:
            return scale * self.constraint.width(self.table.columns)
        return calibration.corner_error(scale, self.corner_count)

    def excess_bound(self, steps: int, law: NoiseLaw) -> float:
        """A bound on the mean excess risk."""
        if law.kind == "gaussian":
            error = calibration.width_error(law.scale, self.constraint.width(self.table.columns))
        elif law.kind == "laplace":
            # The best corner's noise, and the chosen one's: each is at most 1 + log |S| scales on average.
            error = 2 * law.scale * (1 + math.log(self.corner_count))
        else:
            error = calibration.corner_error(law.scale, self.corner_count)
        curvature = calibration.worst_curvature(self.bounds.smoothness, self.reach)
        return calibration.excess_bound(curvature, steps, self.steepest * self.reach, error)

    def _scale(self, steps: int, calibrated: str) -> float:
        rows = self.table.rows
        if self.corners is None:
            return calibration.gradient_scale(
                rows, self.steepest, self.length, self.epsilon, self.delta, steps - 1, self.rows_per_person
            )
        if calibrated == "paper":
            return calibration.paper_scale(rows, self.steepest * self.reach, steps, self.epsilon, self.delta)
        return calibration.choice_scale(
            rows, self.steepest, self.reach, self.epsilon, self.delta, steps, self.rows_per_person
        )

    def calibrated(self, steps: int, calibrated: str, promise: Guarantee) -> tuple[NoiseLaw, Guarantee]:
        """The noise of each step, and the promise of all of them."""
        scale = self._scale(steps, calibrated)
        if self.corners is None:
            if calibrated == "paper":
                raise InvalidInput("the paper prints no noise for sets without few corners; use calibration='tight'")
            curve: Curve = GaussianShift(gaussian_shift(self.epsilon, self.delta))
            promise = replace(promise, curve=curve, theorem="Gaussian noise on each gradient; shifts add in squares")
            return NoiseLaw("gaussian", scale, self.table.columns), promise
        if calibrated == "paper":
            return NoiseLaw("laplace", scale, self.corner_count), self._proven(scale, steps, promise)
        each, rho = calibration.step_epsilon(self.epsilon, self.delta, steps - 1)
        curve = Composite((BoundedRange(each),) * (steps - 1)) if rho is None else ZeroConcentrated(rho)
        theorem = "exponential mechanism in each step, " + ("added up" if rho is None else "bounded range in zCDP")
        return NoiseLaw("gumbel", scale, self.corner_count), replace(promise, curve=curve, theorem=theorem)

    def _proven(self, scale: float, steps: int, promise: Guarantee) -> Guarantee:
        """What the printed noise really gives: its noisy minimum is pure, and not of bounded range."""
        sensitivity = calibration.score_sensitivity(self.table.rows, self.steepest, self.reach)
        # Scores are rounded to doubles before the noise is added.
        size = self.constraint.l1_norm(self.table.columns) * self.table.feature_bound
        sensitivity += (self.table.columns + 64) * 2.0**-51 * self.steepest * size
        each = 2 * sensitivity * self.rows_per_person / scale * (1 + 1e-9)
        curve = ZeroConcentrated(round_up(Pure(each).rho * Fraction(steps - 1)))
        added = each * (steps - 1) * (1 + 1e-12)
        concentrated = curve.epsilon(self.delta)
        proven = min(added, concentrated)
        return replace(
            promise,
            epsilon=proven,
            claimed_epsilon=self.epsilon,
            curve=curve if concentrated <= added else Pure(proven),
            theorem="as printed in 2015; by zero-concentrated composition",
        )

    def levels(self, steps: int) -> tuple[Levels, Levels, Levels]:
        """Grids fine enough not to matter and coarse enough that every sum is exact."""
        rows = self.table.rows.bit_length()
        on_axes = isinstance(self.corners, CoordinateCorners)
        affine = on_axes and self.code == SQUARED
        room = (_WHOLE - rows - total_weight(steps).bit_length()) // 2 if affine else (_DOUBLE - rows) // 2
        if room < 1:
            raise InvalidInput(
                f"{self.table.rows} rows and {steps} steps leave no room for exact sums; take fewer steps"
            )
        bits = min(_MOST_BITS, room)
        bound = self.table.feature_bound
        count = int(bound) if self.table.integers and bound == int(bound) and bound < 1 << bits else 1 << bits
        targets = self.bounds.target_bound if isinstance(self.bounds, calibration.SquaredSlope) else 1.0
        return Levels(bound, count), Levels(targets, 1 << bits), Levels(self.steepest, 1 << bits)


def execute(
    plan: PathPlan,
    rows: FixedRows,
    target: Array,
    *,
    promise: Guarantee | None = None,
    after: Callable[[Array, Any], Array] | None = None,
    ledger: Spender | None = None,
    purpose: str = "fit",
    random_state: Any = None,
    progress: Callable[[int], None] | None = None,
) -> Walked:
    """Debit, walk and release, as planned.

    ``after(point, source)`` is what follows on the path's end under the same debit, with bits of the same source; the
    ``promise`` then covers both.
    """
    with private_steps(plan.law, promise or plan.promise, ledger, purpose, random_state) as (steps, stamped):
        point, chosen = walk(plan, rows, target, steps, progress)
        return Walked(point if after is None else after(point, steps.source), chosen, stamped)


def walk(
    plan: PathPlan, rows: FixedRows, target: Array, steps: PrivateSteps, progress: Callable[[int], None] | None = None
) -> tuple[Array, list[int] | None]:
    """The end of the path, and the corners chosen on the way where there are any."""
    if plan.law.kind == "gaussian":
        return _along_gradients(plan, rows, target, steps, progress), None
    corners = plan.constraint.corners(rows.d)
    if isinstance(corners, CoordinateCorners):
        return _along_axes(plan, corners, rows, target, steps, progress)
    assert corners is not None
    return _along_corners(plan, corners, rows, target, steps, progress)


def _along_axes(
    plan: PathPlan, corners: CoordinateCorners, rows: FixedRows, target: Array, steps: PrivateSteps, progress: Any
) -> tuple[Array, list[int]]:
    radius, signed = Fraction(corners.radius), corners.signed
    path: Path = (
        SquaredPath(rows, target, plan.targets)
        if plan.code == SQUARED
        else SlopePath(rows, target, plan.code, plan.slopes)
    )
    weights = np.zeros(rows.d, np.int64)
    if not signed:
        # The simplex does not hold 0; any corner may be the first point, and which is public.
        path.move(0, 1)
        weights[0] = 1

    def choose(gradient: Any) -> int:
        if plan.law.kind == "gumbel":
            return steps.column(gradient, radius, signed)
        scores = float(radius) * gradient.floats()
        return steps.laplace_corner(np.column_stack([scores, -scores]).ravel() if signed else scores)

    chosen = along_columns(path, radius, signed, choose, plan.steps, progress)
    for step, corner in enumerate(chosen, start=1):
        column, negative = divmod(corner, 2) if signed else (corner, 0)
        weights[column] += -(step + 1) if negative else step + 1
    point = weights.astype(np.float64) * float(radius * shrinkage(plan.steps))
    return point, chosen


def _along_corners(
    plan: PathPlan, corners: PointCorners, rows: FixedRows, target: Array, steps: PrivateSteps, progress: Any
) -> tuple[Array, list[int]]:
    points = corners.points
    size = float(np.abs(points).sum(axis=1).max()) * (1 + 1e-9)
    unit = rows.levels.unit * plan.slopes.unit / rows.n
    chosen: list[int] = []

    def towards(point: Array) -> Array:
        sums = gradient_at(rows, point, size, target, plan.code, plan.slopes)
        if plan.law.kind == "gumbel":
            chosen.append(steps.corner(points, sums, unit))
        else:
            chosen.append(steps.laplace_corner(float(unit) * (points @ sums)))
        corner: Array = points[chosen[-1]]
        return corner

    return along_points(towards, points.mean(axis=0), plan.steps, progress), chosen


def _along_gradients(plan: PathPlan, rows: FixedRows, target: Array, steps: PrivateSteps, progress: Any) -> Array:
    size = plan.constraint.l1_norm(rows.d)
    unit = float(rows.levels.unit * plan.slopes.unit / rows.n)

    def towards(point: Array) -> Array:
        sums = gradient_at(rows, point, size, target, plan.code, plan.slopes)
        chosen = np.asarray(plan.constraint.minimiser(steps.gradient(sums, unit)), np.float64)
        if chosen.shape != point.shape or not np.isfinite(chosen).all():
            raise InvalidInput("the constraint set's minimiser returned something other than finite weights")
        return chosen

    return along_points(towards, _start(plan.constraint, rows.d), plan.steps, progress)


def _start(constraint: ConstraintSet, columns: int) -> Array:
    origin = np.zeros(columns)
    return origin if constraint.contains(origin) else constraint.minimiser(np.ones(columns))
