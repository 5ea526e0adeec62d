"""A private fit: a plan from public numbers alone, then its execution.

`plan` decides everything that can be decided without a record: the regularisation, the noise, the certificate the
solver must reach, and the promise. `execute` does what the plan says, and nothing else. Proofs:
``docs/theory/output.md`` and ``docs/theory/objective.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn.accounting import GaussianShift, Pure
from epsilearn.balls import decimal_up, exact, round_up
from epsilearn.calibration.additive import laplace_scale, most_sensitivity
from epsilearn.calibration.centring import UNITS, Centring
from epsilearn.calibration.fit import FitNoise, planned_noise, stable_minimiser
from epsilearn.calibration.gradient import Descent, planned_descent, record_shift
from epsilearn.calibration.objective import pure_loss
from epsilearn.calibration.output import minimiser_sensitivity
from epsilearn.calibration.regression import lecture_sensitivity
from epsilearn.checks import check_choice, check_fit_budget, check_positive
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee
from epsilearn.losses import Loss
from epsilearn.mechanisms.additive import prepare_noise
from epsilearn.mechanisms.minimum import Drawn, Noisy, perturb_objective, perturb_output, perturb_steps
from epsilearn.mechanisms.release import FAIR_BITS, NoiseLaw, Release, Spender
from epsilearn.rows.interface import Rows
from epsilearn.solvers import Problem, Solution, descend, minimise

__all__ = ["Plan", "Table", "execute", "plan"]

Array = NDArray[np.float64]

# How much further than its minimiser a solver may look.
_ROOM = 100


@dataclass(frozen=True)
class Table:
    """What is public about the rows: how many, how wide, how long, and how exactly they can be summed."""

    rows: int
    columns: int
    norm: float
    rounding: Callable[[Loss, float], float]

    @staticmethod
    def of(rows: Rows) -> Table:
        return Table(rows.n, rows.d, rows.norm, rows.rounding)

    def in_units(self, length: float) -> Table:
        """The same rows measured in units of a length."""

        # A gradient's rounding is proportional to the rows, and depends on the weights through scores alone.
        def rounding(loss: Loss, reach: float) -> float:
            return self.rounding(loss, reach / length * (1 + 1e-12)) / length * (1 + 1e-12)

        return Table(self.rows, self.columns, math.nextafter(self.norm / length, math.inf), rounding)


@dataclass(frozen=True)
class Plan:
    """Everything about a fit that does not depend on the records.

    Attributes
    ----------
    method : {"objective", "output", "gradient"}
        Where the noise goes.
    strength : float
        The regularisation used; at least the one asked for. Descent that stops early is worth one over its time.
    law : NoiseLaw
        The noise in the objective, or on the result, or in the mean of all gradients of a descent.
    polish : NoiseLaw or None
        The little noise on the result that hides the solver's error.
    certificate : float
        The gradient norm the solver must reach.
    promise : Guarantee
        What the release will promise.
    centring : Centring or None
        The noise by which rows are moved and scaled first. Strength, noise and certificate are then for moved rows.
    descent : Descent or None
        The steps, for noise in gradients.
    loss : Loss
        The loss it is for.
    table : Table
        The rows it is for.
    """

    method: str
    strength: float
    law: NoiseLaw
    polish: NoiseLaw | None
    certificate: float
    promise: Guarantee
    centring: Centring | None
    descent: Descent | None
    # What it is for is not what was decided: two plans are equal if they decide the same.
    loss: Loss = field(compare=False)
    table: Table = field(compare=False)

    @property
    def stability(self) -> float:
        """How far the solver's point can move when one record is replaced and the noise in the objective is not.

        The objective is strongly convex: a gradient that changes by at most 2 L R / n, and two points with gradients
        of at most the certificate, are no farther apart than that over the strength.
        """
        change = 2 * self.loss.lipschitz * self.table.norm / self.table.rows
        return (change + 2 * self.certificate) / self.strength * (1 + 1e-9)


def plan(
    loss: Loss,
    table: Table,
    *,
    strength: float,
    epsilon: float,
    delta: float = 0.0,
    method: str = "objective",
    calibration: str = "tight",
    rows_per_person: int = 1,
    assumptions: tuple[str, ...] = (),
    centring: Centring | None = None,
    row_bound: float | None = None,
) -> Plan:
    """Decide how to fit, from public numbers.

    Parameters
    ----------
    loss : Loss
        The loss; it knows its own bounds.
    table : Table
        What is public about the rows.
    strength : float
        The regularisation asked for.
    epsilon, delta : float
        The budget, per person.
    method : {"objective", "output", "gradient"}
        Where the noise goes.
    calibration : {"tight", "paper"}
        This project's theorems, or the 2008 paper's constants with the epsilon that is really proven for them.
    rows_per_person : int
        How many records one person may have.
    assumptions : tuple of str
        What else the promise rests on.
    centring : Centring, optional
        How rows are moved first; ``table`` and ``strength`` are then those of moved rows.
    row_bound : float, optional
        The bound on rows before they are moved, to be stated.

    Returns
    -------
    Plan
    """
    epsilon, delta, rows_per_person = check_fit_budget(epsilon, delta, rows_per_person)
    strength = check_positive("alpha", strength)
    check_choice("method", method, ("objective", "output", "gradient"))
    check_choice("calibration", calibration, ("tight", "paper"))
    if calibration == "paper" and delta:
        raise InvalidInput(
            "calibration='paper' is as printed, and all that is printed is pure; use delta=0, or 'tight'"
        )
    promise = Guarantee.from_budget(
        epsilon,
        delta,
        rows_per_person=rows_per_person,
        assumptions=(
            "n is public",
            f"rows are scaled to a norm of at most {row_bound or table.norm:g}",
            *assumptions,
            *(() if method == "gradient" else ("the solver reaches its certificate",)),
            FAIR_BITS,
        ),
    )
    tight = calibration == "tight"
    if method != "output" and math.isinf(loss.lipschitz):
        raise InvalidInput(
            f"{method} perturbation needs a loss of bounded slope; use the Huber loss, or method='output'"
        )
    if method != "gradient" and not loss.minimisable:
        raise InvalidInput(f"{type(loss).__name__} has no minimiser: its slopes are cut; use method='gradient'")
    if centring is not None and (method == "output" or not tight):
        raise InvalidInput("noise on the result, and the papers' constants, do not count what centring costs")
    if method == "gradient":
        made = _plan_gradient(loss, table, strength, promise, centring)
    elif method == "output" and not tight and not loss.classifies:
        made = _plan_lecture(loss, table, strength, promise)
    else:
        noise = planned_noise(
            loss, table.rows, table.columns, table.norm, strength, epsilon, delta, method, rows_per_person,
            table.rounding, tight, centring,
        )  # fmt: skip
        if method == "output":
            made = _plan_output(noise, loss, table, tight, promise)
        else:
            made = _plan_objective(noise, loss, table, tight, promise, centring)
    loss.check_scores(_largest_score(made))
    return made


def _largest_score(plan: Plan) -> float:
    """More than any score that a solver, or a descent, will look at on the way.

    A step's length is at most the gradient's over the strength, and so is a minimiser's without its own term. Noise
    of many times its deviation is counted, and so are steps that go too far before they are shortened.
    """
    noise = 0.0 if plan.method == "output" else plan.law.deviation * math.sqrt(plan.law.dimension) / plan.table.rows
    steepest = plan.loss.lipschitz * plan.table.norm
    return _ROOM * plan.table.norm * (steepest + noise) / plan.strength


def _plan_output(noise: FitNoise, loss: Loss, table: Table, tight: bool, promise: Guarantee) -> Plan:
    law = NoiseLaw("gaussian" if noise.gaussian else "k-norm", noise.scale, noise.dimension)
    if noise.gaussian:
        sensitivity = minimiser_sensitivity(loss, table.rows, table.norm, noise.strength, noise.certificate, tight)
        shift = round_up(most_sensitivity(sensitivity, promise.rows_per_person) / Fraction(law.scale))
        promise = replace(promise, curve=GaussianShift(shift))
    promise = replace(
        promise,
        mechanism="output perturbation",
        theorem="strong convexity; " + ("the minimiser's own norm" if tight else "as printed, 2 L R / (n lambda)"),
    )
    return Plan("output", noise.strength, law, None, noise.certificate, promise, None, None, loss, table)


def _plan_lecture(loss: Loss, table: Table, strength: float, promise: Guarantee) -> Plan:
    """The lecture's noisy least squares: Laplace noise on its printed sensitivity, with what is proven for it."""
    certificate, sensitivity = stable_minimiser(loss, table.rows, table.norm, strength, table.rounding, tight=True)
    printed = lecture_sensitivity(loss, table.rows, table.columns, table.norm, strength)
    law = NoiseLaw("laplace", laplace_scale(printed, promise.epsilon), table.columns)
    proven = math.sqrt(table.columns) * sensitivity / law.scale * promise.rows_per_person * (1 + 1e-9)
    promise = replace(promise, mechanism="least squares with Laplace noise")
    promise = _proven(promise, proven, "as printed in the lecture; by strong convexity")
    return Plan("output", strength, law, None, certificate, promise, None, None, loss, table)


