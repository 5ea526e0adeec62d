"""The interactive model (Jain and Thakurta 2013, Algorithm 1): a trusted learner answers points as they come."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import stats

from epsilearn.accounting import LaplaceShift, Pure, ZeroConcentrated
from epsilearn.balls import decimal_down, decimal_up, exact, round_up
from epsilearn.calibration.additive import laplace_scale, most_sensitivity
from epsilearn.calibration.concentrated import concentrated_budget
from epsilearn.calibration.kernel import PrintedSession, SparseSession, printed_session, sparse_session
from epsilearn.checks import check_choice, check_failure, check_integer, check_share, check_size, within_doubles
from epsilearn.composition import Composite
from epsilearn.errors import InvalidInput, StateError
from epsilearn.guarantee import Guarantee
from epsilearn.kernel.erm import KernelProblem, Minimum, Stability
from epsilearn.kernel.hypothesis import Hypothesis
from epsilearn.kernel.kernels import Kernel
from epsilearn.kernel.model import Array, KernelLearner
from epsilearn.mechanisms import AboveThreshold
from epsilearn.mechanisms.additive import add_noise
from epsilearn.mechanisms.release import NoiseLaw, spending
from epsilearn.mechanisms.selection import LiveMechanism
from epsilearn.progress import fitting

__all__ = ["Answer", "InteractiveLearner"]

_MOST_QUESTIONS = 10**18
_MOST_PRINTED = 100_000  # a promise that names every one of more takes minutes to work out
PRIVATE_MODEL, PUBLIC_HYPOTHESIS = "private model", "public hypothesis"


@dataclass(frozen=True)
class Answer:
    """One answer of a session.

    Attributes
    ----------
    value : float
        The prediction.
    source : {"private model", "public hypothesis"}
        Where it came from. The hypothesis is a function of earlier answers alone.
    updates_left : int
        How many more answers may come from the private model.
    questions_left : int
        How many more questions the session takes.
    """

    value: float
    source: str
    updates_left: int
    questions_left: int


class InteractiveLearner(KernelLearner):
    """A session that answers points one at a time or in batches, and pays only where a public hypothesis is off.

    Parameters
    ----------
    questions : int
        How many points will be asked at most; a promise of accuracy needs to know. Public.
    failure : float
        The probability that some answer is further off than ``tolerance_``.
    calibration : {"tight", "paper"}
        The sparse vector technique with Gaussian answers, or Algorithm 1 as printed, with what is proven for it.
    norm : float, optional
        A public bound on the norm of the minimiser; by default one that always holds.
    estimate_norm : float
        The share of epsilon to spend on a private estimate of that norm instead; only for "tight".
    kernel, loss, alpha, epsilon, delta, classes, target_bound, landmarks, rank, rows_per_person, ledger, \
