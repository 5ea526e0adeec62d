"""Private linear classifiers."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from epsilearn.checks import check_choice, check_margin
from epsilearn.errors import InvalidInput
from epsilearn.linear.model import PrivateLinearModel
from epsilearn.losses import CappedSoftmax, HuberisedHinge, Logistic, Loss, Softmax
from epsilearn.losses.interface import Array
from epsilearn.quiet import quietly
from epsilearn.rows.parts import Targets, applied

__all__ = ["LinearSVC", "LogisticRegression", "class_targets", "given_classes", "public_labels"]

# docs/theory/strength.md has the experiments behind these: the margin where noise goes into the objective; the score
# to expect where noise is as long as a row, and what each unit of margin adds to it; what it takes from a score to
# read it as log-odds.
_MARGIN = 3.0
_GROWING_SCORE, _PER_MARGIN = 1.0, 2 / 3
_SHRINKAGE = 0.4
# Of tables on which descent, which reads them hundreds of times, is still quick.
_MOST_FEATURES = 2000


@quietly()
def public_labels(y: Any, classes: Any) -> tuple[NDArray[Any], Any, tuple[str, ...]]:
    """The public label set, each record's position in it, and what the promise must then assume."""
    if classes is None and not isinstance(y, Targets):
        _check_discrete(y)
        found, positions = np.unique(y, return_inverse=True)
        if len(found) < 2:
            raise InvalidInput("the labels are all of one class; pass classes=, the public label set, of at least two")
        return found, positions, ("label set is public",)
    labels = given_classes(classes)
    labels = labels[np.argsort(labels, kind="stable")]
    return labels, applied(partial(_positions, labels), y), ()


def _positions(labels: NDArray[Any], y: Any) -> NDArray[np.intp]:
    """Where each label stands in the public set."""
    try:
        positions: NDArray[np.intp] = np.minimum(np.searchsorted(labels, y), len(labels) - 1)
        known = bool(np.array_equal(labels[positions], y))
    except TypeError:  # labels that cannot be compared with those of the set
        known = False
    if not known:
        raise InvalidInput("some labels are not in classes; every label must be in the public label set")
    return positions


def class_targets(positions: Any, outputs: int) -> Any:
    """Positions in the label set as a loss of so many outputs wants them: -1 and 1 if it has one."""
    return applied(_signed if outputs == 1 else _plain, positions)


def _signed(positions: NDArray[np.intp]) -> Array:
    return 2 * positions.astype(np.float64) - 1


def _plain(positions: NDArray[np.intp]) -> Array:
    return positions.astype(np.float64)


def _check_discrete(y: Any) -> None:
    """Refuse labels that are no labels, without a word of what they are."""
    discrete = True
    if np.asarray(y).dtype.kind == "c":
        raise InvalidInput("Complex data not supported; labels are whole numbers, strings or truth values")
    try:
        check_classification_targets(y)
    except (TypeError, ValueError):
        discrete = False
    if not discrete:
        raise InvalidInput(
            "Unknown label type: labels must be whole numbers, strings or truth values, all of one kind. Pass classes="
            ", the public label set, to use others, or fit a regression"
        )


def given_classes(classes: Any) -> NDArray[Any]:
    """The public label set, which must have been given."""
    if classes is None:
        raise InvalidInput("classes must be given: the public label set, which nothing but a look at the rows replaces")
    labels = np.asarray(classes)
    if labels.ndim != 1 or len(labels) < 2 or len(np.unique(labels)) != len(labels):
        raise InvalidInput("classes must be a list of at least two different labels")
    return labels


def _as_probabilities(loss: Loss) -> float:
    """What to multiply scores by so that their sigmoid is a probability: a margin makes them longer than log-odds."""
    return 1 / (1 + _SHRINKAGE * _margin(loss))


def _margin(loss: Loss) -> float:
    return loss.margin if isinstance(loss, (Logistic, CappedSoftmax)) else 0.0


