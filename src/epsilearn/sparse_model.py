"""What the sparse models share: a private path through a constraint set, and what is done with its end."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from epsilearn import frank_wolfe
from epsilearn.balls import exact, round_down
from epsilearn.calibration.frank_wolfe import SlopeBounds
from epsilearn.checks import check_fit_budget, check_integer, check_size
from epsilearn.constraints import ConstraintSet, CoordinateCorners, Corners, L1Ball, Simplex, named_set
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee
from epsilearn.linear.model import FLOATS, PrivateModel, public_bound, validated
from epsilearn.mechanisms.release import NoiseLaw
from epsilearn.progress import passing, stepping
from epsilearn.quiet import quietly
from epsilearn.rows import Parts
from epsilearn.rows.bounds import row_norms
from epsilearn.rows.fixed import FixedRows, Levels, fixed_rows
from epsilearn.rows.parted_paths import PartedFixedRows

__all__ = ["NUMBERS", "SparseModel"]

Array = NDArray[np.float64]
# A private linear model for the columns chosen, given its budget and its bits.
Refit = Callable[[tuple[float, float], Any], Any]

NUMBERS = [*FLOATS, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.bool_]
_LEAST_BUDGET = 1e-9  # of a refit: below it nothing could be learned, and scales might leave the doubles


class SparseModel(PrivateModel):
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

    def plan(self, *, rows: int, features: int) -> frank_wolfe.PathPlan:
        """What a fit to so many rows would do and promise, from public numbers alone.

        Parameters
        ----------
        rows, features : int
            How many the table has.

        Returns
        -------
        PathPlan
            The noise and the number of steps of the path, and the promise of the whole fit, a refit included.
        """
        check_integer("rows", rows)
        check_integer("features", features)
        return self._planned((rows, features), *self._public_slope())[0]

    def _public_slope(self) -> tuple[SlopeBounds, tuple[str, ...]]:
        """The loss, by what it promises of its slope, and what the promise then assumes."""
        raise NotImplementedError

    def _planned(
        self, shape: tuple[int, int], bounds: SlopeBounds, assumptions: tuple[str, ...]
    ) -> tuple[frank_wolfe.PathPlan, tuple[float, float], tuple[float, float] | None]:
        """The plan, the bounds on a feature and on a row's length, and the budget of the refit, if there is one.

        The plan's promise covers both.
        """
        bound, length = self._public_bounds()
        constraint = self._set()
        first, second = self._budgets(constraint)
        made = frank_wolfe.plan(
            bounds,
            self._table(shape, bound, length, constraint),
            constraint,
            epsilon=first[0],
            delta=first[1],
            steps=self.n_steps,
            method=self.method,
            calibrated=self.calibration,
            rows_per_person=self.rows_per_person,
            assumptions=assumptions,
        )
        if second is not None:
            made = replace(made, promise=self._whole_promise(made.promise), excess_bound=None)
        return made, (bound, length), second

    def _walk(self, X: Any, target: Any, bounds: SlopeBounds, assumptions: tuple[str, ...], refit: Refit) -> Array:
        """Plan, debit, walk, release: the weights, the intercept's last where there is one."""
        made, (bound, length), second = self._planned(X.shape, bounds, assumptions)

        def after(point: Array, chosen: list[int], source: Any) -> Array:
            assert second is not None
            columns = np.unique(_columns(chosen, made.corners))
            # The refit is to the records of the walk.
            again = X.relabelled(target, rows.seen) if isinstance(rows, PartedFixedRows) else X
            return self._refitted(refit(second, source), again, target, point, columns, (bound, length))

        in_parts = isinstance(X, Parts)
        with (
            passing(self.verbose, X) if in_parts else nullcontext(),
            stepping(False if in_parts else self.verbose, made.steps) as progress,
        ):
            rows = self._fixed_rows(X, target, made.features, length)
            walked = frank_wolfe.execute(
                made,
                rows,
                target,
                after=None if second is None else after,
                ledger=self._account,
                purpose=f"{type(self).__name__}.fit",
                random_state=self.random_state,
                progress=progress,
            )
        self._bounds_ = bound, length
        self.guarantee_, self.noise_, self.n_steps_ = walked.guarantee, made.law, made.steps
        if walked.chosen is not None:
            self.selected_ = _columns(walked.chosen, made.corners)
        return walked.point

    def _fixed_rows(self, X: Any, target: Any, levels: Levels, length: float) -> FixedRows | PartedFixedRows:
        intercept = bool(self.fit_intercept)
        if isinstance(X, Parts):
            return PartedFixedRows(X, target, levels, length, intercept)
        return fixed_rows(X, levels, length=length, intercept=intercept)

    def _public_bounds(self) -> tuple[float, float]:
        """The bounds on a feature and on a row's length."""
        bound = public_bound("feature_bound", self.feature_bound)
        return bound, math.inf if self.data_norm is None else check_size("data_norm", self.data_norm)

    def _set(self) -> ConstraintSet:
        check_size("radius", self.radius)
        if isinstance(self.constraint, ConstraintSet):
            return self.constraint
        return named_set(self.constraint, self.radius)

    def _table(
        self, shape: tuple[int, int], bound: float, length: float, constraint: ConstraintSet
    ) -> frank_wolfe.PathTable:
        """What is public about the rows, the constant column included."""
        if not self.fit_intercept:
            return frank_wolfe.PathTable(*shape, bound, length)
        if not isinstance(constraint, L1Ball):
            raise InvalidInput(
                "fit_intercept=True puts a constant column into the l1 ball; for another set add such a column yourself"
            )
        return frank_wolfe.PathTable(shape[0], shape[1] + 1, bound, math.hypot(length, bound) * (1 + 1e-15))

    def _budgets(self, constraint: ConstraintSet) -> tuple[tuple[float, float], tuple[float, float] | None]:
        """The budgets of the path and of the refit, if there is one; together no more than the whole."""
        whole, share = check_fit_budget(self.epsilon, self.delta, self.rows_per_person)[:2], self.refit
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < 1:
            raise InvalidInput(f"refit must be a share of the budget, at least 0 and below 1, got {share!r}")
        if share == 0:
            return whole, None
        if self.calibration == "paper":
            raise InvalidInput("refit is not in the paper; use it with calibration='tight'")
        if self.method == "gradient" or not isinstance(constraint, (L1Ball, Simplex)):
            raise InvalidInput(
                "refit fits the columns that were chosen; only the l1 ball and the simplex choose columns"
            )
        part = [round_down(exact(total) * exact(float(share))) for total in whole]
        rest = [round_down(exact(total) - exact(own)) for total, own in zip(whole, part, strict=True)]
        if min(part[0], rest[0]) < _LEAST_BUDGET:
            raise InvalidInput(
                f"refit={share!r} leaves less than {_LEAST_BUDGET:g} of epsilon to one of the two fits; choose a share "
                "further from 0 and 1, a larger epsilon, or refit=0"
            )
        return (rest[0], rest[1]), (part[0], part[1])

    def _whole_promise(self, promise: Guarantee) -> Guarantee:
        """The promise of path and refit together: their budgets add up to what was asked for."""
        return Guarantee.from_budget(
            float(self.epsilon),
            float(self.delta),
            mechanism="private Frank-Wolfe, then objective perturbation on the selected columns",
            theorem=f"basic composition; {promise.theorem}; objective perturbation",
            assumptions=(*promise.assumptions[:-1], "the solver reaches its certificate", promise.assumptions[-1]),
            rows_per_person=promise.rows_per_person,
        )

    def _refitted(
        self, model: Any, X: Any, y: Any, point: Array, columns: NDArray[np.int64], bounds: tuple[float, float]
    ) -> Array:
        """The weights of another private model, fitted to the columns that were chosen."""
        columns = columns[columns < X.shape[1]]
        if not len(columns):
            return point  # nothing but the constant column
        bound, length = bounds
        model.set_params(data_norm=min(length, bound * math.sqrt(len(columns))), fit_intercept=bool(self.fit_intercept))
        cut = partial(_cut, bound=bound, length=length, columns=columns)
        if isinstance(X, Parts):
            model.fit(X.through(cut, len(columns)))
        else:
            model.fit(cut(X), y)
        weights = np.zeros(len(point))
        weights[columns] = np.ravel(model.coef_)
        if self.fit_intercept:
            weights[-1] = float(np.ravel(model.intercept_)[0]) / bound
        return weights

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

    @quietly()
    def _scores(self, X: Any) -> Array:
        """Scores of new rows, each brought inside the bounds as in training."""
        check_is_fitted(self, "coef_")
        X = validated(self, X, dtype=NUMBERS, reset=False)
        scores: Array = _cut(X, *self._bounds_) @ np.ravel(self.coef_) + self.intercept_
        return scores