random_state, verbose
        As for `GaussianProcessRelease`.

    Attributes
    ----------
    guarantee_ : Guarantee
        What was promised, for the whole session.
    session_ : SparseSession or PrintedSession
        Its public constants.
    tolerance_ : float
        With probability 1 - failure no answer is further than this from the minimiser's. For "paper" it is the printed
        sigma; only a quarter more is proven.
    alpha_ : float
        The regularisation used; public.

    Notes
    -----
    When all updates are spent the session goes on answering from the hypothesis and says so. After ``questions``
    points it ends.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn.kernel import InteractiveLearner, Linear
    >>> generator = np.random.default_rng(0)
    >>> X = generator.normal(size=(5000, 3)) / 4
    >>> learner = InteractiveLearner(kernel=Linear(1.0), alpha=0.1, questions=100, classes=[-1, 1])
    >>> answer = learner.fit(X, np.sign(X[:, 0])).ask(np.array([[0.5, 0.0, 0.0]]))[0]
    >>> answer.questions_left, answer.source in ("private model", "public hypothesis")
    (99, True)
    """

    def __init__(
        self,
        *,
        kernel: Kernel | None = None,
        loss: str = "logistic",
        alpha: float | str = "auto",
        epsilon: float = 1.0,
        delta: float = 1e-6,
        questions: int = 10_000,
        failure: float = 0.05,
        calibration: str = "tight",
        norm: float | None = None,
        estimate_norm: float = 0.0,
        classes: Any = None,
        target_bound: Any = None,
        landmarks: Any = None,
        rank: int | None = None,
        rows_per_person: int = 1,
        ledger: Any = None,
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        self.kernel = kernel
        self.loss = loss
        self.alpha = alpha
        self.epsilon = epsilon
        self.delta = delta
        self.questions = questions
        self.failure = failure
        self.calibration = calibration
        self.norm = norm
        self.estimate_norm = estimate_norm
        self.classes = classes
        self.target_bound = target_bound
        self.landmarks = landmarks
        self.rank = rank
        self.rows_per_person = rows_per_person
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, problem: KernelProblem, assumptions: tuple[str, ...]) -> None:
        plan = _plan(self, problem)
        promise = replace(plan.promise, assumptions=assumptions)
        with (
            fitting(self.verbose, problem.stability.certificate) as progress,
            spending(promise, self.ledger, self._purpose, self.random_state) as (source, stamped),
        ):
            minimum = problem.solve(progress)
            session = plan.open(minimum, source)
        self._session_, self.guarantee_ = session, stamped
        self.session_, self.tolerance_ = session.constants, session.constants.tolerance

    def ask(self, X: Any) -> list[Answer]:
        """An answer for each point, in order. Each point counts as a question, also when it is asked again."""
        self._check_fitted()
        points = self._points(X, public=True)
        return [replace(answer, value=answer.value + self._shift) for answer in self._session_.ask(points)]

    def decision_function(self, X: Any) -> Array:
        """The answers' values; see `ask`."""
        return np.array([answer.value for answer in self.ask(X)])

    def _check_settings(self) -> None:
        check_choice("calibration", self.calibration, ("tight", "paper"))
        if check_integer("questions", self.questions) > _MOST_QUESTIONS:
            raise InvalidInput(f"questions must be at most {_MOST_QUESTIONS:g}; nobody asks more, so declare fewer")
        check_failure(self.failure)
        if self.norm is not None:
            check_size("norm", self.norm)
        if check_share("estimate_norm", self.estimate_norm) == 1:
            raise InvalidInput("estimate_norm must be below 1: something must be left for the answers")
        if self.estimate_norm and (self.norm is not None or self.calibration == "paper"):
            raise InvalidInput("estimate_norm stands in for norm, and is no part of the paper; give one of them")
        if self._delta == 0:
            raise InvalidInput("an interactive session needs delta > 0: its answers carry Gaussian noise")


@within_doubles()
def _plan(learner: InteractiveLearner, problem: KernelProblem) -> _SparsePlan | _PrintedPlan:
    make = _PrintedPlan.of if learner.calibration == "paper" else _SparsePlan.of
    return make(learner, problem)


def _value_sensitivity(problem: KernelProblem, people: int) -> float:
    """How far one value can move when a person's records are replaced."""
    return round_up(most_sensitivity(problem.stability.value_sensitivity(problem.bound), people))


