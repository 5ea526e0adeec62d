"""The semi-interactive model (Jain and Thakurta 2013, Algorithm 2): public points in, a releasable predictor out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import brentq

from epsilearn.accounting import GaussianShift, LaplaceShift, Pure
from epsilearn.balls import round_up
from epsilearn.calibration.additive import gaussian_scale, laplace_scale, most_sensitivity
from epsilearn.checks import check_choice
from epsilearn.composition import Composite
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee
from epsilearn.kernel.erm import KernelProblem
from epsilearn.kernel.features import NOTHING
from epsilearn.kernel.hypothesis import Hypothesis
from epsilearn.kernel.kernels import Kernel
from epsilearn.kernel.model import Array, KernelLearner
from epsilearn.losses.interface import UNIT
from epsilearn.mechanisms.additive import add_noise, prepare_noise
from epsilearn.mechanisms.release import NoiseLaw, spending
from epsilearn.progress import fitting

__all__ = ["SemiInteractiveLearner", "laplace_each", "public_whitening"]

# How much noise the rounding of values, and of the whitening, may add.
_ROUNDING_SHARE = 0.01
_TOO_SHORT = "the public points' features are too short to learn from; choose others"


class SemiInteractiveLearner(KernelLearner):
    """A private minimiser seen through its noisy values at public points: a predictor that can be sent to anyone.

    What is released is a coefficient for each public point, and nothing else.

    Parameters
    ----------
    public_points : collection of points
        Unlabelled points, best from where predictions will be asked for.
    calibration : {"tight", "paper"}
        Noise in the span of the points' features, whose size does not grow with their number; or, as printed,
        independent Laplace noise in each value (its scale from exact composition, since none is printed) and least
        squares over a ball.
    kernel, loss, alpha, epsilon, delta, classes, target_bound, landmarks, rank, rows_per_person, ledger, \
random_state, verbose
        As for `GaussianProcessRelease`. ``delta=0`` gives a pure promise.

    Attributes
    ----------
    points_ : collection of points
        The public points.
    dual_coef_ : array
        Their coefficients: f(x) = sum of dual_coef_ times K(point, x).
    guarantee_ : Guarantee
        What was promised.
    noise_ : NoiseLaw
        The noise in each direction, or in each value; public.
    alpha_ : float
        The regularisation used; public.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn.kernel import RBF, SemiInteractiveLearner
    >>> generator = np.random.default_rng(0)
    >>> X, Z = generator.normal(size=(2000, 2)), generator.normal(size=(50, 2))
    >>> model = SemiInteractiveLearner(kernel=RBF(0.5), public_points=Z, alpha=0.01, classes=[False, True])
    >>> model.fit(X, X[:, 0] > 0).dual_coef_.shape
    (50,)
    """

    noise_: NoiseLaw
    points_: Any
    dual_coef_: Array

    def __init__(
        self,
        *,
        public_points: Any = None,
        kernel: Kernel | None = None,
        loss: str = "logistic",
        alpha: float | str = "auto",
        epsilon: float = 1.0,
        delta: float = 1e-6,
        calibration: str = "tight",
        classes: Any = None,
        target_bound: Any = None,
        landmarks: Any = None,
        rank: int | None = None,
        rows_per_person: int = 1,
        ledger: Any = None,
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        self.public_points = public_points
        self.kernel = kernel
        self.loss = loss
        self.alpha = alpha
        self.epsilon = epsilon
        self.delta = delta
        self.calibration = calibration
        self.classes = classes
        self.target_bound = target_bound
        self.landmarks = landmarks
        self.rank = rank
        self.rows_per_person = rows_per_person
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def _check_settings(self) -> None:
        check_choice("calibration", self.calibration, ("tight", "paper"))
        if self.public_points is None:
            raise InvalidInput("pass public_points=, unlabelled points that may be known to anyone")

    def _learn(self, problem: KernelProblem, assumptions: tuple[str, ...]) -> None:
        points = self.kernel_.points(self.public_points, self._width_)
        self.kernel_.check_public(points)
        function = Hypothesis(self.kernel_, problem.features)
        plan = (_plan_tight if self.calibration == "tight" else _plan_printed)(self, problem, function.gram(points))
        promise = replace(
            plan.promise, assumptions=(*assumptions[:-1], "the public points are public", assumptions[-1])
        )
        prepare_noise(self.kernel_.count(points), plan.law)
        with (
            fitting(self.verbose, problem.stability.certificate) as progress,
            spending(promise, self._account, self._purpose, self.random_state) as (source, stamped),
        ):
            minimum = problem.solve(progress)
            noisy = add_noise(plan.released(minimum.values(points)), plan.law, source)
        function.add(points, plan.coefficients(noisy))
        self._function_, self.guarantee_, self.noise_ = function, stamped, plan.law
        self.points_, self.dual_coef_ = points, function.coef

    def decision_function(self, X: Any) -> Array:
        """The predictor at any points; each is brought inside the kernel's bound as in training."""
        self._check_fitted()
        inside = self.kernel_.inside(self._points(X, public=False))
        return self._function_.values(*inside) + self._shift


