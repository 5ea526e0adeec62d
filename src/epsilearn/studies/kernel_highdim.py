"""Figure 2 (b) of the kernel paper: linear regression in very high dimension, over epsilon, by all methods.

20,000 rows of RCV1 (47,236 columns, each row of norm 1), whose labels -1 and 1 are the targets; 1,000 of the other rows
are public points without labels, the rest are tested on. The paper used KDD Cup 2010, of about 2 million columns.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from sklearn.linear_model import Ridge
from sklearn.preprocessing import normalize

from epsilearn import LinearRegression
from epsilearn.kernel import (
    GaussianProcessRelease,
    InteractiveLearner,
    LandmarkRegressor,
    Linear,
    NonInteractiveLearner,
    SemiInteractiveLearner,
)
from epsilearn.studies import data
from epsilearn.studies.kernel_curves import Bench, Line, Measured, curves_figure, report_table, watched, write

__all__ = ["Split", "Study", "main", "run", "split"]

Array = NDArray[np.float64]

KERNEL = Linear(data_norm=1.0)
OBJECTIVE, PROCESS, LANDMARKS = "objective perturbation", "Gaussian process release", "landmarks"
SEMI_TIGHT, SEMI_PAPER = "semi-interactive, noise in the span", "semi-interactive as printed"
INTERACTIVE, SEARCH = "interactive, sparse vector", "non-interactive, tight"
PLAIN, ZERO = "least squares, no privacy", "always zero"
CURVES = [
    Line(PLAIN, 6, "--"), Line(ZERO, 5, "--"), Line(OBJECTIVE, 4), Line(LANDMARKS, 0), Line(PROCESS, 1),
    Line(SEMI_TIGHT, 2), Line(SEMI_PAPER, 2, ":"), Line(INTERACTIVE, 3), Line(SEARCH, 6),
]  # fmt: skip
# Ridges for least squares without privacy; the best on a tenth of the training rows is used.
RIDGES = (1e-5, 1e-4, 1e-3)


@dataclass(frozen=True)
class Study:
    """What to run.

    Attributes
    ----------
    rows : int
        Training rows.
    public : int
        Public points without labels.
    repetitions : int
        Each with a split and noise of its own.
    epsilons : tuple of float
        The budgets.
    delta : float
        Their delta.
    """

    rows: int = 20_000
    public: int = 1000
    repetitions: int = 5
    epsilons: tuple[float, ...] = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
    delta: float = 1e-6


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


def split(table: Any, labels: NDArray[Any], study: Study, seed: int) -> Split:
    """Shuffle, and cut into training rows, public points and test rows."""
    order = np.random.default_rng(seed).permutation(table.shape[0])
    train, public, test = np.split(order, [study.rows, study.rows + study.public])
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


def run(study: Study, table: Any, labels: NDArray[Any]) -> list[Measured]:
    """Every method at every budget, repeated."""
    found: dict[tuple[str, float | None], list[float]] = {}
    with watched(study.repetitions * (len(study.epsilons) + 1)) as done:
        for seed in range(study.repetitions):
            part = split(table, labels, study, seed)
            found.setdefault((PLAIN, None), []).append(least_squares(part))
            found.setdefault((ZERO, None), []).append(part.error(np.zeros(len(part.truth))))
            template = GaussianProcessRelease(kernel=KERNEL, loss="huber", target_bound=1.0)
            bench = Bench(template, part.train, part.targets)
            done(f"split {seed + 1}: no privacy")
            for epsilon in study.epsilons:
                for method, error in _at_budget(study, part, bench, epsilon):
                    found.setdefault((method, epsilon), []).append(error)
                done(f"split {seed + 1}: epsilon = {epsilon:g}")
    return [Measured(method, epsilon, None, errors) for (method, epsilon), errors in found.items()]


def _at_budget(study: Study, part: Split, bench: Bench, epsilon: float) -> Iterator[tuple[str, float]]:
    """Method and test error."""
    budget: dict[str, Any] = {"epsilon": epsilon, "delta": study.delta, "target_bound": 1.0}
    objective = LinearRegression(method="objective", data_norm=1.0, fit_intercept=False, **budget)
    landmarks = LandmarkRegressor(kernel=KERNEL, landmarks=part.public, **budget)
    for method, model in ((OBJECTIVE, objective), (LANDMARKS, landmarks)):
        yield method, part.error(model.fit(part.train, part.targets).predict(part.test))
    public = {"public_points": part.public}
    for method, kind, options in (
        (PROCESS, GaussianProcessRelease, {}),
        (SEMI_TIGHT, SemiInteractiveLearner, public),
        (SEMI_PAPER, SemiInteractiveLearner, {**public, "calibration": "paper"}),
        (INTERACTIVE, InteractiveLearner, {"questions": len(part.truth)}),
        (SEARCH, NonInteractiveLearner, {}),
    ):
        fitted: Any = bench.fit(kind(kernel=KERNEL, loss="huber", **budget, **options))
        yield method, part.error(fitted.predict(part.test))


def main(
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("studies-output"),
    repetitions: Annotated[int, typer.Option(min=1, help="Splits, each with its own noise.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="One split, two budgets.")] = False,
) -> None:
    """Repeat Figure 2 (b) of the kernel paper on RCV1, by all methods."""
    study = Study(repetitions=1, epsilons=(0.5, 5.0)) if quick else Study(repetitions=repetitions)
    start = time.monotonic()
    found = run(study, *data.rcv1())
    title = f"RCV1, {study.rows:,} rows, root mean squared error over {study.repetitions} splits"
    console = Console(highlight=False)
    console.print(report_table(f"{title}, delta = {study.delta:g}", found))
    figure = curves_figure(f"RCV1, {study.rows:,} rows, linear regression", "test error", found, CURVES)
    settings = {**asdict(study), "minutes": (time.monotonic() - start) / 60}
    write("kernel_highdim", settings, found, figure, out)
    console.print(f"Written to {out}")


if __name__ == "__main__":
    typer.run(main)
