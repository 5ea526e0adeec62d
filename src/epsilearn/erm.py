"""A private fit: a plan from public numbers alone, then its execution.

`plan` decides everything that can be decided without a record: the regularisation, the noise, the certificate the
solver must reach, and the promise. `execute` does what the plan says, and nothing else. Proofs:
``docs/theory/output.md`` and ``docs/theory/objective.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from epsilearn.accounting import GaussianShift, Pure
from epsilearn.balls import decimal_down, decimal_up, exact, round_up
from epsilearn.calibration.additive import gaussian_scale, laplace_scale, most_sensitivity
from epsilearn.calibration.groups import per_record
from epsilearn.calibration.objective import Perturbation, gaussian_perturbation, pure_loss, pure_perturbation
from epsilearn.calibration.output import minimiser_sensitivity, norm_bound
from epsilearn.calibration.regression import lecture_sensitivity
from epsilearn.checks import check_budget, check_integer, check_positive
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee
from epsilearn.losses import Loss
from epsilearn.mechanisms.minimum import Drawn, drawing_error, perturb_objective, perturb_output
from epsilearn.mechanisms.release import FAIR_BITS, NoiseLaw, Release, Spender
from epsilearn.rows.interface import Rows
from epsilearn.solvers import Problem, Solution, minimise

__all__ = ["Plan", "Table", "execute", "plan"]

# The share of epsilon that hides what is left of the solver's error under objective perturbation.
_POLISH_SHARE = "0.01"
# How much of the main noise that may add, if the arithmetic allows.
_POLISH_SIZE = 0.01


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


@dataclass(frozen=True)
class Plan:
    """Everything about a fit that does not depend on the records.

    Attributes
    ----------
    method : {"objective", "output"}
        Where the noise goes.
    strength : float
        The regularisation used; at least the one asked for.
    law : NoiseLaw
        The noise in the objective, or on the result.
    polish : NoiseLaw or None
        The little noise on the result that hides the solver's error.
    certificate : float
        The gradient norm the solver must reach.
    promise : Guarantee
        What the release will promise.
    """

    method: str
    strength: float
    law: NoiseLaw
    polish: NoiseLaw | None
    certificate: float
    promise: Guarantee


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
    method : {"objective", "output"}
        Where the noise goes.
    calibration : {"tight", "paper"}
        This project's theorems, or the 2008 paper's constants with the epsilon that is really proven for them.
    rows_per_person : int
        How many records one person may have.
    assumptions : tuple of str
        What else the promise rests on.

    Returns
    -------
    Plan
    """
    epsilon, delta = check_budget(epsilon, delta)
    strength = check_positive("alpha", strength)
    rows_per_person = check_integer("rows_per_person", rows_per_person)
    if method not in ("objective", "output"):
        raise InvalidInput(f"method must be 'objective' or 'output', got {method!r}")
    if calibration not in ("tight", "paper"):
        raise InvalidInput(f"calibration must be 'tight' or 'paper', got {calibration!r}")
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
            f"rows are scaled to a norm of at most {table.norm:g}",
            *assumptions,
            "the solver reaches its certificate",
            FAIR_BITS,
        ),
    )
    if method == "objective":
        return _plan_objective(loss, table, strength, calibration == "tight", promise)
    if calibration == "paper" and not loss.classifies:
        return _plan_lecture(loss, table, strength, promise)
    return _plan_output(loss, table, strength, calibration == "tight", promise)


def _plan_output(loss: Loss, table: Table, strength: float, tight: bool, promise: Guarantee) -> Plan:
    certificate, sensitivity = _stability(loss, table, strength, tight)
    weights, people = table.columns * loss.outputs, promise.rows_per_person
    if promise.delta:
        law = NoiseLaw("gaussian", gaussian_scale(sensitivity, promise.epsilon, promise.delta, people), weights)
        shift = round_up(most_sensitivity(sensitivity, people) / Fraction(law.scale))
        promise = replace(promise, curve=GaussianShift(shift))
    else:
        law = NoiseLaw("k-norm", laplace_scale(sensitivity, promise.epsilon, people), weights)
    promise = replace(
        promise,
        mechanism="output perturbation",
        theorem="strong convexity; " + ("the minimiser's own norm" if tight else "as printed, 2 L R / (n lambda)"),
    )
    return Plan("output", strength, law, None, certificate, promise)


