"""The main job: from a table and its schema to a released model.

`Job` is everything that is decided before the table is opened. `Job.outlook` says what it would promise. `Job.read`
reads and checks every row; `Job.fit` debits, fits, and hands over a model that stands by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn.checks import check_budget, check_choice, check_integer, check_positive
from epsilearn.encoding import Encoding, read_rows
from epsilearn.errors import InvalidInput
from epsilearn.files import TableFile
from epsilearn.guarantee import Guarantee
from epsilearn.identity import check_apart
from epsilearn.kernel import RBF, Kernel, LandmarkClassifier, LandmarkRegressor, Linear, Polynomial
from epsilearn.lasso import Lasso, SparseLogisticRegression
from epsilearn.linear import LinearRegression, LinearSVC, LogisticRegression
from epsilearn.mechanisms.release import Spender
from epsilearn.outlook import Outlook, outlook
from epsilearn.progress import reading
from epsilearn.released import MODELS, PATHS, LandmarkWeights, LinearWeights, ReleasedModel, check_task, check_weights
from epsilearn.schema import Schema
from epsilearn.schema_columns import Column

__all__ = ["SCHEMA_IS_PUBLIC", "Job", "Stated", "kernel_of", "public_landmarks", "stated", "within"]

Array = NDArray[np.float64]

KERNELS = ("rbf", "polynomial")
SCHEMA_IS_PUBLIC = "the schema was written without looking at the rows, and every row fits it"
_LANDMARKS = 500
_MEMORY = 4 * 2.0**30
_SEED = 0  # of the landmarks that are drawn; they are public


def kernel_of(name: str, norm: float) -> Kernel:
    """The kernel of this name for rows no longer than this."""
    if name == "rbf":
        return RBF(1 / norm**2)
    if name == "linear":
        return Linear(norm)
    return Polynomial(degree=3, constant=norm**2, data_norm=norm)


def own_method(model: str, method: str) -> str:
    """Where the noise goes, in the words of a model: only logistic regression has a choice to make by itself."""
    return "objective" if method == "auto" and model != "logistic" else method


@dataclass(frozen=True, eq=False)
class Job:
    """Everything that is decided before the table is opened.

    Parameters
    ----------
    schema : Schema
        What is public about the table, with every column of it.
    target : str
        The column to predict.
    model : {"logistic", "svm", "linear", "lasso", "sparse-logistic", "landmark"}
        What to fit.
    epsilon, delta : float
        The budget, per person.
    alpha : float or "auto"
        The regularisation.
    method : {"auto", "objective", "output", "gradient"}
        Where the noise goes; sparse models have their own way.
    radius : float, optional
        Of the l1 ball of sparse models. By default 10 for classes, and half the target's range for numbers.
    kernel : {"rbf", "polynomial"}
        Of landmark models: exp(-g ||x - y||**2) with g = 1/columns, or (<x, y> + norm**2)**3.
    landmarks : array, optional
        Public rows, encoded. By default 500 are drawn uniformly from what the schema allows.

    Examples
    --------
    >>> from epsilearn.schema import Schema
    >>> columns = {"age": {"bounds": [0, 120]}, "died": {"categories": ["no", "yes"]}}
    >>> job = Job(Schema.from_dict({"version": 1, "columns": columns}), "died", "logistic", epsilon=1.0)
    >>> print(job.outlook(30_000).guarantee)
    epsilon = 1, per record, replace-one
    """

    schema: Schema
    target: str
    model: str = "logistic"
    epsilon: float = 1.0
    delta: float = 0.0
    alpha: float | str = "auto"
    method: str = "auto"
    radius: float | None = None
    kernel: str = "rbf"
    landmarks: Any = None

    def __post_init__(self) -> None:
        check_choice("model", self.model, tuple(MODELS))
        check_choice("method", self.method, ("auto", "objective", "output", "gradient"))
        check_choice("kernel", self.kernel, KERNELS)
        check_budget(self.epsilon, self.delta)
        column = self.schema.check_target(self.target)
        check_task(self.model, column)
        if self.schema.sparse and self.model == "landmark" and self.landmarks is None:
            raise InvalidInput("a landmark model of numbered columns needs a file of public landmarks")
        # What is fitted must be read again, so this is known before anything is spent.
        outputs = len(column.categories) if column.categories is not None and len(column.categories) > 2 else 1
        check_weights(outputs if self.model != "landmark" else self._landmark_count, self.schema.width(self.target))

    @property
    def encoding(self) -> Encoding:
        return Encoding(self.schema, self.target)

    def outlook(self, rows: int) -> Outlook:
        """What a fit to so many rows would promise and could cost, without a look at any of them."""
        found = outlook(self.estimator(), check_integer("rows", rows), self.schema.width(self.target))
        return replace(found, guarantee=stated(found.guarantee))

    def read(self, file: TableFile, memory: float = _MEMORY, verbose: bool | None = None) -> tuple[Any, NDArray[Any]]:
        """Every row of a file, checked and encoded, and the targets; nothing has been spent when this returns.

        Parameters
        ----------
        file : TableFile
            Where the rows are.
        memory : float
            How many bytes the encoded table may take.
        verbose : bool, optional
            Whether to show a progress bar; by default on a terminal, after two seconds.
        """
        with reading(verbose, self.schema.rows or file.rows()) as progress:
            return read_rows(file, self.encoding, memory, progress, self._extra_bytes)

    def fit(
        self, X: Any, y: NDArray[Any] | None, ledger: Spender | None = None, verbose: bool | None = None
    ) -> ReleasedModel:
        """Fit encoded rows: debit, noise, solve, release.

        Parameters
        ----------
        X, y
            What `read` returned; or a table in parts, encoded where it is, and None.
        ledger : Ledger, optional
            Debited before any noise is drawn.
        verbose : bool, optional
            As for `read`.
        """
        check_apart(self, X, y)  # here, where landmarks are still as they were given
        estimator = self.estimator(Stated(ledger)).set_params(verbose=verbose)
        estimator.fit(X, y)
        return self._released(estimator, X.shape[0])

    def estimator(self, ledger: Spender | None = None) -> Any:
        """The estimator that does the job, with every public number set."""
        column, norm = self.schema.columns[self.target], self.schema.length(self.target)
        options: dict[str, Any] = {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "rows_per_person": self.schema.rows_per_person,
            "ledger": ledger,
        }
        if column.categories is not None:
            options["classes"] = range(len(column.categories))
        else:
            options["target_bound"] = column.bounds
        if self.model in PATHS:
            options |= {"radius": self._radius(column), "feature_bound": 1.0, "data_norm": self.schema.norm}
            return (Lasso if self.model == "lasso" else SparseLogisticRegression)(fit_intercept=True, **options)
        options |= {"alpha": self.alpha, "method": own_method(self.model, self.method)}
        if self.model == "landmark":
            kind = LandmarkRegressor if column.categories is None else LandmarkClassifier
            return kind(kernel=kernel_of(self.kernel, norm), landmarks=self._landmarks(), **options)
        kinds = {"logistic": LogisticRegression, "svm": LinearSVC, "linear": LinearRegression}
        return kinds[self.model](data_norm=norm, **options)

    @property
    def _extra_bytes(self) -> int:
        """What a row takes besides its encoding: a landmark model keeps its features, in single precision."""
        if self.model != "landmark":
            return 0
        return 4 * self._landmark_count

    @property
    def _landmark_count(self) -> int:
        return _LANDMARKS if self.landmarks is None else int(self.landmarks.shape[0])

    def _radius(self, column: Column) -> float:
        if self.radius is not None:
            return check_positive("radius", self.radius)
        return 10.0 if column.bounds is None else (column.bounds[1] - column.bounds[0]) / 2

    def _landmarks(self) -> Array:
        rows = public_landmarks(self.encoding) if self.landmarks is None else self.landmarks
        return within(rows, self.schema.length(self.target))

    def _released(self, estimator: Any, rows: int) -> ReleasedModel:
        settings: dict[str, float] = {"rows": rows}
        for name, attribute in (("alpha", "alpha_"), ("steps", "n_steps_")):
            if hasattr(estimator, attribute):
                settings[name] = getattr(estimator, attribute)
        if hasattr(estimator, "radius"):
            settings["radius"] = estimator.radius
        weights: LinearWeights | LandmarkWeights
        coefficients = np.atleast_2d(estimator.coef_)
        if self.model == "landmark":
            shift = np.full(len(coefficients), float(estimator._shift))
            weights = LandmarkWeights(estimator._features_, coefficients, shift, self.schema.length(self.target))
        else:
            weights = LinearWeights(coefficients, np.atleast_1d(estimator.intercept_).astype(float), self._norm())
        return ReleasedModel(
            self.model, self.target, self.schema, weights, estimator.guarantee_, estimator.noise_,
            "path" if self.model in PATHS else estimator.method_, settings,
        )  # fmt: skip

    def _norm(self) -> float | None:
        """The length rows are scaled down to; sparse models leave them alone unless the schema asks for it."""
        if self.model in PATHS:
            return self.schema.norm
        return self.schema.length(self.target)


def stated(guarantee: Guarantee) -> Guarantee:
    """The same promise, which also says what it assumes of the schema."""
    *others, last = guarantee.assumptions
    return replace(guarantee, assumptions=(*others, SCHEMA_IS_PUBLIC, last))


class Stated:
    """Whatever is to be debited, or nothing, by a promise that says what it assumes of the schema."""

    def __init__(self, ledger: Spender | None) -> None:
        self._ledger = ledger

    @contextmanager
    def spend(self, guarantee: Guarantee, purpose: str) -> Iterator[Guarantee]:
        if self._ledger is None:
            yield stated(guarantee)
            return
        with self._ledger.spend(stated(guarantee), purpose) as stamped:
            yield stamped


def public_landmarks(encoding: Encoding, count: int = _LANDMARKS) -> Array:
    """Points drawn from what the schema allows, each column by itself and uniformly; the same each time."""
    chance = np.random.default_rng(_SEED)
    blocks = []
    for name in encoding.schema.features(encoding.target):
        column = encoding.schema.columns[name]
        if column.categories is None:
            blocks.append(chance.uniform(-1, 1, size=(count, 1)))
        else:
            blocks.append(np.eye(column.width)[chance.integers(column.width, size=count)])
    return np.hstack(blocks)


def within(rows: Any, norm: float) -> Array:
    """Public points no longer than private ones are made."""
    dense = np.asarray(rows.todense()) if hasattr(rows, "todense") else np.asarray(rows, np.float64)
    lengths = np.maximum(np.linalg.norm(dense, axis=1), math.ulp(0.0))
    shortened: Array = dense * np.minimum(1.0, norm * (1 - 1e-9) / lengths)[:, None]
    return shortened