@dataclass(frozen=True)
class _SparsePlan:
    """The tight session: everything but the norm, where that is estimated, is fixed beforehand."""

    promise: Guarantee
    problem: KernelProblem
    stability: Stability
    sensitivity: float
    rho: float
    questions: int
    failure: float
    norm: float
    norm_epsilon: float
    people: int

    @classmethod
    def of(cls, learner: InteractiveLearner, problem: KernelProblem) -> _SparsePlan:
        epsilon, people = learner._epsilon, learner._people
        norm_epsilon = decimal_down(exact(epsilon) * exact(learner.estimate_norm))
        rest = decimal_down(exact(epsilon) - exact(norm_epsilon))
        rho = concentrated_budget(rest, learner._delta)
        if not rho > 0:
            raise InvalidInput("the budget is too small for a session; raise epsilon or delta")
        answers = ZeroConcentrated(rho)
        promise = Guarantee(
            epsilon,
            learner._delta,
            mechanism="interactive kernel learner",
            theorem="sparse vector technique with Gaussian answers, in zCDP",
            rows_per_person=people,
            curve=Composite((Pure(norm_epsilon), answers)) if norm_epsilon else answers,
        )
        stability = problem.stability
        norm = stability.norm if learner.norm is None else min(stability.norm, float(learner.norm))
        return cls(
            promise, problem, stability, _value_sensitivity(problem, people), rho, learner.questions, learner.failure,
            norm, norm_epsilon, people,
        )  # fmt: skip

    def open(self, minimum: Minimum, source: Any) -> _SparseSession:
        norm, failure = self.norm, self.failure
        if self.norm_epsilon:
            # A tenth of the failures is left to the estimate.
            norm, failure = self._estimated(minimum, source, failure / 10), failure * 0.9
        constants = sparse_session(self.sensitivity, self.rho, norm, self.problem.bound, self.questions, failure)
        return _SparseSession(self, constants, minimum, source)

    def _estimated(self, minimum: Minimum, source: Any, failure: float) -> float:
        """||w*|| with Laplace noise, plus what that noise stays above with probability 1 - failure."""
        moves = self.stability.sensitivity + 2 * self.stability.norm_error
        law = NoiseLaw("laplace", laplace_scale(moves, self.norm_epsilon, self.people))
        noisy = float(add_noise([max(minimum.norm(), self.stability.norm_floor)], law, source)[0])
        above = noisy + float(stats.laplace.isf(failure, scale=law.scale))
        return min(max(above, self.stability.norm_floor), self.stability.norm)


class _Session(LiveMechanism):
    """What both kinds of session share: a hypothesis that moves, and a count of questions."""

    constants: SparseSession | PrintedSession

    def __init__(self, problem: KernelProblem, minimum: Minimum, questions: int, updates: int) -> None:
        super().__init__()
        self._minimum, self._hypothesis = minimum, Hypothesis(problem.kernel, problem.features)
        self._kernel = problem.kernel
        self._questions_left, self._updates_left = questions, updates

    def ask(self, points: Any) -> list[Answer]:
        self._check_alive()
        with self._lock:
            count = self._kernel.count(points)
            if count > self._questions_left:
                raise StateError(
                    f"{count} more questions would pass the {self._questions_left} that are left; the session is "
                    "spent. Open a new one, which costs its budget again"
                )
            return list(self._answers(points, count))

    def _answers(self, points: Any, count: int) -> Iterator[Answer]:
        exact_values = self._minimum.values(points)
        guesses, squares = self._hypothesis.values(points), self._hypothesis.squares(points)
        for position in range(count):
            self._questions_left -= 1
            value = None
            if self._updates_left:
                value = self._from_model(float(exact_values[position]), float(guesses[position]))
            if value is None:
                yield self._answer(float(guesses[position]), PUBLIC_HYPOTHESIS)
                continue
            self._updates_left -= 1
            move = self._move(value - float(guesses[position]), float(squares[position]))
            if move:
                self._hypothesis.add(self._kernel.part(points, slice(position, position + 1)), np.array([move]))
                later = self._kernel.part(points, slice(position + 1, count))
                if position + 1 < count:
                    guesses[position + 1 :] = self._hypothesis.values(later)
            yield self._answer(value, PRIVATE_MODEL)

    def _answer(self, value: float, source: str) -> Answer:
        return Answer(value, source, self._updates_left, self._questions_left)

    def _from_model(self, exact_value: float, guess: float) -> float | None:
        """The private model's noisy value where the hypothesis is too far off, else None."""
        raise NotImplementedError

    def _move(self, distance: float, square: float) -> float:
        """The new point's coefficient in the hypothesis."""
        raise NotImplementedError


