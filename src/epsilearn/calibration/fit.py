"""The noise of a whole fit: the mechanism's own, the solver's certificate, and what hides the solver's error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from epsilearn.balls import decimal_down, exact
from epsilearn.calibration.additive import gaussian_scale, laplace_scale
from epsilearn.calibration.centring import Centring
from epsilearn.calibration.groups import per_record
from epsilearn.calibration.objective import gaussian_perturbation, pure_perturbation
from epsilearn.calibration.output import LossBounds, minimiser_sensitivity, norm_bound
from epsilearn.checks import check_within_doubles
from epsilearn.errors import InvalidInput

__all__ = ["FitNoise", "least_strength", "planned_noise", "stable_minimiser"]

Budget = tuple[float, float, int]  # epsilon and delta per person, and how many rows that may have
Rounding = Callable[[Any, float], float]

# The share of epsilon that hides what is left of the solver's error under objective perturbation.
_POLISH_SHARE = 0.01
# How much of the main noise the solver's error may add, if the arithmetic allows.
_POLISH_SIZE = 0.01
# No certificate below this many times the rounding of a gradient: a solver in doubles must be able to reach it.
_ROUNDINGS = 4
# Noise for an objective is drawn to within 2**-41 deviations in each coordinate.
_DRAWING = 2.0**-41
# With less regularisation than this part of one record's curvature, no solver in doubles is sure to reach a minimum.
_SOLVABLE = 1e-4


@dataclass(frozen=True)
class FitNoise:
    """What stands between a released fit and the minimiser. All of it is public.

    Attributes
    ----------
    method : {"objective", "output"}
        Where the noise goes.
    gaussian : bool
        Whether the noise is normal; otherwise its density falls with its norm (K-norm).
    dimension : int
        How many weights there are.
    strength : float
        The regularisation used, which may be more than was asked for.
    scale : float
        The noise's scale.
    certificate : float
        The gradient norm at which the solver may stop.
    polish : float
        The scale of the K-norm noise that hides the solver's error; 0 where there is none.
    polish_epsilon : float
        What that costs, per record.
    """

    method: str
    gaussian: bool
    dimension: int
    strength: float
    scale: float
    certificate: float
    polish: float = 0.0
    polish_epsilon: float = 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation of one coordinate of the noise."""
        return self.scale if self.gaussian else self.scale * math.sqrt(self.dimension + 1)


def planned_noise(
    loss: LossBounds,
    rows: int,
    columns: int,
    row_norm: float,
    strength: float,
    epsilon: float,
    delta: float,
    method: str,
    rows_per_person: int = 1,
    rounding: Rounding | None = None,
    tight: bool = True,
    centring: Centring | None = None,
) -> FitNoise:
    """The noise of a fit with this budget per person.

    Parameters
    ----------
    rounding : callable, optional
        How exactly gradients can be summed, at any point of at most a given norm. A solver cannot certify less, so
        less is not asked for. Left out, sums are taken to be exact.
    tight : bool
        This project's theorems, or the constants as printed.
    centring : Centring, optional
        What was released before noise entered the objective, and is paid for by the same budget.

    Examples
    --------
    >>> from epsilearn.losses import Logistic
    >>> found = planned_noise(Logistic(), 10_000, 5, 1.0, 0.01, 1.0, 0.0, "objective")
    >>> found.scale > 2.0, found.polish < 1e-3 * found.scale
    (True, True)
    """
    budget, rounding = (epsilon, delta, rows_per_person), rounding or (lambda _loss, _reach: 0.0)
    # A record with several scores has as many weights for each column, and its curvature that rank.
    size = rows, columns * loss.rank, row_norm
    if method == "output":
        return _planned_output(loss, *size, strength, budget, rounding, tight)
    return _planned_objective(loss, *size, strength, budget, rounding, tight, centring)


def least_strength(loss: LossBounds, rows: int, row_norm: float) -> float:
    """The weakest regularisation at which a solver is asked for a minimum: a public rule.

    beta R**2 / (10,000 n), beta being the loss's largest curvature. Far below it the objective is flat between narrow
    kinks, and which tables a solver fails on, after the debit, would depend on their records.

    Examples
    --------
    >>> from epsilearn.losses import Logistic
    >>> f"{least_strength(Logistic(), 1000, 1.0):.3g}"
    '2.5e-08'
    """
    return _SOLVABLE * loss.smoothness * row_norm**2 / rows


