"""Every consumer of private rows in Python, and what users can bring in themselves."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from datetime import datetime, tzinfo
from typing import Any
from unittest import mock

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from tests.joints.homes import IN_MEMORY, Home, folder
from tests.joints.models import CLASSES, ELSEWHERE, LABELS, PUBLIC, Model

import epsilearn as el
from epsilearn import statistics
from epsilearn.kernel import UserKernel
from epsilearn.losses import Custom


class Noon(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        return datetime(2026, 1, 1, 12, tzinfo=tz)


@contextlib.contextmanager
def a_ledger() -> Iterator[el.Ledger]:
    """A ledger on disk whose clock stands, so that all of it can be compared."""
    with folder() as place, mock.patch("epsilearn.ledger_store.datetime", Noon):
        yield el.Ledger.create(place / "budget.db", dataset="d", epsilon=10.0, delta=1e-3)


def booked(ledger: el.Ledger) -> Any:
    """Everything that a ledger says."""
    return ledger.history(), ledger.balance()


def _shown(model: Model, fitted: Any) -> Any:
    """A fitted model, and what it answers to public points."""
    said = fitted.decision_function(PUBLIC) if model.asked else None
    return fitted, said, getattr(fitted, "points_left_", None)


def fit(model: Model, home: Home, X: np.ndarray, y: np.ndarray) -> Any:
    with home(X, y) as (rows, targets):
        return _shown(model, model.make().fit(rows, targets))


def fit_debited(model: Model, X: np.ndarray, y: np.ndarray) -> Any:
    """The same, paid for from a ledger."""
    with a_ledger() as ledger:
        made = model.make()
        final = made.steps[-1][1] if hasattr(made, "steps") else made
        final.set_params(ledger=ledger)
        made.fit(X, y)
        final.set_params(ledger=None)  # whose connections are no part of what is shown
        return _shown(model, made), booked(ledger)


def strict_numpy(model: Model, home: Home, X: np.ndarray, y: np.ndarray) -> Any:
    """A program that wants numpy to raise whatever happens."""
    with np.errstate(all="raise"):
        return fit(model, home, X, y)


def _elsewhere(made: Any, model: Model, home: Home) -> Any:
    """A model fitted to other people's rows, with names of columns where the private ones have them."""
    named = home in (IN_MEMORY["pandas"], IN_MEMORY["polars"])
    with (home if named else IN_MEMORY["numpy"])(ELSEWHERE, model.target) as given:
        return made.fit(*given)


def _scored(fitted: Any, model: Model, home: Home, X: np.ndarray, y: np.ndarray, ledger: Any = None) -> Any:
    bound = None if model.classifies else 1.0
    with home(X, y) as (rows, targets):
        truth = y if targets is None else targets
        return el.private_score(fitted, rows, truth, epsilon=0.5, target_bound=bound, ledger=ledger)


def score(model: Model, home: Home, X: np.ndarray, y: np.ndarray) -> Any:
    """A private score of a model that was fitted to other people's rows."""
    fitted = _elsewhere(model.make(), model, home)
    return _scored(fitted, model, home, X, y), _shown(model, fitted)


def score_nested(model: Model, home: Home, X: np.ndarray, y: np.ndarray) -> Any:
    """The same of a model inside others."""
    search = GridSearchCV(make_pipeline("passthrough", model.make()), {}, cv=2)
    outer = _elsewhere(search, model, home)
    return _scored(outer, model, home, X, y), outer.best_estimator_


def score_debited(model: Model, X: np.ndarray, y: np.ndarray) -> Any:
    fitted = _elsewhere(model.make(), model, IN_MEMORY["numpy"])
    with a_ledger() as ledger:
        return _scored(fitted, model, IN_MEMORY["numpy"], X, y, ledger), booked(ledger)


def select(strategy: str, model: Model, home: Home, X: np.ndarray, y: np.ndarray) -> Any:
    inner = model.make()
    delta = 0.0 if strategy == "stopping" or not getattr(inner, "delta", 0.0) else 1e-6
    bound = None if model.classifies else 1.0
    search = el.PrivateSelection(inner, {}, epsilon=2.0, delta=delta, strategy=strategy, target_bound=bound)
    with home(X, y) as given:
        chosen = search.fit(*given)
    return chosen, _shown(model, chosen.best_estimator_)


def statistic(name: str, home: Callable[[np.ndarray], Any], column: np.ndarray, **more: Any) -> Any:
    options: dict[str, Any] = {"bounds": (-1.0, 1.0)}
    if name == "histogram":
        options = {"edges": [-1.0, 0.0, 1.0]}
    if name == "count":
        column, options = column > 0, {}
    return getattr(statistics, name)(home(column), epsilon=1.0, **options, **more)


