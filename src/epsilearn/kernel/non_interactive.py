"""The non-interactive model (Jain and Thakurta 2013, Algorithm 3): no public points are given, so they are sought."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from epsilearn.accounting import BoundedRange, Curve, LaplaceShift, ZeroConcentrated
from epsilearn.balls import decimal_up, round_up
from epsilearn.calibration.additive import most_sensitivity
from epsilearn.calibration.concentrated import concentrated_budget
from epsilearn.calibration.kernel import ball_spread, finite_spread, printed_rounds, rounds
from epsilearn.checks import check_choice, check_failure, check_integer, check_positive, check_size, within_doubles
from epsilearn.composition import Composite
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee
from epsilearn.kernel.erm import FeatureMinimum, KernelProblem, Minimum
from epsilearn.kernel.features import Identity
from epsilearn.kernel.hypothesis import Hypothesis
from epsilearn.kernel.kernels import Kernel
from epsilearn.kernel.model import Array, KernelLearner
from epsilearn.losses.interface import UNIT
from epsilearn.mechanisms.additive import add_noise, prepare_noise
from epsilearn.mechanisms.release import NoiseLaw, spending
from epsilearn.mechanisms.search import choose_in_ball, choose_index, prepare_choice
from epsilearn.progress import fitting

__all__ = ["NonInteractiveLearner", "ball_net"]

_MOST_CANDIDATES = 1_000_000
_MOST_PRINTED = 100_000  # a promise that names every round of more takes minutes to work out


class NonInteractiveLearner(KernelLearner):
    """A predictor built from points that are themselves chosen privately: where the hypothesis so far is off most.

    Parameters
    ----------
    candidates : collection of points, optional
        Public points to choose from, a net of the space for example (`ball_net`). The linear kernel needs none: points
        are then drawn exactly from the whole ball, in any dimension.
    failure : float
        The probability that the predictor is further off than ``tolerance_`` at some candidate.
    calibration : {"tight", "paper"}
        Rounds, noise and steps by this project's theorem, or Algorithm 3 as printed, with what is proven for it.
    norm : float, optional
        A public bound on the norm of the minimiser; by default one that always holds.
    kernel, loss, alpha, epsilon, delta, classes, target_bound, landmarks, rank, rows_per_person, ledger, \
random_state, verbose
        As for `GaussianProcessRelease`.

    Attributes
    ----------
    points_ : collection of points
        The points chosen.
    dual_coef_ : array
        Their coefficients: f(x) = sum of dual_coef_ times K(point, x).
    guarantee_ : Guarantee
        What was promised.
    tolerance_ : float
        With probability 1 - failure the predictor is at no candidate (nowhere in the ball, if there are none) further
        than this from the minimiser. For "paper" it is the printed sigma.
    alpha_ : float
        The regularisation used; public.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn.kernel import Linear, NonInteractiveLearner
    >>> generator = np.random.default_rng(0)
    >>> X = generator.normal(size=(20_000, 3)) / 4
    >>> model = NonInteractiveLearner(kernel=Linear(1.0), alpha=0.1, classes=[-1, 1]).fit(X, np.sign(X[:, 0]))
    >>> print(model.guarantee_)
    epsilon = 1, delta = 1e-06, per record, replace-one
    """

    points_: Any
    dual_coef_: Array
    tolerance_: float

    def __init__(
        self,
        *,
        candidates: Any = None,
        kernel: Kernel | None = None,
        loss: str = "logistic",
        alpha: float | str = "auto",
        epsilon: float = 1.0,
        delta: float = 1e-6,
        failure: float = 0.05,
        calibration: str = "tight",
        norm: float | None = None,
        classes: Any = None,
        target_bound: Any = None,
        landmarks: Any = None,
        rank: int | None = None,
        rows_per_person: int = 1,
        ledger: Any = None,
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        self.candidates = candidates
        self.kernel = kernel
        self.loss = loss
        self.alpha = alpha
        self.epsilon = epsilon
        self.delta = delta
        self.failure = failure
        self.calibration = calibration
        self.norm = norm
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
        if self._delta == 0:
            raise InvalidInput("the non-interactive learner needs delta > 0: its rounds are composed")
        check_failure(self.failure)

    def _learn(self, problem: KernelProblem, assumptions: tuple[str, ...]) -> None:
        space = self._space(problem)
        plan = (_plan_tight if self.calibration == "tight" else _plan_printed)(self, problem, space)
        prepare_noise(1, plan.law)
        promise = replace(plan.promise, assumptions=assumptions)
        with (
            fitting(self.verbose, problem.stability.certificate) as progress,
            spending(promise, self._account, self._purpose, self.random_state) as (source, stamped),
        ):
            function = _search(plan, space, problem, problem.solve(progress), source)
        self._function_, self.guarantee_, self.tolerance_ = function, stamped, plan.tolerance
        self.points_, self.dual_coef_ = function.points, function.coef

    def decision_function(self, X: Any) -> Array:
        """The predictor at any points; each is brought inside the kernel's bound as in training."""
        self._check_fitted()
        inside = self.kernel_.inside(self._points(X, public=False))
        return self._function_.values(*inside) + self._shift

    def _space(self, problem: KernelProblem) -> _Candidates | _Ball:
        if self.candidates is not None:
            points = self.kernel_.points(self.candidates, self._width_)
            self.kernel_.check_public(points)
            return _Candidates(self.kernel_, points)
        if isinstance(problem.features, Identity):
            return _Ball(self._width_, problem.bound)
        raise InvalidInput(
            "pass candidates=, public points to choose from (ball_net makes a net of a ball in few dimensions); only "
            "the linear kernel's ball can be drawn from without"
        )


