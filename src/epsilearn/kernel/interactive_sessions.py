"""Interactive sessions: how much they may reveal, planned from public numbers, and how they answer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from scipy import stats

from epsilearn.accounting import LaplaceShift, Pure, ZeroConcentrated
from epsilearn.balls import decimal_down, decimal_up, exact, round_up
from epsilearn.calibration.additive import laplace_scale, most_sensitivity
from epsilearn.calibration.concentrated import concentrated_budget
from epsilearn.calibration.kernel import PrintedSession, SparseSession, printed_session, sparse_session
from epsilearn.composition import Composite
from epsilearn.errors import InvalidInput, StateError
from epsilearn.guarantee import Guarantee
from epsilearn.kernel.erm import KernelProblem, Minimum, Stability
from epsilearn.kernel.hypothesis import Hypothesis
from epsilearn.mechanisms import AboveThreshold
from epsilearn.mechanisms.additive import add_noise
from epsilearn.mechanisms.release import NoiseLaw
from epsilearn.mechanisms.selection import LiveMechanism
from epsilearn.quiet import quietly

__all__ = ["PRIVATE_MODEL", "PUBLIC_HYPOTHESIS", "Answer", "PrintedPlan", "SparseLearnerSession", "SparsePlan"]

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


class Settings(Protocol):
    """What a plan needs to know of the learner."""

    questions: int
    failure: float
    norm: float | None
    estimate_norm: float

    @property
    def _epsilon(self) -> float: ...
    @property
    def _delta(self) -> float: ...
    @property
    def _people(self) -> int: ...


def _value_sensitivity(problem: KernelProblem, people: int) -> float:
    """How far one value can move when a person's records are replaced."""
    return round_up(most_sensitivity(problem.stability.value_sensitivity(problem.bound), people))


@dataclass(frozen=True)
class SparsePlan:
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
    def of(cls, learner: Settings, problem: KernelProblem) -> SparsePlan:
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

    def open(self, minimum: Minimum, source: Any) -> SparseLearnerSession:
        return self.session(self.bounded_norm(minimum, source), minimum, source)

    def bounded_norm(self, minimum: Minimum, source: Any) -> float:
        """What the session takes the minimiser's norm to be at most: public, or estimated privately."""
        # A tenth of the failures is left to the estimate.
        return self._estimated(minimum, source, self.failure / 10) if self.norm_epsilon else self.norm

    def session(self, norm: float, minimum: Minimum, source: Any) -> SparseLearnerSession:
        """A session that has answered nothing yet."""
        failure = self.failure * 0.9 if self.norm_epsilon else self.failure
        constants = sparse_session(self.sensitivity, self.rho, norm, self.problem.bound, self.questions, failure)
        return SparseLearnerSession(self, constants, minimum, source)

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

    @property
    def questions_left(self) -> int:
        return self._questions_left

    @property
    def updates_left(self) -> int:
        return self._updates_left

    def ask(self, points: Any) -> list[Answer]:
        return [answer for answer, _ in self.ask_with_steps(points)]

    @quietly()
    def ask_with_steps(self, points: Any) -> list[tuple[Answer, float]]:
        """The answers, each with the step that the hypothesis took for it: the new point's coefficient."""
        self._check_alive()
        with self._lock:
            count = self._kernel.count(points)
            self.check_left(count)
            return list(self._answers(points, count))

    def check_left(self, count: int) -> None:
        """Refuse more questions than are left."""
        if count > self._questions_left:
            raise StateError(
                f"{count} more questions would pass the {self._questions_left} that are left; the session is "
                "spent. Open a new one, which costs its budget again"
            )

    def _answers(self, points: Any, count: int) -> Iterator[tuple[Answer, float]]:
        exact_values = self._minimum.values(points)
        guesses, squares = self._hypothesis.values(points), self._hypothesis.squares(points)
        for position in range(count):
            self._questions_left -= 1
            value = None
            if self._updates_left:
                value = self._from_model(float(exact_values[position]), float(guesses[position]))
            if value is None:
                yield self._answer(float(guesses[position]), PUBLIC_HYPOTHESIS), 0.0
                continue
            self._updates_left -= 1
            step = self._move(value - float(guesses[position]), float(squares[position]))
            if step:
                self._hypothesis.add(self._kernel.part(points, slice(position, position + 1)), np.array([step]))
                later = self._kernel.part(points, slice(position + 1, count))
                if position + 1 < count:
                    guesses[position + 1 :] = self._hypothesis.values(later)
            yield self._answer(value, PRIVATE_MODEL), step

    def _answer(self, value: float, source: str) -> Answer:
        return Answer(value, source, self._updates_left, self._questions_left)

    def _from_model(self, exact_value: float, guess: float) -> float | None:
        """The private model's noisy value where the hypothesis is too far off, else None."""
        raise NotImplementedError

    def _move(self, distance: float, square: float) -> float:
        """The new point's coefficient in the hypothesis."""
        raise NotImplementedError


class SparseLearnerSession(_Session):
    """AboveThreshold on how far the hypothesis is off, Gaussian noise on what is then released."""

    def __init__(self, plan: SparsePlan, constants: SparseSession, minimum: Minimum, source: Any) -> None:
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
        return self._hypothesis.move(distance, square)

    def threshold_digits(self) -> tuple[int, int]:
        """The random digits of the threshold's noise, and how many they are."""
        return self._far._digits()

    def restore_threshold(self, digits: tuple[int, int]) -> None:
        """Go on with a threshold whose noise has these digits."""
        self._far._restore(self._updates_left, digits)

    def replay(self, point: Any, step: float, private: bool) -> None:
        """Take over one answer that this session gave in another process, or before a restart."""
        self._questions_left -= 1
        self._updates_left -= private
        if step:
            self._hypothesis.add(point, np.array([step]))


@dataclass(frozen=True)
class PrintedPlan:
    """Algorithm 1 as printed, with what is proven for it."""

    promise: Guarantee
    problem: KernelProblem
    constants: PrintedSession
    questions: int

    @classmethod
    def of(cls, learner: Settings, problem: KernelProblem) -> PrintedPlan:
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

    def __init__(self, plan: PrintedPlan, minimum: Minimum, source: Any) -> None:
        super().__init__(plan.problem, minimum, plan.questions, max(1, math.ceil(plan.constants.updates)))
        self.constants, self._step = plan.constants, plan.constants.step
        self._law, self._source = NoiseLaw("laplace", round_up(1 / Fraction(plan.constants.rate))), source

    def _from_model(self, exact_value: float, guess: float) -> float | None:
        noisy = float(add_noise([exact_value], self._law, self._source)[0])
        return noisy if abs(noisy - guess) > self.constants.tolerance else None

    def _move(self, distance: float, square: float) -> float:  # noqa: ARG002 - a fixed step
        return math.copysign(self._step, distance)