def _plan_objective(
    noise: FitNoise, loss: Loss, table: Table, tight: bool, promise: Guarantee, centring: Centring | None
) -> Plan:
    law = NoiseLaw("gaussian" if noise.gaussian else "k-norm", noise.scale, noise.dimension)
    polish = NoiseLaw("k-norm", noise.polish, noise.dimension)
    promise = replace(
        promise,
        mechanism="objective perturbation" + (" of centred rows" if centring else ""),
        theorem="objective perturbation with Gaussian noise" if noise.gaussian else "Theorem J",
        assumptions=(*promise.assumptions[:-1], f"alpha used: {noise.strength:.6g}", promise.assumptions[-1]),
    )
    if not tight:
        # Theorem J at the printed rate, and the polish.
        proven = pure_loss(loss, table.rows, table.norm, noise.strength, 1 / noise.scale) * (1 + 1e-9)
        total = (exact(proven) + exact(noise.polish_epsilon)) * promise.rows_per_person
        promise = _proven(promise, total, "as printed in 2008; by Theorem J")
    return Plan("objective", noise.strength, law, polish, noise.certificate, promise, centring, None, loss, table)


def _plan_gradient(loss: Loss, table: Table, strength: float, promise: Guarantee, centring: Centring | None) -> Plan:
    if not promise.delta:
        raise InvalidInput("noisy gradients need a delta above 0; use method='objective' for a pure promise")
    shift = record_shift(promise.epsilon, promise.delta, promise.rows_per_person)
    descent = planned_descent(shift, centring, 1 / strength, table.norm)
    together, dimension = descent.shift * math.sqrt(descent.steps), table.columns * loss.outputs
    law = NoiseLaw("gaussian", 2 * loss.lipschitz * table.norm / together, dimension)
    # Roundings grow with the weights, noise with the roundings, and weights with the noise: far from running away.
    hidden = 2 * table.rounding(loss, 1 / table.norm) / descent.shift * math.sqrt(dimension)
    if not hidden * descent.time * table.norm <= 0.1:
        raise InvalidInput(
            "alpha is too small, against the square of a row's norm, for noisy gradients in doubles; use a larger one, "
            "or method='objective'"
        )
    promise = replace(
        promise,
        mechanism="noisy gradient descent" + (" on centred rows" if centring else ""),
        theorem="Gaussian mechanisms, composed",
        curve=GaussianShift(round_up(exact(shift) * promise.rows_per_person)),
    )
    return Plan("gradient", strength, law, None, 0.0, promise, centring, descent, loss, table)