def _columns(chosen: list[int], corners: Corners | None) -> NDArray[np.int64]:
    """The columns that corners on the axes lie on; the corners' own numbers otherwise."""
    indices = np.array(chosen, np.int64)
    return indices // 2 if isinstance(corners, CoordinateCorners) and corners.signed else indices


def _cut(X: Any, bound: float, length: float, columns: NDArray[np.int64] | None = None) -> Any:
    """Features inside the bound, rows inside the length; all columns, or some of those rows' columns."""
    if sparse.issparse(X):
        X = sparse.csr_array(X, dtype=np.float64, copy=True)
        X.sum_duplicates()
        np.clip(X.data, -bound, bound, out=X.data)
    else:
        # A row's length takes all of its columns; without a bound on it the others need not be looked at.
        X = X[:, columns] if columns is not None and math.isinf(length) else X
        X = np.clip(X.astype(np.float64, copy=False), -bound, bound)
    factors = _factors(X, length)
    if columns is not None and X.shape[1] != len(columns):
        X = X[:, columns]
    if factors is None:
        return X
    return sparse.csr_array(sparse.diags_array(factors) @ X) if sparse.issparse(X) else X * factors[:, None]


def _factors(X: Any, length: float) -> Array | None:
    if math.isinf(length):
        return None
    with quietly():  # a row's own affair: one that is so short is not scaled
        factors: Array = np.minimum(1.0, length / row_norms(X))
    return factors
