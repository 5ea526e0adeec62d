"""Everything public that learns from records: settings that pass, and settings that may or may not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.pipeline import make_pipeline

import epsilearn
from epsilearn import statistics
from epsilearn.constraints import L1Ball, L2Ball, LqBall, Polytope, Simplex
from epsilearn.kernel import RBF, HistogramIntersection, Laplacian, Linear, Polynomial
from epsilearn.losses import Custom, Huber, HuberisedHinge, Logistic, Squared

from .universe import COLUMN_HOMES, CONTENTS, HOMES, LARGEST, SMALLEST

__all__ = ["FAMILIES", "Family", "Points", "Settings", "later"]

Settings = dict[str, Any]
Run = Callable[[Settings, Any, Any, Any], Any]


class Points(NamedTuple):
    """Public points, as wide as the table they are for; as corners of a polytope if asked for."""

    content: str
    count: int
    polytope: bool = False

    def made(self, width: int) -> Any:
        points = CONTENTS[self.content](np.random.default_rng(5), self.count, width)
        return Polytope(points) if self.polytope else points


class Later(NamedTuple):
    """A kernel, a loss or a set that may refuse its own numbers: it is made where that is looked at."""

    kind: Any
    arguments: tuple[Any, ...]

    def made(self, width: int) -> Any:
        return self.kind(*self.arguments)

    def __repr__(self) -> str:
        return f"{self.kind.__name__}{self.arguments}"


def later(kind: Any, *arguments: Any) -> Later:
    return Later(kind, arguments)


@dataclass(frozen=True)
class Family:
    """One estimator, or one function.

    Attributes
    ----------
    run : callable
        From settings, features, targets and a ledger to what is released.
    ordinary : dict
        Settings that pass.
    changes : dict
        For each setting, values that may be put in its place.
    target : {"labels", "numbers", "none"}
        What it learns to tell; nothing where the table is one column.
    homes : dict
        Where records may live.
    shapes : tuple
        How many rows and columns there may be.
    nonnegative, largest
        What a record may hold.
    """

    run: Run
    ordinary: Settings
    changes: dict[str, list[Any]]
    target: str = "labels"
    homes: dict[str, Any] = field(default_factory=lambda: HOMES)
    shapes: tuple[tuple[int, int], ...] = ((12, 3), (20, 1), (1, 1), (2, 2), (1, 4), (3, 6), (40, 2), (2, 30))
    nonnegative: bool = False
    largest: float = LARGEST


def _fitted(kind: Any, **fixed: Any) -> Run:
    return lambda settings, X, y, book: kind(**fixed, **settings, ledger=book).fit(X, y)


def _without(changes: dict[str, list[Any]], *names: str) -> dict[str, list[Any]]:
    return {name: values for name, values in changes.items() if name not in names}


# ---------------------------------------------------------------- what settings may be changed to

SIZES = [
    1e-3,
    1e3,
    1e-12,
    1e12,
    1e-30,
    1e30,
    1e-60,
    1e60,
    1e-100,
    1e100,
    1.1e100,
    1e-154,
    1e154,
    1e-300,
    1e300,
    SMALLEST,
    LARGEST,
]
SMALL_BUDGETS = [0.1, 1e-3, 1e-6, 1e-9, 1e-12, 1e-17, 1e-29, 1e-31, 1e-100, 1e-200, 1e-300, 1e-308, SMALLEST]
LARGE_BUDGETS = [30, 709, 1e3, 1e6, 1e9, 1e12, 1e16, 1e29, 1e31, 1e100, 1e200, 1e300, LARGEST]
EPSILON: dict[str, list[Any]] = {
    "epsilon": [*SMALL_BUDGETS, 10, *LARGE_BUDGETS, np.float32(0.1), Fraction(1, 3)],
    "rows_per_person": [2, 5, 1000, 10**6, 10**16, 10**40, 10**200, 10**310, np.int64(3)],
}
BUDGET: dict[str, list[Any]] = {
    **EPSILON,
    "delta": [
        0.0, 0, 1e-6, 1e-12, 1e-30, 1e-300, SMALLEST, 0.1, 0.5, 0.999, 1 - 2.0**-53, Fraction(1, 3), np.float32(0.5),
    ],
}  # fmt: skip
ALPHA = ["auto", 0.1, 1e-3, 1e-6, 1e-9, 1e-12, 1e-30, 1e3, 1e12, 1e-100, 1e100, 1e-200, 1e200, 1e300, SMALLEST, LARGEST]
PAIRS = [
    (0, 1), (-1, 3), (0.5, 0.75), (1.0, 1.0 + 2.0**-52), (1e300, 1.1e300), (-LARGEST / 2, LARGEST / 2), (0.0, SMALLEST),
    (-1e-310, 1e-310), (-1e-150, 1e150),
]  # fmt: skip
BOUNDS = [None, *SIZES, *PAIRS]
MOVED: dict[str, list[Any]] = {"centre": [True, False]}
MARGINS: dict[str, list[Any]] = {**MOVED, "margin": [0, 1.0, 3, 100.0, 1e-300, SMALLEST]}
METHODS = ["objective", "output", "gradient"]
THRESHOLDS = [(1e-3, 1e3), (1e3, 1e-3), (1e-100, 1e100), (LARGEST, 1.0), (1.0, LARGEST), (SMALLEST, SMALLEST)]
TWO = [[-1, 1], [1, 0], ["no", "yes"], [False, True], [0.5, 1e300], (0, 1), np.array([0, 1]), None]
LINEAR: dict[str, list[Any]] = {
    **BUDGET,
    "alpha": ALPHA,
    "data_norm": [None, *SIZES],
    "fit_intercept": [False],
    "calibration": ["paper"],
}
SPARSE: dict[str, list[Any]] = {
    **BUDGET,
    "radius": SIZES,
    "constraint": [
        "simplex", "l2", later(L1Ball, 2.0), later(L2Ball, 1e-3), later(L1Ball, LARGEST), later(LqBall, 1.5),
        later(LqBall, 1.0001), later(LqBall, 2.0, 1e100), later(Simplex, 5.0), later(L2Ball, SMALLEST),
        Points("ordinary", 5, polytope=True), Points("tiny", 3, polytope=True), Points("long", 3, polytope=True),
    ],
    "feature_bound": [None, 2.0, 7.0, 0.1, 1e-59, 1e59, *SIZES],
    "data_norm": SIZES,
    "n_steps": [2, 3, 50],
    "method": ["corners", "gradient"],
    "calibration": ["paper"],
    "fit_intercept": [True],
    "refit": [0.5, 0.01, 0.999, 1e-12, np.float64(0.3)],
}  # fmt: skip
# The number of steps grows with the budget and the bounds, up to a million.
STEPS: dict[str, list[Any]] = {
    "epsilon": [*SMALL_BUDGETS, 10],
    "delta": BUDGET["delta"],
    "radius": [1e-3, 1e-12, 1e-50, 2.0],
    "n_steps": ["paper"],
}
KERNELS = [
    *(later(RBF, size) for size in (1e-12, 1e12, 1e-100, 1e100, 1e-300, 1e300, SMALLEST, LARGEST)),
    *(later(Laplacian, size) for size in (1.0, 1e-12, 1e12, 1e-100, 1e100, 1e-300, 1e300, SMALLEST, LARGEST)),
    *(later(Linear, size) for size in (1.0, 1e-3, 1e3, 1e-30, 1e30, *SIZES)),
    later(Polynomial), later(Polynomial, 1), later(Polynomial, 2, 0), later(Polynomial, 2, 1e-12),
    later(Polynomial, 5, 1.0, 10.0), later(Polynomial, 40), later(Polynomial, 200), later(Polynomial, 10**6),
    later(Polynomial, 3, 1e30, 1.0), later(Polynomial, 3, 1e100, 1.0), later(Polynomial, 3, 1.0, 1e100),
    later(Polynomial, 3, 1.0, 1e13), later(Polynomial, 3, 1e-30, 1e-30), later(Polynomial, 3, 1e-200, 1e-200),
]  # fmt: skip
KERNEL: dict[str, list[Any]] = {
    **BUDGET,
    "kernel": KERNELS,
    "loss": ["hinge", "huber"],
    "alpha": ALPHA,
    "target_bound": BOUNDS,
    "classes": TWO,
}
PLACES = [Points(content, count) for content in CONTENTS for count in (1, 5)]
SPAN: dict[str, list[Any]] = {"landmarks": PLACES, "rank": [None, 1, 3, 10**6]}
CHANCES = [0.5, 1e-12, 1e-300, 1 - 2.0**-53, SMALLEST]
# The papers' own constants compose as many releases as there are questions or rounds.
PRINTED: dict[str, list[Any]] = {
    "epsilon": [0.1, 1e-3, 1e-9, 1e-300, SMALLEST, 3],
    "delta": [1e-12, 1e-300, 0.5, 0.999],
    "kernel": KERNELS,
    "alpha": ALPHA,
}
SCALER: dict[str, list[Any]] = {
    "bounds": [None, *PAIRS, {0: (0, 1)}],
    "norm": [*SIZES, 1e30, 1e-30],
    "center": [False],
    "sparse_output": [True],
}
BOUNDED = {"bounds": [*PAIRS, (-1e-3, 1e3), (-1e130, 1e130), (1e15, 1e15 + 1)]}
SENSITIVITY = {"sensitivity": [*SIZES, 2, Fraction(1, 3), np.float32(0.1)]}
GRID = {"grid": [0, -800, 800, 5]}


# ---------------------------------------------------------------- what is not simply an estimator


def _smooth(score: np.ndarray, target: np.ndarray) -> np.ndarray:
    return np.sqrt(1 + (score - target) ** 2) - 1


def _smooth_slope(score: np.ndarray, target: np.ndarray) -> np.ndarray:
    return (score - target) / np.sqrt(1 + (score - target) ** 2)


def _smooth_bend(score: np.ndarray, target: np.ndarray) -> np.ndarray:
    return (1 + (score - target) ** 2) ** -1.5


OWN = Custom(_smooth, _smooth_slope, _smooth_bend, declared_lipschitz=1.0, declared_smoothness=1.0, binary=False)


def _selected(settings: Settings, X: Any, y: Any, book: Any) -> Any:
    estimator, grid = settings["choice"]
    others = {name: value for name, value in settings.items() if name != "choice"}
    return epsilearn.PrivateSelection(estimator, grid, **others, ledger=book).fit(X, y)


def _pipeline(settings: Settings, X: Any, y: Any, book: Any) -> Any:
    own = {name: value for name, value in settings.items() if name in SCALER}
    rest = {name: value for name, value in settings.items() if name not in SCALER}
    return make_pipeline(epsilearn.BoundedScaler(**own), epsilearn.RandomFeatures(**rest, ledger=book)).fit(X, y)


def _scaled(settings: Settings, X: Any, y: Any, book: Any) -> Any:
    return epsilearn.BoundedScaler(**{name: settings[name] for name in SCALER if name in settings}).fit(X)


def _of_column(function: Any) -> Run:
    return lambda settings, X, y, book: function(X, **settings, ledger=book)


def _counted(settings: Settings, X: Any, y: Any, book: Any) -> Any:
    return statistics.count(y, **settings, ledger=book)


def _scored(model: Any) -> Run:
    return lambda settings, X, y, book: epsilearn.private_score(model, X, y, **settings, ledger=book)


def _asked(settings: Settings, X: Any, y: Any, book: Any) -> Any:
    session = epsilearn.AboveThreshold(**settings, ledger=book)
    answers = [session.ask(float(value)) for value in np.asarray(X)[:3] if session.remaining]
    return SimpleNamespace(value=answers, guarantee=session.guarantee, noise=None)


def _rbf(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.exp(-((first[:, None, :] - second[None, :, :]) ** 2).sum(axis=2))


def _drawn(settings: Settings, X: Any, y: Any, book: Any) -> Any:
    values = np.asarray(X, np.float64)[:3]
    session = epsilearn.GaussianProcess(_rbf, **settings, ledger=book)
    return session.release(np.linspace(0, 1, len(values))[:, None], values)


# ---------------------------------------------------------------- the families

PLAIN = {"data_norm": 1.0, "alpha": 1.0}
COLUMN: dict[str, Any] = {"homes": COLUMN_HOMES, "target": "none", "shapes": ((20, 1), (1, 1), (3, 1), (100, 1))}
NUMBERS = {**COLUMN, "largest": 1e300}
FEW: dict[str, Any] = {"shapes": ((12, 2), (1, 1), (2, 3), (6, 1), (16, 2))}
SESSION = {"classes": [0, 1], "delta": 1e-6, "target_bound": 1.0, "kernel": RBF(), "alpha": 1.0}
BINARY = epsilearn.LogisticRegression(data_norm=1.0, classes=[0, 1], alpha=1.0)
NUMERIC = epsilearn.LinearRegression(data_norm=1.0, target_bound=1.0, alpha=1.0)
IN_A_PIPELINE = make_pipeline(epsilearn.BoundedScaler(bounds=(-1, 1)), BINARY)
SCORES = {"epsilon": EPSILON["epsilon"], "rows_per_person": EPSILON["rows_per_person"]}
ONE_ROW = np.zeros((1, 1))

FAMILIES: dict[str, Family] = {
    "logistic": Family(
        _fitted(epsilearn.LogisticRegression),
        {**PLAIN, "classes": [0, 1]},
        {**LINEAR, **MARGINS, "classes": TWO, "method": METHODS},
    ),
    "softmax": Family(
        _fitted(epsilearn.LogisticRegression),
        {**PLAIN, "classes": [0, 1, 2]},
        {**LINEAR, **MARGINS, "classes": [list("abcde"), list(range(12))], "method": METHODS},
    ),
    "svm": Family(
        _fitted(epsilearn.LinearSVC),
        {**PLAIN, "classes": [0, 1]},
        {**LINEAR, **MOVED, "classes": TWO, "method": METHODS, "width": [0.1, 1.0, 5.0, *SIZES]},
    ),
    "huber": Family(
        _fitted(epsilearn.LinearRegression),
        {**PLAIN, "target_bound": 1.0},
        {**LINEAR, "target_bound": BOUNDS, "threshold": [0.1, 10.0, *SIZES]},
        "numbers",
    ),
    "ridge": Family(
        _fitted(epsilearn.LinearRegression, method="output"),
        {**PLAIN, "target_bound": 1.0},
        {**LINEAR, "target_bound": BOUNDS},
        "numbers",
    ),
    "moments": Family(
        _fitted(epsilearn.LinearRegression, method="sufficient-statistics"),
        {"data_norm": 1.0, "target_bound": 1.0},
        {**LINEAR, "target_bound": BOUNDS},
        "numbers",
    ),
    "convex classifier": Family(
        _fitted(epsilearn.ConvexERM),
        {**PLAIN, "classes": [0, 1]},
        {
            **LINEAR,
            "classes": TWO,
            "method": METHODS,
            "loss": [Logistic(), later(HuberisedHinge, 0.01), later(HuberisedHinge, 3.0)],
        },
    ),
    "convex regressor": Family(
        _fitted(epsilearn.ConvexERM),
        {**PLAIN, "loss": Huber(0.5, 1.0)},
        {
            **LINEAR,
            "method": METHODS,
            "loss": [OWN, later(Squared, 1.0), *(later(Huber, *sizes) for sizes in THRESHOLDS)],
        },
        "numbers",
    ),
    "lasso": Family(
        _fitted(epsilearn.Lasso),
        {"feature_bound": 1.0, "target_bound": 1.0, "n_steps": 4},
        {**SPARSE, "target_bound": BOUNDS},
        "numbers",
    ),
    "lasso, automatic": Family(_fitted(epsilearn.Lasso), {"feature_bound": 1.0, "target_bound": 1.0}, STEPS, "numbers"),
    "sparse logistic": Family(
        _fitted(epsilearn.SparseLogisticRegression),
        {"feature_bound": 1.0, "classes": [0, 1], "n_steps": 4},
        {**SPARSE, "classes": TWO},
    ),
    "sparse logistic, automatic": Family(
        _fitted(epsilearn.SparseLogisticRegression), {"feature_bound": 1.0, "classes": [0, 1], "radius": 1.0}, STEPS
    ),
    "landmark classifier": Family(
        _fitted(epsilearn.LandmarkClassifier),
        {"landmarks": Points("ordinary", 5), "classes": [0, 1], "kernel": RBF(), "alpha": 1.0},
        {
            **_without(KERNEL, "target_bound", "loss"),
            **SPAN,
            "whitening": [0, 1, 0.3, 1e-300],
            "method": METHODS,
            "classes": [*TWO, [0, 1, 2], list("abcde")],
            "loss": ["hinge"],
        },
        **FEW,
    ),
    "landmark regressor": Family(
        _fitted(epsilearn.LandmarkRegressor),
        {"landmarks": Points("ordinary", 5), "target_bound": 1.0, "kernel": RBF(), "alpha": 1.0},
        {**_without(KERNEL, "loss", "classes"), **SPAN, "whitening": [0, 1, 0.3], "method": METHODS},
        "numbers",
        **FEW,
    ),
    "random features": Family(
        _fitted(epsilearn.RandomFeatures),
        {"n_features": 6, "classes": [0, 1], "target_bound": 1.0, "kernel": RBF(), "alpha": 1.0},
        {**KERNEL, "n_features": [2, 3, 50, 10**12], "feature_seed": [7, 10**30], "method": METHODS},
        **FEW,
    ),
    "scaled random features": Family(
        _pipeline,
        {"n_features": 6, "classes": [0, 1], "bounds": (-1, 1), "kernel": RBF(), "alpha": 1.0},
        {**_without(KERNEL, "target_bound", "loss"), **SCALER},
        **FEW,
    ),
    "process": Family(
        _fitted(epsilearn.GaussianProcessRelease),
        SESSION,
        {**KERNEL, **SPAN, "max_points": [100, 10**6, 10**12]},
        **FEW,
    ),
    "interactive": Family(
        _fitted(epsilearn.InteractiveLearner),
        {**SESSION, "questions": 100},
        {
            **KERNEL,
            **SPAN,
            "questions": [1, 50, 10**6, 10**12],
            "failure": CHANCES,
            "norm": SIZES,
            "estimate_norm": [0.5, 1e-12, 1 - 2.0**-53],
        },
        **FEW,
    ),
    "interactive, printed": Family(
        _fitted(epsilearn.InteractiveLearner, calibration="paper"),
        {**SESSION, "questions": 50},
        {**PRINTED, "failure": CHANCES, "norm": SIZES},
        **FEW,
    ),
    "semi-interactive": Family(
        _fitted(epsilearn.SemiInteractiveLearner),
        {**SESSION, "public_points": Points("ordinary", 5)},
        {**KERNEL, **SPAN, "public_points": PLACES},
        **FEW,
    ),
    "semi-interactive, printed": Family(
        _fitted(epsilearn.SemiInteractiveLearner, calibration="paper", delta=0.0),
        {name: value for name, value in SESSION.items() if name != "delta"} | {"public_points": Points("ordinary", 5)},
        {**_without(PRINTED, "delta"), "public_points": PLACES},
        **FEW,
    ),
    "non-interactive": Family(
        _fitted(epsilearn.NonInteractiveLearner),
        {**SESSION, "kernel": Linear(1.0)},
        {**KERNEL, **SPAN, "candidates": PLACES, "failure": CHANCES, "norm": SIZES},
        **FEW,
    ),
    "non-interactive, printed": Family(
        _fitted(epsilearn.NonInteractiveLearner, calibration="paper"),
        {**SESSION, "kernel": Linear(1.0)},
        {**PRINTED, "candidates": PLACES, "failure": CHANCES},
        **FEW,
    ),
    "histograms": Family(
        _fitted(epsilearn.SemiInteractiveLearner),
        {**SESSION, "kernel": HistogramIntersection(100.0), "public_points": Points("ones", 2)},
        {
            **_without(KERNEL, "kernel"),
            "kernel": [later(HistogramIntersection, size) for size in (1.0, 10.0, *SIZES)],
            "public_points": [Points(content, 4) for content in ("zeros", "ones")],
        },
        **FEW,
        nonnegative=True,
    ),
    "selection": Family(
        _selected,
        {"choice": (BINARY, {"alpha": [0.1, 1.0]})},
        {
            **BUDGET,
            "choice": [
                (BINARY, {"alpha": ["auto", 1e-12]}),
                (BINARY, {"data_norm": [1e-3, 1e3]}),
                (BINARY, {"alpha": [1e-300, 1e300]}),
                (BINARY, {"method": ["objective", "output"]}),
                (epsilearn.LinearSVC(data_norm=1.0, classes=[0, 1], alpha=1.0), {"width": [0.1, 1.0]}),
                (IN_A_PIPELINE, {"logisticregression__alpha": [0.1, 1.0]}),
                (IN_A_PIPELINE, {"boundedscaler__bounds": [(-1, 1), (0.0, 1e-3)]}),
            ],
            "strategy": ["stopping"],
            "holdout": [0.1, 0.9, 1e-300, 1 - 2.0**-53],
            "stop": [1.0, 0.5, 0.3],
        },
    ),
    "selected regressor": Family(
        _selected,
        {"choice": (NUMERIC, {"alpha": [0.1, 1.0]}), "target_bound": 1.0},
        {
            **BUDGET,
            "target_bound": [*SIZES, *PAIRS],
            "choice": [
                (NUMERIC, {"method": ["objective", "output", "sufficient-statistics"]}),
                (NUMERIC, {"target_bound": [1e-3, 1e3, 1e149]}),
                (epsilearn.Lasso(feature_bound=1.0, target_bound=1.0, n_steps=3), {"radius": [0.1, 1.0]}),
            ],
            "strategy": ["stopping"],
        },
        "numbers",
    ),
    "scaler": Family(_scaled, {"bounds": (-1, 1)}, SCALER, "nothing"),
    "count": Family(_counted, {}, BUDGET, "labels", shapes=((20, 1), (1, 1))),
    "sum": Family(_of_column(statistics.sum), {"bounds": (0, 1)}, {**BUDGET, **BOUNDED}, **COLUMN),
    "mean": Family(_of_column(statistics.mean), {"bounds": (0, 1)}, {**BUDGET, **BOUNDED}, **COLUMN),
    "variance": Family(_of_column(statistics.variance), {"bounds": (0, 1)}, {**BUDGET, **BOUNDED}, **COLUMN),
    "histogram": Family(
        _of_column(statistics.histogram),
        {"edges": [0, 1, 2]},
        {**BUDGET, "edges": [[0, SMALLEST], [-LARGEST, LARGEST], [-1e300, 0.0, 1e-300], list(range(100))]},
        **COLUMN,
    ),
    "quantile": Family(
        _of_column(statistics.quantile),
        {"bounds": (0, 1), "candidates": 11},
        {
            **EPSILON,
            **BOUNDED,
            "q": [0.01, SMALLEST, 1 - 2.0**-53],
            "candidates": [2, 300, [0.5], [-LARGEST, 0.0, LARGEST]],
        },
        **COLUMN,
    ),
    "private accuracy": Family(_scored(DummyClassifier().fit(ONE_ROW, [0])), {}, SCORES),
    "private error": Family(
        _scored(DummyRegressor().fit(ONE_ROW, [0.0])),
        {"target_bound": 1.0},
        {**SCORES, "target_bound": [*SIZES, *PAIRS]},
        "numbers",
    ),
    "laplace": Family(
        _of_column(epsilearn.laplace),
        {"sensitivity": 1.0, "epsilon": 1.0},
        {**EPSILON, **SENSITIVITY, **GRID},
        **NUMBERS,
    ),
    "k-norm": Family(
        _of_column(epsilearn.k_norm), {"sensitivity": 1.0, "epsilon": 1.0}, {**EPSILON, **SENSITIVITY}, **NUMBERS
    ),
    "gaussian": Family(
        _of_column(epsilearn.gaussian),
        {"sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-6},
        {**BUDGET, **SENSITIVITY, **GRID},
        **NUMBERS,
    ),
    # Whole numbers beyond 2**53 are no scores: they would have to be rounded.
    "exponential": Family(
        _of_column(epsilearn.exponential),
        {"sensitivity": 1.0, "epsilon": 1.0},
        {**EPSILON, **SENSITIVITY},
        **COLUMN,
        largest=2.0**53,
    ),
    "above threshold": Family(
        _asked,
        {"threshold": 0.0, "sensitivity": 1.0, "epsilon": 1.0},
        {**EPSILON, **SENSITIVITY, "threshold": [1e300, -1e300, SMALLEST], "positives": [3, 1000, 10**12]},
        **NUMBERS,
    ),
    "gaussian process": Family(
        _drawn,
        {"sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-6, "max_points": 10},
        {**BUDGET, **SENSITIVITY, "max_points": [3, 10**6, 10**15], "kernel_bound": [2.0, 1e12], "value_error": SIZES},
        **NUMBERS,
    ),
}
