"""How much noise to add to a number or a vector of known sensitivity.

Proofs: ``docs/theory/additive.md``. Scales round up: the promise is never less than what was asked for.
"""

from __future__ import annotations

import math
from fractions import Fraction

from flint import arb
from scipy.special import log_ndtr

from epsilearn.balls import as_fraction, ball, exact, precision, round_up
from epsilearn.checks import check_budget, check_positive
from epsilearn.errors import InvalidInput

__all__ = [
    "gaussian_delta",
    "gaussian_scale",
    "gaussian_shift",
    "laplace_scale",
    "least_epsilon",
    "most_sensitivity",
]


def least_epsilon(epsilon: float) -> Fraction:
    """``epsilon`` as a fraction, the smaller of its readings as a double and as a decimal."""
    return min(as_fraction(epsilon), exact(epsilon))


def most_sensitivity(sensitivity: float, rows_per_person: int = 1) -> Fraction:
    """A person's sensitivity as a fraction, the larger of its readings as a double and as a decimal."""
    return max(as_fraction(sensitivity), exact(sensitivity)) * rows_per_person


def laplace_scale(sensitivity: float, epsilon: float, rows_per_person: int = 1) -> float:
    """The scale of Laplace noise (l1 sensitivity) or of K-norm noise (sensitivity in that norm).

    Theorem. If neighbours' values differ by at most S in a norm, noise of density proportional to
    exp(-||z|| epsilon / S) makes the sum epsilon-differentially private: the triangle inequality bounds the
    ratio of densities. A person with k records moves the value by at most k S.

    Examples
    --------
    >>> laplace_scale(1, 0.5)
    2.0
    """
    check_positive("sensitivity", sensitivity)
    check_budget(epsilon)
    return round_up(most_sensitivity(sensitivity, rows_per_person) / least_epsilon(epsilon))


def gaussian_delta(shift: float, epsilon: float) -> arb:
    """The exact delta of a Gaussian shift: N(0, 1) against N(shift, 1), at epsilon, as a ball.

    Theorem (Balle and Wang 2018). With mu = sensitivity / sigma the Gaussian mechanism is (epsilon, delta)-private
    if and only if delta >= Phi(mu/2 - epsilon/mu) - e**epsilon Phi(-mu/2 - epsilon/mu).
    """
    # delta falls with epsilon, so a smaller epsilon is safe; e to a larger power would not fit into memory.
    epsilon = min(epsilon, 1e6)
    bits = 128
    while True:
        with precision(bits):
            mu, eps = ball(shift), ball(least_epsilon(epsilon)) if epsilon > 0 else arb(0)
            delta = _tail(eps / mu - mu / 2) - eps.exp() * _tail(eps / mu + mu / 2)
            # The two terms cancel almost entirely for small shifts: insist on a few correct digits.
            if delta.rel_accuracy_bits() > 20 or bits > 1 << 14:
                return delta
        bits *= 2


def _tail(point: arb) -> arb:
    return (point / arb(2).sqrt()).erfc() / 2


def gaussian_shift(epsilon: float, delta: float) -> float:
    """The largest Gaussian shift that is (epsilon, delta)-private, rounded down."""
    epsilon = min(epsilon, 1e6)
    shift, step = _rough_shift(epsilon, delta), 2.0**-44
    while not gaussian_delta(shift, epsilon).upper() <= ball(delta):
        shift *= 1 - step
        step = min(2 * step, 0.5)
    return shift


def _rough_shift(epsilon: float, delta: float) -> float:
    """The same in floats, by bisection of its logarithm; a little too large where they cancel."""
    low, high = -720.0, 12.0
    for _ in range(70):
        middle = (low + high) / 2
        shift = math.exp(middle)
        first = log_ndtr(shift / 2 - epsilon / shift)
        second = epsilon + log_ndtr(-shift / 2 - epsilon / shift)
        fits = second >= first or first + math.log(-math.expm1(second - first)) <= math.log(delta)
        low, high = (middle, high) if fits else (low, middle)
    return math.exp(low)


def gaussian_scale(sensitivity: float, epsilon: float, delta: float, rows_per_person: int = 1) -> float:
    """The standard deviation of Gaussian noise, by the exact (analytic) calibration of `gaussian_delta`.

    Examples
    --------
    >>> round(gaussian_scale(1.0, 1.0, 1e-6), 4)
    4.2247
    """
    check_positive("sensitivity", sensitivity)
    check_budget(epsilon, delta)
    if delta == 0:
        raise InvalidInput("Gaussian noise needs delta > 0; for a pure guarantee use Laplace or K-norm noise")
    return round_up(most_sensitivity(sensitivity, rows_per_person) / Fraction(gaussian_shift(epsilon, delta)))
