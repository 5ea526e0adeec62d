"""Sparse private models: few columns out of very many, chosen step by step (Talwar, Thakurta and Zhang 2015)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, log_expit
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from epsilearn import frank_wolfe
from epsilearn.balls import exact, round_down
from epsilearn.calibration.frank_wolfe import LogisticSlope, SlopeBounds, SquaredSlope
from epsilearn.checks import check_budget, check_positive
from epsilearn.constraints import ConstraintSet, L1Ball, Simplex, named_set
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee
from epsilearn.linear.classification import LogisticRegression, public_labels
from epsilearn.linear.model import FLOATS, PrivateModel, public_bound
from epsilearn.linear.regression import LinearRegression, public_targets
from epsilearn.mechanisms.release import NoiseLaw
from epsilearn.progress import stepping
from epsilearn.rows.bounds import row_norms
from epsilearn.rows.fixed import fixed_rows

__all__ = ["Lasso", "SparseLogisticRegression"]

Array = NDArray[np.float64]

_TYPES = [*FLOATS, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.bool_]


class _SparseModel(PrivateModel):
    """A private path through a constraint set, and what is done with its end."""

    epsilon: float
    delta: float
    radius: float
    constraint: str | ConstraintSet
    feature_bound: float | None
    data_norm: float | None
    n_steps: int | str
    method: str
    calibration: str
    fit_intercept: bool
    refit: float
    rows_per_person: int
    ledger: Any
    random_state: Any
    verbose: bool | None

    coef_: Array
    intercept_: Any
    guarantee_: Guarantee
    noise_: NoiseLaw
    n_steps_: int
    selected_: NDArray[np.int64]

    def _walk(self, X: Any, target: Array, bounds: SlopeBounds, assumptions: tuple[str, ...], refit: Refit) -> Array:
        """Plan, debit, walk, release: the weights, the intercept's last where there is one."""
        table, length = self._table(X)
        share = self._refit_share()
        first, second = _divided(*check_budget(self.epsilon, self.delta), share)
        made = frank_wolfe.plan(
            bounds,
            table,
            self._set(),
            epsilon=first[0],
            delta=first[1],
            steps=self.n_steps,
            method=self.method,
            calibrated=self.calibration,
            rows_per_person=self.rows_per_person,
            assumptions=assumptions,
        )
        promise = made.promise if second is None else self._whole_promise(made.promise)
        rows = fixed_rows(X, made.features, length=length, intercept=bool(self.fit_intercept))
        after = None if second is None else lambda point, source: refit(point, second, source)
        with stepping(self.verbose, made.steps) as progress:
            walked = frank_wolfe.execute(
                made,
                rows,
                target,
                promise=promise,
                after=after,
                ledger=self.ledger,
                purpose=f"{type(self).__name__}.fit",
                random_state=self.random_state,
                progress=progress,
            )
        self._bounds_ = table.feature_bound, length
        self.guarantee_, self.noise_, self.n_steps_ = walked.guarantee, made.law, made.steps
        if walked.chosen is not None:
            self.selected_ = _columns_of(walked.chosen, made, rows.d)
        return walked.point

    def _table(self, X: Any) -> tuple[frank_wolfe.PathTable, float]:
        """What is public about the rows, and the bound on a row's length without the constant column."""
        bound = public_bound("feature_bound", self.feature_bound, stacklevel=6)
        length = math.inf if self.data_norm is None else check_positive("data_norm", self.data_norm)
        if self.fit_intercept and not isinstance(self._set(), L1Ball):
            raise InvalidInput(
                "fit_intercept=True puts a constant column into the l1 ball; for another set add such a column yourself"
            )
        whole = math.hypot(length, bound) * (1 + 1e-15) if self.fit_intercept else length
        integers = X.dtype.kind in "iub"
        return frank_wolfe.PathTable(X.shape[0], X.shape[1] + bool(self.fit_intercept), bound, whole, integers), length

    def _refit_share(self) -> float:
        refit = self.refit
        if isinstance(refit, bool) or not isinstance(refit, (int, float)) or not 0 <= refit < 1:
            raise InvalidInput(f"refit must be a share of the budget, at least 0 and below 1, got {refit!r}")
        if refit and (self.method == "gradient" or not isinstance(self._set(), (L1Ball, Simplex))):
            raise InvalidInput(
                "refit fits the columns that were chosen; only the l1 ball and the simplex choose columns"
            )
        return float(refit)

    def _set(self) -> ConstraintSet:
        if isinstance(self.constraint, ConstraintSet):
            return self.constraint
        return named_set(self.constraint, self.radius)

    def _whole_promise(self, promise: Guarantee) -> Guarantee:
        """The promise of selection and refit together: their budgets add up to what was asked for."""
        if promise.claimed_epsilon is not None:
            raise InvalidInput("refit is not in the paper; use it with calibration='tight'")
        return Guarantee.from_budget(
            float(self.epsilon),
            float(self.delta),
            mechanism="private Frank-Wolfe, then objective perturbation on the selected columns",
            theorem=f"basic composition; {promise.theorem}; objective perturbation",
            assumptions=(*promise.assumptions[:-1], "the solver reaches its certificate", promise.assumptions[-1]),
            rows_per_person=promise.rows_per_person,
        )

    def _refitted(self, model: Any, X: Any, y: Any, point: Array) -> Array:
        """The weights of another private model, fitted to the columns that were selected."""
        columns = np.flatnonzero(point[: X.shape[1]])
        weights = np.zeros(len(point))
        if not len(columns):
            return weights
        model.set_params(data_norm=float(self._refit_norm(len(columns))), fit_intercept=bool(self.fit_intercept))
        model.fit(_cut(X[:, columns], *self._bounds_of_features()), y)
        weights[columns] = np.ravel(model.coef_)
        if self.fit_intercept:
            weights[-1] = float(np.ravel(model.intercept_)[0]) / self._bounds_of_features()[0]
        return weights

    def _refit_norm(self, columns: int) -> float:
        bound, length = self._bounds_of_features()
        return min(length, bound * math.sqrt(columns))

    def _bounds_of_features(self) -> tuple[float, float]:
        bound = 1.0 if self.feature_bound is None else float(self.feature_bound)
        return bound, math.inf if self.data_norm is None else float(self.data_norm)

    def _keep(self, weights: Array, features: int) -> None:
        """Store the weights as coefficients and an intercept."""
        self.coef_ = weights[:features]
        # The constant column holds the features' bound.
        self.intercept_ = float(weights[-1] * self._bounds_[0]) if self.fit_intercept else 0.0

    @property
    def sparse_coef_(self) -> Any:
        """The coefficients as a sparse matrix of one row."""
        check_is_fitted(self, "coef_")
        return sparse.csr_array(np.atleast_2d(self.coef_))

    def _scores(self, X: Any) -> Array:
        """Scores of new rows, each brought inside the bounds as in training."""
        check_is_fitted(self, "coef_")
        X = validate_data(self, X, accept_sparse="csr", dtype=_TYPES, reset=False)
        scores: Array = _cut(X, *self._bounds_) @ np.ravel(self.coef_) + self.intercept_
        return scores


