"""A private path, planned: the number of steps, the noise and the promise, from public numbers alone.

Proofs: ``docs/theory/frank-wolfe.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from epsilearn.accounting import BoundedRange, Curve, GaussianShift, Pure, ZeroConcentrated
from epsilearn.balls import round_up
from epsilearn.calibration import frank_wolfe as calibration
from epsilearn.calibration.additive import gaussian_shift
from epsilearn.checks import check_choice, check_fit_budget, check_integer, check_positive
from epsilearn.composition import Composite
from epsilearn.constraints import OWN_SETS, ConstraintSet, CoordinateCorners, Corners, PointCorners, Polytope, probe
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee
from epsilearn.mechanisms.release import FAIR_BITS, NoiseLaw
from epsilearn.rows.fixed import Levels
from epsilearn.rows.fixed_passes import LOGISTIC, SQUARED
from epsilearn.solvers.frank_wolfe import total_weight

__all__ = ["PathPlan", "PathTable", "plan"]

Array = NDArray[np.float64]

# Bits of a feature or a slope: more are not needed, fewer would show, and so few that it is refused.
_MOST_BITS, _ENOUGH_BITS, _FEWEST_BITS = 20, 14, 8
_WHOLE, _DOUBLE = 62, 52  # bits of a sum that must fit an int64, or a double
_SMALLEST, _LARGEST = 1e-60, 1e60
_PROBED = 64  # corners of somebody's own set that are looked at
_MOST_PARTS = 1000  # of a curve that names every step


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
    """

    rows: int
    columns: int
    feature_bound: float
    length: float = math.inf


@dataclass(frozen=True)
class PathPlan:
    """Everything about a fit that does not depend on the records.

    Attributes
    ----------
    constraint : ConstraintSet
        Where the weights live.
    corners : Corners or None
        The corners to choose from, read off the set once.
    code : int
        Which loss.
    affine : bool
        Whether the gradient is kept as an affine function of the weights.
    steps : int
        T: the path has T points and T - 1 private steps.
    law : NoiseLaw
        The noise of each step.
    features, targets, slopes : Levels
        The grids of the features, of the targets (squared loss on corners along the axes) and of the slopes.
    promise : Guarantee
        What the release will promise.
    excess_bound : float or None
        A bound on the mean excess empirical risk, over all rows inside the bounds. Mostly far above what is seen. None
        where the columns chosen are fitted again, since it is about the path's end.
    """

    constraint: ConstraintSet
    corners: Corners | None
    code: int
    affine: bool
    steps: int
    law: NoiseLaw
    features: Levels
    targets: Levels
    slopes: Levels
    promise: Guarantee
    excess_bound: float | None


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
    epsilon, delta, rows_per_person = check_fit_budget(epsilon, delta, rows_per_person)
    _check_size("feature_bound", table.feature_bound)
    if not math.isinf(table.length):
        _check_size("data_norm", table.length)
    if isinstance(bounds, calibration.SquaredSlope):
        _check_size("target_bound", bounds.target_bound)
    check_choice("calibration", calibrated, ("tight", "paper"))
    constraint.check(table.columns)
    if type(constraint) not in OWN_SETS:
        probe(constraint, table.columns)
    corners = _corners(constraint, table.columns, method)
    reach = _reach(constraint, corners, table)
    _check_size("the largest score that a row can have inside the set", reach)
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
    return PathPlan(
        constraint,
        corners,
        walk.code,
        walk.affine(points),
        points,
        law,
        *walk.levels(points),
        promise,
        walk.excess_bound(points, law),
    )


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
    if isinstance(corners, PointCorners):
        _check_points(constraint, corners, columns)
    elif corners is not None and not isinstance(corners, CoordinateCorners):
        raise InvalidInput(f"corners must be CoordinateCorners or PointCorners, got {type(corners).__name__}")
    return corners


def _check_points(constraint: ConstraintSet, corners: PointCorners, columns: int) -> None:
    """Somebody's own set may say one thing of itself and return another."""
    if corners.points.shape[1] != columns:
        raise InvalidInput(f"the set's corners have {corners.points.shape[1]} entries, and there are {columns} columns")
    if type(constraint) not in OWN_SETS and not all(map(constraint.contains, corners.points[:_PROBED])):
        raise InvalidInput("the set does not contain its own corners; mend contains or corners")


