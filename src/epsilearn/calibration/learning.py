"""What a private fit costs in accuracy, from public numbers: a bound on its excess, and the rows a target needs.

F(w) = (1/n) sum of losses + (strength/2) ||w||**2, rows of norm at most R. All probabilities are over the noise; the
rows may be any. Proofs: ``docs/theory/learning.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy.optimize import minimize_scalar
from scipy.special import gammainccinv

from epsilearn.calibration.fit import FitNoise, Rounding, planned_noise
from epsilearn.calibration.groups import per_record
from epsilearn.calibration.output import LossBounds
from epsilearn.checks import check_choice, check_integer, check_positive, check_probability
from epsilearn.errors import InvalidInput

__all__ = [
    "ExcessRisk",
    "RowsNeeded",
    "excess_quantile",
    "excess_risk_bound",
    "noise_length",
    "printed_excess",
    "rows_needed",
]

# From a number of rows and a regularisation to a bound on the excess and the regularisation used.
Bound = Callable[[int, float], tuple[float, float]]

_SLACK = 1 + 1e-9  # covers the quantile functions of scipy and the few float operations here
_DOOR = 2.0**-21  # the door rounds to a grid of at most 2**-20 deviations
# How much of the failure probability the polish may take. Every share is valid, and the best one is used.
_SHARES = (0.01, 0.03, 0.1, 0.3)
_MOST_ROWS = 1 << 53


@dataclass(frozen=True)
class ExcessRisk:
    """How far above its minimum the regularised mean loss of a private fit can be.

    Attributes
    ----------
    tight : float
        The bound that holds for what is released.
    printed : float or None
        What the 2008 paper prints for its own noise: Lemma 3 (output) or Lemma 4 (objective). None where it prints
        nothing: for another loss than the logistic one, or for delta > 0.
    strength : float
        The regularisation of the objective that both speak of: the one used.
    failure : float
        The probability, over the noise, with which the bound may fail.
    """

    tight: float
    printed: float | None
    strength: float
    failure: float

    def __str__(self) -> str:
        return (
            f"the objective (alpha {self.strength:.4g}) ends within {self.tight:.4g} of its minimum "
            f"with probability {1 - self.failure:g}; as printed in 2008: {_beside(self.printed, '.4g')}"
        )


@dataclass(frozen=True)
class RowsNeeded:
    """How many rows make a private fit nearly as good as any predictor of a given norm.

    Attributes
    ----------
    tight : int
        The least number for which `excess_risk_bound` says so.
    printed : int or None
        The same with the 2008 paper's lemmas; None where it prints nothing.
    alpha : float
        The regularisation with which ``tight`` rows are enough.
    printed_alpha : float or None
        The regularisation with which ``printed`` rows are.
    """

    tight: int
    printed: int | None
    alpha: float
    printed_alpha: float | None

    def __str__(self) -> str:
        printed = _beside(self.printed, ",")
        if self.printed_alpha is not None:
            printed += f" with alpha {self.printed_alpha:.4g}"
        return f"{self.tight:,} rows are enough, with alpha {self.alpha:.4g}; as printed in 2008: {printed}"


def _beside(number: float | None, form: str) -> str:
    return "nothing" if number is None else format(number, form)


def noise_length(gaussian: bool, dimension: int, failure: float) -> float:
    """What the norm of noise of scale 1 exceeds with probability ``failure``: exact, and rounded up by a billionth.

    Theorem. K-norm noise has a norm with a Gamma(d) law, normal noise one with a chi law of d degrees of freedom.

    Examples
    --------
    >>> round(noise_length(False, 1, 0.05), 4), round(noise_length(True, 1, 0.05), 4)
    (2.9957, 1.96)
    """
    if gaussian:
        return math.sqrt(2 * float(gammainccinv(dimension / 2, failure))) * _SLACK
    return float(gammainccinv(dimension, failure)) * _SLACK


def excess_quantile(noise: FitNoise, loss: LossBounds, rows: int, row_norm: float, failure: float) -> float:
    """A bound on F(released) - min F that fails with probability at most ``failure``, F with ``noise.strength``.

    Theorem. F is lambda-strongly convex and M-smooth, M = beta R**2 + lambda, and the solver stops at a w with
    ||gradient|| <= gamma (of F, or of F + <b, .> / n).

    Output: the gradient vanishes at the minimiser, so F(released) - min F <= M/2 (||eta|| + gamma/lambda)**2.

    Objective: ||grad F(w)|| <= a := ||b||/n + gamma, so F(w) - min F <= a**2 / (2 lambda); adding p to w adds at most
    a ||p|| + M/2 ||p||**2.

    The norms are put at their exact quantiles. The result's rounding to the door's grid counts as part of eta or p.
    """
    smoothness = loss.smoothness * row_norm * row_norm + noise.strength
    if noise.method == "output":
        return _output_excess(noise, smoothness, failure) * _SLACK
    return min(_objective_excess(noise, smoothness, rows, failure, share) for share in _SHARES) * _SLACK


def _output_excess(noise: FitNoise, smoothness: float, failure: float) -> float:
    distance = noise.scale * noise_length(noise.gaussian, noise.dimension, failure)
    distance += noise.certificate / noise.strength + _on_the_grid(noise.dimension, noise.deviation)
    return smoothness / 2 * distance * distance


def _objective_excess(noise: FitNoise, smoothness: float, rows: int, failure: float, share: float) -> float:
    """With a share of the failure for the polish's length, and the rest for the noise's."""
    length = noise.scale * noise_length(noise.gaussian, noise.dimension, failure * (1 - share))
    slope = length / rows + noise.certificate
    step = noise.polish * noise_length(False, noise.dimension, failure * share)
    step += _on_the_grid(noise.dimension, noise.polish * math.sqrt(noise.dimension + 1))
    return slope * slope / (2 * noise.strength) + slope * step + smoothness / 2 * step * step


def _on_the_grid(dimension: int, deviation: float) -> float:
    """How far rounding to the door's grid moves a vector at most."""
    return math.sqrt(dimension) * _DOOR * deviation


