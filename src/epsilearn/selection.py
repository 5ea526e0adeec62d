"""Choosing hyper-parameters privately."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import MetaEstimatorMixin, clone, is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from epsilearn.balls import exact, round_down
from epsilearn.calibration.groups import per_record
from epsilearn.candidates import Candidate, built, check_candidates, private_part, with_public_labels
from epsilearn.checks import check_budget, check_fit_budget, check_integer, check_probability, check_unmasked
from epsilearn.errors import EpsilearnError, InvalidInput
from epsilearn.evaluation import check_range, private_score, record_scores, take_rows
from epsilearn.fit_counts import CountedFits, uncounted
from epsilearn.guarantee import Guarantee
from epsilearn.identity import check_apart
from epsilearn.linear.model import forget_fit
from epsilearn.mechanisms import exponential
from epsilearn.mechanisms.release import FAIR_BITS, spending
from epsilearn.mechanisms.stopping import best_of_random_many
from epsilearn.quiet import quietly, undivided
from epsilearn.rows.parts import check_in_memory

__all__ = ["PrivateSelection"]

Indices = NDArray[np.int64]


def _chosen_has(name: str) -> Any:
    def check(selection: Any) -> bool:
        return hasattr(getattr(selection, "best_estimator_", selection.estimator), name)

    return available_if(check)


class PrivateSelection(MetaEstimatorMixin, CountedFits):  # type: ignore[misc]
    """Fit a private estimator with the best of several settings, for one stated budget.

    Parameters
    ----------
    estimator : estimator
        A private estimator that is a function, not a session, or a pipeline that ends in one and whose other steps
        learn nothing (see `check_pipeline`). Its own budget, ledger and random state are replaced.
    grid : dict or list of dict
        Settings to try, as for scikit-learn's `GridSearchCV`. They may swap whole steps: each candidate is checked.
    epsilon, delta : float
        The budget for everything together, per person.
    strategy : {"parts", "stopping"}
        "parts": each candidate is fitted to a part of the rows of its own, and the exponential mechanism chooses by
        mistakes on a further part. Parts are fixed by row number, so the total is the largest of the parts' budgets:
        every one of them gets it whole. "stopping": a random candidate is fitted to all rows but the held-out ones, a
        geometric number of times, and the best by private score is kept. That costs three times what one try does
        (pure only), but leaves the rows together; it wins when candidates are many.
    holdout : float
        The share of the rows that judges the candidates.
    stop : float, optional
        For "stopping": the probability of stopping after each try; 1 / (2 * number of candidates) if left out.
    target_bound : float or (float, float), optional
        For regressors: the public bound on |y| by which errors are clipped.
    rows_per_person : int
        How many records one person may have.
    ledger : Ledger, optional
        Debited once, for everything, before anything is fitted.
    random_state : int, optional
        For tests and studies; voids the promise.

    Attributes
    ----------
    best_estimator_ : estimator
        The chosen one, as it was fitted.
    best_params_ : dict
        Its settings. Releasable: they are the mechanism's output.
    guarantee_ : Guarantee
        The total.

    Examples
    --------
    >>> import numpy as np
    >>> from epsilearn import LogisticRegression, PrivateSelection
    >>> generator = np.random.default_rng(0)
    >>> X = generator.normal(size=(20_000, 3)) / 2
    >>> y = X[:, 0] > 0
    >>> search = PrivateSelection(
    ...     LogisticRegression(data_norm=2.0, classes=[False, True]), {"alpha": [0.001, 100.0]}, epsilon=1.0
    ... ).fit(X, y)
    >>> list(search.best_params_), search.guarantee_.epsilon
    (['alpha'], 1.0)
    """

    def __init__(
        self,
        estimator: Any,
        grid: Any,
        *,
        epsilon: float = 1.0,
        delta: float = 0.0,
        strategy: str = "parts",
        holdout: float = 0.25,
        stop: float | None = None,
        target_bound: Any = None,
        rows_per_person: int = 1,
        ledger: Any = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.grid = grid
        self.epsilon = epsilon
        self.delta = delta
        self.strategy = strategy
        self.holdout = holdout
        self.stop = stop
        self.target_bound = target_bound
        self.rows_per_person = rows_per_person
        self.ledger = ledger
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> PrivateSelection:
        """Fit the candidates and keep one.

        Parameters
        ----------
        X : array, data frame or sparse matrix
            The features.
        y : array
            The labels or targets.

        Returns
        -------
        self
        """
        forget_fit(self)
        # Whatever can be refused without a row is refused before any is read, and before anything is copied.
        check_apart((self.estimator, self.grid), X, y)
        candidates = built(self.estimator, self.grid)
        assumptions = check_candidates(candidates)
        self._check(candidates[0].estimator)
        X, y = _table(X, y, candidates)
        assumptions += with_public_labels(candidates, y)
        train, judge = self._split(len(y), len(candidates))
        parts = np.array_split(train, len(candidates)) if self.strategy == "parts" else [train] * len(candidates)
        promise = self._promise((*assumptions, *self._rehearse(X, y, candidates, parts, judge)))
        if self.strategy == "parts":
            self._fit_parts(X, y, candidates, parts, judge, promise)
        else:
            self._fit_stopping(X, y, candidates, train, judge, promise)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.best_estimator_, name):
                setattr(self, name, getattr(self.best_estimator_, name))
        return self

    def _possible_estimators(self) -> list[Any]:
        """Whatever the grid can make of the estimator; for `check_pipeline`."""
        return [candidate.estimator for candidate in built(self.estimator, self.grid)]

    def _check(self, estimator: Any) -> None:
        _, delta, _ = check_fit_budget(self.epsilon, self.delta, self.rows_per_person)
        check_probability("holdout", self.holdout)
        if self.strategy not in ("parts", "stopping"):
            raise InvalidInput(f"strategy must be 'parts' or 'stopping', got {self.strategy!r}")
        if not is_classifier(estimator):
            check_range(self.target_bound)
        if self.strategy == "stopping" and delta:
            raise InvalidInput("random stopping is proven here for pure promises; use delta=0, or strategy='parts'")

    def _promise(self, assumptions: tuple[str, ...]) -> Guarantee:
        mechanism, theorem = {
            "parts": ("disjoint parts", "parallel composition by index: the largest of the parts and the choice"),
            "stopping": ("random stopping", "random stopping: three times one try (Papernot and Steinke 2022)"),
        }[self.strategy]
        return Guarantee.from_budget(
            *check_budget(self.epsilon, self.delta),
            mechanism=f"selection by {mechanism}",
            theorem=theorem,
            assumptions=(
                "n is public", "rows are assigned to parts by their number alone",
                *dict.fromkeys(a for a in assumptions if a not in ("n is public", FAIR_BITS)), FAIR_BITS,
            ),
            rows_per_person=check_integer("rows_per_person", self.rows_per_person),
        )  # fmt: skip

    def _split(self, rows: int, candidates: int) -> tuple[Indices, Indices]:
        # Any order fixed without looking at the rows will do; a shuffled one does not mind how the table was sorted.
        order = np.random.default_rng(rows).permutation(rows)
        judges = round(self.holdout * rows)
        needed = candidates if self.strategy == "parts" else 1
        if judges < 1 or rows - judges < needed:
            raise InvalidInput(
                f"n_samples={rows} is too few for {candidates} candidates and a hold-out of {self.holdout:g}"
            )
        return order[judges:], order[:judges]

    def _record_budget(self) -> tuple[float, float]:
        """One record lies in one part; a person's records may lie in several, so they are counted as a group."""
        return per_record(self.epsilon, self.delta, self.rows_per_person)

    def _one_budget(self) -> tuple[float, float]:
        """What one candidate may cost, per record."""
        epsilon, delta = self._record_budget()
        return (epsilon, delta) if self.strategy == "parts" else (round_down(exact(epsilon) / 3), 0.0)

    def _rehearse(
        self, X: Any, y: Any, candidates: list[Candidate], parts: list[Indices], judge: Indices
    ) -> tuple[str, ...]:
        """Let each candidate check its rows, and the judges', and plan, up to the debit, and see what it would promise.

        So a bad setting or a bad table costs nothing, and constants that prove less than they claim are refused.
        """
        epsilon, delta = self._one_budget()
        assumptions: tuple[str, ...] = ()
        for candidate, part in zip(candidates, parts, strict=True):
            ledger = _Rehearsal()
            with suppress(_Rehearsed), uncounted():
                rows = np.concatenate([part, judge])
                self._fit_one(clone(candidate.estimator), X, y, rows, epsilon, delta, None, ledger)
            planned = ledger.promise
            if planned is None or planned.epsilon > epsilon or planned.delta > delta:
                raise InvalidInput(
                    f"the candidate {candidate.settings} does not promise its budget; use calibration='tight'"
                )
            # Each candidate has its own alpha, and the judges are no part of its rows.
            assumptions += tuple(a for a in planned.assumptions if not a.startswith("alpha used"))
        return assumptions

    def _fit_one(
        self, estimator: Any, X: Any, y: Any, rows: Indices, epsilon: float, delta: float, bits: Any, ledger: Any = None
    ) -> Any:
        prefix, _ = private_part(estimator)
        budget = {"epsilon": epsilon, "delta": delta, "rows_per_person": 1, "ledger": ledger, "random_state": bits}
        estimator.set_params(**{f"{prefix}{name}": value for name, value in budget.items()})
        # In silence: that a number overflows in a step before the private one would tell of a record.
        with quietly(), undivided():
            try:
                return estimator.fit(take_rows(X, rows), y[rows])
            except (EpsilearnError, MemoryError, _Rehearsed):
                raise  # says what is wrong without a private value
            except Exception:
                if not isinstance(estimator, Pipeline):
                    raise
        # Raised out here: the error that was caught may carry private values along.
        raise InvalidInput(
            "a step before the private one fails on these rows; each step must take any row. Fit the pipeline to "
            "made-up rows of the same types to see its own error"
        )

    def _fit_parts(
        self, X: Any, y: Any, candidates: list[Candidate], parts: list[Indices], judge: Indices, promise: Guarantee
    ) -> None:
        epsilon, delta = self._one_budget()
        purpose = "PrivateSelection.fit"
        with spending(promise, self._account, purpose, self.random_state) as (source, stamped), uncounted():
            bits = source if source.seeded else None
            fitted = [
                self._fit_one(candidate.estimator, X, y, part, epsilon, delta, bits)
                for candidate, part in zip(candidates, parts, strict=True)
            ]
            marks = []
            for model in fitted:
                scores, (low, high) = record_scores(model, take_rows(X, judge), y[judge], self.target_bound)
                marks.append(math.fsum(scores if is_classifier(model) else high - scores) / (high - low))
            # Right answers are counted exactly; other sums are rounded once, and their parts by a few roundings each.
            slack = 0.0 if is_classifier(fitted[0]) else 8 * len(judge) * 2.0**-53
            chosen = exponential(marks, sensitivity=1.0 + 2 * slack, epsilon=epsilon, random_state=bits).value
        self._keep(candidates[chosen].settings, fitted[chosen], stamped)

    def _fit_stopping(
        self, X: Any, y: Any, candidates: list[Candidate], train: Indices, judge: Indices, promise: Guarantee
    ) -> None:
        # Fit and score see disjoint rows, so one try costs the larger of their budgets, which are equal.
        epsilon, _ = self._one_budget()

        def attempt(index: int, bits: Any) -> tuple[float, tuple[dict[str, Any], Any]]:
            candidate = candidates[index]
            with uncounted():
                fitted = self._fit_one(clone(candidate.estimator), X, y, train, epsilon, 0.0, bits)
            release = private_score(
                fitted,
                take_rows(X, judge),
                y[judge],
                epsilon=epsilon,
                target_bound=self.target_bound,
                random_state=bits,
            )
            return (release.value if is_classifier(fitted) else -release.value), (candidate.settings, fitted)

        stop = 1 / (2 * len(candidates)) if self.stop is None else self.stop
        (chosen, fitted), stamped = best_of_random_many(
            attempt,
            len(candidates),
            stop=stop,
            promise=promise,
            ledger=self._account,
            purpose="PrivateSelection.fit",
            random_state=self.random_state,
        )
        self._keep(chosen, fitted, stamped)

    def _keep(self, chosen: dict[str, Any], fitted: Any, promise: Guarantee) -> None:
        self.best_params_, self.best_estimator_, self.guarantee_ = chosen, fitted, promise
        if is_classifier(fitted):
            self.classes_ = fitted.classes_
        # The part's own promise is not the model's: the choice belongs to it.
        private_part(fitted)[1].guarantee_ = promise

    @_chosen_has("predict")  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> Any:
        """The chosen model's predictions."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    @_chosen_has("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """The chosen model's probabilities."""
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(X)

    @_chosen_has("decision_function")  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Any:
        """The chosen model's scores."""
        check_is_fitted(self)
        return self.best_estimator_.decision_function(X)

    def score(self, X: Any, y: Any) -> float:
        """The chosen model's score. Not private: see `private_score`."""
        check_is_fitted(self)
        return float(self.best_estimator_.score(X, y))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        tags.non_deterministic = True
        return tags


