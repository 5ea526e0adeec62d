"""The softmax loss of several classes, in one dimension less than there are classes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from flint import arb
from scipy.special import lambertw

from epsilearn.balls import ball
from epsilearn.checks import check_integer, check_margin
from epsilearn.losses.interface import UNIT, Array, Loss

__all__ = ["CappedSoftmax", "Softmax"]


@dataclass(frozen=True)
class Softmax(Loss):
    """-log of the probability that a softmax of the classes' scores gives the true class.

    Adding the same to all classes' scores changes nothing, so that direction is left out: K classes have K - 1 scores
    u, and the classes' scores are `basis` @ u, the basis being orthonormal and orthogonal to (1, ..., 1). Noise is
    then drawn in d (K - 1) dimensions, not d K.

    Parameters
    ----------
    classes : int
        How many there are; targets are 0, 1, ..., classes - 1.

    Examples
    --------
    >>> loss = Softmax(3)
    >>> loss.outputs, round(loss.lipschitz, 6), loss.smoothness
    (2, 1.414214, 0.5)
    """

    classes: int = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", check_integer("classes", self.classes, least=2))

    @property
    def two_sided(self) -> bool:
        """No: whatever the scores, a gradient is p - e of the true class, a mixture of the corners e' - e.

        The bound for several scores sums over these corners (``docs/theory/softmax.md``), none of which has a negative
        beside it.
        """
        return False

    @cached_property
    def basis(self) -> Array:
        """Columns that span what is orthogonal to (1, ..., 1): of shape (classes, classes - 1)."""
        columns = np.zeros((self.classes, self.classes - 1))
        for k in range(1, self.classes):
            columns[:k, k - 1] = 1 / math.sqrt(k * (k + 1))
            columns[k, k - 1] = -k / math.sqrt(k * (k + 1))
        return columns

    @property
    def outputs(self) -> int:
        return self.classes - 1

    @property
    def kept(self) -> int:
        return self.classes

    @property
    def lipschitz(self) -> float:
        # ||p - e|| <= sqrt(2); the slack covers that the basis is orthonormal only up to rounding.
        return math.sqrt(2) * (1 + 1e-12)

    @property
    def smoothness(self) -> float:
        return 0.5

    @property
    def mean_curvature(self) -> float:
        # The trace of diag(p) - p p' is at most 1 - 1/K, over K - 1 directions.
        return 1 / self.classes * (1 + 1e-12)

    @property
    def at_zero(self) -> float:
        return math.log(self.classes) * (1 + 1e-12)

    def pull(self, score: float) -> float:
        # Equal probabilities of the wrong classes are worst: (1 - p) log((K - 1) p / (1 - p)), whose peak is this.
        peak = float(lambertw((self.classes - 1) / math.e).real) * (1 + 1e-12)
        return min(peak, self.lipschitz * score)

    def _shares(self, score: Array) -> tuple[Array, Array]:
        """Each class's probability, and each record's log of the sum of exponentials."""
        scores = self.basis @ score
        top = scores.max(axis=0)
        shares: Array = np.exp(scores - top)
        total = shares.sum(axis=0)
        shares /= total
        return shares, top + np.log(total)

    def value(self, score: Array, target: Array) -> Array:
        own: Array = np.einsum("ij,ji->i", self.basis[target.astype(np.intp)], score)
        return self._shares(score)[1] - own

    def slope(self, score: Array, target: Array) -> Array:
        shares = self._shares(score)[0]
        shares[target.astype(np.intp), np.arange(len(target))] -= 1
        slopes: Array = self.basis.T @ shares
        return slopes

    def curvature(self, score: Array, target: Array) -> Array:  # noqa: ARG002
        return self._shares(score)[0]

    def bend(self, curvature: Array, change: Array) -> Array:
        moved = curvature * (self.basis @ change)
        bent: Array = self.basis.T @ (moved - curvature * moved.sum(axis=0))
        return bent

    def weights(self, curvature: Array) -> Array:
        means: Array = (1 - np.square(curvature).sum(axis=0)) / (self.classes - 1)
        return np.maximum(means, 0.0)

    def slopes_in_balls(self, scores: list[arb], target: arb) -> list[arb]:
        basis = [[ball(float(entry)) for entry in row] for row in self.basis]
        logits = [sum((b * s for b, s in zip(row, scores, strict=True)), arb(0)) for row in basis]
        top = max(logits, key=lambda logit: float(logit.mid()))
        shares = [(logit - top).exp() for logit in logits]
        total = sum(shares, arb(0))
        excess = [share / total - int(k == int(float(target.mid()))) for k, share in enumerate(shares)]
        return [sum((row[j] * e for row, e in zip(basis, excess, strict=True)), arb(0)) for j in range(self.outputs)]

    def slope_rounding(self, score: float) -> float:
        # Two products with the basis, the differences from the largest, exp, a sum of K and a division:
        # docs/theory/softmax.md counts them.
        spread = self.classes * math.sqrt(self.classes)
        return 2 * UNIT * (spread * (1 + score) + self.classes + 12)


@dataclass(frozen=True)
class CappedSoftmax(Softmax):
    """The softmax loss with a margin, its slopes scaled down to a length of 1. For gradient descent alone.

    Every other class's score counts ``margin`` more than it is. Slopes of the softmax loss are up to sqrt(2) long; cut
    at 1 they are no loss's slopes, which descent does not mind and a minimiser would.

    Parameters
    ----------
    classes : int
        How many there are; targets are 0, 1, ..., classes - 1.
    margin : float
        How far the true class's score must lie above the others.

    Examples
    --------
    >>> slope = CappedSoftmax(3, 2.0).slope(np.array([[5.0], [0.0]]), np.array([1.0]))
    >>> round(float(np.linalg.norm(slope)), 9)
    1.0
    """

    margin: float = 0.0

    minimisable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "margin", check_margin(self.margin))

    @property
    def lipschitz(self) -> float:
        return 1 + 1e-12

    def slope(self, score: Array, target: Array) -> Array:
        scores, own = self.basis @ score, (target.astype(np.intp), np.arange(len(target)))
        scores[own] -= self.margin
        scores -= scores.max(axis=0)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=0)
        scores[own] -= 1
        scores /= np.maximum(np.sqrt(np.einsum("ij,ij->j", scores, scores)), 1.0)
        slopes: Array = self.basis.T @ scores
        return slopes

    def slope_rounding(self, score: float) -> float:
        # The margin taken away, and a norm of K squares and a division, each of numbers of at most 1 + margin.
        return super().slope_rounding(score + self.margin) + 2 * UNIT * (self.classes + 8)