def printed_excess(
    rows: int, columns: int, row_norm: float, strength: float, epsilon: float, failure: float, method: str
) -> float:
    """The 2008 paper's Lemma 3 (output) or Lemma 4 (objective), for the logistic loss and the paper's own noise.

    Printed for rows of norm at most 1: 2 d**2 (1 + lambda) log(d/failure)**2 / (lambda n epsilon)**2 and
    8 d**2 log(d/failure)**2 / (lambda n**2 epsilon**2). Rows of norm R are rows of norm 1 with weights R w and
    strength lambda / R**2; the objective's values are the same, so the lemmas are read at that strength.

    Examples
    --------
    >>> round(printed_excess(1000, 10, 1.0, 0.1, 1.0, 0.05, "objective"), 3)
    0.225
    """
    strength = strength / row_norm / row_norm
    length = columns * math.log(columns / failure) / (rows * epsilon)
    if method == "output":
        return 2 * (1 + strength) * (length / strength) * (length / strength)
    return 8 * length * length / strength


def _is_printed(loss: LossBounds, delta: float) -> bool:
    """Whether the 2008 paper covers this. l'' = |l'| (1 - |l'|) with |l'| <= 1 is the logistic loss, moved by a margin
    that its value at 0 tells."""
    slopes = (0.0, 0.25, 0.5, 1.0)
    logistic = loss.lipschitz == 1 and loss.rank == 1 and all(loss.curvature_at(s) == s * (1 - s) for s in slopes)
    return logistic and loss.at_zero < 0.7 and delta == 0


