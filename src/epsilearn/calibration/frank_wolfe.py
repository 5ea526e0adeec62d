"""How private Frank-Wolfe steps must be, and how many to take: from public numbers alone.

Talwar, Thakurta and Zhang (2015), with the constants their own argument needs. Proofs: ``docs/theory/frank-wolfe.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from epsilearn.balls import ball, exact, precision, round_down, round_up
from epsilearn.calibration.additive import gaussian_shift, least_epsilon, most_sensitivity
from epsilearn.calibration.concentrated import concentrated_budget
from epsilearn.calibration.selection import gumbel_scale
from epsilearn.checks import check_budget, check_integer
from epsilearn.errors import InvalidInput

__all__ = [
    "MOST_STEPS",
    "LogisticSlope",
    "SlopeBounds",
    "SquaredSlope",
    "automatic_steps",
    "choice_scale",
    "corner_error",
    "excess_bound",
    "gradient_scale",
    "paper_scale",
    "paper_steps",
    "score_sensitivity",
    "step_epsilon",
    "width_error",
    "worst_curvature",
]

_PRECISION = 128
MOST_STEPS = 1 << 20
# A typical curvature of the mean loss over its worst: see the theory page. Set on generated rows.
_TYPICAL = 1 / 16


@dataclass(frozen=True)
class SlopeBounds:
    """What a loss promises of its slope at scores of at most ``reach`` in size: the largest, and how fast it turns."""

    def steepest(self, reach: float) -> float:
        """The largest |slope|, rounded up."""
        raise NotImplementedError

    @property
    def smoothness(self) -> float:
        """The largest curvature."""
        raise NotImplementedError


@dataclass(frozen=True)
class SquaredSlope(SlopeBounds):
    """(score - y)**2 with |y| at most ``target_bound``.

    Examples
    --------
    >>> SquaredSlope(1.0).steepest(1.0)
    4.0
    """

    target_bound: float

    def steepest(self, reach: float) -> float:
        return round_up(2 * (Fraction(reach) + max(Fraction(self.target_bound), exact(self.target_bound))))

    @property
    def smoothness(self) -> float:
        return 2.0


@dataclass(frozen=True)
class LogisticSlope(SlopeBounds):
    """log(1 + exp(-y score)): the slope stays below 1 / (1 + exp(-reach)).

    Examples
    --------
    >>> round(LogisticSlope().steepest(1.0), 4)
    0.7311
    """

    def steepest(self, reach: float) -> float:
        with precision(_PRECISION):
            return round_up(1 / (1 + (-ball(min(reach, 700.0))).exp())) if reach < 700 else 1.0

    @property
    def smoothness(self) -> float:
        return 0.25


def score_sensitivity(rows: int, steepest: float, reach: float) -> float:
    """How far <s, mean gradient> can move when one record is replaced, for any point s of the set.

    Theorem. A record's gradient is slope * x with |slope| at most ``steepest``, and |<s, x>| is at most ``reach``: the
    replaced record's part moves from one end of [-steepest reach, steepest reach] / n to the other at worst.

    Examples
    --------
    >>> score_sensitivity(1000, 4.0, 1.0)
    0.008
    """
    return round_up(2 * Fraction(steepest) * Fraction(reach) / check_integer("rows", rows))


def step_epsilon(epsilon: float, delta: float, choices: int) -> tuple[float, float | None]:
    """The epsilon of each of so many private choices, and the rho of all together if that is what proves it.

    Theorem. An exponential mechanism of range e is e**2 / 8 zero-concentrated, so k of them, each chosen after seeing
    the ones before, are k e**2 / 8 zero-concentrated; they are also k e private. The better of the two is used.

    Examples
    --------
    >>> step_epsilon(1.0, 0.0, 4)
    (0.25, None)
    >>> each, rho = step_epsilon(0.5, 1e-6, 33)
    >>> round(each, 4), round(rho, 5)
    (0.0401, 0.00664)
    """
    epsilon, delta = check_budget(epsilon, delta)
    choices = check_integer("choices", choices)
    added = round_down(least_epsilon(epsilon) / choices)
    if delta == 0:
        return added, None
    rho = concentrated_budget(epsilon, delta)
    with precision(_PRECISION):
        concentrated = round_down((8 * ball(rho) / choices).sqrt())
    return (concentrated, rho) if concentrated > added else (added, None)


def gradient_scale(
    rows: int, steepest: float, length: float, epsilon: float, delta: float, releases: int, rows_per_person: int = 1
) -> float:
    """The deviation of the Gaussian noise in each coordinate of each released mean gradient.

    Theorem. Replacing a record moves the mean gradient by at most 2 * steepest * length / n in the l2 norm. k Gaussian
    releases of shift m each, chosen as one goes, are one of shift m sqrt(k), exactly (Dong, Roth and Su 2022).
    """
    check_budget(epsilon, delta)
    if delta == 0:
        raise InvalidInput("noisy gradients need delta above 0; for a pure promise use a set with few corners")
    sensitivity = most_sensitivity(
        round_up(2 * Fraction(steepest) * Fraction(length) / check_integer("rows", rows)), rows_per_person
    )
    with precision(_PRECISION):
        return round_up(ball(sensitivity) * ball(releases).sqrt() / ball(gaussian_shift(epsilon, delta)))


def paper_scale(rows: int, lipschitz: float, steps: int, epsilon: float, delta: float) -> float:
    """The Laplace scale as printed, L1 ||C||_1 sqrt(8 T log(1/delta)) / (n epsilon); ``lipschitz`` is L1 ||C||_1.

    Half of what its own argument needs where a record is replaced, and without composition's second-order term.
    """
    check_budget(epsilon, delta)
    if delta == 0:
        raise InvalidInput("the paper's noise is printed for delta above 0 only; use calibration='tight' for delta=0")
    return lipschitz * math.sqrt(-8 * steps * math.log(delta)) / (rows * epsilon)


def paper_steps(rows: int, lipschitz: float, curvature: float, epsilon: float) -> int:
    """The number of points T as printed, (Gamma n epsilon / (L1 ||C||_1))**(2/3), at least 2."""
    return int(min(max(2, round((curvature * rows * epsilon / lipschitz) ** (2 / 3))), MOST_STEPS))


def worst_curvature(smoothness: float, reach: float) -> float:
    """Gamma, the curvature of the mean loss over the set: scores differ by at most 2 * reach."""
    return smoothness * (2 * reach) ** 2


def excess_bound(curvature: float, steps: int, start: float, error: float) -> float:
    """A bound on the mean excess risk at the path's end, theta_T.

    Theorem. Let h_t be the mean excess risk at theta_t and e what a noisy choice loses on average. The curvature gives
    h_{t+1} <= (1 - mu_t) h_t + mu_t e + mu_t**2 Gamma / 2; with mu_t = 2 / (t + 2), t (t + 1) h_t grows by at most
    2 Gamma + 2 (t + 1) e a step, so h_T <= (2 h_1 + 2 (T - 1) Gamma) / (T (T + 1)) + e.

    Parameters
    ----------
    curvature : float
        Gamma.
    steps : int
        T.
    start : float
        A bound on h_1.
    error : float
        A bound on e: `corner_error`, or `width_error`.
    """
    return (2 * start + 2 * (steps - 1) * curvature) / (steps * (steps + 1)) + error


def automatic_steps(smoothness: float, reach: float, error: Callable[[int], float]) -> int:
    """The number of points T that minimises 2 Gamma / (T + 2) + 2 * error(T) at a typical curvature.

    ``error(steps)`` is the scale of a step's noise times the logarithm of the number of corners, or times the set's
    Gaussian width. The worst curvature would ask for far too many steps.

    Examples
    --------
    >>> scale = lambda steps: 2 * score_sensitivity(10**5, 4.0, 1.0) / step_epsilon(0.5, 1e-5**1.1, steps - 1)[0]
    >>> automatic_steps(2.0, 1.0, lambda steps: scale(steps) * math.log(1000))
    34
    """
    curvature = _TYPICAL * worst_curvature(smoothness, reach)

    def bound(steps: int) -> float:
        return 2 * curvature / (steps + 2) + 2 * error(steps)

    # The bound falls, then rises: double until it rises, then close in.
    high = 4
    while high < MOST_STEPS and bound(high) < bound(high // 2):
        high *= 2
    low = max(2, high // 4)
    while high - low > 2:
        third = (high - low) // 3
        if bound(low + third) <= bound(high - third):
            high -= third
        else:
            low += third
    return min(range(low, high + 1), key=bound)


def corner_error(scale: float, corners: int) -> float:
    """What the exponential mechanism's choice loses on average, at most: its scale times log |S|."""
    return scale * math.log(max(corners, 2))


def width_error(scale: float, width: float) -> float:
    """What the minimiser for a noisy gradient loses on average, at most: twice the noise's scale times the width."""
    return 2 * scale * width


def choice_scale(
    rows: int, steepest: float, reach: float, epsilon: float, delta: float, steps: int, rows_per_person: int
) -> float:
    """The scale by which scores are divided: probabilities are proportional to exp(-score / scale)."""
    each, _ = step_epsilon(epsilon, delta, steps - 1)
    return gumbel_scale(score_sensitivity(rows, steepest, reach), each, rows_per_person)