class _SparseSession(_Session):
    """AboveThreshold on how far the hypothesis is off, Gaussian noise on what is then released."""

    def __init__(self, plan: _SparsePlan, constants: SparseSession, minimum: Minimum, source: Any) -> None:
        super().__init__(plan.problem, minimum, plan.questions, constants.updates)
        self.constants = constants
        self._source = source
        self._law = NoiseLaw("gaussian", constants.deviation)
        # The threshold's noise is fresh after each positive answer; the session's own promise counts all of it.
        self._far = AboveThreshold(
            threshold=constants.threshold,
            sensitivity=plan.sensitivity,
            epsilon=constants.each * constants.updates * (1 - 1e-13),
            positives=constants.updates,
            random_state=source,
        )

    def _from_model(self, exact_value: float, guess: float) -> float | None:
        distance = Fraction(exact_value) - Fraction(guess)
        if not self._far.ask(abs(distance)):
            return None
        return guess + float(add_noise([distance], self._law, self._source)[0])

    def _move(self, distance: float, square: float) -> float:
        return distance / square if square > 0 else 0.0


@dataclass(frozen=True)
class _PrintedPlan:
    """Algorithm 1 as printed, with what is proven for it."""

    promise: Guarantee
    problem: KernelProblem
    constants: PrintedSession
    questions: int

    @classmethod
    def of(cls, learner: InteractiveLearner, problem: KernelProblem) -> _PrintedPlan:
        loss, strength, bound = problem.loss, problem.strength, problem.bound
        norm = 2 * loss.lipschitz * bound / strength if learner.norm is None else float(learner.norm)
        constants = printed_session(
            problem.n, strength, loss.lipschitz, bound, norm, learner._epsilon, learner._delta, learner.questions,
            learner.failure,
        )  # fmt: skip
        each = round_up(Fraction(_value_sensitivity(problem, learner._people)) * Fraction(constants.rate))
        if learner.questions > _MOST_PRINTED:
            raise InvalidInput(
                f"questions must be at most {_MOST_PRINTED} with calibration='paper', whose promise counts every one; "
                "use fewer, or 'tight'"
            )
        # Every question is answered from a Laplace release, whether that leaves or not: that is what is proven.
        curve = Composite((LaplaceShift(each),) * learner.questions)
        promise = Guarantee(
            decimal_up(Fraction(max(curve.epsilon(learner._delta), 1e-12))),
            learner._delta,
            mechanism="interactive kernel learner as printed",
            theorem="as printed in 2013; by composing the Laplace noise of all questions",
            rows_per_person=learner._people,
            curve=curve,
            claimed_epsilon=learner._epsilon,
        )
        return cls(promise, problem, constants, learner.questions)

    def open(self, minimum: Minimum, source: Any) -> _PrintedSession:
        return _PrintedSession(self, minimum, source)


class _PrintedSession(_Session):
    """A noisy value for every question; it leaves where it is further than the tolerance from the hypothesis."""

    def __init__(self, plan: _PrintedPlan, minimum: Minimum, source: Any) -> None:
        super().__init__(plan.problem, minimum, plan.questions, max(1, math.ceil(plan.constants.updates)))
        self.constants, self._step = plan.constants, plan.constants.step
        self._law, self._source = NoiseLaw("laplace", round_up(1 / Fraction(plan.constants.rate))), source

    def _from_model(self, exact_value: float, guess: float) -> float | None:
        noisy = float(add_noise([exact_value], self._law, self._source)[0])
        return noisy if abs(noisy - guess) > self.constants.tolerance else None

    def _move(self, distance: float, square: float) -> float:  # noqa: ARG002 - a fixed step
        return math.copysign(self._step, distance)