@dataclass(frozen=True)
class _TightPlan:
    """Values are turned into coordinates along orthogonal directions, which get isotropic noise."""

    promise: Guarantee
    law: NoiseLaw
    whitening: Array
    norm: float

    def released(self, values: Array) -> Array:
        coordinates: Array = self.whitening @ values
        return coordinates

    def coefficients(self, noisy: Array) -> Array:
        length = float(np.linalg.norm(noisy))
        coefficients: Array = self.whitening.T @ (noisy * min(1.0, self.norm / length) if length else noisy)
        return coefficients


def _plan_tight(learner: SemiInteractiveLearner, problem: KernelProblem, gram: Array) -> _TightPlan:
    stability, count = problem.stability, len(gram)
    # A coordinate adds up as many values as there are points, none larger than this.
    error = stability.value_error + 1.01 * (count + 2) * UNIT * stability.norm * problem.bound
    whitening, stretch = public_whitening(gram, _gram_error(problem), stability.sensitivity / error)
    rounding = _frobenius(whitening) * math.sqrt(count) * error
    sensitivity = (stretch * stability.sensitivity + 2 * rounding) * (1 + 1e-9)
    people = learner._people
    if learner._delta:
        scale = gaussian_scale(sensitivity, learner._epsilon, learner._delta, people)
        law = NoiseLaw("gaussian", scale, len(whitening))
        shift = round_up(most_sensitivity(sensitivity, people) / Fraction(law.scale))
        curve: Any = GaussianShift(shift)
    else:
        law = NoiseLaw("k-norm", laplace_scale(sensitivity, learner._epsilon, people), len(whitening))
        curve = Pure(learner._epsilon)
    promise = Guarantee(
        learner._epsilon,
        learner._delta,
        mechanism="semi-interactive kernel learner",
        theorem="noise in the span of public points; the minimiser's own norm",
        rows_per_person=people,
        curve=curve,
    )
    return _TightPlan(promise, law, whitening, stability.norm)


def public_whitening(gram: Array, error: float, room: float) -> tuple[Array, float]:
    """A with A K A' = 1, nearly, on the directions that floats can tell apart, and a rigorous s >= ||A K A'||**(1/2).

    ``error`` bounds that of each entry of ``gram``, and ``room`` is how many times a value's error fits into the
    sensitivity: a direction along which that would add more than a hundredth of noise is left out. All of it is public.

    Examples
    --------
    >>> whitening, stretch = public_whitening(np.array([[2.0, 0.0], [0.0, 0.5]]), 1e-15, 1e9)
    >>> np.allclose(whitening @ np.diag([2.0, 0.5]) @ whitening.T, np.eye(2)), 1 <= stretch < 1 + 1e-10
    (True, True)
    """
    count = len(gram)
    sizes, directions = eigh(gram)
    sizes, directions = sizes[::-1], directions[:, ::-1]
    least = max(
        4 * count**2 / (_ROUNDING_SHARE * room) ** 2,
        count * (error + 4 * count * UNIT * float(np.abs(gram).max())) / _ROUNDING_SHARE,
    )
    kept = int((sizes > least).sum())
    if not kept:
        raise InvalidInput(_TOO_SHORT)
    whitening = (directions[:, :kept] / np.sqrt(sizes[:kept])).T
    product = whitening @ gram @ whitening.T
    rounding = 1.01 * (2 * count + 4) * UNIT * _frobenius(np.abs(whitening) @ np.abs(gram) @ np.abs(whitening).T)
    off = _frobenius(product - np.eye(kept)) * (1 + 1e-9) + rounding
    largest = float(np.linalg.norm(whitening, 2)) ** 2 * (1 + 1e-9)
    return whitening, math.sqrt(1 + off + largest * count * error) * (1 + 1e-12)


