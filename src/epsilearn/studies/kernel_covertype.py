"""Learning with kernels: CoverType over epsilon by all methods, Figure 2 a (2013).

Jain and Thakurta train a support vector machine with the kernel (<x, y> + 1)^3 on 500,000 rows of CoverType. Without
privacy they reach an accuracy of 0.723, and with their semi-interactive method nearly that from epsilon = 0.1 on. They
state neither the number of public points nor the regularisation, delta or the scaling of the columns.

With 1,500 public landmarks, noise in the objective of the landmark model does best (0.79 at epsilon = 0.1), then random
features, then a linear model, then a Gaussian process and noise in the span; independent noise as printed stays below
0.68. The interactive and non-interactive methods answer no better than chance at this size.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn import LogisticRegression
from epsilearn.checks import check_integer
from epsilearn.errors import InvalidInput
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
    Note,
    Remembered,
    Splits,
    collected,
    curves_figure,
    proven_sentences,
    report,
    report_sheet,
)
from epsilearn.studies.study import Drawing, Progress, Result

__all__ = ["BOUNDS", "Settings", "Split", "Workshop", "in_unit_ball", "measure", "run", "split"]

Array = NDArray[np.float64]

CLASSES = [False, True]
_MOST_DIRECTIONS, _BLOCK = 800, 50_000
_MOST_ROWS, _HELD_OUT = 500_000, 81_012  # the others are never trained on: landmarks and test rows
PAPER_BASELINE = 0.723
KERNEL = Polynomial(degree=3, constant=1.0, data_norm=1.0)
WORDS = (
    "Test accuracy on CoverType against epsilon, a line for each method: landmarks with noise in the objective are the "
    "highest, interactive and non-interactive methods are at chance; bands are one deviation between splits."
)
# What the ten numbers of a 30 by 30 metre cell in the Roosevelt National Forest can be: metres, degrees, and shades.
BOUNDS = (
    (1800, 3900), (0, 360), (0, 66), (0, 1400), (-200, 700), (0, 7200), (0, 255), (0, 255), (0, 255), (0, 7200),
)  # fmt: skip

LANDMARKS, PROCESS = "landmarks, objective perturbation", "Gaussian process release"
SEMI_TIGHT, SEMI_PAPER = "semi-interactive, noise in the span", "semi-interactive as printed"
INTERACTIVE, INTERACTIVE_PAPER = "interactive, sparse vector", "interactive as printed"
SEARCH, SEARCH_PAPER = "non-interactive, tight", "non-interactive as printed"
BASELINE = "the paper's, no privacy"
RANDOM, LINEAR, PLAIN = "random features (RBF)", "linear model", "no privacy, in the landmarks' span"
CURVES = [
    Line(PLAIN, 6, "--"), Line(BASELINE, 6, "-."),
    Line(LANDMARKS, 0), Line(RANDOM, 4, marker="v"), Line(LINEAR, 5, marker="s"), Line(PROCESS, 2, marker="D"),
    Line(SEMI_TIGHT, 1, marker="^"), Line(SEMI_PAPER, 1, ":", "^", ring=True),
    Line(INTERACTIVE, 3, marker="P"), Line(INTERACTIVE_PAPER, 3, ":", "P", ring=True),
    Line(SEARCH, 6, marker="X"), Line(SEARCH_PAPER, 6, ":", "X", ring=True),
]  # fmt: skip


@dataclass(frozen=True)
class Settings(Splits):
    """What to run: see `Splits`. The full run takes 6.3 GiB of memory.

    Attributes
    ----------
    rows : int
        Training rows, at most 500,000.
    landmarks : int
        Public points.
    rank : int
        Directions of the landmarks' span in which the paper's methods see the minimiser.
    questions : int
        Test points that sessions are asked.
    """

    epsilons: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
    rows: int = 500_000
    landmarks: int = 1500
    rank: int = 300
    questions: int = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("rows", self.rows, least=1000)
        if self.rows > _MOST_ROWS:
            raise InvalidInput(f"rows must be at most {_MOST_ROWS:,}, got {self.rows:,}")
        for name in ("landmarks", "rank", "questions"):
            check_integer(name, getattr(self, name))

    @classmethod
    def quick(cls) -> Settings:
        """One split, two budgets, few of the rows."""
        return cls(repetitions=1, epsilons=(0.1, 1.0), rows=30_000, landmarks=200, rank=100, questions=1000)


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


def split(table: Array, kinds: NDArray[Any], settings: Settings, seed: int) -> Split:
    """Shuffle, and cut into training rows, landmarks and test rows."""
    order = np.random.default_rng(seed).permutation(len(table))
    # The test rows stay the same few when fewer are trained on.
    held, train = order[:_HELD_OUT], order[_HELD_OUT : _HELD_OUT + settings.rows]
    public, test = held[: settings.landmarks], held[settings.landmarks :]
    truth = kinds == 2
    return Split(table[train], truth[train], table[public], table[test], truth[test])


def run(settings: Settings, progress: Progress) -> Result:
    """Every method at every budget, repeated. The libraries inside use all processors; splits come one by one."""
    numbers, kinds = data.covertype()
    return _report(settings, measure(settings, in_unit_ball(numbers), kinds, progress))


def _report(settings: Settings, found: list[Measured]) -> Result:
    sheet = report_sheet(f"CoverType, accuracy; splits: {settings.repetitions}, delta: {settings.delta:g}", found)
    found = [*found, Measured(BASELINE, None, None, [PAPER_BASELINE])]
    title = f"CoverType, {settings.rows:,} rows, (<x, y> + 1)^3"
    return Result(
        settings=settings,
        seeds={f"split {seed + 1}": seed for seed in range(settings.repetitions)},
        measured={"bounds": BOUNDS, "accuracies": report(found)},
        figures={"kernel_covertype": Drawing(curves_figure(title, "test accuracy", found, CURVES), WORDS)},
        sheets=[sheet],
        seen=[_best(found), *proven_sentences(found)],
    )


def _best(found: list[Measured]) -> str:
    private = [m for m in found if m.epsilon is not None]
    first = min(m.epsilon for m in private if m.epsilon is not None)
    best = max((m for m in private if m.epsilon == first), key=lambda m: m.mean)
    return f"At epsilon = {first:g} the best of all private methods is: {best.method}, accuracy {best.mean:.3f}."


def measure(settings: Settings, table: Array, kinds: NDArray[Any], progress: Progress) -> list[Measured]:
    """Every method at every budget, repeated."""
    steps = (step for seed in range(settings.repetitions) for step in _one_split(settings, table, kinds, seed))
    total = settings.repetitions * (len(settings.epsilons) + 1)
    return collected(note for step in progress(steps, total) for note in step)


def _one_split(settings: Settings, table: Array, kinds: NDArray[Any], seed: int) -> Iterator[list[Note]]:
    """Without privacy, then budget by budget; one split's features are gone before the next one's are computed."""
    workshop = Workshop(settings, split(table, kinds, settings, seed))
    yield [Note(PLAIN, None, workshop.without_privacy())]
    for epsilon in settings.epsilons:
        yield list(workshop.at_budget(epsilon))
    del workshop
    gc.collect()


class Workshop:
    """All methods on one split. Features are computed once; only budgets and noise differ from then on."""

    def __init__(self, settings: Settings, part: Split) -> None:
        self._settings, self._part = settings, part
        # The plain projection onto as many directions as any budget can afford.
        widest = Landmarks(KERNEL, part.public, _MOST_DIRECTIONS)
        self._projected = widest.table(KERNEL.inside(part.train)[0])
        self._random = Fourier(RBF(2.0), part.train.shape[1], settings.rank)
        self._waves = self._random.table(part.train)
        few = np.ascontiguousarray(self._projected[:, : settings.rank])
        template = _WithMap(kernel=KERNEL, classes=CLASSES, landmarks=part.public, rank=settings.rank)
        template.known = Remembered(Landmarks(KERNEL, part.public, settings.rank), few)
        self._bench = Bench(template, part.train, part.labels)

    def without_privacy(self) -> float:
        """The accuracy of the minimiser itself, hardly regularised."""
        return float(np.mean((self._bench.values(1e-6, self._part.test) > 0) == self._part.truth))

    def at_budget(self, epsilon: float) -> Iterator[Note]:
        """Every method's accuracy and, where it differs from the claim, what is proven."""
        settings, part = self._settings, self._part
        budget: dict[str, Any] = {"epsilon": epsilon, "delta": settings.delta, "classes": CLASSES}
        landmarks = LandmarkClassifier(kernel=KERNEL, landmarks=part.public, **budget)
        _know(landmarks, lambda rows, loss: self._whitened(landmark_map(landmarks, rows, loss)))
        waves = RandomFeatures(kernel=RBF(2.0), n_features=settings.rank, **budget)
        _know(waves, lambda _rows, _loss: Remembered(self._random, self._waves))
        linear = LogisticRegression(data_norm=1.0, **budget)
        for method, model in ((LANDMARKS, landmarks), (RANDOM, waves), (LINEAR, linear)):
            yield Note(method, epsilon, model.fit(part.train, part.labels).score(part.test, part.truth))
        public = {"public_points": part.public}
        for method, kind, options in (
            (PROCESS, GaussianProcessRelease, {}),
            (SEMI_TIGHT, SemiInteractiveLearner, public),
            (SEMI_PAPER, SemiInteractiveLearner, {**public, "calibration": "paper"}),
            (INTERACTIVE, InteractiveLearner, {"questions": settings.questions}),
            (INTERACTIVE_PAPER, InteractiveLearner, {"questions": settings.questions, "calibration": "paper"}),
            (SEARCH, NonInteractiveLearner, {"candidates": part.public}),
            (SEARCH_PAPER, NonInteractiveLearner, {"candidates": part.public, "calibration": "paper"}),
        ):
            fitted: Any = self._bench.fit(kind(kernel=KERNEL, **budget, **options))
            asked = slice(settings.questions if kind is InteractiveLearner else None)
            claimed = fitted.guarantee_.claimed_epsilon
            proven = None if claimed is None else fitted.guarantee_.epsilon
            yield Note(method, epsilon, fitted.score(part.test[asked], part.truth[asked]), proven)

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