def _check_solvable(loss: LossBounds, rows: int, row_norm: float, strength: float) -> None:
    """Refuse, before anything is spent, what a solver might not manage for some records."""
    least = least_strength(loss, rows, row_norm)
    if strength < least * (1 - 1e-9):
        raise InvalidInput(
            f"alpha is {strength:.3g}, and the least that is supported for {rows} rows of a norm of at most "
            f"{row_norm:.3g} is {least:.3g}: with less, whether a minimum is found would depend on the records. Use a "
            "larger alpha, or 'auto'"
        )


def stable_minimiser(
    loss: LossBounds,
    rows: int,
    row_norm: float,
    strength: float,
    rounding: Rounding,
    tight: bool,
    share: float = _POLISH_SIZE,
) -> tuple[float, float]:
    """The certificate to ask for, and how far a minimiser that has it can move.

    ``share`` is how much noise the solver's error may add, if the arithmetic allows.
    """
    _check_solvable(loss, rows, row_norm, strength)
    exactly = minimiser_sensitivity(loss, rows, row_norm, strength, tight=tight)
    reach = norm_bound(loss, row_norm, strength)
    # Not below what the arithmetic can certify.
    certificate = max(share / 2 * exactly * strength, _ROUNDINGS * rounding(loss, reach))
    sensitivity = minimiser_sensitivity(loss, rows, row_norm, strength, certificate, tight)
    check_within_doubles(reach, row_norm * reach, certificate, sensitivity, row_norm * sensitivity)
    return certificate, sensitivity


def _planned_output(
    loss: LossBounds,
    rows: int,
    dimension: int,
    row_norm: float,
    strength: float,
    budget: Budget,
    rounding: Rounding,
    tight: bool,
) -> FitNoise:
    certificate, sensitivity = stable_minimiser(loss, rows, row_norm, strength, rounding, tight)
    epsilon, delta, people = budget
    if delta:
        scale = gaussian_scale(sensitivity, epsilon, delta, people)
    else:
        scale = laplace_scale(sensitivity, epsilon, people)
    check_within_doubles(scale, row_norm * scale)
    return FitNoise("output", delta > 0, dimension, strength, scale, certificate)


def _planned_objective(
    loss: LossBounds,
    rows: int,
    dimension: int,
    row_norm: float,
    strength: float,
    budget: Budget,
    rounding: Rounding,
    tight: bool,
    centring: Centring | None,
) -> FitNoise:
    epsilon, delta = per_record(*budget)
    polish_epsilon = decimal_down(exact(epsilon) * exact(_POLISH_SHARE))
    spent, prior = (centring.epsilon, centring.shift) if centring else (0.0, 0.0)
    main_epsilon = decimal_down(exact(epsilon) - exact(polish_epsilon) - exact(spent)) if tight else epsilon
    if delta:
        found = gaussian_perturbation(loss, rows, row_norm, strength, main_epsilon, delta, prior)
    else:
        found = pure_perturbation(loss, rows, row_norm, strength, main_epsilon, tight)
    _check_solvable(loss, rows, row_norm, found.strength)
    noise = FitNoise("objective", delta > 0, dimension, found.strength, found.scale, 0.0)
    length = noise.deviation * math.sqrt(dimension)
    reach = norm_bound(loss, row_norm, found.strength) + 4 * length / (rows * found.strength)
    certificate = max(
        _polished(loss, row_norm, found.strength) * length * polish_epsilon / (2 * dimension * rows),
        _ROUNDINGS * rounding(loss, reach),
        16 * _DRAWING * length * (1 + 1e-9) / rows,
    )
    check_within_doubles(loss.lipschitz * row_norm, reach, row_norm * reach, certificate, length / rows)
    polish = laplace_scale(2 * certificate / found.strength * (1 + 1e-12), polish_epsilon)
    return FitNoise("objective", delta > 0, dimension, found.strength, found.scale, certificate, polish, polish_epsilon)


def _polished(loss: LossBounds, row_norm: float, strength: float) -> float:
    """How long the polish may be, against length / (n strength).

    That is how far the noise in the objective moves the result where the data say nothing. Where they say most it
    moves only length / (n (strength + beta R**2)); a tenth of that adds one per cent to the excess.
    """
    stiffest = strength + loss.smoothness * row_norm**2
    return min(_POLISH_SIZE, 0.1 * strength / stiffest)
