"""What all kernel models share: how private records come in, which loss, and what a score means."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.validation import check_is_fitted

from epsilearn.calibration.groups import per_record
from epsilearn.calibration.strength import automatic_strength, typical_score
from epsilearn.checks import check_choice, check_fit_budget, within_doubles
from epsilearn.errors import InvalidInput, StateError
from epsilearn.guarantee import Guarantee
from epsilearn.identity import check_apart
from epsilearn.kernel.erm import MOST_GRAM_ROWS, FeatureProblem, GramProblem, KernelProblem
from epsilearn.kernel.features import FeatureMap, Landmarks, exact_map
from epsilearn.kernel.kernels import RBF, Kernel
from epsilearn.kernel.objects import Precomputed
from epsilearn.linear.classification import class_targets, public_labels
from epsilearn.linear.model import PrivateModel, forget_fit, given_strength, validated
from epsilearn.linear.regression import clipped_targets, public_targets
from epsilearn.losses import Huber, HuberisedHinge, Logistic, Loss
from epsilearn.mechanisms.release import FAIR_BITS, spending
from epsilearn.mechanisms.session import Journal, MemoryJournal
from epsilearn.rows import Parts
from epsilearn.session_file import SessionFile, SessionStore

__all__ = ["PUBLIC_LANDMARKS", "Array", "KernelLearner", "KernelModel"]

Array = NDArray[np.float64]

PUBLIC_LANDMARKS = "the landmarks are public"
_LOSSES = ("logistic", "hinge", "huber")


class KernelModel(PrivateModel):
    """Labels or targets in, labels or targets out, by the name of the loss."""

    kernel: Kernel | None
    loss: str
    alpha: float | str
    epsilon: float
    delta: float
    classes: Any
    target_bound: Any
    rows_per_person: int
    ledger: Any
    random_state: Any
    verbose: bool | None

    _middle_: float
    _width_: int
    classes_: NDArray[Any]
    kernel_: Kernel
    guarantee_: Guarantee
    alpha_: float

    @property
    def _classifies(self) -> bool:
        return self.loss != "huber"

    def _records(self, X: Any, y: Any, unsupported: dict[str, Any]) -> tuple[Any, Array, Loss, tuple[str, ...]]:
        """Private points and targets, checked; the loss; and what the promise must assume. An error costs nothing."""
        check_apart(self, X, y)
        kernel = self._kernel()
        check_choice("loss", self.loss, _LOSSES)
        options = {} if self._classifies else {"y_numeric": True}
        if kernel.takes_rows:
            X, y = self._validated(X, y, unsupported, **options)
            points = X if isinstance(X, Parts) else kernel.points(X)
        elif isinstance(X, Parts):
            raise InvalidInput("this kernel's points are not rows of numbers, which is all that a table in parts has")
        else:
            # Whatever the points are, targets are checked like any others: beside their positions.
            points = kernel.points(X)
            _, y = self._validated(np.arange(kernel.count(points))[:, None], y, unsupported, **options)
        self.kernel_, self._width_ = kernel.keeping(points), kernel.width(points)
        target, loss, assumptions = self._targets(y)
        return points, target, loss, (*kernel.assumptions, *assumptions)

    def _kernel(self) -> Kernel:
        kernel = RBF() if self.kernel is None else self.kernel
        if not isinstance(kernel, Kernel):
            raise InvalidInput("kernel must be a Kernel: RBF(), Polynomial(), UserKernel(...), Precomputed(...), ...")
        return kernel

    def _set_kernel(self, width: int) -> None:
        """The kernel for points of this width, none of which has been seen."""
        self.kernel_, self._width_ = self._kernel(), width

    def _targets(self, y: NDArray[Any]) -> tuple[Array, Loss, tuple[str, ...]]:
        if not self._classifies:
            target, self._middle_, half = public_targets(y, self.target_bound)
            return target, Huber(half / 4, half), clipped_targets(half)
        labels, positions, assumptions = public_labels(y, self.classes)
        self.classes_ = labels
        loss = self._classification_loss(len(labels))
        return class_targets(positions, loss.outputs), loss, assumptions

    def _classification_loss(self, classes: int) -> Loss:
        if classes != 2:
            raise InvalidInput(
                f"Only binary classification is supported by {type(self).__name__}, and there are {classes} classes; "
                "use LandmarkClassifier with its logistic loss, which takes any number"
            )
        return Logistic() if self.loss == "logistic" else HuberisedHinge()

    def _points(self, X: Any, *, public: bool) -> Any:
        """New points of the shape seen in training; where they must be public, none longer than the bound."""
        if self.kernel_.takes_rows:
            X = validated(self, X, reset=False)
        points = self.kernel_.points(X, self._width_)
        if public:
            self.kernel_.check_public(points)
        return points

    @property
    def _purpose(self) -> str:
        return f"{type(self).__name__}.fit"

    @property
    def _shift(self) -> float:
        """What to add to a score: the middle of the targets' range."""
        return 0.0 if self._classifies else self._middle_

    def _check_fitted(self) -> None:
        check_is_fitted(self, "guarantee_")

    def decision_function(self, X: Any) -> Array:
        """The score of each point."""
        raise NotImplementedError

    def predict(self, X: Any) -> NDArray[Any]:
        """The label of each point, or its predicted target."""
        scores = self.decision_function(X)
        if not self._classifies:
            return scores
        labels: NDArray[Any] = self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]
        return labels

    def score(self, X: Any, y: Any) -> float:
        """The share of right labels, or R**2. It is not private if these are private records."""
        return float((accuracy_score if self._classifies else r2_score)(y, self.predict(X)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        # With a few dozen rows, as in scikit-learn's checks, a private model is mostly noise.
        if self._classifies:
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(poor_score=True, multi_class=False)
        else:
            tags.estimator_type = "regressor"
            tags.regressor_tags = RegressorTags(poor_score=True)
        return tags


class KernelLearner(KernelModel):
    """A kernel machine whose minimiser stays private; only its noisy values are ever released."""

    landmarks: Any
    rank: int | None
    state: Any
    ledger: Any
    random_state: Any

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> Self:
        """Learn from private records, and release what this model releases: a predictor, or a session to be asked.

        Parameters
        ----------
        X : collection of points
            The private ones, brought inside the kernel's bound where they are longer.
        y : array of shape (records,)
            Labels, or targets.

        Returns
        -------
        self
        """
        forget_fit(self)
        self._check_settings()
        if isinstance(X, Parts):
            raise InvalidInput(
                f"{type(self).__name__} needs all records at hand; for a table in parts use LandmarkClassifier or "
                "LandmarkRegressor"
            )
        self._learn(*self._problem(X, y, unsupported))
        return self

    def _check_budget(self) -> tuple[float, float, int]:
        """The budget and the rows of one person, as plain numbers, whatever they came in."""
        return check_fit_budget(self.epsilon, self.delta, self.rows_per_person)

    @property
    def _epsilon(self) -> float:
        return self._check_budget()[0]

    @property
    def _delta(self) -> float:
        return self._check_budget()[1]

    @property
    def _people(self) -> int:
        return self._check_budget()[2]

    def _check_settings(self) -> None:
        """Refuse settings that cannot be used, before any record is looked at."""

    def _learn(self, problem: KernelProblem, assumptions: tuple[str, ...]) -> None:
        """Plan from public numbers, debit, solve, release."""
        raise NotImplementedError

    def _problem(self, X: Any, y: Any, unsupported: dict[str, Any]) -> tuple[KernelProblem, tuple[str, ...]]:
        """The problem to solve, with everything that can be wrong checked, and what the promise assumes."""
        self._check_budget()
        points, target, loss, assumptions = self._records(X, y, unsupported)
        features = self._feature_map(self.kernel_.count(points))
        norm = self.kernel_.bound if features is None else features.bound
        self.alpha_ = self._strength(loss, self.kernel_.count(points), norm)
        problem: KernelProblem
        if features is None:
            problem = GramProblem(self.kernel_, points, target, loss, self.alpha_)
            if not self.kernel_.takes_rows:
                # Somebody else's function may take long, and be interrupted: before anything is spent.
                problem.look()
        else:
            problem = FeatureProblem(features, points, target, loss, self.alpha_)
        return problem, (
            "n is public",
            f"points are scaled to features of length at most {norm:g}",
            *([] if self.landmarks is None else [PUBLIC_LANDMARKS]),
            *assumptions,
            "the solver reaches its certificate",
            FAIR_BITS,
        )

    @within_doubles()
    def _strength(self, loss: Loss, rows: int, norm: float) -> float:
        given = given_strength(self.alpha)
        if given is not None:
            return given
        budget = per_record(*self._check_budget())
        bound = None if loss.classifies else loss.target_bound  # type: ignore[attr-defined]
        # A value's noise does not depend on how many features there are: one will do for the rule.
        return automatic_strength(loss, rows, 1, norm, *budget, "output", typical_score("output", target_bound=bound))

    def _once(
        self, problem: KernelProblem, promise: Guarantee, law: Any, compute: Callable[[Any], Array]
    ) -> tuple[Array, Guarantee, Journal]:
        """Debit and compute, once for a session that is kept, however often it is fitted.

        Two solutions that are both certified are still two functions, and the noise hides one.
        """
        if self.state is None:
            with spending(promise, self._account, self._purpose, self.random_state) as (source, stamped):
                return compute(source), stamped, MemoryJournal()
        plan, records = self._plan_text(problem, law), list(self._record_codes(problem))
        file = self.state if isinstance(self.state, SessionStore) else SessionFile(self.state)
        with file.opening():
            promised = file.resume(plan, records)
            if promised is None:
                with spending(promise, self._account, self._purpose, self.random_state) as (source, promised):
                    file.begin(plan, records, promised)
                    file.write("numbers", np.asarray(compute(source), np.float64).tobytes())
                    file.write("basis", b"" if problem.features is None else problem.features.basis())
                    # On disk before the ledger hears that it was delivered.
                    file.commit()
            else:
                self._check_ledger(promised)
            if problem.features is not None:
                problem.features.rest_on(file.read("basis") or b"")
            return np.frombuffer(file.read("numbers") or b""), promised, file

    def _check_ledger(self, promised: Guarantee) -> None:
        """A ledger that is named must have been debited for the session that goes on."""
        if self.ledger is None:
            return
        debited = None if promised.ledger is None else promised.ledger.dataset
        if debited != getattr(self.ledger, "dataset", None):
            raise StateError(
                "this session was not debited from the ledger given; go on without a ledger, or with the one it was "
                "debited from, or open a new session with a new file"
            )

    def _plan_text(self, problem: KernelProblem, law: Any) -> str:
        """Everything public that answers depend on: a session that is kept goes on only where all of it is the same."""
        landmarks = b""
        if self.landmarks is not None:
            landmarks = b"".join(self.kernel_.encode(self.kernel_.points(self.landmarks)))
        labels = [str(label) for label in self.classes_] if self._classifies else repr(self.target_bound)
        parts = (
            self.kernel_.description, problem.n, self._width_, self.loss, self.alpha_, self._epsilon, self._delta,
            labels, self._people, self.rank, hashlib.sha256(landmarks).hexdigest(), self.random_state is None,
            None if problem.features is None else problem.features.columns, law,
        )  # fmt: skip
        return "; ".join(map(str, parts))

    def _record_codes(self, problem: KernelProblem) -> Iterator[bytes]:
        # A record that cannot be written down must not decide whether there is an answer.
        yield from self.kernel_.total.encode(problem.points)
        yield np.asarray(problem.target, np.float64).tobytes()
        if isinstance(self.kernel_, Precomputed):
            yield self.kernel_.values.tobytes()

    def __getstate__(self) -> Any:
        if hasattr(self, "_session_"):
            raise StateError(
                f"a live {type(self).__name__} cannot be copied or pickled: it holds the private records, and the copy "
                "would reuse its noise"
            )
        return super().__getstate__()

    def _feature_map(self, rows: int) -> FeatureMap | None:
        """Public landmarks' span if they are given; else the kernel's own map, if it has one and is worth it."""
        if self.landmarks is not None:
            return Landmarks(self.kernel_, self.kernel_.points(self.landmarks, self._width_), self.rank)
        own = exact_map(self.kernel_, self._width_)
        if own is None and rows > MOST_GRAM_ROWS:
            raise InvalidInput(
                f"{rows} rows are too many for a Gram matrix, which takes {MOST_GRAM_ROWS}; pass landmarks=, public "
                "points whose features span the model"
            )
        return own