def _proven(promise: Guarantee, epsilon: Fraction | float, theorem: str) -> Guarantee:
    """A pure promise of what is proven, with the claim beside it."""
    proven = decimal_up(exact(epsilon) if isinstance(epsilon, float) else epsilon)
    return replace(promise, epsilon=proven, curve=Pure(proven), claimed_epsilon=promise.epsilon, theorem=theorem)


class _Place:
    """Where rows are moved to, found with noise, and the way back from there."""

    def __init__(self, centring: Centring, rows: Rows) -> None:
        self._centring, self._rows = centring, rows
        self._intercept = rows.bounds.intercept / rows.bounds.data_norm
        kinds = ("gaussian", "gaussian") if centring.gaussian else ("k-norm", "laplace")
        self._mean, self._spread = (
            NoiseLaw(kind, scale, count)
            for kind, scale, count in zip(kinds, (centring.mean, centring.spread), (centring.columns, 1), strict=True)
        )
        prepare_noise(centring.columns, self._mean)
        prepare_noise(1, self._spread)

    def moved(self, noisy: Noisy) -> Rows:
        """The rows, moved by a noisy mean and scaled by a noisy length."""
        self._centre = self._centring.centre(noisy(self._rows.total(UNITS), self._mean))
        spread = self._rows.spread(self._centre, UNITS)
        self._radius = self._centring.radius(float(noisy(spread, self._spread)))
        return self._rows.moved(self._centre, self._radius, self._intercept)

    def back(self, weights: Array) -> Array:
        """Weights that score rows as they were, given those for moved rows."""
        features, intercept = np.split(weights.reshape(-1, self._rows.d), [-1], axis=1)
        features = features / self._radius
        intercept = intercept - (features @ self._centre)[:, None] / self._intercept
        back: Array = np.hstack([features, intercept]) / self._rows.bounds.data_norm
        return back.ravel()


