"""Unlimited predictions of a kernel machine for one (epsilon, delta): noise that is a function too."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from epsilearn.accounting import GaussianShift
from epsilearn.balls import round_up
from epsilearn.calibration.additive import gaussian_scale, most_sensitivity
from epsilearn.checks import check_integer
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee
from epsilearn.kernel.erm import FeatureProblem, GramProblem, KernelProblem
from epsilearn.kernel.kernels import PUBLIC_SLACK, Kernel
from epsilearn.kernel.model import Array, KernelLearner
from epsilearn.mechanisms.additive import add_noise, prepare_noise
from epsilearn.mechanisms.release import NoiseLaw, spending
from epsilearn.mechanisms.session import Process, ProcessLaw
from epsilearn.progress import fitting
from epsilearn.sessions import Session

__all__ = ["GaussianProcessRelease"]


class GaussianProcessRelease(Session, KernelLearner):
    """A kernel machine plus a Gaussian process: any number of predictions, at any points, for one budget.

    After Hall, Rinaldo and Wasserman (2013). The same question always gets the same answer. A kernel with a finite
    feature map (or public ``landmarks``) needs one noise vector, drawn at once: the model can then be stored and sent.
    Other kernels draw noise as questions come, up to ``max_points`` different ones.

    Parameters
    ----------
    kernel : Kernel, optional
        `RBF()` if left out.
    loss : {"logistic", "hinge", "huber"}
        Two classes by logistic or Huberised hinge loss, or regression by Huber's.
    alpha : float or "auto"
        The regularisation: (1/n) sum of losses + (alpha/2) ||w||**2. "auto" takes it from public numbers only.
    epsilon, delta : float
        The budget of everything that will ever be asked, per person. ``delta`` above 0.
    classes : sequence, optional
        The public label set. If left out, the labels in ``y`` are taken to be public, and the guarantee says so.
    target_bound : float or (float, float), optional
        For "huber": a public bound on |y|, or a public range. 1.0, with a warning, if left out.
    landmarks : collection of points, optional
        Public points whose features span the model; needed beyond 20,000 rows unless the kernel has a finite map.
    rank : int, optional
        How many directions of the landmarks to keep.
    max_points : int
        A public cap on the number of different points, where noise is drawn as questions come.
    state : str, Path or SessionStore, optional
        A file in which points and noise are kept, so that a session goes on after a restart, and in several processes
        at once, with the same answers and without another debit. As private as the records.
    rows_per_person, ledger, random_state, verbose
        As for `LogisticRegression`.

    Attributes
    ----------
    guarantee_ : Guarantee
        What was promised, for all answers together.
    noise_ : NoiseLaw
        The noise in one answer, at most; public.
    alpha_ : float
        The regularisation used; public.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn.kernel import RBF, GaussianProcessRelease
    >>> generator = np.random.default_rng(0)
    >>> X = generator.normal(size=(400, 2))
    >>> model = GaussianProcessRelease(kernel=RBF(0.5), epsilon=1.0, delta=1e-6, classes=[False, True])
    >>> points = np.eye(2)  # public, as all that is asked must be
    >>> answers = model.fit(X, X[:, 0] > 0).decision_function(points)
    >>> bool((model.decision_function(points) == answers).all())  # same question, same answer
    True
    >>> print(model.guarantee_)
    epsilon = 1, delta = 1e-06, per record, replace-one
    """

    noise_: NoiseLaw

    def __init__(
        self,
        *,
        kernel: Kernel | None = None,
        loss: str = "logistic",
        alpha: float | str = "auto",
        epsilon: float = 1.0,
        delta: float = 1e-6,
        classes: Any = None,
        target_bound: Any = None,
        landmarks: Any = None,
        rank: int | None = None,
        max_points: int = 1000,
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
        self.classes = classes
        self.target_bound = target_bound
        self.landmarks = landmarks
        self.rank = rank
        self.max_points = max_points
        self.state = state
        self.rows_per_person = rows_per_person
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def _check_settings(self) -> None:
        if self._delta == 0:
            raise InvalidInput("a Gaussian process release needs delta > 0")
        check_integer("max_points", self.max_points)

    def _learn(self, problem: KernelProblem, assumptions: tuple[str, ...]) -> None:
        if isinstance(problem, FeatureProblem):
            self._release_weights(problem, assumptions)
        elif isinstance(problem, GramProblem):
            self._open_session(problem, assumptions)

    def decision_function(self, X: Any) -> Array:
        """The noisy value at each point, which must be public: the same for the same point, whenever it is asked."""
        self._check_fitted()
        points = self._points(X, public=True)
        if hasattr(self, "_features_"):
            return self._features_.scores(points, self._weights_) + self._shift
        codes = self.kernel_.encode(points)
        return (
            self._session_.answers(codes, lambda new: self._minimum_.values(_take(self.kernel_, points, new)))
            + self._shift
        )

    @property
    def points_left_(self) -> int | None:
        """How many more different points may be asked; None where there is no limit."""
        self._check_fitted()
        return None if hasattr(self, "_features_") else self._session_.points_left()

    def rest(self) -> bool:
        """Let go of the noise's factor in memory until a new point is asked; False if there is none or it is in use."""
        self._check_fitted()
        return not hasattr(self, "_features_") and self._session_.rest()

    def _release_weights(self, problem: FeatureProblem, assumptions: tuple[str, ...]) -> None:
        """A finite map: Gaussian noise on the weights is the whole process, drawn at once."""
        stability, people = problem.stability, self._people
        scale = gaussian_scale(stability.sensitivity, self._epsilon, self._delta, people)
        law = NoiseLaw("gaussian", scale, problem.features.columns)
        shift = round_up(most_sensitivity(stability.sensitivity, people) / Fraction(scale))
        promise = self._promise(shift, assumptions)

        prepare_noise(problem.features.columns, law)

        def release(source: Any) -> Array:
            with fitting(self.verbose, stability.certificate) as progress:
                return add_noise(problem.solve(progress).coef, law, source)

        self._weights_, self.guarantee_, _ = self._once(problem, promise, (self.max_points, law), release)
        self._features_ = problem.features
        self.noise_ = NoiseLaw("gaussian", scale * problem.bound)

    def _open_session(self, problem: GramProblem, assumptions: tuple[str, ...]) -> None:
        """Any other kernel: noise is drawn as questions come, each conditioned on all before."""
        stability = problem.stability
        law = ProcessLaw.planned(
            most_sensitivity(stability.sensitivity, self._people),
            self._epsilon,
            self._delta,
            cap=check_integer("max_points", self.max_points),
            bound=problem.bound**2 * PUBLIC_SLACK,
            kernel_error=self.kernel_.rounding(self._width_),
            value_error=stability.value_error,
        )
        promise = self._promise(law.shift, assumptions)

        def solve(_source: Any) -> Array:
            with fitting(self.verbose, stability.certificate) as progress:
                return problem.solve(progress).coef

        coef, guarantee, journal = self._once(problem, promise, (self.max_points, law), solve)
        # Paid for: this hands out bits, and debits nothing.
        with spending(guarantee, None, self._purpose, self.random_state) as (source, _):
            self._session_ = Process(law, _Across(self.kernel_), source, journal)
        self._minimum_, self.noise_, self.guarantee_ = problem.minimum(coef), law.noise, guarantee

    def _promise(self, shift: float, assumptions: tuple[str, ...]) -> Guarantee:
        return Guarantee(
            self._epsilon,
            self._delta,
            mechanism="Gaussian process release",
            theorem="the minimiser's own norm; any points, chosen adaptively; analytic Gaussian",
            assumptions=assumptions,
            rows_per_person=self._people,
            curve=GaussianShift(shift),
        )


class _Across:
    """Kernel values between answered points and new ones, and among these; answered points are decoded once."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._count, self._points = 0, None

    def __call__(self, known: Sequence[bytes], new: Sequence[bytes]) -> tuple[Array, Array]:
        points = self._kernel.decode(list(new))
        own = np.array(self._kernel.matrix(points, points), np.float64)
        np.fill_diagonal(own, self._kernel.squares(points))
        if not known:
            self._count, self._points = 0, None
            return np.empty((0, len(new))), own
        if len(known) > self._count:
            fresh = self._kernel.decode(list(known[self._count :]))
            self._points = fresh if self._points is None else self._kernel.join([self._points, fresh])
            self._count = len(known)
        return np.asarray(self._kernel.matrix(self._points, points), np.float64), own


def _take(kernel: Kernel, points: Any, positions: list[int]) -> Any:
    return kernel.join([kernel.part(points, slice(p, p + 1)) for p in positions])