def statistic_debited(name: str, column: np.ndarray) -> Any:
    with a_ledger() as ledger:
        return statistic(name, np.asarray, column, ledger=ledger), booked(ledger)


def strict_statistic(name: str, column: np.ndarray) -> Any:
    with np.errstate(all="raise"):
        return statistic(name, np.asarray, column)


# ------------------------------------------------------------------------------- what users can bring in themselves


def swapped_step(home: Home, X: np.ndarray, y: np.ndarray) -> Any:
    """A grid that puts a step which learns in the place of one that does not."""
    steps = make_pipeline(el.BoundedScaler(bounds=(-1, 1)), el.LogisticRegression(data_norm=1.0, **CLASSES))
    with home(X, y) as given:
        return el.PrivateSelection(steps, {"boundedscaler": [MaxAbsScaler()]}, epsilon=1.0).fit(*given)


def _some(rows: Any) -> Any:
    """A few of the rows, in the same memory; all of them where a part would be a copy."""
    if hasattr(rows, "tocsr"):
        return rows
    return rows.iloc[:5] if hasattr(rows, "iloc") else rows[:5]


def own_landmarks(home: Home, X: np.ndarray, y: np.ndarray) -> Any:
    """The private table itself as landmarks."""
    with home(X, y) as given:
        return el.LandmarkClassifier(landmarks=_some(given[0]), **CLASSES).fit(*given)


def own_points(home: Home, X: np.ndarray, y: np.ndarray) -> Any:
    """The private table itself as public points."""
    with home(X, y) as given:
        return el.SemiInteractiveLearner(public_points=_some(given[0]), **CLASSES).fit(*given)


def selected_landmarks(home: Home, X: np.ndarray, y: np.ndarray) -> Any:
    """The private table itself among the landmarks that a grid tries."""
    model = el.LandmarkClassifier(landmarks=PUBLIC, **CLASSES)
    with home(X, y) as given:
        return el.PrivateSelection(model, {"landmarks": [_some(given[0])]}, epsilon=1.0).fit(*given)


def own_kernel(X: np.ndarray, y: np.ndarray) -> Any:
    """A kernel that fails on some private points."""

    def kernel(a: float, b: float) -> float:
        if abs(a) > 5 or abs(b) > 5:
            raise KeyError(a)
        return float(np.exp(-((a - b) ** 2)))

    model = el.GaussianProcessRelease(kernel=UserKernel(kernel, declared=1.0), **CLASSES)
    model.fit(X[:, 0].tolist(), y)
    return model, model.decision_function([0.25, 0.5]), model.points_left_


def own_loss(X: np.ndarray, y: np.ndarray) -> Any:
    """A loss that warns of the scores it gets, each time with another number."""

    def slope(scores: Any, y: Any) -> Any:
        warnings.warn(f"{np.count_nonzero(scores > 0.2)} are rather large", stacklevel=2)
        return -y / (1 + np.exp(scores * y))

    loss = Custom(
        lambda scores, y: np.logaddexp(0, -scores * y), slope, lambda scores, _: 1 / (2 + 2 * np.cosh(scores)),
        declared_lipschitz=1.0, declared_smoothness=0.25, binary=True,
    )  # fmt: skip
    settings: dict[str, Any] = {**CLASSES, "epsilon": 1e9}
    return el.ConvexERM(loss=loss, data_norm=1.0, alpha=0.1, method="output", fit_intercept=False, **settings).fit(X, y)


class _Picky(ClassifierMixin, BaseEstimator):
    """Somebody's model: it fails on some rows, and warns on others."""

    def __init__(self, fails: float = np.inf, warns: float = np.inf) -> None:
        self.fails, self.warns = fails, warns

    def fit(self, X: Any, y: Any) -> Any:
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: Any) -> Any:
        X = np.asarray(X)
        if np.abs(X).max() > self.fails:
            raise ValueError(f"{np.abs(X).max()} is too large")
        if np.abs(X).max() > self.warns:
            warnings.warn("rather large", stacklevel=2)
        return np.where(X[:, 0] > 0, 1, -1)


def failing_model(X: np.ndarray, y: np.ndarray) -> Any:
    """A score of somebody's model that fails on some private rows."""
    return el.private_score(_Picky(fails=5).fit(ELSEWHERE, LABELS), X, y, epsilon=1.0)


def warning_model(X: np.ndarray, y: np.ndarray) -> Any:
    """A score of somebody's model that warns on some private rows."""
    return el.private_score(_Picky(warns=5).fit(ELSEWHERE, LABELS), X, y, epsilon=1.0)
