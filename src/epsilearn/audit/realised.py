"""Realised privacy loss: what one pair of neighbours costs a mechanism, given what it was asked on each.

A mechanism adds noise of a stated scale to a private value. If the value is v on one table and v' on the other, and
every earlier answer was the same, then this answer's privacy loss follows from v - v' and the scale alone. Added up
over a whole run, it may not exceed what was charged: an error in a sensitivity, a bound or a count shows as a loss that
is larger than its charge, on a pair of tables that has it. Given the answers before, the losses of adaptively chosen
mechanisms compose like any others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from epsilearn.accounting import BoundedRange, Curve, GaussianShift, LaplaceShift, Pure
from epsilearn.composition import Composite

__all__ = ["Pairing", "curves_of", "distance", "exceeds"]

Array = NDArray[np.float64]
# One answer on both tables: its kind, its public settings, the private values, and the answer.
Pairing = tuple[str, tuple[Any, ...], Any, Any, Any]

# Smaller losses are the rounding of this audit's own subtractions, not the mechanism's.
_NOTHING = 1e-12
_TOLERANCE = 1e-6
# What a loss counts as that is infinite or no number: a curve wants a finite one, and no promise is near it.
_FAR = 1e30


def distance(first: Any, second: Any) -> Array:
    """The difference of two private values, as doubles, subtracted exactly where they are fractions or integers."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        with np.errstate(all="ignore"):
            return np.atleast_1d(np.asarray(first, np.float64) - np.asarray(second, np.float64)).ravel()
    one, other = (list(value) if isinstance(value, Sequence | np.ndarray) else [value] for value in (first, second))
    return np.array([float(_exact(a) - _exact(b)) for a, b in zip(one, other, strict=True)])


def _exact(number: Any) -> Fraction:
    return number if isinstance(number, Fraction) else Fraction(number)


def curves_of(pairings: Sequence[Pairing]) -> list[Curve]:
    """The privacy curves that answers of one charge amount to, for the pair of tables they were taken from."""
    found: list[Curve] = []
    for kind, public, first, second, _ in pairings:
        if kind == "additive":
            found += _additive(public[0], distance(first, second))
        elif kind == "choice":
            found += _choice(first, second)
        elif kind == "noisy max":
            found += _pure(2 * _largest(distance(first, second)) / public[0])
        elif kind == "ball":
            # A point's logit moves by at most the rate times the radius, either way.
            reach = public[0] * public[1] * float(np.linalg.norm(distance(first, second)))
            found += _pure(2 * reach, BoundedRange)
    thresholds = [pairing for pairing in pairings if pairing[0] == "threshold"]
    process = [pairing for pairing in pairings if pairing[0] == "process"]
    return found + _thresholds(thresholds) + _process(process)


def _pure(epsilon: float, curve: type[Pure] = Pure) -> list[Curve]:
    return [] if epsilon <= _NOTHING else [curve(_finite(epsilon))]


def _gaussian(shift: float) -> list[Curve]:
    return [] if shift <= _NOTHING else [GaussianShift(_finite(shift))]


def _finite(loss: float) -> float:
    return loss if loss < _FAR else _FAR


def _largest(difference: Array) -> float:
    return float(np.max(np.abs(difference), initial=0.0))


def _additive(law: Any, difference: Array) -> list[Curve]:
    with np.errstate(all="ignore"):
        l1, l2 = float(np.abs(difference).sum()), float(np.linalg.norm(difference))
    if law.kind == "gaussian":
        return _gaussian(l2 / law.scale)
    if law.kind == "k-norm":
        return _pure(l2 / law.scale)
    return _pure(l1 / law.scale, LaplaceShift if len(difference) == 1 else Pure)


def _choice(first: Array, second: Array) -> list[Curve]:
    """A choice by logits has a loss that lies between the least and the largest change of a logit."""
    change = distance(np.asarray(first), np.asarray(second))
    return _pure(float(np.ptp(change)) if len(change) else 0.0, BoundedRange)


def _thresholds(pairings: Sequence[Pairing]) -> list[Curve]:
    """Each run of questions up to a positive answer: the threshold's noise moves once, the last question's twice."""
    found: list[Curve] = []
    moved, settings = 0.0, (0.0, math.inf, math.inf)
    for _, public, first, second, positive in pairings:
        moved, settings = max(moved, _largest(distance(first, second))), public
        if positive:
            found += _pure(moved / settings[1] + 2 * moved / settings[2])
            moved = 0.0
    return found + _pure(moved / settings[1])


def _process(pairings: Sequence[Pairing]) -> list[Curve]:
    """A Gaussian process: the values' change measured by the factor of its covariance."""
    if not pairings:
        return []
    tau = pairings[0][1][0]
    factor = np.zeros((len(pairings), len(pairings)))
    for number, (_, public, *_rest) in enumerate(pairings):
        row = public[2]
        factor[number, : len(row)] = row
    change = np.array([distance(first, second)[0] for _, _, first, second, _ in pairings])
    return _gaussian(float(np.linalg.norm(solve_triangular(factor, change, lower=True))) / tau)


def exceeds(curves: Sequence[Curve], epsilon: float, delta: float) -> float | None:
    """The total of these losses at delta, where it is larger than epsilon; None where it is not."""
    room = epsilon * (1 + _TOLERANCE) + _TOLERANCE * 1e-3
    pure = math.fsum(curve.pure for curve in curves)
    if not curves or pure <= room:
        return None
    if delta == 0:
        return pure
    shifts = [curve.shift for curve in curves if isinstance(curve, GaussianShift)]
    rest = math.fsum(curve.pure for curve in curves if not isinstance(curve, GaussianShift))
    if shifts and GaussianShift(math.hypot(*shifts)).epsilon(delta) + rest <= room:
        return None
    total = Composite(tuple(curves)).epsilon(delta) if len(curves) > 1 else curves[0].epsilon(delta)
    return None if total <= room else total