def _walk(plan: Plan, loss: Loss, rows: Rows, place: _Place | None, noisy: Noisy) -> Array:
    """Where noisy descent ends, in the coordinates of the rows as they were."""
    home, descent = rows if place is None else place.moved(noisy), plan.descent
    assert descent is not None

    def gradient(point: Array) -> Array:
        reach = float(np.linalg.norm(point)) * (1 + len(point) * 2.0**-50)
        sensitivity = 2 * loss.lipschitz * home.norm / home.n + 2 * home.rounding(loss, reach)
        law = NoiseLaw("gaussian", descent.scale(sensitivity * (1 + 1e-12)))
        return noisy(home.gradient(loss, point), law)

    point = descend(gradient, plan.law.dimension, descent.steps, descent.time)
    return point if place is None else place.back(point)


def execute(
    plan: Plan,
    loss: Loss,
    rows: Rows,
    *,
    ledger: Spender | None = None,
    purpose: str = "fit",
    random_state: Any = None,
    limit: int = 5000,
    progress: Callable[[float], None] | None = None,
) -> Release:
    """Debit, draw, solve and release, as planned."""
    options: dict[str, Any] = {
        "law": plan.law,
        "promise": plan.promise,
        "ledger": ledger,
        "purpose": purpose,
        "random_state": random_state,
    }

    def solve(rows: Rows, drawn: Drawn | None) -> Solution:
        tilt = None if drawn is None else drawn.vector
        target = plan.certificate - (0.0 if drawn is None else drawn.error / rows.n * (1 + 1e-9))
        return minimise(Problem(rows, loss, plan.strength, tilt), target, limit=limit, progress=progress)

    place = None if plan.centring is None else _Place(plan.centring, rows)
    if plan.descent is not None:
        return perturb_steps(lambda noisy: _walk(plan, loss, rows, place, noisy), steps=plan.descent.steps, **options)
    if plan.polish is None:
        return perturb_output(lambda: solve(rows, None), **options)
    options |= {"polish": plan.polish, "stability": plan.stability}
    if place is None:
        return perturb_objective(lambda drawn, _noisy: solve(rows, drawn), **options)
    release = perturb_objective(lambda drawn, noisy: solve(place.moved(noisy), drawn), **options)
    return replace(release, value=place.back(release.value))
