"""A released model: what predicts on raw rows after the private ones are gone.

It holds the released numbers, the schema and the guarantee, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, softmax

from epsilearn.encoding import Encoding, as_numbered, as_table
from epsilearn.errors import InvalidInput
from epsilearn.guarantee import Guarantee
from epsilearn.kernel.features import Landmarks
from epsilearn.mechanisms.release import NoiseLaw
from epsilearn.quiet import quietly
from epsilearn.rows.bounds import row_norms
from epsilearn.schema import Schema
from epsilearn.schema_columns import Column

__all__ = [
    "MODELS",
    "MOST_WEIGHTS",
    "PATHS",
    "LandmarkWeights",
    "LinearWeights",
    "ReleasedModel",
    "check_task",
    "check_weights",
]

Array = NDArray[np.float64]

# What the command line can fit, and what it is called in words.
MODELS = {
    "logistic": "logistic regression",
    "svm": "support vector machine",
    "linear": "linear regression",
    "lasso": "sparse linear regression (LASSO)",
    "sparse-logistic": "sparse logistic regression",
    "landmark": "kernel machine on public landmarks",
}
PATHS = ("lasso", "sparse-logistic")  # found step by step, each step with noise of its own
CLASSIFIERS, REGRESSORS = ("logistic", "svm", "sparse-logistic", "landmark"), ("linear", "lasso", "landmark")
_WITHOUT_PROBABILITIES = ("svm",)
MOST_WEIGHTS = 1 << 25  # in one matrix: 256 MiB in memory, and below a model file's 1 GiB if none of them is zero


@dataclass(frozen=True, eq=False)
class LinearWeights:
    """<coefficients, x> + intercept, rows longer than ``norm`` scaled down to it first.

    Attributes
    ----------
    coefficients : array of shape (outputs, features)
    intercept : array of shape (outputs,)
    norm : float or None
        None where rows are not scaled.
    """

    coefficients: Array
    intercept: Array
    norm: float | None

    def scores(self, X: Any) -> Array:
        scores: Array = X @ self.coefficients.T
        if self.norm is not None:
            scores = scores * _factors(X, self.norm)[:, None]
        return scores + self.intercept


@dataclass(frozen=True, eq=False)
class LandmarkWeights:
    """A linear function of features that public landmarks span.

    Attributes
    ----------
    features : Landmarks
        From rows to features.
    coefficients : array of shape (outputs, directions)
    intercept : array of shape (outputs,)
    norm : float
        Rows longer than this are scaled down to it first.
    """

    features: Landmarks
    coefficients: Array
    intercept: Array
    norm: float

    def scores(self, X: Any) -> Array:
        factors = _factors(X, self.norm)
        X = sparse.diags_array(factors) @ X if sparse.issparse(X) else X * factors[:, None]
        points, inside = self.features.kernel.inside(self.features.kernel.points(X))
        return self.features.scores(points, self.coefficients.T, inside) + self.intercept


def _factors(X: Any, norm: float) -> Array:
    """What to multiply each row by so that it is no longer than this."""
    with quietly():  # a row that is so short is not scaled
        factors: Array = np.minimum(1.0, norm / row_norms(X))
    return factors


def check_task(model: str, column: Column) -> None:
    """Refuse a kind of model that cannot predict this target."""
    if column.categories is None and model not in REGRESSORS:
        raise InvalidInput(
            f"model {model!r} tells classes apart, and the target is a number; choose {', '.join(REGRESSORS)}, or "
            "declare categories for it"
        )
    if column.categories is None:
        return
    if model not in CLASSIFIERS:
        raise InvalidInput(
            f"model {model!r} predicts numbers, and the target has categories; choose {', '.join(CLASSIFIERS)}"
        )
    if len(column.categories) > 2 and model in ("svm", "sparse-logistic"):
        raise InvalidInput(f"model {model!r} tells two classes apart, and the target has more; choose logistic")


def check_weights(rows: int, width: int) -> None:
    """Refuse a matrix of weights or landmarks that no model file can hold."""
    if rows * width > MOST_WEIGHTS:
        raise InvalidInput(
            f"a model of {rows:,} times {width:,} numbers is too large: {MOST_WEIGHTS:,} is the most that a model file "
            "can hold; use fewer columns, classes or landmarks"
        )


@dataclass(frozen=True, eq=False)
class ReleasedModel:
    """A private model that stands by itself: give it raw rows, as the schema describes them.

    Get one with `epsilearn.load`.

    Attributes
    ----------
    model : str
        What kind: "logistic", "svm", "linear", "lasso", "sparse-logistic" or "landmark".
    target : str
        The column it predicts.
    schema : Schema
        What is public about the table it was fitted to; new rows must be of the same kind.
    weights : LinearWeights or LandmarkWeights
        The released numbers.
    guarantee : Guarantee
        What was promised.
    noise : NoiseLaw
        The law of the noise; public.
    method : str
        Where the noise went.
    settings : dict
        Other public numbers of the fit: how many rows, the regularisation, the radius or the number of steps.
    """

    model: str
    target: str
    schema: Schema
    weights: LinearWeights | LandmarkWeights
    guarantee: Guarantee
    noise: NoiseLaw
    method: str
    settings: dict[str, float] = field(default_factory=dict)

    @property
    def encoding(self) -> Encoding:
        return Encoding(self.schema, self.target)

    @property
    def classes(self) -> NDArray[Any] | None:
        """The classes it tells apart, in the schema's order; None if it predicts a number."""
        return self.encoding.class_values()

    @property
    def has_probabilities(self) -> bool:
        return self.classes is not None and self.model not in _WITHOUT_PROBABILITIES

    @quietly()
    def scores(self, table: Any) -> Array:
        """The scores of each row, of shape (rows, outputs): a number, one for two classes, or one for each class.

        Parameters
        ----------
        table : data frame, Arrow table or dict of columns
            Raw rows with the schema's columns; the target and columns that the schema ignores may be left out. A sparse
            matrix where the schema's columns are numbered.
        """
        raw = as_numbered(table) if self.schema.sparse else as_table(table)
        if not raw.shape[0]:
            raise InvalidInput("the table has no rows; there must be at least one")
        return self.weights.scores(self.encoding.matrix(raw))

    def predict(self, table: Any) -> NDArray[Any]:
        """The class or the number predicted for each row."""
        return self.predictions(self.scores(table))

    def predictions(self, scores: Array) -> NDArray[Any]:
        """What scores stand for: classes, or numbers inside the target's public bounds."""
        classes = self.classes
        if classes is None:
            bounds = self.schema.columns[self.target].bounds
            assert bounds is not None
            return np.clip(scores[:, 0], *bounds)
        found: NDArray[Any] = classes[self.positions(scores)]
        return found

    def positions(self, scores: Array) -> NDArray[np.intp]:
        """The place of each row's class among the classes."""
        return (scores[:, 0] > 0).astype(np.intp) if scores.shape[1] == 1 else scores.argmax(axis=1)

    def predict_proba(self, table: Any) -> Array:
        """The probability of each class for each row, where the model has them."""
        return self.probabilities(self.scores(table))

    @quietly()
    def probabilities(self, scores: Array) -> Array:
        """The probabilities that scores stand for."""
        if not self.has_probabilities:
            raise InvalidInput(f"a {MODELS[self.model]} of this target has no probabilities; use predict")
        if scores.shape[1] == 1:
            second = expit(scores[:, 0])
            return np.column_stack([1 - second, second])
        shares: Array = softmax(scores, axis=1)
        return shares

    def __repr__(self) -> str:
        return f"ReleasedModel({self.model!r}, target={self.target!r}, {self.guarantee})"