class _Rehearsed(Exception):
    """Everything before the debit went well."""


class _Rehearsal:
    """In a ledger's place: notes what would be promised, and stops the fit before any noise is drawn."""

    promise: Guarantee | None = None

    def spend(self, guarantee: Guarantee, purpose: str) -> Any:
        del purpose
        self.promise = guarantee
        raise _Rehearsed


def _table(X: Any, y: Any, candidates: list[Candidate]) -> tuple[Any, NDArray[Any]]:
    """Features and targets, of as many rows, that can be taken apart by row number."""
    check_in_memory(X)
    if y is None:
        raise InvalidInput("PrivateSelection requires y to be passed, but the target y is None")
    check_unmasked(y)
    try:
        X, y = X.tocsr() if hasattr(X, "tocsr") else X, np.asarray(y)
        if isinstance(X, list | tuple) or not hasattr(X, "__getitem__"):
            X = None if X is None else _listed(X, candidates)
        check_consistent_length(X, y)
        fits = X is not None
    except (TypeError, ValueError):
        fits = False
    # Raised out here: the error that was caught may carry private values along.
    if not fits:
        raise InvalidInput(
            "X must be a table whose rows are all of one length, and y must hold one label or number for each of them"
        )
    return X, y


def _listed(X: Any, candidates: list[Candidate]) -> Any:
    """A table without types of its own: they must not be those of its records, which one of them could change."""
    finals = [private_part(candidate.estimator)[1] for candidate in candidates]
    if not all(getattr(getattr(final, "kernel", None), "takes_rows", True) for final in finals):
        return list(X)  # points that only the kernel knows, however long each is
    table = np.asarray(X, dtype=object)
    if table.ndim != 2:
        raise ValueError
    return table