def _reach(constraint: ConstraintSet, corners: Corners | None, table: PathTable) -> float:
    """The largest |<x, s>|; from the corners themselves where there are any, since privacy rests on it there."""
    bounds = table.feature_bound, table.length
    if isinstance(corners, CoordinateCorners):
        return round_up(Fraction(corners.radius) * Fraction(min(bounds)))
    hull = Polytope(corners.points) if isinstance(corners, PointCorners) else constraint
    return hull.reach(*bounds, table.columns)


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

    @cached_property
    def steepest(self) -> float:
        return self.bounds.steepest(self.reach)

    @cached_property
    def width(self) -> float:
        """The set's Gaussian width, asked for once: somebody's own set may have to sample it."""
        return self.constraint.width(self.table.columns)

    @property
    def length(self) -> float:
        """A bound on a row's l2 norm, rounded up."""
        return min(self.table.length, self.table.feature_bound * math.sqrt(self.table.columns) * (1 + 1e-12))

    @property
    def _corner_size(self) -> float:
        """The largest l1 norm of a corner."""
        if isinstance(self.corners, CoordinateCorners):
            return self.corners.radius
        assert self.corners is not None
        return float(np.abs(self.corners.points).sum(axis=1).max())

    @property
    def corner_count(self) -> int:
        assert self.corners is not None
        return self.corners.count(self.table.columns)

    def steps(self, wanted: int | str, calibrated: str) -> int:
        if not isinstance(wanted, str):
            if check_integer("n_steps", wanted, 2) > calibration.MOST_STEPS:
                raise InvalidInput(f"n_steps must be at most {calibration.MOST_STEPS}, got {wanted}")
            return int(wanted)
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
            return scale * self.width
        return calibration.corner_error(scale, self.corner_count)

    def excess_bound(self, steps: int, law: NoiseLaw) -> float:
        """A bound on the mean excess risk."""
        if law.kind == "gaussian":
            error = calibration.width_error(law.scale, self.width)
        elif law.kind == "laplace":
            # The best corner's noise, and the chosen one's: each is at most 1 + log |S| scales on average.
            error = 2 * law.scale * (1 + math.log(self.corner_count))
        else:
            error = calibration.corner_error(law.scale, self.corner_count)
        curvature = calibration.worst_curvature(self.bounds.smoothness, self.reach)
        # A score moves by at most `reach` from 0, and by twice that from anywhere else.
        from_zero = isinstance(self.corners, CoordinateCorners) and self.corners.signed
        start = self.steepest * self.reach * (1 if from_zero else 2)
        return calibration.excess_bound(curvature, steps, start, error)

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
        curve = self._curve(each, rho, steps - 1)
        theorem = "exponential mechanism in each step, " + ("added up" if rho is None else "bounded range in zCDP")
        return NoiseLaw("gumbel", scale, self.corner_count), replace(promise, curve=curve, theorem=theorem)

    def _curve(self, each: float, rho: float | None, choices: int) -> Curve:
        if rho is not None:
            return ZeroConcentrated(rho)
        return Composite((BoundedRange(each),) * choices) if choices <= _MOST_PARTS else Pure(self.epsilon)

    def _proven(self, scale: float, steps: int, promise: Guarantee) -> Guarantee:
        """What the printed noise really gives: its noisy minimum is pure, and not of bounded range."""
        sensitivity = calibration.score_sensitivity(self.table.rows, self.steepest, self.reach)
        # Scores are rounded to doubles before the noise is added.
        size = self._corner_size * self.table.feature_bound
        sensitivity += (self.table.columns + 64) * 2.0**-51 * self.steepest * size
        each = 2 * sensitivity * self.rows_per_person / scale * (1 + 1e-9)
        curve = ZeroConcentrated(max(round_up(Pure(each).rho * Fraction(steps - 1)), 2.0**-1000))
        added = each * (steps - 1) * (1 + 1e-12)
        concentrated = curve.epsilon(self.delta)
        rule = "zero-concentrated" if concentrated <= added else "basic"
        # So little can be asked for that nothing is left of it in doubles; a promise states a positive epsilon.
        proven = max(min(added, concentrated), 2.0**-1000)
        return replace(
            promise,
            epsilon=proven,
            claimed_epsilon=self.epsilon,
            curve=curve if concentrated <= added else Pure(proven),
            theorem=f"as printed in 2015; by {rule} composition",
        )

    def affine(self, steps: int) -> bool:
        """Whether the gradient is kept as an affine function of whole weights, which needs room for a square."""
        on_axes = isinstance(self.corners, CoordinateCorners)
        return on_axes and self.code == SQUARED and self._affine_room(steps) >= _ENOUGH_BITS

    def _affine_room(self, steps: int) -> int:
        return (_WHOLE - self.table.rows.bit_length() - total_weight(steps).bit_length()) // 2

    def levels(self, steps: int) -> tuple[Levels, Levels, Levels]:
        """Grids fine enough not to matter and coarse enough that every sum is exact."""
        room = self._affine_room(steps) if self.affine(steps) else (_DOUBLE - self.table.rows.bit_length()) // 2
        if room < _FEWEST_BITS:
            raise InvalidInput(f"{self.table.rows} rows leave no room for exact sums; fit a part of them")
        bits = min(_MOST_BITS, room)
        bound, count = self.table.feature_bound, 1 << bits
        if bound == int(bound) and bound < count:
            # Whole features are then whole numbers of levels, and lose nothing.
            count -= count % int(bound)
        targets = self.bounds.target_bound if isinstance(self.bounds, calibration.SquaredSlope) else 1.0
        return Levels(bound, count), Levels(targets, 1 << bits), Levels(self.steepest, 1 << bits)
