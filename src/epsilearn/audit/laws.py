"""Laws of what two neighbours release, and what they say of epsilon and delta."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn.audit.events import Prospect
from epsilearn.audit.finding import Claim, common_words, verdict

__all__ = ["ExactFinding", "Laws", "PointOfCurve", "hockey_stick", "real_epsilon"]

Array = NDArray[np.float64]

_THRESHOLDS = 500
_CURVE = (0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6)  # deltas at which a claimed curve is looked at, besides its own
_ROUNDING = 1e-9  # of an epsilon, by the doubles it is computed in


def hockey_stick(first: Array, second: Array, epsilon: float) -> float:
    """The exact delta at epsilon between two laws on the same outcomes, the larger of both directions.

    Parameters
    ----------
    first, second : ndarray
        Logarithms of the probabilities of each outcome.

    Examples
    --------
    >>> coin, other = np.log([0.75, 0.25]), np.log([0.25, 0.75])
    >>> round(hockey_stick(coin, other, 0.0), 6)
    0.5
    """
    return max(_one_way(first, second, epsilon), _one_way(second, first, epsilon))


def _one_way(p: Array, q: Array, epsilon: float) -> float:
    # p - e^epsilon q, without ever computing an e^epsilon that does not fit.
    return float(np.exp(p) @ -np.expm1(np.minimum(0.0, epsilon + q - p)))


def real_epsilon(first: Array, second: Array, delta: float) -> float:
    """The least epsilon at which two laws are within delta of each other: to nine digits, if the laws are as good.

    Examples
    --------
    >>> import math
    >>> coin, other = np.log([0.75, 0.25]), np.log([0.25, 0.75])
    >>> round(real_epsilon(coin, other, 0.0), 6) == round(math.log(3), 6)
    True
    """
    if delta == 0:
        return float(np.abs(first - second).max())
    one, other = _sorted_one_way(first, second), _sorted_one_way(second, first)
    low, high = 0.0, 1.0
    while max(one(high), other(high)) > delta:
        low, high = high, 2 * high
    while high - low > 1e-9 * max(high, 1.0):
        middle = (low + high) / 2
        low, high = (middle, high) if max(one(middle), other(middle)) > delta else (low, middle)
    return high


def _sorted_one_way(p: Array, q: Array) -> Callable[[float], float]:
    """One direction of the hockey stick for many epsilons: outcomes are put in the order of their ratios once."""
    order = np.argsort(q - p)
    ratios, sums = (p - q)[order], np.append(0.0, np.cumsum(np.exp(p[order])))
    with np.errstate(divide="ignore"):
        logs = np.log(np.append(0.0, np.cumsum(np.exp(q[order]))))

    def delta(epsilon: float) -> float:
        above = int(np.searchsorted(-ratios, -epsilon))
        return float(sums[above] - np.exp(epsilon + logs[above]))

    return delta


@dataclass(frozen=True)
class Laws:
    """The logarithms of the probabilities of each outcome on two neighbours, or of the nodes of a quadrature.

    Attributes
    ----------
    first, second : array
        One logarithm for each outcome.
    points : array of shape (outcomes, weights), optional
        Where the nodes are, if the outcomes are weights.
    before_polish : bool
        Whether these are laws of the exact minimiser, to which a release adds a little noise.
    """

    first: Array
    second: Array
    points: Array | None = None
    before_polish: bool = False

    def epsilon(self, delta: float) -> float:
        """The least epsilon that is true of these neighbours at this delta."""
        return real_epsilon(self.first, self.second, delta)

    def deltas(self, epsilon: float) -> tuple[float, float]:
        """The least deltas that are true at this epsilon: of the first against the second, and the other way round."""
        return _one_way(self.first, self.second, epsilon), _one_way(self.second, self.first, epsilon)

    def ideal(self, prospect: Prospect) -> float:
        """The bound that an audit which knew the laws could expect: its event is a large ratio of probabilities."""
        return max(self._ideal(self.first, self.second, prospect), self._ideal(self.second, self.first, prospect))

    @staticmethod
    def _ideal(favoured: Array, other: Array, prospect: Prospect) -> float:
        order = np.argsort(other - favoured)
        places = np.linspace(0, len(order) - 1, min(_THRESHOLDS, len(order))).astype(int)
        p, q = (np.minimum(np.cumsum(np.exp(law[order]))[places], 1.0) for law in (favoured, other))
        return float(prospect.bound(p, q).max())


@dataclass(frozen=True)
class PointOfCurve:
    """What is claimed at one delta, and what is true.

    Attributes
    ----------
    delta, claimed : float
        The claim.
    real : float
        The least epsilon that is true, as computed.
    error : float
        How far off that may be: twice as far as computations on coarser grids are from it.
    """

    delta: float
    claimed: float
    real: float
    error: float

    @property
    def refuted(self) -> bool:
        """Whether the claim is false by more than the computation may be off."""
        return self.real - self.error > self.claimed * (1 + _ROUNDING) + _ROUNDING


@dataclass(frozen=True)
class ExactFinding:
    """What is true of two neighbours, computed and not sampled.

    Attributes
    ----------
    claim : Claim
        What was put to the test.
    curve : tuple of PointOfCurve
        At the claimed delta; then at others, if a whole curve is claimed.
    laws : Laws
        What it was computed from. For figures.
    """

    claim: Claim
    curve: tuple[PointOfCurve, ...]
    laws: Laws = field(repr=False, compare=False)

    @staticmethod
    def of(claim: Claim, finest: Laws, coarser: Sequence[Laws] = ()) -> ExactFinding:
        """What laws say of a claim; the same laws on coarser grids say how exactly."""
        deltas = [claim.delta, *(delta for delta in _CURVE if claim.gaussian and delta != claim.delta)]
        curve = []
        for delta in deltas:
            real = finest.epsilon(delta)
            # At delta = 0 the largest ratio on the grid is one that there is, whatever lies between its points.
            error = 2 * max((abs(laws.epsilon(delta) - real) for laws in coarser), default=0.0) if delta else 0.0
            curve.append(PointOfCurve(delta, claim.at(delta), real, error))
        return ExactFinding(claim, tuple(curve), finest)

    @property
    def real(self) -> float:
        """The least epsilon that is true of them at the claimed delta."""
        return self.curve[0].real

    @property
    def error(self) -> float:
        """How far off that may be."""
        return self.curve[0].error

    @property
    def refuted(self) -> bool:
        """Whether the claim is false."""
        return any(point.refuted for point in self.curve)

    def __str__(self) -> str:
        margin = f", give or take {self.error:.1g}" if self.error else ""
        lines = [verdict(self.refuted, self.claim)]
        if self.laws.before_polish:
            lines += [
                f"the exact minimiser's epsilon is {self.real:.4f}{margin}",
                "the release adds a little noise that can only lower it",
            ]
        else:
            lines.append(f"epsilon is {self.real:.4f}{margin}, computed from the laws of what is released")
        if len(self.curve) > 1:
            lines.append(f"along the curve: {'; '.join(map(_in_words, self.curve[1:]))}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return {
            **common_words("exact", self.claim, self.refuted, lower_bound=max(0.0, self.real - self.error)),
            "epsilon": self.real,
            "error": self.error,
            "before_polish": self.laws.before_polish,
            "curve": [vars(point) for point in self.curve],
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, sort_keys=True, allow_nan=False)


def _in_words(point: PointOfCurve) -> str:
    return f"{point.real:.4g} of {point.claimed:.4g} at delta {point.delta:g}"
