"""A test score is a release as well."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import is_classifier, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import column_or_1d

from epsilearn import statistics
from epsilearn.checks import check_bounds, check_positive, check_unmasked
from epsilearn.columns import as_numbers
from epsilearn.errors import InvalidInput
from epsilearn.mechanisms.release import Release, Spender
from epsilearn.preprocessing import BoundedScaler
from epsilearn.quiet import quietly, undivided
from epsilearn.rows.parts import check_in_memory
from epsilearn.sessions import AskedPrivately, asking_privately, check_function

__all__ = ["check_range", "mean_score", "private_score", "record_scores", "squared_errors", "take_rows"]


def private_score(
    model: Any,
    X: Any,
    y: Any,
    *,
    epsilon: float = 1.0,
    target_bound: Any = None,
    rows_per_person: int = 1,
    ledger: Spender | None = None,
    random_state: int | None = None,
) -> Release:
    """How well a model does on private test rows, as a private release.

    Parameters
    ----------
    model : estimator
        Any fitted scikit-learn classifier or regressor, private or not, that answers every row by itself. A row that
        it fails on counts as wrong. Sessions are refused: they remember what they are asked. The model's own promise
        must not rest on these rows, or the two promises add up.
    X, y : array
        The private test rows.
    epsilon : float
        The budget.
    target_bound : float or (float, float), optional
        For regressors: the public bound on |y|, or the public range. Needed.
    rows_per_person : int
        How many of the test rows one person may have.
    ledger : Ledger, optional
        Debited before any noise is drawn.
    random_state : int, optional
        For tests and studies; voids the promise.

    Returns
    -------
    Release
        Classifiers: the accuracy. Regressors: the mean squared error, predictions and targets clipped to the bound.
        One record changes the first by 1/n at most, and the second by the squared range over n.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.dummy import DummyClassifier
    >>> from epsilearn import private_score
    >>> X, y = np.zeros((4000, 1)), np.repeat([0, 1], [800, 3200])
    >>> model = DummyClassifier().fit(X, y)
    >>> release = private_score(model, X, y, epsilon=1.0)
    >>> round(release.value, 1), release.guarantee.epsilon
    (0.8, 1.0)
    """
    scores, bounds = record_scores(model, X, y, target_bound)
    return mean_score(
        scores,
        bounds,
        epsilon=epsilon,
        rows_per_person=rows_per_person,
        ledger=ledger,
        purpose="private_score",
        random_state=random_state,
    )


def mean_score(scores: NDArray[np.float64], bounds: tuple[float, float], **options: Any) -> Release:
    """The mean of records' scores, each within the bounds, as a private release; options as for `statistics.mean`."""
    release = statistics.mean(scores, bounds=bounds, **options)
    # A score beyond what scores can be is farther from the truth than the end of the range.
    return replace(release, value=min(max(release.value, bounds[0]), bounds[1]))


@quietly()
def record_scores(model: Any, X: Any, y: Any, target_bound: Any = None) -> tuple[NDArray[np.float64], Any]:
    """Each record's score, and the public range it lies in: right or wrong, or a clipped squared error."""
    check_function(model)
    check_in_memory(X)
    if is_classifier(model):
        predicted, truth = _paired(_predicted(model, X), y)
        return _equal(predicted, truth), (0.0, 1.0)
    if not is_regressor(model):
        raise InvalidInput(f"model must be a classifier or a regressor, got {type(model).__name__}")
    low, high = check_range(target_bound)
    predicted, truth = _paired(_as_doubles(_predicted(model, X)), y)
    return squared_errors(predicted, as_numbers(truth, "y"), low, high), (0.0, (high - low) ** 2)


def _predicted(model: Any, X: Any) -> Any:
    """A model's predictions, in silence. What a model fails on counts as wrong, so that there is an answer."""
    _check_asked(model, X)
    with asking_privately(), undivided():
        try:
            return model.predict(X)
        except (AskedPrivately, NotFittedError):
            raise  # whatever the rows hold
        except Exception:
            pass
        # Out here: the error that was caught may carry private values along.
        found = np.empty(X.shape[0] if hasattr(X, "shape") else len(X), object)
        found[:] = [_one_prediction(model, take_rows(X, slice(row, row + 1))) for row in range(len(found))]
        return found


def _one_prediction(model: Any, row: Any) -> Any:
    """Of a single row; None, which no label equals, where the model fails."""
    try:
        (predicted,) = model.predict(row)
    except AskedPrivately:
        raise
    except Exception:
        return None
    return predicted


