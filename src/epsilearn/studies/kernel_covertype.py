"""Figure 2 (a) of the kernel paper: CoverType with the kernel (<x, y> + 1)**3, over epsilon, by all methods.

500,000 training rows; 1,500 public landmarks and the test rows come from the other 81,012. Columns are scaled by what a
map of the region says they can be, never by what they are. The paper's methods see the minimiser in the span of the
landmarks, since no Gram matrix of so many rows fits anywhere.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from epsilearn import LogisticRegression
from epsilearn.kernel import (
    RBF,
    GaussianProcessRelease,
    InteractiveLearner,
    LandmarkClassifier,
    NonInteractiveLearner,
    Polynomial,
    RandomFeatures,
    SemiInteractiveLearner,
)
from epsilearn.kernel.features import FeatureMap, Fourier, Landmarks
from epsilearn.kernel.linear_features import landmark_map
from epsilearn.studies import data
from epsilearn.studies.kernel_curves import (
    Bench,
    Line,
    Measured,
    Remembered,
    curves_figure,
    proven_sentences,
    report_table,
    watched,
    write,
)

__all__ = ["BOUNDS", "Split", "Study", "in_unit_ball", "main", "run", "split"]

Array = NDArray[np.float64]

CLASSES = [False, True]
_MOST_DIRECTIONS, _BLOCK = 800, 50_000
_HELD_OUT = 81_012  # rows that are never trained on: landmarks and test rows
PAPER_BASELINE = 0.723
KERNEL = Polynomial(degree=3, constant=1.0, data_norm=1.0)
# What the ten numbers of a 30 by 30 metre cell in the Roosevelt National Forest can be: metres, degrees, and shades.
BOUNDS = (
    (1800, 3900), (0, 360), (0, 66), (0, 1400), (-200, 700), (0, 7200), (0, 255), (0, 255), (0, 255), (0, 7200),
)  # fmt: skip

LANDMARKS, PROCESS = "landmarks, objective perturbation", "Gaussian process release"
SEMI_TIGHT, SEMI_PAPER = "semi-interactive, noise in the span", "semi-interactive as printed"
INTERACTIVE, INTERACTIVE_PAPER = "interactive, sparse vector", "interactive as printed"
SEARCH, SEARCH_PAPER = "non-interactive, tight", "non-interactive as printed"
BASELINE = "the paper's, no privacy"
RANDOM, LINEAR, PLAIN = "random features (RBF)", "linear model", "no privacy, 300 directions"
CURVES = [
    Line(PLAIN, 6, "--"), Line(BASELINE, 5, "--"),
    Line(LANDMARKS, 0), Line(PROCESS, 1), Line(RANDOM, 4), Line(LINEAR, 5),
    Line(SEMI_TIGHT, 2), Line(SEMI_PAPER, 2, ":"), Line(INTERACTIVE, 3), Line(INTERACTIVE_PAPER, 3, ":"),
    Line(SEARCH, 6), Line(SEARCH_PAPER, 6, ":"),
]  # fmt: skip


@dataclass(frozen=True)
class Study:
    """What to run.

    Attributes
    ----------
    rows : int
        Training rows.
    landmarks : int
        Public points.
    repetitions : int
        Each with a split, landmarks and noise of its own.
    epsilons : tuple of float
        The budgets.
    delta : float
        Their delta.
    rank : int
        Directions of the landmarks' span in which the paper's methods see the minimiser.
    questions : int
        Test points that sessions are asked.
    """

    rows: int = 500_000
    landmarks: int = 1500
    repetitions: int = 5
    epsilons: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
    delta: float = 1e-6
    rank: int = 300
    questions: int = 10_000


@dataclass(frozen=True)
class Split:
    """Private training rows, public landmarks, and rows to test on."""

    train: Array
    labels: NDArray[np.bool_]
    public: Array
    test: Array
    truth: NDArray[np.bool_]


def in_unit_ball(table: NDArray[Any]) -> Array:
    """Each number mapped to [-1, 1] by its public bounds, and all divided by the root of how many are not 0.

    Examples
    --------
    >>> row = np.zeros((1, 54))
    >>> row[0, [0, 10, 14]] = 3900, 1, 1
    >>> float(np.linalg.norm(in_unit_ball(row))) <= 1
    True
    """
    low, high = np.array(BOUNDS, float).T
    numbers = 2 * np.clip((table[:, :10] - low) / (high - low), 0, 1) - 1
    scaled: Array = np.hstack([numbers, table[:, 10:]]) / np.sqrt(12)
    return scaled


def split(table: Array, kinds: NDArray[Any], study: Study, seed: int) -> Split:
    """Shuffle, and cut into training rows, landmarks and test rows."""
    order = np.random.default_rng(seed).permutation(len(table))
    # The test rows stay the same few when fewer are trained on.
    held, train = order[:_HELD_OUT], order[_HELD_OUT : _HELD_OUT + study.rows]
    public, test = held[: study.landmarks], held[study.landmarks :]
    truth = kinds == 2
    return Split(table[train], truth[train], table[public], table[test], truth[test])


def run(study: Study, table: Array, kinds: NDArray[Any]) -> list[Measured]:
    """Every method at every budget, repeated."""
    found: dict[tuple[str, float | None], tuple[float | None, list[float]]] = {}

    def note(method: str, epsilon: float | None, accuracy: float, proven: float | None = None) -> None:
        found.setdefault((method, epsilon), (proven, []))[1].append(float(accuracy))

    def one_split(seed: int) -> None:
        # In a function of its own, so that one split's features are gone before the next one's are computed.
        workshop = Workshop(study, split(table, kinds, study, seed))
        note(PLAIN, None, workshop.without_privacy())
        done(f"split {seed + 1}: no privacy")
        for epsilon in study.epsilons:
            for method, accuracy, proven in workshop.at_budget(epsilon):
                note(method, epsilon, accuracy, proven)
            done(f"split {seed + 1}: epsilon = {epsilon:g}")

    with watched(study.repetitions * (len(study.epsilons) + 1)) as done:
        for seed in range(study.repetitions):
            one_split(seed)
            gc.collect()
    return [Measured(method, epsilon, proven, values) for (method, epsilon), (proven, values) in found.items()]


class Workshop:
    """All methods on one split. Features are computed once; only budgets and noise differ from then on."""

    def __init__(self, study: Study, part: Split) -> None:
        self._study, self._part = study, part
        # The plain projection onto as many directions as any budget can afford.
        widest = Landmarks(KERNEL, part.public, _MOST_DIRECTIONS)
        self._projected = widest.table(KERNEL.inside(part.train)[0])
        self._random = Fourier(RBF(2.0), part.train.shape[1], study.rank)
        self._waves = self._random.table(part.train)
        few = np.ascontiguousarray(self._projected[:, : study.rank])
        template = _WithMap(kernel=KERNEL, classes=CLASSES, landmarks=part.public, rank=study.rank)
        template.known = Remembered(Landmarks(KERNEL, part.public, study.rank), few)
        self._bench = Bench(template, part.train, part.labels)

    def without_privacy(self) -> float:
        """The accuracy of the minimiser itself, hardly regularised."""
        return float(np.mean((self._bench.values(1e-6, self._part.test) > 0) == self._part.truth))

    def at_budget(self, epsilon: float) -> Iterator[tuple[str, float, float | None]]:
        """Method, accuracy and, where it differs from the claim, what is proven."""
        study, part = self._study, self._part
        budget: dict[str, Any] = {"epsilon": epsilon, "delta": study.delta, "classes": CLASSES}
        landmarks = LandmarkClassifier(kernel=KERNEL, landmarks=part.public, **budget)
        _know(landmarks, lambda rows, loss: self._whitened(landmark_map(landmarks, rows, loss)))
        waves = RandomFeatures(kernel=RBF(2.0), n_features=study.rank, **budget)
        _know(waves, lambda _rows, _loss: Remembered(self._random, self._waves))
        linear = LogisticRegression(data_norm=1.0, **budget)
        for method, model in ((LANDMARKS, landmarks), (RANDOM, waves), (LINEAR, linear)):
            yield method, model.fit(part.train, part.labels).score(part.test, part.truth), None
        public = {"public_points": part.public}
        for method, kind, options in (
            (PROCESS, GaussianProcessRelease, {}),
            (SEMI_TIGHT, SemiInteractiveLearner, public),
            (SEMI_PAPER, SemiInteractiveLearner, {**public, "calibration": "paper"}),
            (INTERACTIVE, InteractiveLearner, {"questions": study.questions}),
            (INTERACTIVE_PAPER, InteractiveLearner, {"questions": study.questions, "calibration": "paper"}),
            (SEARCH, NonInteractiveLearner, {"candidates": part.public}),
            (SEARCH_PAPER, NonInteractiveLearner, {"candidates": part.public, "calibration": "paper"}),
        ):
            fitted: Any = self._bench.fit(kind(kernel=KERNEL, **budget, **options))
            asked = slice(study.questions if kind is InteractiveLearner else None)
            claimed = fitted.guarantee_.claimed_epsilon
            proven = None if claimed is None else fitted.guarantee_.epsilon
            yield method, fitted.score(part.test[asked], part.truth[asked]), proven

    def _whitened(self, features: Landmarks) -> FeatureMap:
        columns = self._projected[:, : features.columns]
        table = np.empty(columns.shape, np.float32)
        for start in range(0, len(table), _BLOCK):
            table[start : start + _BLOCK] = features.whitened(columns[start : start + _BLOCK].astype(np.float64))
        return Remembered(features, table)


class _WithMap(GaussianProcessRelease):
    """A template whose features are known already."""

    known: FeatureMap

    def _feature_map(self, rows: int) -> FeatureMap:  # noqa: ARG002
        return self.known


def _know(model: Any, make: Callable[[int, Any], FeatureMap]) -> None:
    """Give a model a map whose features are known already."""
    model._map = make


def main(
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("studies-output"),
    repetitions: Annotated[int, typer.Option(min=1, help="Splits, each with its own landmarks and noise.")] = 5,
    rows: Annotated[int, typer.Option(min=1000, max=500_000, help="Training rows.")] = 500_000,
    quick: Annotated[bool, typer.Option("--quick", help="One split, two budgets.")] = False,
) -> None:
    """Repeat Figure 2 (a) of the kernel paper on CoverType, by all methods."""
    study = Study(rows=rows, repetitions=repetitions)
    if quick:
        study = Study(rows=rows, repetitions=1, epsilons=(0.1, 1.0))
    start = time.monotonic()
    numbers, kinds = data.covertype()
    found = run(study, in_unit_ball(numbers), kinds)
    title = f"CoverType, accuracy over {study.repetitions} splits, delta = {study.delta:g}"
    console = Console(highlight=False)
    console.print(report_table(title, found), proven_sentences(found), sep="\n")
    found.append(Measured(BASELINE, None, None, [PAPER_BASELINE]))
    figure = curves_figure(f"CoverType, {study.rows:,} rows, (<x, y> + 1)^3", "test accuracy", found, CURVES)
    settings = {**asdict(study), "bounds": BOUNDS, "minutes": (time.monotonic() - start) / 60}
    write("kernel_covertype", settings, found, figure, out)
    console.print(f"Written to {out}")


if __name__ == "__main__":
    typer.run(main)
