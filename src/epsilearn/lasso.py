"""Sparse private models: few columns out of very many, chosen step by step (Talwar, Thakurta and Zhang 2015)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit
from sklearn.base import ClassifierMixin, RegressorMixin

from epsilearn.calibration.frank_wolfe import LogisticSlope, SlopeBounds, SquaredSlope
from epsilearn.constraints import ConstraintSet
from epsilearn.errors import InvalidInput
from epsilearn.linear.classification import LogisticRegression, class_targets, given_classes, public_labels
from epsilearn.linear.regression import LinearRegression, clipped_targets, public_targets
from epsilearn.sparse_model import NUMBERS, SparseModel

__all__ = ["Lasso", "SparseLogisticRegression"]

Array = NDArray[np.float64]


class Lasso(RegressorMixin, SparseModel):  # type: ignore[misc]
    """The private LASSO: least squares over the l1 ball, or over another convex set, by private Frank-Wolfe.

    Minimises the mean of (<x, w> - y)**2 over ||w||_1 <= radius. Each step chooses one column privately, so the model
    has at most ``n_steps - 1`` of them, and the price depends on the number of columns only through its logarithm.

    Parameters
    ----------
    epsilon, delta : float
        The budget of one fit, per person. ``delta=0`` is pure; above 0 there is less noise.
    radius : float
        The size of the constraint set, where it is given by name.
    constraint : {"l1", "simplex", "l2"} or ConstraintSet
        Where the weights live. Sets with few corners are walked by choosing corners; the others by noisy gradients,
        which needs ``delta > 0``. See `epsilearn.constraints`.
    feature_bound : float, optional
        A public bound on |x| in every column; features are cut to it. 1.0, with a warning, if left out.
    target_bound : float or (float, float), optional
        A public bound on |y|, or a public range; targets are cut to it. 1.0, with a warning, if left out.
    data_norm : float, optional
        A public bound on the l2 norm of a row, besides ``feature_bound``; noisy gradients need far less noise with it.
    n_steps : int, "auto" or "paper"
        T: the path starts at 0 (on the simplex: at the first column's corner) and takes T - 1 steps. "auto" balances
        steps and noise from public numbers only, "paper" is as printed.
    method : {"auto", "corners", "gradient"}
        How steps are made private; "auto" chooses corners where the set has few.
    calibration : {"tight", "paper"}
        This project's theorems, or the 2015 paper's noise; then the guarantee states what is proven for it.
    fit_intercept : bool
        Whether to add a constant column, of the features' bound, to the l1 ball; it can be chosen like any other.
    refit : float
        The share of the budget that is spent on fitting the selected columns again by objective perturbation, free of
        the constraint. 0 leaves the path's end as it is.
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
    coef_ : array of shape (features,)
    sparse_coef_ : sparse array of shape (1, features)
    intercept_ : float
    selected_ : array of int
        The columns (of a polytope: the vertices) in the order in which they were chosen; part of what is released. The
        number of features stands for the constant column. Not there for noisy gradients.
    n_steps_ : int
    guarantee_ : Guarantee
        What was promised.
    noise_ : NoiseLaw
        The noise of each step; public.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn import Lasso
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(-1, 1, size=(50_000, 200))
    >>> y = 0.5 * X[:, 3] - 0.5 * X[:, 8] + generator.normal(scale=0.1, size=50_000)
    >>> model = Lasso(epsilon=1.0, delta=1e-6, radius=1.0, feature_bound=1.0, target_bound=1.0).fit(X, y)
    >>> sorted(set(model.selected_[:4].tolist()))
    [3, 8]
    >>> print(model.guarantee_)
    epsilon = 1, delta = 1e-06, per record, replace-one
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 0.0,
        radius: float = 1.0,
        constraint: str | ConstraintSet = "l1",
        feature_bound: float | None = None,
        target_bound: Any = None,
        data_norm: float | None = None,
        n_steps: int | str = "auto",
        method: str = "auto",
        calibration: str = "tight",
        fit_intercept: bool = False,
        refit: float = 0.0,
        rows_per_person: int = 1,
        ledger: Any = None,
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.radius = radius
        self.constraint = constraint
        self.feature_bound = feature_bound
        self.target_bound = target_bound
        self.data_norm = data_norm
        self.n_steps = n_steps
        self.method = method
        self.calibration = calibration
        self.fit_intercept = fit_intercept
        self.refit = refit
        self.rows_per_person = rows_per_person
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> Lasso:
        """Fit the model to private rows, and release it.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (rows, features), or a table in parts
            The features, cut to ``feature_bound``. Sparse rows are never made dense.
        y : array of shape (rows,)
            The targets, cut to ``target_bound``. A table in parts has its own.

        Returns
        -------
        self
        """
        X, y = self._validated(X, y, unsupported, y_numeric=True, dtype=NUMBERS)
        target, middle, half = public_targets(y, self.target_bound)

        def refit(budget: tuple[float, float], source: Any) -> LinearRegression:
            return LinearRegression(
                epsilon=budget[0], delta=budget[1], target_bound=half, rows_per_person=self.rows_per_person,
                random_state=source, verbose=False,
            )  # fmt: skip

        weights = self._walk(X, target, SquaredSlope(half), clipped_targets(half), refit)
        self._keep(weights, X.shape[1])
        self.intercept_ += middle
        return self

    def _public_slope(self) -> tuple[SlopeBounds, tuple[str, ...]]:
        _, _, half = public_targets(np.zeros(0), self.target_bound)
        return SquaredSlope(half), clipped_targets(half)

    def predict(self, X: Any) -> Array:
        """The predicted target of each row."""
        return self._scores(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # With a few dozen rows, as in scikit-learn's checks, a private model is mostly noise.
        tags.regressor_tags.poor_score = True
        return tags


class SparseLogisticRegression(ClassifierMixin, SparseModel):  # type: ignore[misc]
    """Private logistic regression over the l1 ball, or another convex set, for two classes and very many columns.

    Minimises the mean of log(1 + exp(-y <x, w>)) over ||w||_1 <= radius by private Frank-Wolfe.

    Parameters
    ----------
    epsilon, delta, radius, constraint, feature_bound, data_norm, n_steps, method, calibration, fit_intercept, refit, \
rows_per_person, ledger, random_state, verbose
        As for `Lasso`.
    classes : sequence, optional
        The public label set. If left out, the labels in ``y`` are taken to be public, and the guarantee says so.

    Attributes
    ----------
    coef_ : array of shape (1, features)
    intercept_ : array of shape (1,)
    classes_ : array
    sparse_coef_, selected_, n_steps_, guarantee_, noise_
        As for `Lasso`.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn import SparseLogisticRegression
    >>> generator = np.random.default_rng(0)
    >>> X = generator.integers(0, 2, size=(20_000, 500))
    >>> y = X[:, 7] > X[:, 11]
    >>> model = SparseLogisticRegression(
    ...     epsilon=1.0, delta=1e-6, radius=5.0, feature_bound=1.0, classes=[False, True]
    ... ).fit(X, y)
    >>> {7, 11} <= set(model.selected_[:4].tolist())
    True
    """

    classes: Any
    classes_: NDArray[Any]

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 0.0,
        radius: float = 10.0,
        constraint: str | ConstraintSet = "l1",
        feature_bound: float | None = None,
        data_norm: float | None = None,
        n_steps: int | str = "auto",
        method: str = "auto",
        calibration: str = "tight",
        fit_intercept: bool = False,
        refit: float = 0.0,
        classes: Any = None,
        rows_per_person: int = 1,
        ledger: Any = None,
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.radius = radius
        self.constraint = constraint
        self.feature_bound = feature_bound
        self.data_norm = data_norm
        self.n_steps = n_steps
        self.method = method
        self.calibration = calibration
        self.fit_intercept = fit_intercept
        self.refit = refit
        self.classes = classes
        self.rows_per_person = rows_per_person
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> SparseLogisticRegression:
        """Fit the model to private rows, and release it.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (rows, features), or a table in parts
            The features, cut to ``feature_bound``. Sparse rows are never made dense.
        y : array of shape (rows,)
            The labels, of two classes. A table in parts has its own.

        Returns
        -------
        self
        """
        X, y = self._validated(X, y, unsupported, dtype=NUMBERS)
        labels, positions, assumptions = public_labels(y, self.classes)
        if len(labels) != 2:
            raise InvalidInput(
                f"Only binary classification is supported by SparseLogisticRegression, and there are {len(labels)} "
                "classes; use LogisticRegression, whose softmax takes any number"
            )
        target = class_targets(positions, outputs=1)

        def refit(budget: tuple[float, float], source: Any) -> LogisticRegression:
            return LogisticRegression(
                epsilon=budget[0], delta=budget[1], classes=[-1.0, 1.0], rows_per_person=self.rows_per_person,
                random_state=source, verbose=False,
            )  # fmt: skip

        weights = self._walk(X, target, LogisticSlope(), assumptions, refit)
        self._keep(weights, X.shape[1])
        self.coef_, self.intercept_ = self.coef_[None], np.array([self.intercept_])
        self.classes_ = labels
        return self

    def _public_slope(self) -> tuple[SlopeBounds, tuple[str, ...]]:
        if len(given_classes(self.classes)) != 2:
            raise InvalidInput("Only binary classification is supported by SparseLogisticRegression; give two classes")
        return LogisticSlope(), ()

    def decision_function(self, X: Any) -> Array:
        """Each row's score; positive means the second class."""
        return self._scores(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The likelier class of each row."""
        scores = self.decision_function(X)
        labels: NDArray[Any] = self.classes_[(scores > 0).astype(int)]
        return labels

    def predict_proba(self, X: Any) -> Array:
        """Each class's probability for each row."""
        second = expit(self.decision_function(X))
        return np.column_stack([1 - second, second])

    def predict_log_proba(self, X: Any) -> Array:
        """The logarithms of the probabilities."""
        scores = self.decision_function(X)
        return np.column_stack([log_expit(-scores), log_expit(scores)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        tags.classifier_tags.multi_class = False
        return tags
