"""What every loss knows of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from flint import arb
from numpy.typing import NDArray

__all__ = ["UNIT", "Array", "Loss"]

Array = NDArray[np.float64]

UNIT = 2.0**-53  # the relative error of one rounding


@dataclass(frozen=True)
class Loss:
    """A convex loss of a record's scores, of which most have one.

    Scores come as an array of shape (n,), or (outputs, n) where there are several for each record.
    """

    classifies: ClassVar[bool] = True
    #: Whether slopes can be had in ball arithmetic, so that no noise in an objective is too large for the solver.
    exact: ClassVar[bool] = True
    #: Whether slopes are those of one convex function. Otherwise there is no minimiser to release, only a descent.
    minimisable: ClassVar[bool] = True

    #: Whether no two gradients are farther apart than those of rows mirrored at the weights, which output perturbation
    #: then makes use of: a theorem of ``docs/theory/output.md`` about some losses, and false for others.
    mirrored: ClassVar[bool] = False

    @property
    def two_sided(self) -> bool:
        """Whether a record's slope can have either sign, depending on the weights.

        Slopes of one sign need less Gaussian noise in the objective. That is a claim about a loss, classifying or not,
        so only a loss that says no, with its proof, is taken to have them.
        """
        return True

    @property
    def outputs(self) -> int:
        """How many scores a record has."""
        return 1

    @property
    def rank(self) -> int:
        """The rank of one record's Hessian."""
        return self.outputs

    @property
    def kept(self) -> int:
        """How many numbers a record's curvature takes."""
        return 1

    @property
    def lipschitz(self) -> float:
        """The largest size of the slope over all scores and allowed targets."""
        raise NotImplementedError

    @property
    def smoothness(self) -> float:
        """The largest curvature."""
        raise NotImplementedError

    @property
    def at_zero(self) -> float:
        """The largest value at score 0 over all allowed targets; infinite if the loss is negative anywhere."""
        raise NotImplementedError

    def value(self, score: Array, target: Array) -> Array:
        raise NotImplementedError

    def slope(self, score: Array, target: Array) -> Array:
        """The derivative in the score."""
        raise NotImplementedError

    def curvature(self, score: Array, target: Array) -> Array:
        """What `bend` needs: the second derivative in the score; where it jumps, either side's."""
        raise NotImplementedError

    def bend(self, curvature: Array, change: Array) -> Array:
        """The second derivative times a change of the scores."""
        return curvature * change

    def weights(self, curvature: Array) -> Array:
        """Each record's mean curvature, for steering a solver."""
        return curvature

    def smoother(self, factor: float) -> tuple[Loss, float]:  # noqa: ARG002 - most have no kinks
        """A loss whose kinks are so many times as wide, or as wide as makes sense; and how many times this one it is.

        For steering a solver.
        """
        return self, 1.0

    def slopes_in_balls(self, scores: list[arb], target: arb) -> list[arb]:
        """The derivative in ball arithmetic."""
        return [self.slope_in_balls(scores[0], target)]

    def slope_in_balls(self, score: arb, target: arb) -> arb:
        """The same for a loss of one score."""
        raise NotImplementedError

    def slope_rounding(self, score: float) -> float:
        """A bound on the rounding of `slope` at scores of at most this size."""
        # exp in the C library errs by less than one unit in the last place; the slope adds two roundings more.
        return 8 * UNIT * (1 + min(self.lipschitz, self.steepest(score)))

    @property
    def mean_curvature(self) -> float:
        """The largest curvature, as a mean over the ``rank`` directions in which a record curves the objective."""
        return self.smoothness

    def curvature_at(self, slope: Any) -> Any:  # noqa: ARG002 - without a trade-off it does not matter
        """The largest mean curvature at points (or limits of points) whose slope has size ``slope``.

        Concave in the slope, and takes arrays of slopes.
        """
        return self.mean_curvature

    def steepest(self, score: float) -> float:  # noqa: ARG002
        """The largest size of the slope at scores of size ``score``."""
        return self.lipschitz

    def check_scores(self, largest: float) -> None:
        """Refuse to be used for scores of up to this size, before any record is looked at."""

    def pull(self, score: float) -> float:
        """The largest -<s, slope(s)> for scores s of at most this size: how hard one record can push w outwards."""
        return self.lipschitz * score
