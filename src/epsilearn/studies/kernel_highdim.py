"""Learning with kernels: regression in many dimensions over epsilon, Figure 2 b (2013).

Jain and Thakurta run private linear regression on 20,000 rows of KDD Cup 2010, about 2 million columns: noise at public
points, which does not grow with the dimension, errs less than noise in the objective.

RCV1 stands in for their data (47,236 columns, labels -1 and 1 as targets, 1,000 public points). Noise in the span of
the public points beats noise in the objective at every epsilon, as the paper says; as printed, from 0.2 to 2. Public
landmarks with noise in the objective do far better than both, and nothing reaches least squares without privacy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from sklearn.preprocessing import normalize

from epsilearn import LinearRegression
from epsilearn.checks import check_integer
from epsilearn.errors import InvalidInput
from epsilearn.kernel import (
    GaussianProcessRelease,
    InteractiveLearner,
    LandmarkRegressor,
    Linear,
    NonInteractiveLearner,
    SemiInteractiveLearner,
)
from epsilearn.studies import data
from epsilearn.studies.kernel_curves import (
    Bench,
    Line,
    Measured,
    Note,
    Splits,
    collected,
    curves_figure,
    report,
    report_sheet,
)
from epsilearn.studies.study import Drawing, Progress, Result, each

__all__ = ["Settings", "Split", "measure", "run", "split"]

Array = NDArray[np.float64]

KERNEL = Linear(data_norm=1.0)
OBJECTIVE, PROCESS, LANDMARKS = "objective perturbation", "Gaussian process release", "landmarks"
SEMI_TIGHT, SEMI_PAPER = "semi-interactive, noise in the span", "semi-interactive as printed"
INTERACTIVE, SEARCH = "interactive, sparse vector", "non-interactive, tight"
PLAIN, ZERO = "least squares, no privacy", "always zero"
CURVES = [
    Line(PLAIN, 6, "--"), Line(ZERO, 6, "-."),
    Line(OBJECTIVE, 4, marker="v"), Line(LANDMARKS, 0), Line(PROCESS, 2, marker="D"),
    Line(SEMI_TIGHT, 1, marker="^"), Line(SEMI_PAPER, 1, ":", "^", ring=True),
    Line(INTERACTIVE, 3, marker="P"), Line(SEARCH, 6, ":", "s", ring=True),
]  # fmt: skip
# Ridges for least squares without privacy; the best on a tenth of the training rows is used.
RIDGES = (1e-5, 1e-4, 1e-3)


WORDS = (
    "Root mean squared test error on RCV1 against epsilon, a line for each method: landmarks are lowest, then a "
    "Gaussian process, then noise in the span of the public points, then as printed and in the objective; interactive "
    "and non-interactive methods stay at 1, like the model that is always zero."
)


@dataclass(frozen=True)
class Settings(Splits):
    """What to run: see `Splits`.

    Attributes
    ----------
    rows : int
        Training rows.
    public : int
        Public points without labels.
    """

    rows: int = 20_000
    public: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("rows", self.rows, least=100)
        check_integer("public", self.public)

    @classmethod
    def quick(cls) -> Settings:
        """One split, two budgets."""
        return cls(repetitions=1, epsilons=(0.5, 5.0))


@dataclass(frozen=True)
class Split:
    """Private training rows, public points, and rows to test on."""

    train: Any
    targets: Array
    public: Any
    test: Any
    truth: Array

    def error(self, predicted: Array) -> float:
        """The root of the mean squared error on the test rows."""
        return float(math.sqrt(np.mean((predicted - self.truth) ** 2)))


def split(table: Any, labels: NDArray[Any], settings: Settings, seed: int) -> Split:
    """Shuffle, and cut into training rows, public points and test rows."""
    if settings.rows + settings.public >= table.shape[0]:
        raise InvalidInput(f"rows and public must leave some of the {table.shape[0]:,} rows to test on")
    order = np.random.default_rng(seed).permutation(table.shape[0])
    train, public, test = np.split(order, [settings.rows, settings.rows + settings.public])
    # Rows are published with norm 1, to single precision.
    table, targets = normalize(table), labels.astype(float)
    return Split(table[train], targets[train], table[public], table[test], targets[test])


def least_squares(part: Split) -> float:
    """The test error of ridge regression, its ridge chosen on a tenth of the training rows."""
    held = len(part.targets) // 10

    def fitted(ridge: float, rows: slice) -> Ridge:
        count = len(part.targets[rows])
        model = Ridge(alpha=ridge * count, fit_intercept=False, solver="sparse_cg")
        return model.fit(part.train[rows], part.targets[rows])

    def on_held(ridge: float) -> float:
        model = fitted(ridge, slice(held, None))
        return float(np.mean((model.predict(part.train[:held]) - part.targets[:held]) ** 2))

    return part.error(fitted(min(RIDGES, key=on_held), slice(None)).predict(part.test))


def run(settings: Settings, progress: Progress) -> Result:
    """Every method at every budget, repeated."""
    found = measure(settings, *data.rcv1(), progress)
    title = f"RCV1, root mean squared error; splits: {settings.repetitions}, delta: {settings.delta:g}"
    figure = curves_figure(f"RCV1, {settings.rows:,} rows, linear regression", "test error", found, CURVES)
    return Result(
        settings=settings,
        seeds={f"split {seed + 1}": seed for seed in range(settings.repetitions)},
        measured={"errors": report(found)},
        figures={"kernel_highdim": Drawing(figure, WORDS)},
        sheets=[report_sheet(title, found)],
        seen=_sentences(found),
    )


def _sentences(found: list[Measured]) -> list[str]:
    errors = {(m.method, m.epsilon): m.mean for m in found}
    budgets = sorted({m.epsilon for m in found if m.epsilon is not None})
    lines = []
    for method in (SEMI_TIGHT, SEMI_PAPER):
        ahead = [f"{epsilon:g}" for epsilon in budgets if errors[method, epsilon] < errors[OBJECTIVE, epsilon]]
        lines.append(f"Errs less than noise in the objective, {method}: at epsilon = {', '.join(ahead) or 'none'}.")
    return lines


def measure(settings: Settings, table: Any, labels: NDArray[Any], progress: Progress) -> list[Measured]:
    """Every method at every budget, repeated."""
    splits = each(partial(_one_split, settings, table, labels), range(settings.repetitions), progress)
    return collected(note for notes in splits for note in notes)


def _one_split(settings: Settings, table: Any, labels: NDArray[Any], seed: int) -> list[Note]:
    part = split(table, labels, settings, seed)
    notes = [Note(PLAIN, None, least_squares(part)), Note(ZERO, None, part.error(np.zeros(len(part.truth))))]
    bench = Bench(GaussianProcessRelease(kernel=KERNEL, loss="huber", target_bound=1.0), part.train, part.targets)
    return [*notes, *(note for epsilon in settings.epsilons for note in _at_budget(settings, part, bench, epsilon))]


def _at_budget(settings: Settings, part: Split, bench: Bench, epsilon: float) -> Iterator[Note]:
    """Every method's test error."""
    budget: dict[str, Any] = {"epsilon": epsilon, "delta": settings.delta, "target_bound": 1.0}
    objective = LinearRegression(method="objective", data_norm=1.0, fit_intercept=False, **budget)
    landmarks = LandmarkRegressor(kernel=KERNEL, landmarks=part.public, **budget)
    for method, model in ((OBJECTIVE, objective), (LANDMARKS, landmarks)):
        yield Note(method, epsilon, part.error(model.fit(part.train, part.targets).predict(part.test)))
    public = {"public_points": part.public}
    for method, kind, options in (
        (PROCESS, GaussianProcessRelease, {}),
        (SEMI_TIGHT, SemiInteractiveLearner, public),
        (SEMI_PAPER, SemiInteractiveLearner, {**public, "calibration": "paper"}),
        (INTERACTIVE, InteractiveLearner, {"questions": len(part.truth)}),
        (SEARCH, NonInteractiveLearner, {}),
    ):
        fitted: Any = bench.fit(kind(kernel=KERNEL, loss="huber", **budget, **options))
        yield Note(method, epsilon, part.error(fitted.predict(part.test)))