def take_rows(X: Any, rows: Any) -> Any:
    """Some rows of an array, a sparse matrix, a list, or a pandas or polars frame."""
    if isinstance(X, list):
        return X[rows] if isinstance(rows, slice) else [X[row] for row in rows]
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def _check_asked(model: Any, X: Any) -> None:
    """Refuse a table that a model fails on whatever its records hold: before any is looked at, so always alike."""
    first = model.steps[0][1] if isinstance(model, Pipeline) else model
    if hasattr(first, "__sklearn_tags__") and get_tags(first).no_validation:
        return  # it takes anything
    names, given = getattr(first, "feature_names_in_", None), getattr(X, "columns", None)
    if names is not None and given is not None:
        # Columns that are chosen by name may stand in any order, with others between them.
        by_name = isinstance(first, ColumnTransformer)
        if set(names) - set(given) if by_name else list(names) != list(given):
            raise InvalidInput(
                "X has other columns than the model was fitted to; pass the same ones, in the same order"
            )
        return
    # A kernel of texts or sets has points that are neither rows nor columns.
    of_rows = getattr(getattr(first, "kernel_", None), "takes_rows", True)
    expected: Any = getattr(first, "n_features_in_", None)
    if isinstance(expected, int) and of_rows and _width(X) not in (None, expected):
        raise InvalidInput(f"X has {_width(X)} columns, and the model was fitted to {expected}; pass the same ones")
    if issparse(X) and isinstance(first, BoundedScaler | ColumnTransformer):
        raise InvalidInput("X is sparse, and the model takes dense columns; pass an array or a frame")


def _width(X: Any) -> int | None:
    """How many columns a table has, where all its rows agree on that."""
    if isinstance(X, (list, tuple)):
        widths = {len(row) if hasattr(row, "__len__") else None for row in X}
        return widths.pop() if len(widths) == 1 else None
    shape: tuple[int, ...] = getattr(X, "shape", ())
    return shape[1] if len(shape) == 2 else None


def _equal(predicted: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.float64]:
    """1 where a prediction is the label, else 0, whatever they are."""
    try:
        equal: NDArray[np.float64] = (predicted == truth).astype(np.float64)
        return equal
    except (TypeError, ValueError):
        return np.array([_are_equal(*pair) for pair in zip(predicted, truth, strict=True)], np.float64)


def _are_equal(predicted: Any, label: Any) -> bool:
    try:
        return bool(predicted == label)
    except (TypeError, ValueError):
        return False


def _as_doubles(predicted: Any) -> NDArray[np.float64]:
    """Numbers, from a regressor that may say anything; what is none counts as the worst."""
    try:
        return np.asarray(predicted, np.float64)
    except (TypeError, ValueError):
        return np.array([_as_double(one) for one in predicted])


def _as_double(predicted: Any) -> float:
    try:
        return float(predicted)
    except (TypeError, ValueError):
        return math.nan


def _paired(predicted: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Predictions and true values, one of each for every record."""
    check_unmasked(y)
    try:
        first, second = column_or_1d(np.asarray(predicted)), column_or_1d(np.asarray(y))
        fits = len(first) == len(second)
    except ValueError:
        fits = False
    # Raised out here: the error that was caught may carry private values along.
    if not fits:
        raise InvalidInput("y must hold one label or number for each row of X")
    return first, second


@quietly()
def squared_errors(
    predicted: NDArray[np.float64], truth: NDArray[np.float64], low: float, high: float
) -> NDArray[np.float64]:
    """Squared errors, predictions and targets clipped to the range."""
    errors = np.clip(predicted, low, high) - np.clip(truth, low, high)
    # A prediction that is not a number counts as the worst.
    found: NDArray[np.float64] = np.square(np.where(np.isnan(errors), high - low, errors))
    return found


def check_range(target_bound: Any) -> tuple[float, float]:
    """A public bound on |y|, or a public range, as a range."""
    if target_bound is None:
        raise InvalidInput("target_bound must be given for a regressor: a public bound on |y|, or a public range")
    if np.ndim(target_bound) == 0:
        half = check_positive("target_bound", target_bound)
        low, high = -half, half
    else:
        low, high = check_bounds(target_bound)
    # What becomes of them is a mean, which statistics take on a grid of their own.
    if not 1e-60 < high - low < 1e60:
        raise InvalidInput(
            "target_bound is so large or narrow that squared errors leave the doubles; rescale the targets"
        )
    return low, high