@dataclass(frozen=True)
class _Candidates:
    """Finitely many public points."""

    kernel: Kernel
    points: Any

    def __post_init__(self) -> None:
        prepare_choice(self.kernel.count(self.points))

    @property
    def spread(self) -> Callable[[float], float]:
        return finite_spread(self.kernel.count(self.points))

    def sought(self, minimum: Minimum) -> Array:
        """The minimiser, as its values at the points."""
        return minimum.values(self.points)

    def choose(self, function: Hypothesis, sought: Array, exponent: float, most: float, source: Any) -> Any:
        """A point where the function is far from the minimiser."""
        # Cut off at more than it can ever be: then its rounding is bounded, whatever the hypothesis has become.
        off = np.minimum(np.abs(sought - function.values(self.points)), most)
        index = choose_index(off, round_up(1 / Fraction(exponent)), source)
        return self.kernel.part(self.points, slice(index, index + 1))


@dataclass(frozen=True)
class _Ball:
    """All points of a ball, for the linear kernel."""

    dimension: int
    radius: float

    @property
    def spread(self) -> Callable[[float], float]:
        return ball_spread(self.dimension)

    def sought(self, minimum: Minimum) -> Array:
        """The minimiser, as its weights."""
        assert isinstance(minimum, FeatureMinimum)
        return minimum.weights

    def choose(self, function: Hypothesis, sought: Array, exponent: float, most: float, source: Any) -> Any:  # noqa: ARG002
        """A point where the function is far from the minimiser."""
        weights = function.weights(self.dimension)
        off = [Fraction(float(a)) - Fraction(float(b)) for a, b in zip(weights, sought, strict=True)]
        return choose_in_ball(off, exponent, self.radius, source)[None]


@dataclass(frozen=True)
class _Plan:
    """What one round does. All of it is public.

    ``exponent`` is the exponential mechanism's; a round whose noisy distance is at most ``threshold`` changes nothing,
    and ends the search where ``stops``. ``step`` is the fixed step of the paper, None for the whole distance.
    """

    promise: Guarantee
    count: int
    exponent: float
    law: NoiseLaw
    threshold: float
    tolerance: float
    stops: bool
    step: float | None


def _search(
    plan: _Plan, space: _Candidates | _Ball, problem: KernelProblem, minimum: Minimum, source: Any
) -> Hypothesis:
    """Find where the hypothesis is off, move it there, and so on."""
    function = Hypothesis(problem.kernel, problem.features)
    sought, most = space.sought(minimum), _most_distance(problem)
    for _ in range(plan.count):
        point = space.choose(function, sought, plan.exponent, most, source)
        distance = Fraction(float(minimum.values(point)[0])) - Fraction(float(function.values(point)[0]))
        noisy = float(add_noise([distance], plan.law, source)[0])
        if abs(noisy) <= plan.threshold:
            if plan.stops:
                break
            continue
        square = float(function.squares(point)[0])
        move = function.move(noisy, square) if plan.step is None else math.copysign(plan.step, noisy)
        function.add(point, np.array([move]))
    return function


def _most_distance(problem: KernelProblem) -> float:
    return 8 * problem.stability.norm * problem.bound