def _stability(loss: Loss, table: Table, strength: float, tight: bool) -> tuple[float, float]:
    """The certificate to ask for, and how far a minimiser with it can move."""
    reach = norm_bound(loss, table.norm, strength)
    exactly = minimiser_sensitivity(loss, table.rows, table.norm, strength, tight=tight)
    # An error of the solver that adds one per cent of noise, but not below what the arithmetic can certify.
    certificate = max(_POLISH_SIZE / 2 * exactly * strength, 8 * table.rounding(loss, reach))
    return certificate, minimiser_sensitivity(loss, table.rows, table.norm, strength, certificate, tight)


def _plan_lecture(loss: Loss, table: Table, strength: float, promise: Guarantee) -> Plan:
    """The lecture's noisy least squares: Laplace noise on its printed sensitivity, with what is proven for it."""
    certificate, sensitivity = _stability(loss, table, strength, tight=True)
    printed = lecture_sensitivity(loss, table.rows, table.columns, table.norm, strength)
    law = NoiseLaw("laplace", laplace_scale(printed, promise.epsilon), table.columns)
    proven = math.sqrt(table.columns) * sensitivity / law.scale * promise.rows_per_person * (1 + 1e-9)
    promise = replace(promise, mechanism="least squares with Laplace noise")
    promise = _proven(promise, proven, "as printed in the lecture; by strong convexity")
    return Plan("output", strength, law, None, certificate, promise)


def _plan_objective(loss: Loss, table: Table, strength: float, tight: bool, promise: Guarantee) -> Plan:
    if math.isinf(loss.lipschitz):
        raise InvalidInput(
            "objective perturbation needs a loss of bounded slope; use the Huber loss, or method='output'"
        )
    epsilon, delta = per_record(promise.epsilon, promise.delta, promise.rows_per_person)
    polish_epsilon = decimal_down(exact(epsilon) * exact(float(_POLISH_SHARE)))
    main_epsilon = decimal_down(exact(epsilon) - exact(polish_epsilon)) if tight else epsilon
    found = _perturbation(loss, table, strength, main_epsilon, delta, tight)
    weights = table.columns * loss.outputs
    law = NoiseLaw("gaussian" if delta else "k-norm", found.scale, weights)
    length = law.deviation * math.sqrt(weights)
    weakest = table.rows * found.strength
    # The noise on the result is d (2 gamma / lambda) / epsilon long, the noise in it at least length / (n lambda).
    wanted = _POLISH_SIZE * length * polish_epsilon / (2 * weights * table.rows)
    reach = norm_bound(loss, table.norm, found.strength) + 4 * length / weakest
    certificate = max(wanted, 8 * table.rounding(loss, reach), 16 * drawing_error(law) / table.rows)
    polish = NoiseLaw("k-norm", laplace_scale(2 * certificate / found.strength, polish_epsilon), weights)
    promise = replace(
        promise,
        mechanism="objective perturbation",
        theorem="Theorem J" if not delta else "objective perturbation with Gaussian noise",
        assumptions=(*promise.assumptions[:-1], f"alpha used: {found.strength:.6g}", promise.assumptions[-1]),
    )
    if not tight:
        promise = _as_printed(promise, loss, table, found, polish_epsilon)
    return Plan("objective", found.strength, law, polish, certificate, promise)


def _perturbation(loss: Loss, table: Table, strength: float, epsilon: float, delta: float, tight: bool) -> Perturbation:
    if delta:
        return gaussian_perturbation(loss, table.rows, table.norm, strength, epsilon, delta)
    return pure_perturbation(loss, table.rows, table.norm, strength, epsilon, tight)


def _as_printed(promise: Guarantee, loss: Loss, table: Table, found: Perturbation, polish_epsilon: float) -> Guarantee:
    """The printed constants, with what is proven for them: Theorem J at the printed rate, and the polish."""
    proven = pure_loss(loss, table.rows, table.norm, found.strength, 1 / found.scale) * (1 + 1e-9)
    total = (exact(proven) + exact(polish_epsilon)) * promise.rows_per_person
    return _proven(promise, total, "as printed in 2008; by Theorem J")


def _proven(promise: Guarantee, epsilon: Fraction | float, theorem: str) -> Guarantee:
    """A pure promise of what is proven, with the claim beside it."""
    proven = decimal_up(exact(epsilon) if isinstance(epsilon, float) else epsilon)
    return replace(promise, epsilon=proven, curve=Pure(proven), claimed_epsilon=promise.epsilon, theorem=theorem)


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

    def solve(drawn: Drawn | None) -> Solution:
        tilt = None if drawn is None else drawn.vector
        target = plan.certificate - (0.0 if drawn is None else drawn.error / rows.n)
        return minimise(Problem(rows, loss, plan.strength, tilt), target, limit=limit, progress=progress)

    if plan.polish is None:
        return perturb_output(lambda: solve(None), **options)
    return perturb_objective(solve, polish=plan.polish, **options)
