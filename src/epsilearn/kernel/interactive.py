"""The interactive model (Jain and Thakurta 2013, Algorithm 1): a trusted learner answers points as they come."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from epsilearn.checks import check_choice, check_failure, check_integer, check_share, check_size, within_doubles
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee
from epsilearn.kernel.erm import KernelProblem
from epsilearn.kernel.interactive_sessions import Answer, PrintedPlan, SparsePlan
from epsilearn.kernel.kept_session import KeptSession
from epsilearn.kernel.kernels import Kernel
from epsilearn.kernel.model import Array, KernelLearner
from epsilearn.mechanisms.release import spending
from epsilearn.progress import fitting
from epsilearn.sessions import Session

__all__ = ["Answer", "InteractiveLearner"]

_MOST_QUESTIONS = 10**18


class InteractiveLearner(Session, KernelLearner):
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
    state : str, Path or SessionStore, optional
        A file in which the session is kept, so that it goes on after a restart, and in several processes at once: the
        same question gets the same answer, and nothing is debited again. As private as the records. Only for "tight".
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
        state: Any = None,
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
        self.state = state
        self.rows_per_person = rows_per_person
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, problem: KernelProblem, assumptions: tuple[str, ...]) -> None:
        plan = _plan(self, problem)
        promise = replace(plan.promise, assumptions=assumptions)
        self._session_: Any
        if self.state is not None:
            assert isinstance(plan, SparsePlan)
            self._session_, self.guarantee_ = self._kept(plan, promise)
        else:
            with (
                fitting(self.verbose, problem.stability.certificate) as progress,
                spending(promise, self._account, self._purpose, self.random_state) as (source, stamped),
            ):
                session = plan.open(problem.solve(progress), source)
            self._session_, self.guarantee_ = session, stamped
        self.session_ = self._session_.constants
        self.tolerance_ = self.session_.tolerance

    def _kept(self, plan: SparsePlan, promise: Guarantee) -> tuple[KeptSession, Guarantee]:
        """A session that is written down: opened and paid for once, or gone on with."""
        problem = plan.problem

        def open_session(source: Any) -> Array:
            with fitting(self.verbose, problem.stability.certificate) as progress:
                minimum = problem.solve(progress)
            return np.append(minimum.coef, plan.bounded_norm(minimum, source))

        law = (self.questions, self.failure, self.norm, self.estimate_norm, plan.rho, plan.sensitivity)
        numbers, promised, journal = self._once(problem, promise, law, open_session)
        minimum, norm = problem.minimum(numbers[:-1]), float(numbers[-1])
        # Paid for: this hands out bits, and debits nothing.
        with spending(promised, None, self._purpose, self.random_state) as (source, _):
            return KeptSession(lambda: plan.session(norm, minimum, source), journal, self.kernel_), promised

    def ask(self, X: Any) -> list[Answer]:
        """An answer for each point, in order. Points must be public: a session remembers them.

        Each point counts as a question, also when it is asked again; not so in a session that is kept (``state``),
        where it gets the same answer again.
        """
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
        if self.state is not None and self.calibration == "paper":
            raise InvalidInput("a session as printed is not kept; leave state out, or use calibration='tight'")
        if self.estimate_norm and (self.norm is not None or self.calibration == "paper"):
            raise InvalidInput("estimate_norm stands in for norm, and is no part of the paper; give one of them")
        if self._delta == 0:
            raise InvalidInput("an interactive session needs delta > 0: its answers carry Gaussian noise")


@within_doubles()
def _plan(learner: InteractiveLearner, problem: KernelProblem) -> SparsePlan | PrintedPlan:
    make = PrintedPlan.of if learner.calibration == "paper" else SparsePlan.of
    return make(learner, problem)