def _gram_error(problem: KernelProblem) -> float:
    if problem.features is not None:
        return 1.01 * (problem.features.columns + 4) * UNIT * problem.bound**2
    return problem.kernel.rounding(problem.kernel.width(problem.points))


def _frobenius(matrix: Array) -> float:
    return float(np.linalg.norm(matrix))


@dataclass(frozen=True)
class _PrintedPlan:
    """Independent Laplace noise in each value, then least squares over a ball."""

    promise: Guarantee
    law: NoiseLaw
    gram: Array
    norm: float

    def released(self, values: Array) -> Array:
        return values

    def coefficients(self, noisy: Array) -> Array:
        return least_squares_in_ball(self.gram, noisy, self.norm)


def _plan_printed(learner: SemiInteractiveLearner, problem: KernelProblem, gram: Array) -> _PrintedPlan:
    sensitivity = problem.stability.value_sensitivity(problem.bound)
    count, people = len(gram), learner._people
    if not np.diagonal(gram).max() > NOTHING * problem.bound**2:
        raise InvalidInput(_TOO_SHORT)
    if learner._delta:
        each = laplace_each(count, learner._epsilon, learner._delta)
        curve: Any = Composite((LaplaceShift(each),) * count)
    else:
        each = learner._epsilon / count * (1 - 1e-12)
        curve = Pure(learner._epsilon)
    law = NoiseLaw("laplace", laplace_scale(sensitivity, each, people), 1)
    promise = Guarantee(
        learner._epsilon,
        learner._delta,
        mechanism="semi-interactive kernel learner as printed",
        theorem="independent Laplace noise, composed exactly",
        rows_per_person=people,
        curve=curve,
    )
    return _PrintedPlan(promise, law, gram, problem.stability.norm)


@lru_cache(maxsize=64)
def laplace_each(count: int, epsilon: float, delta: float) -> float:
    """The largest epsilon, to four digits, of so many Laplace releases that compose to (epsilon, delta)."""
    low, high = epsilon / count * (1 - 1e-12), epsilon
    while high - low > 1e-4 * low:
        middle = math.sqrt(low * high)
        fits = Composite((LaplaceShift(middle),) * count).epsilon(delta) <= epsilon
        low, high = (middle, high) if fits else (low, middle)
    return low


def least_squares_in_ball(gram: Array, values: Array, radius: float) -> Array:
    """Coefficients of the function of norm at most ``radius`` that is closest to ``values`` at the points.

    Along an eigenvector of size s the function's coordinate is sqrt(s) c / (s + m), m the least number at which the
    norm fits.
    """
    sizes, directions = eigh(gram)
    largest = float(sizes[-1])
    if not largest > 0:
        return np.zeros(len(gram))
    kept = sizes > largest * len(gram) * 1e-13
    # In units of the largest size, and of the largest value that the ball allows: nothing then leaves the doubles.
    sizes, directions = sizes[kept] / largest, directions[:, kept]
    wanted = directions.T @ (values / (radius * math.sqrt(largest)))

    def length(multiplier: float) -> float:
        return float(np.linalg.norm(np.sqrt(sizes) * wanted / (sizes + multiplier)))

    multiplier = 0.0
    if length(0.0) > 1:
        # Beyond this the norm certainly fits, rounding included.
        most = 2 * float(np.linalg.norm(np.sqrt(sizes) * wanted))
        multiplier = float(brentq(lambda m: length(m) - 1, 0.0, most, xtol=1e-300, rtol=1e-12))
    coefficients: Array = directions @ (wanted / (sizes + multiplier)) * (radius / math.sqrt(largest))
    return coefficients
