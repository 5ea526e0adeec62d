"""The non-private minimiser w* = sum of m_i phi(x_i), with a certificate, and how far it can move.

It is found from the Gram matrix of up to 20,000 points, or in a finite feature map: monomials for polynomial kernels,
the span of public landmarks for any. Either way a `KernelProblem` knows, from public numbers alone, how far the
computed minimiser moves when one record is replaced, and how exact its values are. Nothing here is private yet.
Proofs: ``docs/theory/kernels.md``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn.calibration.fit import stable_minimiser
from epsilearn.calibration.output import norm_bound
from epsilearn.checks import within_doubles
from epsilearn.errors import ConvergenceError, InvalidInput
from epsilearn.kernel.features import FeatureMap
from epsilearn.kernel.kernels import PUBLIC_SLACK, Kernel
from epsilearn.kernel.objects import is_positive
from epsilearn.losses import Loss
from epsilearn.losses.interface import UNIT
from epsilearn.quiet import quietly
from epsilearn.rows import Bounds, as_rows
from epsilearn.rows.interface import Rows
from epsilearn.solvers import Problem, minimise
from epsilearn.solvers.dual import DualProblem, dual_rounding, minimise_dual

__all__ = ["MOST_GRAM_ROWS", "FeatureProblem", "GramProblem", "KernelProblem", "Minimum", "Stability"]

Array = NDArray[np.float64]
Progress = Callable[[float], None] | None

MOST_GRAM_ROWS = 20_000
# How much noise the solver's error may add: a thousandth, which costs a Newton step at most.
_SOLVER_SHARE = 0.001


@dataclass(frozen=True)
class Stability:
    """What is public about a minimiser that has not been computed yet.

    Attributes
    ----------
    sensitivity : float
        How far the computed minimiser can move, in the kernel's norm, when one record is replaced.
    certificate : float
        The gradient norm the solver must reach; the sensitivity counts it.
    value_error : float
        A bound on the rounding of one of its values at a public point.
    norm : float
        A bound on its norm.
    norm_error : float
        A bound on the rounding of its computed norm, where that is at least ``norm_floor``.
    """

    sensitivity: float
    certificate: float
    value_error: float
    norm: float
    norm_error: float

    @property
    def norm_floor(self) -> float:
        """A hundredth of the bound: roots of numbers near zero are not exact."""
        return self.norm / 100

    def value_sensitivity(self, bound: float) -> float:
        """How far one computed value at a public point can move: one that is no longer than this, in floats."""
        return (self.sensitivity * bound * PUBLIC_SLACK + 2 * self.value_error) * (1 + 1e-12)


class Minimum(ABC):
    """The minimiser. It is private: only its values leave, through the door."""

    @property
    @abstractmethod
    def coef(self) -> Array:
        """The numbers it is made of: weights of features, or of private points."""

    @abstractmethod
    def values(self, points: Any) -> Array:
        """<w*, phi(z)> at public points, however many."""

    @abstractmethod
    def norm(self) -> float:
        """||w*||, in floats."""


class KernelProblem(ABC):
    """A regularised loss over a kernel's functions, on private records."""

    kernel: Kernel
    features: FeatureMap | None = None
    points: Any
    target: Array
    loss: Loss
    strength: float
    n: int
    bound: float

    @property
    @abstractmethod
    def stability(self) -> Stability:
        """How far the minimiser can move: public."""

    @abstractmethod
    def solve(self, progress: Progress = None) -> Minimum:
        """Find the minimiser, certified."""

    @abstractmethod
    def minimum(self, coef: Array) -> Minimum:
        """The minimiser with these numbers, found earlier."""

    def with_strength(self, strength: float) -> KernelProblem:
        """The same problem, on the same records, with another regularisation."""
        other = copy(self)
        other.strength = strength
        return other


class FeatureProblem(KernelProblem):
    """The problem over a finite feature map.

    Parameters
    ----------
    features : FeatureMap
        Public.
    points : collection of points
        The private ones, as the kernel has checked them.
    target : array
        Labels -1 and 1, or numbers.
    loss : Loss
        Of one score.
    strength : float
        The regularisation.
    """

    features: FeatureMap

    def __init__(self, features: FeatureMap, points: Any, target: Array, loss: Loss, strength: float) -> None:
        self.features, self.kernel = features, features.kernel
        self.loss, self.strength, self.bound = loss, strength, features.bound
        self.points, self.target = points, target
        self.rows: Rows = as_rows(features.private_table(points), target, Bounds(features.bound, intercept=0.0))
        self.n = self.rows.n

    @property
    @within_doubles()
    def stability(self) -> Stability:
        certificate, sensitivity = stable_minimiser(
            self.loss, self.n, self.rows.norm, self.strength, self.rows.rounding, tight=True, share=_SOLVER_SHARE
        )
        norm = norm_bound(self.loss, self.rows.norm, self.strength)
        size = norm + certificate / self.strength
        # Weights beyond the precision of doubles are rounded to them.
        sensitivity = (sensitivity + 2 * UNIT * size) * (1 + 1e-12)
        error = 1.01 * (self.features.columns + 4) * UNIT * size * self.bound
        return Stability(sensitivity, certificate, error, norm, 1.01 * (self.features.columns + 4) * UNIT * size)

    def solve(self, progress: Progress = None) -> FeatureMinimum:
        problem = Problem(self.rows, self.loss, self.strength)
        found = minimise(problem, self.stability.certificate, progress=progress)
        return self.minimum(np.array([float(c) for c in found.coef]))

    def minimum(self, coef: Array) -> FeatureMinimum:
        return FeatureMinimum(self.features, coef)