Refit = Callable[[Array, tuple[float, float], Any], Array]


def _divided(epsilon: float, delta: float, share: float) -> tuple[tuple[float, float], tuple[float, float] | None]:
    """The budgets of the selection and of the refit; together no more than the whole."""
    if share == 0:
        return (epsilon, delta), None
    parts = [round_down(exact(whole) * exact(share)) for whole in (epsilon, delta)]
    rest = [round_down(exact(whole) - exact(part)) for whole, part in zip((epsilon, delta), parts, strict=True)]
    return (rest[0], rest[1]), (parts[0], parts[1])


def _columns_of(chosen: list[int], made: frank_wolfe.PathPlan, columns: int) -> NDArray[np.int64]:
    indices = np.array(chosen, np.int64)
    signed = getattr(made.constraint.corners(columns), "signed", False)
    return indices // 2 if signed else indices


def _cut(X: Any, bound: float, length: float) -> Any:
    """Features inside the bound, rows inside the length."""
    if sparse.issparse(X):
        X = sparse.csr_array(X, dtype=np.float64, copy=True)
        np.clip(X.data, -bound, bound, out=X.data)
    else:
        X = np.clip(X.astype(np.float64, copy=False), -bound, bound)
    if math.isinf(length):
        return X
    with np.errstate(divide="ignore"):
        factors = np.minimum(1.0, length / row_norms(X))
    return sparse.diags_array(factors) @ X if sparse.issparse(X) else X * factors[:, None]