def _check_fit(loss: LossBounds, method: str) -> None:
    check_choice("method", method, ("objective", "output"))
    if not math.isfinite(loss.smoothness):
        raise InvalidInput("the loss's curvature is unbounded, so no excess can be promised; smooth its corners")
    if method == "objective" and not math.isfinite(loss.lipschitz):
        raise InvalidInput("the loss's slope is unbounded, which noise in the objective cannot hide; use 'output'")


def excess_risk_bound(
    *,
    loss: LossBounds,
    rows: int,
    columns: int,
    alpha: float,
    epsilon: float,
    delta: float = 0.0,
    failure: float = 0.05,
    method: str = "objective",
    row_norm: float = 1.0,
    rows_per_person: int = 1,
    rounding: Rounding | None = None,
) -> ExcessRisk:
    """How far above its minimum the objective of a private fit can be, whatever the rows; from public numbers.

    Theorem. `excess_quantile`, at the noise that `epsilearn.erm.plan` plans.

    Noise in an objective may need a stronger regularisation than ``alpha``. The bound is then about the objective with
    the strength used, which is the one the fit minimises and its guarantee states. For the objective asked for,
    (strength - alpha) / 2 times the square of its own minimiser's norm comes on top.

    Parameters
    ----------
    loss : LossBounds
        The loss; it knows its own bounds.
    rows, columns : int
        How many there are, the intercept's column included.
    alpha : float
        The regularisation asked for.
    epsilon, delta : float
        The budget, per person.
    failure : float
        The probability, over the noise, with which the bound may fail.
    method : {"objective", "output"}
        Where the noise goes.
    row_norm : float
        The bound on a row's norm, the intercept's column included.
    rows_per_person : int
        How many records one person may have.
    rounding : callable, optional
        `epsilearn.erm.Table.rounding`. Left out, sums over rows are taken to be exact: it matters for hundreds of
        millions of rows, or very wide ones.

    Returns
    -------
    ExcessRisk

    Examples
    --------
    >>> from epsilearn.losses import Logistic
    >>> print(excess_risk_bound(loss=Logistic(), rows=10_000, columns=10, alpha=0.01, epsilon=1.0))
    the objective (alpha 0.01) ends within 0.0005... of its minimum with probability 0.95; as printed in 2008: 0.02246
    """
    _check_fit(loss, method)
    rows, columns = check_integer("rows", rows), check_integer("columns", columns)
    strength, row_norm = check_positive("alpha", alpha), check_positive("row_norm", row_norm)
    failure = check_probability("failure", failure)
    share, _ = per_record(epsilon, delta, rows_per_person)
    noise = planned_noise(loss, rows, columns, row_norm, strength, epsilon, delta, method, rows_per_person, rounding)
    printed = None
    if _is_printed(loss, delta):
        printed = printed_excess(rows, columns, row_norm, noise.strength, share, failure, method)
    return ExcessRisk(excess_quantile(noise, loss, rows, row_norm, failure), printed, noise.strength, failure)