@dataclass(frozen=True)
class FeatureMinimum(Minimum):
    """A vector of weights for the features."""

    features: FeatureMap
    weights: Array

    @property
    def coef(self) -> Array:
        return self.weights

    def values(self, points: Any) -> Array:
        return self.features.scores(points, self.weights)

    def norm(self) -> float:
        return float(np.linalg.norm(self.weights))


class GramProblem(KernelProblem):
    """The problem through the kernel alone: all values between up to 20,000 points.

    Parameters
    ----------
    kernel : Kernel
        Any; private points are brought inside its bound.
    points, target, loss, strength
        As for `FeatureProblem`.
    """

    def __init__(self, kernel: Kernel, points: Any, target: Array, loss: Loss, strength: float) -> None:
        self.kernel, self.loss, self.strength, self.bound = kernel, loss, strength, kernel.bound
        self.n = kernel.count(points)
        if self.n > MOST_GRAM_ROWS:
            raise InvalidInput(
                f"{self.n} rows are too many for a Gram matrix; pass landmarks=, public points whose features span "
                f"the model, or at most {MOST_GRAM_ROWS} rows"
            )
        self.points, self.target = points, target
        self._points, self._factors = kernel.inside(points)
        self._values: Array | None = None
        self._is_kernels = True
        self._width = kernel.width(points)

    @property
    @within_doubles()
    def stability(self) -> Stability:
        gram = self._public_gram()

        def rounding(loss: Loss, reach: float) -> float:
            return dual_rounding(loss, gram, self.strength, 1.01 * loss.lipschitz / self.strength, self.bound * reach)

        certificate, sensitivity = stable_minimiser(
            self.loss, self.n, self.bound, self.strength, rounding, tight=True, share=_SOLVER_SHARE
        )
        # strength m_i = r_i - slope_i / n, and the r_i sum to at most certificate / R.
        size = (self.loss.lipschitz + certificate / self.bound) / self.strength
        norm = norm_bound(self.loss, self.bound, self.strength)
        # The square is m'Km; a root moves by at most the square's error over twice the floor.
        norm_error = 1.01 * size**2 * (gram.error + 2 * self.n * UNIT * self.bound**2) / (2 * norm / 100)
        return Stability(sensitivity, certificate, 1.01 * size * gram.error, norm, norm_error)

    def solve(self, progress: Progress = None) -> GramMinimum:
        gram = self._public_gram()
        gram.values = self._gram_values() if self._values is None else self._values
        coef = self._solution(DualProblem(gram, self.target, self.loss, self.strength), progress)
        norm = math.sqrt(max(0.0, float(coef @ gram.product(coef))))
        return self.minimum(coef, norm)

    def _solution(self, problem: DualProblem, progress: Progress) -> Array:
        """The minimiser's coefficients; zeros where a function that is no kernel's leaves none to be found.

        That it is one is what the guarantee assumes of somebody else's function. Where that is not so, some record
        would decide whether there is an answer or an error; there is always an answer.
        """
        try:
            if self._is_kernels:
                return minimise_dual(problem, self.stability.certificate, progress=progress).coef
        except (ConvergenceError, ArithmeticError):
            if self.kernel.total is self.kernel:
                raise
        return np.zeros(self.n)

    @quietly()
    def look(self) -> None:
        """Compute all kernel values beforehand: somebody else's function may take long."""
        self._values = self._gram_values()
        # Errors of so many entries move an eigenvalue by at most this.
        self._is_kernels = is_positive(self._values, 4 * self.n * self._public_gram().error)

    def minimum(self, coef: Array, norm: float = math.nan) -> GramMinimum:
        # Twice what the sum of a minimiser's coefficients can be.
        most = 2 * self.loss.lipschitz / self.strength * self.bound**2
        return GramMinimum(self.kernel.total, self._points, coef, self._factors, norm, most)

    def _gram_values(self) -> Array:
        values = np.empty((self.n, self.n))
        for here, block in self.kernel.total.blocks(self._points, self._points):
            values[here] = block
        values *= self._factors
        values *= self._factors[:, None]
        return self.kernel.total.within(values)

    def _public_gram(self) -> _GramMatrix:
        value = self.kernel.rounding(self._width) + 4 * UNIT * self.bound**2
        return _GramMatrix(self.n, self.bound, value + 1.01 * (self.n + 2) * UNIT * self.bound**2)


@dataclass
class _GramMatrix:
    """What the solver sees. A product adds n terms; each value is off by the kernel's own rounding."""

    n: int
    norm: float
    error: float
    values: Array | None = None

    def product(self, vector: Array) -> Array:
        assert self.values is not None
        product: Array = self.values @ vector
        return product


@dataclass(frozen=True)
class GramMinimum(Minimum):
    """A coefficient for each private point."""

    kernel: Kernel
    points: Any
    multipliers: Array
    factors: Array
    length: float
    most: float = math.inf

    @property
    def coef(self) -> Array:
        return self.multipliers

    @quietly()
    def values(self, points: Any) -> Array:
        sums = self.kernel.sums(points, self.points, self.multipliers * self.factors)
        # No kernel has larger ones, and what leaves must be a number whatever a record makes of somebody's function.
        return np.nan_to_num(np.clip(sums, -self.most, self.most), nan=0.0)

    def norm(self) -> float:
        return self.length