class _LinearClassifier(ClassifierMixin, PrivateLinearModel):  # type: ignore[misc]
    """Labels to targets, scores to labels."""

    classes: Any
    classes_: NDArray[Any]

    def _loss(self, classes: int, method: str) -> Loss:
        raise NotImplementedError

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> _LinearClassifier:
        """Fit the model to private rows, and release it.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (rows, features), or a table in parts
            The features; each row is scaled down to ``data_norm`` if it is longer. Never copied or made dense where
            that can be avoided. `ParquetRows` and its like are tables in parts.
        y : array of shape (rows,)
            The labels. A table in parts has its own.

        Returns
        -------
        self
        """
        X, y = self._validated(X, y, unsupported)
        labels, positions, assumptions = public_labels(y, self.classes)
        method = self._method_for(X.shape[1], len(labels))
        loss = self._loss(len(labels), method)
        target = class_targets(positions, loss.outputs)
        weights = self._fit_weights(X, target, loss, assumptions, method) * _as_probabilities(loss)
        self.classes_ = labels
        self._keep(loss.basis @ weights if isinstance(loss, Softmax) else weights)
        return self

    def _typical_score(self, loss: Loss, method: str) -> tuple[float, bool]:
        if method == "gradient" or (method == "objective" and loss.outputs == 1):
            return _GROWING_SCORE * (1 + _PER_MARGIN * _margin(loss)) * math.sqrt(loss.outputs), True
        return super()._typical_score(loss, method)

    def _chosen_method(self, features: int) -> str:
        return self._method_for(features, len(given_classes(self.classes)))

    def _method_for(self, features: int, classes: int) -> str:
        """Where the noise goes, from public numbers: into gradients where there are more classes than two.

        Noise in the objective must hide slopes of every direction that several classes' scores can have; gradients are
        cut to what one direction needs.
        """
        check_choice("method", self.method, ("auto", "objective", "output", "gradient"))
        if self.method != "auto":
            return self.method
        usual = self.delta and self.calibration == "tight" and self.alpha == "auto"
        return "gradient" if usual and classes > 2 and features < _MOST_FEATURES else "objective"

    def _public_loss(self, method: str) -> tuple[Loss, tuple[str, ...]]:
        return self._loss(len(given_classes(self.classes)), method), ()

    def decision_function(self, X: Any) -> Array:
        """Each row's score: one number for two classes (positive: the second), one for each class beyond that."""
        scores = self._scores(X)
        return scores.ravel() if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of each row."""
        scores = self.decision_function(X)
        labels: NDArray[Any] = self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # With a few dozen rows, as in scikit-learn's checks, a private model is mostly noise.
        tags.classifier_tags.poor_score = True
        return tags


class LogisticRegression(_LinearClassifier):
    """Private logistic regression: binary, or softmax over more classes.

    Parameters
    ----------
    epsilon, delta : float
        The budget of one fit, per person. ``delta=0`` is pure differential privacy; above 0 the noise is Gaussian,
        and less.
    alpha : float or "auto"
        The regularisation: (1/n) sum of losses + (alpha/2) ||w||**2. "auto" takes it from public numbers only.
    margin : float or "auto"
        How far on its side of the boundary a row is asked to lie; 0 is the usual loss. Rows that all pull with nearly
        full force drown in less noise. "auto" takes 3 where ``alpha`` is "auto" too and noise is not on the result, and
        0 elsewhere; coefficients are scaled so that probabilities stay probabilities.
    method : {"auto", "objective", "output", "gradient"}
        Noise in the objective (Chaudhuri and Monteleoni's second algorithm), on the result, or in the gradients of a
        descent, which needs a delta. "auto" takes gradients for more than two classes if there is a delta, and the
        objective otherwise.
    calibration : {"tight", "paper"}
        This project's theorems, or the 2008 paper's constants; then the guarantee states what is proven for them.
    data_norm : float, optional
        A public bound on the l2 norm of a row; longer rows are scaled down to it. 1.0, with a warning, if left out.
    fit_intercept : bool
        Whether to add a constant column; it is regularised and noised like the others.
    centre : bool or "auto"
        Whether to spend up to an eighth of the budget on a private mean and length, by which rows are moved and scaled
        before the fit: less noise where rows share a large mean. "auto" does so where public numbers say that the mean
        can be told from noise, and ``alpha`` is "auto"; an ``alpha`` that is given is meant for the rows as they are.
    classes : sequence, optional
        The public label set. If left out, the labels in ``y`` are taken to be public, and the guarantee says so.
    rows_per_person : int
        How many records one person may have; the promise is per person.
    ledger : Ledger, optional
        Debited before anything is released.
    random_state : int, optional
        For studies and tests only: the guarantee is then void.
    verbose : bool, optional
        Whether to show a progress bar; by default on a terminal, for fits that take longer than two seconds.

    Attributes
    ----------
    coef_ : array of shape (1, features) or (classes, features)
    intercept_ : array of shape (1,) or (classes,)
    classes_ : array
    guarantee_ : Guarantee
        What was promised.
    noise_ : NoiseLaw
        The noise in the objective or on the result; public.
    alpha_ : float
        The regularisation used; public. Of centred rows if they were centred; for gradients, what stopping early is
        worth.
    method_ : str
        Where the noise went; public.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn import LogisticRegression
    >>> generator = np.random.default_rng(0)
    >>> X = generator.normal(size=(5000, 4)) / 2
    >>> y = X[:, 0] > 0
    >>> model = LogisticRegression(epsilon=1.0, data_norm=2.0, classes=[False, True]).fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    >>> print(model.guarantee_)
    epsilon = 1, per record, replace-one
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 0.0,
        alpha: float | str = "auto",
        margin: float | str = "auto",
        method: str = "auto",
        calibration: str = "tight",
        data_norm: float | None = None,
        fit_intercept: bool = True,
        centre: bool | str = "auto",
        classes: Any = None,
        rows_per_person: int = 1,
        ledger: Any = None,
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.alpha = alpha
        self.margin = margin
        self.method = method
        self.calibration = calibration
        self.data_norm = data_norm
        self.fit_intercept = fit_intercept
        self.centre = centre
        self.classes = classes
        self.rows_per_person = rows_per_person
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def _loss(self, classes: int, method: str) -> Loss:
        margin = self._chosen_margin(method)
        if classes > 2:
            return CappedSoftmax(classes, margin) if method == "gradient" else Softmax(classes)
        return Logistic(margin)

    def _chosen_margin(self, method: str) -> float:
        if not isinstance(self.margin, str):
            return check_margin(self.margin)
        if self.margin != "auto":
            raise InvalidInput(f"margin must be a number from 0 to 100 or 'auto', got {self.margin!r}")
        usual = method != "output" and self.calibration == "tight" and self.alpha == "auto"
        return _MARGIN if usual else 0.0

    def predict_proba(self, X: Any) -> Array:
        """Each class's probability for each row."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            second = expit(scores)
            return np.column_stack([1 - second, second])
        shares: Array = softmax(scores, axis=1)
        return shares

    def predict_log_proba(self, X: Any) -> Array:
        """The logarithms of the probabilities."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([log_expit(-scores), log_expit(scores)])
        logs: Array = log_softmax(scores, axis=1)
        return logs


class LinearSVC(_LinearClassifier):
    """A private support vector machine for two classes: the hinge loss with its corner rounded.

    Parameters
    ----------
    width : float
        The corner of the hinge reaches from margin 1 - width to 1 + width; narrower needs more regularisation.
    epsilon, delta, alpha, method, calibration, data_norm, fit_intercept, centre, classes, rows_per_person, ledger, \
random_state, verbose
        As for `LogisticRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn import LinearSVC
    >>> generator = np.random.default_rng(0)
    >>> X = generator.normal(size=(5000, 4)) / 2
    >>> model = LinearSVC(epsilon=1.0, delta=1e-6, data_norm=2.0, classes=[-1, 1]).fit(X, np.sign(X[:, 0]))
    >>> print(model.guarantee_)
    epsilon = 1, delta = 1e-06, per record, replace-one
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 0.0,
        alpha: float | str = "auto",
        width: float = 0.5,
        method: str = "objective",
        calibration: str = "tight",
        data_norm: float | None = None,
        fit_intercept: bool = True,
        centre: bool | str = "auto",
        classes: Any = None,
        rows_per_person: int = 1,
        ledger: Any = None,
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.alpha = alpha
        self.width = width
        self.method = method
        self.calibration = calibration
        self.data_norm = data_norm
        self.fit_intercept = fit_intercept
        self.centre = centre
        self.classes = classes
        self.rows_per_person = rows_per_person
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def _loss(self, classes: int, method: str) -> Loss:  # noqa: ARG002
        if classes != 2:
            raise InvalidInput(
                f"Only binary classification is supported by LinearSVC, and there are {classes} classes; "
                "use LogisticRegression, whose softmax needs far less noise than one machine for each class"
            )
        return HuberisedHinge(self.width)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
