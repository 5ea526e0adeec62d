"""What a budget allows of adaptive steps: the zero-concentrated budget. Proof: ``docs/theory/composition.md``."""

from __future__ import annotations

import math
from functools import lru_cache

from epsilearn.balls import ball, precision, round_down
from epsilearn.calibration.additive import least_epsilon
from epsilearn.checks import check_budget
from epsilearn.errors import InvalidInput

__all__ = ["concentrated_budget"]

_PRECISION = 128
_LITTLE = 2.0**-40


@lru_cache(maxsize=512)
def concentrated_budget(epsilon: float, delta: float) -> float:
    """The largest rho, rounded down, whose zero-concentrated promise is (epsilon, delta).

    Theorem (Canonne, Kamath and Steinke 2020). rho-zCDP gives, for every order a > 1,
    delta = exp((a - 1)(a rho - epsilon)) / (a - 1) * (1 - 1/a)**a.

    For a fixed order that is solved for rho; the best order is found in floats, and the result made sure of in balls.
    """
    check_budget(epsilon, delta)
    if delta == 0:
        raise InvalidInput("zero-concentrated privacy gives no pure promise; use delta above 0")

    def rho_at(order: float) -> float:
        return (epsilon + (math.log(delta) + math.log(order)) / (order - 1) - math.log1p(-1 / order)) / order

    best = max((1 + math.exp(k / 50) for k in range(-500, 2000)), key=rho_at)
    low, high = math.log(best - 1) - 0.03, math.log(best - 1) + 0.03
    for _ in range(60):
        third = (high - low) / 3
        keep_low = rho_at(1 + math.exp(low + third)) > rho_at(1 + math.exp(high - third))
        low, high = (low, high - third) if keep_low else (low + third, high)
    order = 1 + math.exp((low + high) / 2)
    with precision(_PRECISION):
        a = ball(order)
        gain = (ball(least_epsilon(delta)).log() + a.log()) / (a - 1) - (1 - 1 / a).log()
        # A little less, so that who looks for the best order again, in floats, proves the same.
        rho = round_down((ball(least_epsilon(epsilon)) + gain) / a * (1 - ball(_LITTLE)))
    return max(rho, 0.0)
