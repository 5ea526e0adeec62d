"""Losses of one linear score. Classification losses depend on the margin y s, regression losses on the residual."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from flint import arb
from scipy.special import lambertw

from epsilearn.checks import check_margin, check_size
from epsilearn.losses.interface import UNIT, Array, Loss

__all__ = ["Huber", "HuberisedHinge", "Logistic", "Squared"]


def _clip(number: arb, low: float, high: float) -> arb:
    return number.max(arb(low)).min(arb(high))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else 1 - 1 / (1 + math.exp(x))


@dataclass(frozen=True)
class Logistic(Loss):
    """log(1 + e**(margin - m)) of a record's own margin m.

    With a margin of 0 it is the loss of logistic regression. A larger one asks every record to lie that far on its
    side: where weights are short all slopes are then near 1, the largest there is, and noise drowns less of them.

    Parameters
    ----------
    margin : float
        How far on its side a record must lie to have half the largest slope.

    Examples
    --------
    >>> Logistic().lipschitz, Logistic().smoothness
    (1.0, 0.25)
    >>> [round(float(-Logistic(m).slope(np.zeros(1), np.ones(1))[0]), 2) for m in (0.0, 2.0)]
    [0.5, 0.88]
    """

    margin: float = 0.0
    mirrored: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "margin", check_margin(self.margin))

    @property
    def two_sided(self) -> bool:
        """No: the slope is -y / (1 + e**(y s - margin)), which has the sign of -y at every score s."""
        return False

    @property
    def lipschitz(self) -> float:
        return 1.0

    @property
    def smoothness(self) -> float:
        return 0.25

    @property
    def at_zero(self) -> float:
        # log(1 + e**margin), rounded up.
        return math.nextafter(math.log(2), 1) if not self.margin else math.log1p(math.exp(self.margin)) * (1 + 1e-12)

    def value(self, score: Array, target: Array) -> Array:
        values: Array = np.logaddexp(0, self.margin - target * score)
        return values

    def slope(self, score: Array, target: Array) -> Array:
        slopes: Array = -target / (1 + np.exp(np.minimum(target * score - self.margin, 700)))
        return slopes

    def curvature(self, score: Array, target: Array) -> Array:
        steepness: Array = np.abs(self.slope(score, target))
        return steepness * (1 - steepness)

    def slope_in_balls(self, score: arb, target: arb) -> arb:
        return -target / (1 + (score * target - arb(self.margin)).exp())

    def slope_rounding(self, score: float) -> float:
        # Taking the margin away rounds once more.
        taken = self.smoothness * 1.01 * UNIT * (score + self.margin) if self.margin else 0.0
        return super().slope_rounding(score) + taken

    def curvature_at(self, slope: Any) -> Any:
        return slope * (1 - slope)

    def steepest(self, score: float) -> float:
        return min(1.0, _sigmoid(self.margin + score) * (1 + 1e-12)) if self.margin else _sigmoid(score)

    def pull(self, score: float) -> float:
        # m sigma(M - m) grows until m sigma(m - M) = 1, or (m - 1) e**(m - 1) = e**(M - 1), where it is m - 1.
        most = float(lambertw(math.exp(self.margin - 1)).real)
        if score < 1 + most:
            return score * _sigmoid(self.margin - score) * (1 + 1e-12)
        return most * (1 + 1e-12)


@dataclass(frozen=True)
class HuberisedHinge(Loss):
    """The hinge 1 - m of a support vector machine, its corner rounded over a width.

    Parameters
    ----------
    width : float
        The corner reaches from margin 1 - width to 1 + width.

    Examples
    --------
    >>> HuberisedHinge(0.5).smoothness
    1.0
    """

    width: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", check_size("width", self.width))

    @property
    def two_sided(self) -> bool:
        """No: the slope is -y times a number in [0, 1], so it is 0 or has the sign of -y, at every score."""
        return False

    @property
    def lipschitz(self) -> float:
        return 1.0

    @property
    def smoothness(self) -> float:
        return 1 / (2 * self.width)

    @property
    def at_zero(self) -> float:
        return 1.0 if self.width <= 1 else (1 + self.width) ** 2 / (4 * self.width)

    def value(self, score: Array, target: Array) -> Array:
        gap, h = 1 - target * score, self.width
        return np.where(gap >= h, gap, np.where(gap <= -h, 0.0, (gap + h) ** 2 / (4 * h)))

    def slope(self, score: Array, target: Array) -> Array:
        return -target * np.clip((1 + self.width - target * score) / (2 * self.width), 0, 1)

    def curvature(self, score: Array, target: Array) -> Array:
        return np.where(np.abs(1 - target * score) < self.width, self.smoothness, 0.0)

    def smoother(self, factor: float) -> tuple[Loss, float]:
        return HuberisedHinge(min(factor * self.width, max(self.width, 1.0))), 1.0

    def slope_in_balls(self, score: arb, target: arb) -> arb:
        h = arb(self.width)
        return -target * _clip((1 + h - target * score) / (2 * h), 0.0, 1.0)

    def pull(self, score: float) -> float:
        # m times the slope: m up to 1 - h, then the parabola m (1 + h - m) / (2 h), which may rise first.
        h = self.width
        peak = max(1 - h, (1 + h) / 2)
        m = min(score, peak)
        return m if m <= 1 - h else m * (1 + h - m) / (2 * h)


@dataclass(frozen=True)
class Squared(Loss):
    """Half the squared residual; its slope is bounded only where scores are.

    Parameters
    ----------
    target_bound : float
        Targets lie in [-target_bound, target_bound]. Public.
    """

    target_bound: float = 1.0
    classifies: ClassVar[bool] = False
    mirrored: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "target_bound", check_size("target_bound", self.target_bound))

    @property
    def lipschitz(self) -> float:
        return math.inf

    @property
    def smoothness(self) -> float:
        return 1.0

    @property
    def at_zero(self) -> float:
        return self.target_bound**2 / 2

    def value(self, score: Array, target: Array) -> Array:
        return (score - target) ** 2 / 2

    def slope(self, score: Array, target: Array) -> Array:
        return score - target

    def curvature(self, score: Array, target: Array) -> Array:  # noqa: ARG002
        return np.ones_like(score)

    def slope_in_balls(self, score: arb, target: arb) -> arb:
        return score - target

    def steepest(self, score: float) -> float:
        return self.target_bound + score

    def pull(self, score: float) -> float:
        s = min(score, self.target_bound / 2)
        return s * (self.target_bound - s)


@dataclass(frozen=True)
class Huber(Loss):
    """Half the squared residual up to a threshold, linear beyond it.

    Parameters
    ----------
    threshold : float
        The largest slope.
    target_bound : float
        Targets lie in [-target_bound, target_bound]. Public.
    """

    threshold: float = 1.0
    target_bound: float = 1.0
    classifies: ClassVar[bool] = False
    mirrored: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", check_size("threshold", self.threshold))
        object.__setattr__(self, "target_bound", check_size("target_bound", self.target_bound))

    @property
    def lipschitz(self) -> float:
        return self.threshold

    @property
    def smoothness(self) -> float:
        return 1.0

    @property
    def at_zero(self) -> float:
        return float(self.value(np.zeros(1), np.array([self.target_bound]))[0])

    def value(self, score: Array, target: Array) -> Array:
        size, c = np.abs(score - target), self.threshold
        return np.where(size <= c, size**2 / 2, c * size - c**2 / 2)

    def slope(self, score: Array, target: Array) -> Array:
        return np.clip(score - target, -self.threshold, self.threshold)

    def curvature(self, score: Array, target: Array) -> Array:
        return np.where(np.abs(score - target) <= self.threshold, 1.0, 0.0)

    def smoother(self, factor: float) -> tuple[Loss, float]:
        # With kinks farther out the slope between them is as much larger: that many times a loss of the same slopes.
        threshold = min(factor * self.threshold, max(self.threshold, self.target_bound))
        return Huber(threshold, self.target_bound), threshold / self.threshold

    def slope_in_balls(self, score: arb, target: arb) -> arb:
        return _clip(score - target, -self.threshold, self.threshold)

    def steepest(self, score: float) -> float:
        return min(self.threshold, self.target_bound + score)

    def pull(self, score: float) -> float:
        # s min(c, N - s): linear while N - s > c, then a parabola with its peak at N / 2.
        bound, c = self.target_bound, self.threshold
        s = min(score, max(bound / 2, bound - c))
        return s * min(c, bound - s)
