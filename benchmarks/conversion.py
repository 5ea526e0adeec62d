"""How much noise DP-SGD needs so that one record may be *replaced*, and not only added or taken away.

Libraries of DP-SGD account for one record more or less under Poisson sampling. Here n is public and one record is
replaced, for every method. The generous way to convert is to account for replacement itself: with gradients clipped to
norm 1, a step on either table is at worst a draw from (1 - q) N(0, s²) + q N(±1, s²), and T steps are the T-fold
composition of that pair, computed as a privacy-loss distribution. Group privacy would only use that a replacement is
one record less and one more, and ask for half of epsilon for each.
"""

from __future__ import annotations

import math

from dp_accounting.pld.privacy_loss_distribution import NeighborRel, from_gaussian_mechanism
from scipy.optimize import brentq
from scipy.special import log_ndtr

__all__ = ["composed_delta", "gaussian_delta", "group_noise_multiplier", "noise_multiplier"]


def gaussian_delta(epsilon: float, shift: float) -> float:
    """Delta of N(0, 1) against N(shift, 1), exactly (Balle and Wang 2018)."""
    left = math.exp(log_ndtr(shift / 2 - epsilon / shift))
    return max(left - math.exp(epsilon + log_ndtr(-shift / 2 - epsilon / shift)), 0.0)


def composed_delta(epsilon: float, noise: float, sampling: float, steps: int, replace: bool = True) -> float:
    """Delta of so many steps with noise of standard deviation ``noise`` on gradients of norm at most 1."""
    if sampling == 1:
        return gaussian_delta(epsilon, (2 if replace else 1) * math.sqrt(steps) / noise)
    # The grid must resolve the losses of one step, about 2q/noise; what it rounds goes against the peer, but barely.
    interval = min(1e-3, max(0.1 * sampling / noise, 1e-6))
    relation = NeighborRel.REPLACE_ONE if replace else NeighborRel.ADD_OR_REMOVE_ONE
    loss = from_gaussian_mechanism(
        noise, sampling_prob=sampling, neighboring_relation=relation, value_discretization_interval=interval
    )
    return float(loss.self_compose(steps).get_delta_for_epsilon(epsilon))


def noise_multiplier(epsilon: float, delta: float, sampling: float, steps: int, replace: bool = True) -> float:
    """The least noise, to four digits and never too little, for which the steps are (epsilon, delta) private."""

    def excess(logarithm: float) -> float:
        found = composed_delta(epsilon, math.exp(logarithm), sampling, steps, replace)
        return math.log(max(found, 1e-300)) - math.log(delta)

    # About right where the noise is large; a walk in both directions does the rest.
    low = math.log(2 * sampling * math.sqrt(steps) * math.sqrt(2 * math.log(1 / delta)) / epsilon) - 0.3
    while excess(low) <= 0:
        low -= 0.5
    high = low + 0.5
    while excess(high) > 0:
        low, high = high, high + 0.5
    return math.exp(float(brentq(excess, low, high, xtol=1e-4)) + 1e-4)


def group_noise_multiplier(epsilon: float, delta: float, sampling: float, steps: int) -> float:
    """What group privacy would ask for: (epsilon/2, delta/(1 + e^(epsilon/2))) for one record more or less."""
    return noise_multiplier(epsilon / 2, delta / (1 + math.exp(epsilon / 2)), sampling, steps, replace=False)