def rows_needed(
    *,
    loss: LossBounds,
    columns: int,
    epsilon: float,
    delta: float = 0.0,
    excess: float,
    weight_norm: float,
    failure: float = 0.05,
    method: str = "objective",
    row_norm: float = 1.0,
    rows_per_person: int = 1,
) -> RowsNeeded:
    """The least number of rows for which a private fit's mean loss is at most ``excess`` above a good predictor's.

    Theorem (after Theorems 4 and 5 of 2008). If the bound B of `excess_risk_bound` satisfies
    B + alpha ||w0||**2 / 2 <= excess, then with probability 1 - failure the fit's mean loss *on its rows* is at most
    that of every w0 of norm up to ``weight_norm``, plus ``excess``. Solved for the number of rows with the best alpha.

    The paper's theorems are about fresh rows, and add a term for that with a constant it does not print. This is about
    the rows fitted to, and every constant is in it.

    Parameters
    ----------
    excess : float
        How much more mean loss is acceptable.
    weight_norm : float
        The norm of the predictor to compare with.
    loss, columns, epsilon, delta, failure, method, row_norm, rows_per_person
        As in `excess_risk_bound`.

    Returns
    -------
    RowsNeeded

    Examples
    --------
    >>> from epsilearn.losses import Logistic
    >>> print(rows_needed(loss=Logistic(), columns=10, epsilon=1.0, excess=0.05, weight_norm=3.0))
    1,9... rows are enough, with alpha 0.005...; as printed in 2008: 12,716 with alpha 0.005556
    """
    _check_fit(loss, method)
    columns, row_norm = check_integer("columns", columns), check_positive("row_norm", row_norm)
    excess, weight_norm = check_positive("excess", excess), check_positive("weight_norm", weight_norm)
    failure = check_probability("failure", failure)
    share, _ = per_record(epsilon, delta, rows_per_person)

    def tight(rows: int, alpha: float) -> tuple[float, float]:
        noise = planned_noise(loss, rows, columns, row_norm, alpha, epsilon, delta, method, rows_per_person)
        return excess_quantile(noise, loss, rows, row_norm, failure), noise.strength

    def printed(rows: int, alpha: float) -> tuple[float, float]:
        return printed_excess(rows, columns, row_norm, alpha, share, failure, method), alpha

    found = _least_rows(tight, excess, weight_norm)
    beside = _least_rows(printed, excess, weight_norm) if _is_printed(loss, delta) else (None, None)
    return RowsNeeded(found[0], beside[0], found[1], beside[1])


def _least_rows(bound: Bound, excess: float, weight_norm: float) -> tuple[int, float]:
    """The least number of rows for which some alpha keeps the whole cost within ``excess``, and that alpha."""

    def cost(rows: int) -> tuple[float, float]:
        return _best_alpha(bound, rows, excess, weight_norm)

    low, above, high, (below, alpha) = 0, math.inf, 1, cost(1)
    while below > excess:
        # Far below the least number the cost falls as the square of the number of rows, so this jumps close to it.
        jump = max(2 * high, int(high * math.sqrt(min(below / excess, 2.0**100))))
        if jump > _MOST_ROWS:
            raise InvalidInput("no number of rows below 2**53 is enough; allow a larger excess or a larger epsilon")
        low, above, high, (below, alpha) = high, below, jump, cost(jump)
    by_power = True
    while high - low > 1:
        middle = _where_it_meets(low, above, high, below, excess) if by_power else math.isqrt(low * high)
        middle, by_power = min(max(middle, low + 1), high - 1), not by_power
        found, its_alpha = cost(middle)
        if found <= excess:
            high, below, alpha = middle, found, its_alpha
        else:
            low, above = middle, found
    return high, alpha


def _where_it_meets(low: int, above: float, high: int, below: float, excess: float) -> int:
    """Where the cost meets ``excess`` if between two numbers of rows it is a power of that number."""
    if low < 1 or above <= below:
        return high
    share = math.log(above / excess) / math.log(above / below)
    return math.ceil(low * math.exp(share * math.log(high / low)))


def _best_alpha(bound: Bound, rows: int, excess: float, weight_norm: float) -> tuple[float, float]:
    """The least of bound + alpha ||w0||**2 / 2 over alpha near excess / ||w0||**2, and the alpha used there.

    If any alpha keeps the cost within ``excess``, one in [1, 2] excess / ||w0||**2 does: docs/theory/learning.md. As a
    function of log(alpha) the cost is convex.
    """
    centre = excess / weight_norm / weight_norm

    def cost(logarithm: float) -> float:
        risk, used = bound(rows, centre * math.exp(logarithm))
        return risk + used / 2 * weight_norm * weight_norm

    found = minimize_scalar(cost, bounds=(-math.log(2), math.log(2)), method="bounded", options={"xatol": 1e-4})
    return float(found.fun), bound(rows, centre * math.exp(found.x))[1]
