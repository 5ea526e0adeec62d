"""Kernel machines as linear models: public landmarks or random features, with objective perturbation."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if

from epsilearn import erm
from epsilearn.calibration.groups import per_record
from epsilearn.calibration.strength import automatic_rank
from epsilearn.checks import check_fit_budget, check_integer
from epsilearn.errors import InvalidInput
from epsilearn.kernel.features import FeatureMap, Fourier, Landmarks
from epsilearn.kernel.kernels import Kernel
from epsilearn.kernel.model import PUBLIC_LANDMARKS, Array, KernelModel
from epsilearn.linear import LogisticRegression
from epsilearn.linear.classification import given_classes
from epsilearn.linear.model import PrivateLinearModel, forget_fit
from epsilearn.losses import Loss, Softmax
from epsilearn.rows import Bounds, Parts
from epsilearn.rows.rounding import public_rounding

__all__ = ["LandmarkClassifier", "LandmarkRegressor", "RandomFeatures", "landmark_map"]


def _has_probabilities(model: KernelModel) -> bool:
    return model.loss == "logistic"


def _private_table(features: FeatureMap, X: Any) -> Any:
    return features.private_table(features.kernel.points(X))


class _LinearInFeatures(KernelModel, PrivateLinearModel):
    """A private linear model over a public feature map."""

    calibration = "tight"
    _features_: FeatureMap
    # What the promise assumes of the points that the features rest on.
    _public_points: tuple[str, ...] = ()

    def _map(self, rows: int, loss: Loss) -> FeatureMap:
        raise NotImplementedError

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> _LinearInFeatures:
        """Fit the model to private records, and release it.

        Parameters
        ----------
        X : collection of points, or a table in parts
            The private ones, brought inside the kernel's bound where they are longer.
        y : array of shape (records,)
            Labels, or targets. A table in parts has its own.

        Returns
        -------
        self
        """
        forget_fit(self)
        points, target, loss, assumptions = self._records(X, y, unsupported)
        features = self._map(self.kernel_.count(points), loss)
        self._features_ = features
        if isinstance(points, Parts):
            table = points.through(partial(_private_table, features), features.columns)
        else:
            table = features.private_table(points)
        weights = self._fit_weights(table, target, loss, (*assumptions, *self._public_points))
        self._keep(loss.basis @ weights if isinstance(loss, Softmax) else weights)
        return self

    def plan(self, *, rows: int, features: int) -> erm.Plan:
        """What a fit to so many rows would do and promise, from public numbers and the landmarks alone.

        Parameters
        ----------
        rows, features : int
            How many the table has; ``features`` as wide as the landmarks, where points are rows.

        Returns
        -------
        Plan
        """
        check_integer("rows", rows)
        twin = clone(self)
        twin._set_kernel(check_integer("features", features))
        loss, assumptions = twin._public_loss(twin.method)
        twin._features_ = twin._map(rows, loss)
        bounds = twin._public_bounds()
        columns = twin._features_.columns
        table = erm.Table(rows, columns, bounds.norm, public_rounding(rows, columns, bounds))
        made: erm.Plan = twin._planned(loss, table, bounds, (*assumptions, *self._public_points), twin.method)
        return made

    def _public_loss(self, method: str) -> tuple[Loss, tuple[str, ...]]:  # noqa: ARG002
        if self._classifies:
            return self._classification_loss(len(given_classes(self.classes))), self.kernel_.assumptions
        _, loss, assumptions = self._targets(np.zeros(0))
        return loss, (*self.kernel_.assumptions, *assumptions)

    def _public_bounds(self) -> Bounds:
        return Bounds(self._features_.bound, 0.0)

    def _keep(self, weights: Array) -> None:
        self.coef_ = weights

    def decision_function(self, X: Any) -> Array:
        """Each point's score, brought inside the kernel's bound as in training; one for each of several classes."""
        self._check_fitted()
        points, factors = self.kernel_.inside(self._points(X, public=False))
        scores = self._features_.scores(points, self.coef_.T, factors) + self._shift
        return scores.ravel() if scores.shape[1] == 1 else scores


class _FeatureClassifier(_LinearInFeatures):
    """Classes by logistic loss have probabilities."""

    predict_proba = available_if(_has_probabilities)(LogisticRegression.predict_proba)
    predict_log_proba = available_if(_has_probabilities)(LogisticRegression.predict_log_proba)

    def _classification_loss(self, classes: int) -> Loss:
        if self.loss == "logistic" and classes > 2:
            return Softmax(classes)
        return super()._classification_loss(classes)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if tags.classifier_tags is not None:
            tags.classifier_tags.multi_class = self.loss == "logistic"
        return tags


class LandmarkClassifier(_FeatureClassifier):
    """A private kernel classifier in the span of public landmarks, by objective perturbation.

    Features are psi(x) = A k_Z(x), the kernel's own feature vector projected onto the span of public points Z: any
    kernel, any number of rows, as many classes as there are.

    Parameters
    ----------
    landmarks : collection of points
        Public points, unlabelled: best drawn from where predictions will be asked for.
    rank : int, "auto" or None
        How many directions of the landmarks to keep, those along which they vary most: fewer cost less noise. "auto"
        takes it from public numbers only, None keeps all.
    whitening : float
        Between 0, the kernel's own lengths, and 1, equal variation along all directions kept; see `Landmarks`.
    loss : {"logistic", "hinge"}
        Logistic (softmax beyond two classes) or Huberised hinge.
    method : {"objective", "output"}
        Noise in the objective, or on the result.
    kernel, alpha, epsilon, delta, classes, rows_per_person, ledger, random_state, verbose
        As for `GaussianProcessRelease`; ``delta=0`` is pure.

    Attributes
    ----------
    coef_ : array of shape (1, features) or (classes, features)
        Weights of the features.
    classes_ : array
    guarantee_ : Guarantee
        What was promised.
    noise_ : NoiseLaw
        The noise in the objective or on the result; public.
    alpha_ : float
        The regularisation used; public.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn.kernel import RBF, LandmarkClassifier
    >>> generator = np.random.default_rng(0)
    >>> X, Z = generator.normal(size=(20_000, 2)), generator.normal(size=(30, 2))
    >>> inside = (X**2).sum(axis=1) < 1.4
    >>> model = LandmarkClassifier(kernel=RBF(0.5), landmarks=Z, delta=1e-6, classes=[False, True]).fit(X, inside)
    >>> bool(model.score(X, inside) > 0.85)
    True
    """

    _public_points = (PUBLIC_LANDMARKS,)

    def __init__(
        self,
        *,
        landmarks: Any = None,
        kernel: Kernel | None = None,
        rank: int | str | None = "auto",
        whitening: float = 0.7,
        loss: str = "logistic",
        alpha: float | str = "auto",
        epsilon: float = 1.0,
        delta: float = 0.0,
        method: str = "objective",
        classes: Any = None,
        rows_per_person: int = 1,
        ledger: Any = None,
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        self.landmarks = landmarks
        self.kernel = kernel
        self.rank = rank
        self.whitening = whitening
        self.loss = loss
        self.alpha = alpha
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.classes = classes
        self.rows_per_person = rows_per_person
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def _records(self, X: Any, y: Any, unsupported: dict[str, Any]) -> tuple[Any, Array, Loss, tuple[str, ...]]:
        if self.loss == "huber":
            raise InvalidInput("a classifier's loss is 'logistic' or 'hinge'; for targets use LandmarkRegressor")
        return super()._records(X, y, unsupported)

    def _map(self, rows: int, loss: Loss) -> FeatureMap:
        return landmark_map(self, rows, loss)


class LandmarkRegressor(_LinearInFeatures):
    """Private kernel regression in the span of public landmarks, by objective perturbation of the Huber loss.

    Parameters
    ----------
    target_bound : float or (float, float), optional
        A public bound on |y|, or a public range; targets are clipped to it. 1.0, with a warning, if left out.
    landmarks, kernel, rank, whitening, alpha, epsilon, delta, method, rows_per_person, ledger, random_state, verbose
        As for `LandmarkClassifier`.

    Attributes
    ----------
    coef_ : array of shape (1, features)
    guarantee_, noise_, alpha_
        As for `LandmarkClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn.kernel import RBF, LandmarkRegressor
    >>> generator = np.random.default_rng(0)
    >>> X, Z = generator.uniform(-2, 2, size=(20_000, 1)), np.linspace(-2, 2, 12)[:, None]
    >>> y = np.sin(2 * X[:, 0])
    >>> model = LandmarkRegressor(kernel=RBF(2.0), landmarks=Z, delta=1e-6, target_bound=1.0).fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    _public_points = (PUBLIC_LANDMARKS,)

    loss = "huber"
    classes = None

    def __init__(
        self,
        *,
        landmarks: Any = None,
        kernel: Kernel | None = None,
        rank: int | str | None = "auto",
        whitening: float = 0.7,
        alpha: float | str = "auto",
        epsilon: float = 1.0,
        delta: float = 0.0,
        method: str = "objective",
        target_bound: Any = None,
        rows_per_person: int = 1,
        ledger: Any = None,
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        self.landmarks = landmarks
        self.kernel = kernel
        self.rank = rank
        self.whitening = whitening
        self.alpha = alpha
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.target_bound = target_bound
        self.rows_per_person = rows_per_person
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def _map(self, rows: int, loss: Loss) -> FeatureMap:
        return landmark_map(self, rows, loss)


def landmark_map(model: LandmarkClassifier | LandmarkRegressor, rows: int, loss: Loss) -> Landmarks:
    """The map a model asks for, for so many rows and this loss."""
    if model.landmarks is None:
        raise InvalidInput("pass landmarks=, public points whose features span the model")
    landmarks = model.kernel_.points(model.landmarks, model._width_)
    if isinstance(model.rank, str) and model.rank != "auto":
        raise InvalidInput(f"rank must be a whole number, 'auto' or None, got {model.rank!r}")
    if not isinstance(model.rank, str):
        return Landmarks(model.kernel_, landmarks, model.rank, model.whitening)
    budget = per_record(*check_fit_budget(model.epsilon, model.delta, model.rows_per_person))
    return Landmarks(
        model.kernel_, landmarks, lambda spectrum: automatic_rank(loss, rows, spectrum, *budget), model.whitening
    )


class RandomFeatures(_FeatureClassifier):
    """The earlier papers' way with kernels of x - y: a private linear model over random cosines and sines.

    Chaudhuri, Monteleoni and Sarwate (2011) and Rubinstein et al. (2009). A baseline: it needs no landmarks, and works
    for `RBF` and `Laplacian` only.

    Parameters
    ----------
    n_features : int
        How many; they are public.
    feature_seed : int
        Which ones.
    loss : {"logistic", "hinge", "huber"}
        Classification, or regression.
    kernel, alpha, epsilon, delta, method, classes, target_bound, rows_per_person, ledger, random_state, verbose
        As for `LandmarkClassifier` and `LandmarkRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn.kernel import RBF, RandomFeatures
    >>> generator = np.random.default_rng(0)
    >>> X = generator.normal(size=(20_000, 2))
    >>> inside = (X**2).sum(axis=1) < 1.4
    >>> model = RandomFeatures(kernel=RBF(0.5), n_features=100, delta=1e-6, classes=[False, True]).fit(X, inside)
    >>> bool(model.score(X, inside) > 0.8)
    True
    """

    def __init__(
        self,
        *,
        kernel: Kernel | None = None,
        n_features: int = 200,
        feature_seed: int = 0,
        loss: str = "logistic",
        alpha: float | str = "auto",
        epsilon: float = 1.0,
        delta: float = 0.0,
        method: str = "objective",
        classes: Any = None,
        target_bound: Any = None,
        rows_per_person: int = 1,
        ledger: Any = None,
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        self.kernel = kernel
        self.n_features = n_features
        self.feature_seed = feature_seed
        self.loss = loss
        self.alpha = alpha
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.classes = classes
        self.target_bound = target_bound
        self.rows_per_person = rows_per_person
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def _map(self, rows: int, loss: Loss) -> FeatureMap:  # noqa: ARG002 - drawn without looking at either
        return Fourier(self.kernel_, self._width_, self.n_features, self.feature_seed)
