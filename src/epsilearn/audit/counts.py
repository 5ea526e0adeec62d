"""From how often an event was seen to a lower bound on epsilon."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainccinv, betaincinv, ndtri

__all__ = ["clopper_pearson", "epsilon_bound", "error_rates", "gaussian_bound", "log_ratio", "normal_distance"]

Array = NDArray[np.float64]

_NOTHING = 1e-300  # in place of a probability of 0, whose logarithm there is not


def clopper_pearson(hits: Any, runs: int, failure: float) -> tuple[Array, Array]:
    """Lower and upper limits of a probability; each by itself is wrong with probability at most ``failure``."""
    hits = np.asarray(hits, np.float64)
    low = np.where(hits == 0, 0.0, betaincinv(np.maximum(hits, _NOTHING), runs - hits + 1, failure))
    high = np.where(hits == runs, 1.0, betainccinv(hits + 1, np.maximum(runs - hits, _NOTHING), failure))
    return low, high


def epsilon_bound(hits: Any, other_hits: Any, runs: int, delta: float, confidence: float) -> Array:
    """The least epsilon that two counts of one event allow: log((p - delta) / q), for the limits of p and q.

    Privacy says p <= e**epsilon q + delta for the event's probabilities on neighbours. Both limits hold together with
    the given confidence, each being wrong with at most half of what is left.

    Examples
    --------
    >>> round(float(epsilon_bound(900, 100, 1000, 0.0, 0.999)), 3)
    1.859
    """
    return np.maximum(log_ratio(*_limits(hits, other_hits, runs, confidence), delta), 0.0)


def gaussian_bound(hits: Any, other_hits: Any, runs: int, confidence: float) -> Array:
    """The least mu for which two counts of one event allow the curve of mu-Gaussian privacy.

    The best test of N(0, 1) against N(mu, 1) with false alarms q finds at most Phi(Phi^-1(q) + mu), and a mechanism
    that keeps the curve allows no better one. So mu is at least Phi^-1(p) - Phi^-1(q), for the same limits of p and q
    as in `epsilon_bound`: one event gives both bounds, at one price. It refutes a claimed *curve*; of a mechanism that
    claims no more than one (epsilon, delta) it says nothing.

    Examples
    --------
    >>> round(float(gaussian_bound(900, 100, 1000, 0.999)), 3)
    2.208
    """
    return np.maximum(normal_distance(*_limits(hits, other_hits, runs, confidence)), 0.0)


def _limits(hits: Any, other_hits: Any, runs: int, confidence: float) -> tuple[Array, Array]:
    failure = (1 - confidence) / 2
    return clopper_pearson(hits, runs, failure)[0], clopper_pearson(other_hits, runs, failure)[1]


def log_ratio(p: Array, q: Array, delta: float) -> Array:
    """log((p - delta) / q), however small."""
    ratio: Array = np.log(np.maximum(p - delta, _NOTHING)) - np.log(np.maximum(q, _NOTHING))
    return ratio


def normal_distance(p: Array, q: Array) -> Array:
    """How far apart two normal laws are of which one gives an event the probability p, the other q."""
    last = 1 - 2.0**-53
    distance: Array = ndtri(np.clip(p, _NOTHING, last)) - ndtri(np.clip(q, _NOTHING, last))
    return distance


def error_rates(without: Array, within: Array) -> tuple[Array, Array]:
    """False alarms and detections of a score, from the strictest threshold to the laxest."""
    thresholds = np.unique(np.concatenate([without, within]))[::-1]
    alarms, found = (
        np.append(0.0, 1 - np.searchsorted(np.sort(scores), thresholds) / len(scores)) for scores in (without, within)
    )
    return alarms, found