class Lasso(RegressorMixin, _SparseModel):  # type: ignore[misc]
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
        T: the path starts at 0 and takes T - 1 steps. "auto" balances steps and noise from public numbers only,
        "paper" is as printed.
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

    def fit(self, X: Any, y: Any, **unsupported: Any) -> Lasso:
        """Fit the model to private rows, and release it.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (rows, features)
            The features, cut to ``feature_bound``. Sparse rows are never made dense.
        y : array of shape (rows,)
            The targets, cut to ``target_bound``.

        Returns
        -------
        self
        """
        X, y = self._validated(X, y, unsupported, y_numeric=True, dtype=_TYPES)
        target, middle, half = public_targets(y.astype(np.float64, copy=False), self.target_bound)
        assumptions = (f"targets are cut to a range of half-width {half:g}",)

        def refit(point: Array, budget: tuple[float, float], source: Any) -> Array:
            model = LinearRegression(
                epsilon=budget[0], delta=budget[1], target_bound=half, rows_per_person=self.rows_per_person,
                random_state=source, verbose=False,
            )  # fmt: skip
            return self._refitted(model, X, target, point)

        weights = self._walk(X, target, SquaredSlope(half), assumptions, refit)
        self._keep(weights, X.shape[1])
        self.intercept_ += middle
        return self

    def predict(self, X: Any) -> Array:
        """The predicted target of each row."""
        return self._scores(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # With a few dozen rows, as in scikit-learn's checks, a private model is mostly noise.
        tags.regressor_tags.poor_score = True
        return tags


class SparseLogisticRegression(ClassifierMixin, _SparseModel):  # type: ignore[misc]
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
    >>> sorted(set(model.selected_[:4].tolist()))
    [7, 11]
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

    def fit(self, X: Any, y: Any, **unsupported: Any) -> SparseLogisticRegression:
        """Fit the model to private rows, and release it.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (rows, features)
            The features, cut to ``feature_bound``. Sparse rows are never made dense.
        y : array of shape (rows,)
            The labels, of two classes.

        Returns
        -------
        self
        """
        X, y = self._validated(X, y, unsupported, dtype=_TYPES)
        labels, positions, assumptions = public_labels(y, self.classes)
        if len(labels) != 2:
            raise InvalidInput(
                f"Only binary classification is supported by SparseLogisticRegression, and there are {len(labels)} "
                "classes; use LogisticRegression, whose softmax takes any number"
            )
        target = 2 * positions.astype(np.float64) - 1

        def refit(point: Array, budget: tuple[float, float], source: Any) -> Array:
            model = LogisticRegression(
                epsilon=budget[0], delta=budget[1], classes=[-1.0, 1.0], rows_per_person=self.rows_per_person,
                random_state=source, verbose=False,
            )  # fmt: skip
            return self._refitted(model, X, target, point)

        weights = self._walk(X, target, LogisticSlope(), assumptions, refit)
        self._keep(weights, X.shape[1])
        self.coef_, self.intercept_ = self.coef_[None], np.array([self.intercept_])
        self.classes_ = labels
        return self

    def decision_function(self, X: Any) -> Array:
        """Each row's score; positive means the second class."""
        return self._scores(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The likelier class of each row."""
        labels: NDArray[Any] = self.classes_[(self.decision_function(X) > 0).astype(int)]
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