def _sensitivity(learner: NonInteractiveLearner, problem: KernelProblem) -> float:
    """How far a distance can move when a person's records are replaced, points a little beyond the bound included."""
    stability = problem.stability
    # A distance is rounded once where it becomes a score.
    moves = stability.value_sensitivity(problem.bound * (1 + 2.0**-19)) + 4 * UNIT * _most_distance(problem)
    return round_up(most_sensitivity(moves, learner._people))


@within_doubles()
def _plan_tight(learner: NonInteractiveLearner, problem: KernelProblem, space: _Candidates | _Ball) -> _Plan:
    rho = concentrated_budget(learner._epsilon, learner._delta)
    if not rho > 0:
        raise InvalidInput("the budget is too small for a search; raise epsilon or delta")
    sensitivity, stability = _sensitivity(learner, problem), problem.stability
    norm = stability.norm if learner.norm is None else min(stability.norm, check_size("norm", learner.norm))
    found = rounds(sensitivity, rho, norm, problem.bound, space.spread, learner.failure)
    promise = Guarantee(
        learner._epsilon,
        learner._delta,
        mechanism="non-interactive kernel learner",
        theorem="exponential mechanism and Gaussian noise in each round, in zCDP",
        rows_per_person=learner._people,
        curve=ZeroConcentrated(rho),
    )
    exponent = found.each / (2 * sensitivity) * (1 - 1e-12)
    law = NoiseLaw("gaussian", found.deviation)
    return _Plan(promise, found.count, exponent, law, found.threshold, found.tolerance, stops=True, step=None)


@within_doubles()
def _plan_printed(learner: NonInteractiveLearner, problem: KernelProblem, space: _Candidates | _Ball) -> _Plan:  # noqa: ARG001
    found = printed_rounds(
        problem.n, problem.strength, problem.loss.lipschitz, problem.bound, learner._epsilon, learner._delta,
        learner.failure,
    )  # fmt: skip
    if found.count > _MOST_PRINTED:
        raise InvalidInput(
            f"with calibration='paper' these settings lead to more than {_MOST_PRINTED} rounds, each of which the "
            "promise counts; ask for a smaller epsilon, or use 'tight'"
        )
    sensitivity = Fraction(_sensitivity(learner, problem))
    parts: tuple[Curve, ...] = (
        BoundedRange(round_up(2 * sensitivity * Fraction(found.exponent))),
        LaplaceShift(round_up(2 * sensitivity * Fraction(found.rate))),
    )
    curve = Composite((parts[0],) * found.count + (parts[1],) * found.count)
    promise = Guarantee(
        decimal_up(Fraction(max(curve.epsilon(learner._delta), 1e-12))),
        learner._delta,
        mechanism="non-interactive kernel learner as printed",
        theorem="as printed in 2013; by composing its rounds",
        rows_per_person=learner._people,
        curve=curve,
        claimed_epsilon=learner._epsilon,
    )
    law = NoiseLaw("laplace", 1 / (2 * found.rate) * (1 + 1e-12))
    return _Plan(
        promise, found.count, found.exponent, law, found.tolerance, found.tolerance, stops=False, step=found.step
    )


def ball_net(dimension: int, radius: float, spacing: float) -> Array:
    """Points of a grid such that every point of the ball is within ``spacing`` of one of them.

    Examples
    --------
    >>> ball_net(1, 1.0, 0.25).ravel().round(6).tolist()
    [-1.0, -0.5, 0.0, 0.5, 1.0]
    """
    dimension, radius = check_integer("dimension", dimension), check_positive("radius", radius)
    # A cube of this side has its corners within the spacing of its centre.
    side = 2 * check_positive("spacing", spacing) / math.sqrt(dimension)
    # Before the ratio becomes an integer, which it cannot where it is beyond the doubles.
    reach = math.ceil(min(radius / side, float(_MOST_CANDIDATES))) if side else _MOST_CANDIDATES
    if (2 * reach + 1) ** dimension > _MOST_CANDIDATES:
        raise InvalidInput(
            f"a net of {dimension} dimensions as fine as {spacing:g} has more than {_MOST_CANDIDATES} points; use a "
            "wider one, or give candidates of your own"
        )
    ticks = side * np.arange(-reach, reach + 1)
    grid = np.array(list(itertools.product(ticks, repeat=dimension)))
    norms = np.linalg.norm(grid, axis=1)
    # Cells that reach into the ball from outside keep their nearest point inside it.
    near = norms <= radius + spacing
    factors = np.minimum(1.0, radius * (1 - 2.0**-40) / np.maximum(norms[near], 1e-300))
    # Points that differ by rounding alone are one.
    return radius * np.unique((grid[near] * factors[:, None] / radius).round(14), axis=0)
