"""The simulations of Chaudhuri and Monteleoni, *Privacy-preserving logistic regression* (2008).

Two data sets on the unit sphere in ten dimensions, one linearly separable and one not; logistic regression with noise
on the result (their sensitivity method) and in the objective (their new method), with the paper's constants and with
this project's; the test error over five folds. ``figure1``, ``learning_curves`` and ``epsilon_curves`` use them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn import erm, plots
from epsilearn.checks import check_integer, check_positive
from epsilearn.losses import Logistic
from epsilearn.mechanisms.minimum import perturb_output
from epsilearn.mechanisms.release import Release
from epsilearn.rows import Bounds, as_rows
from epsilearn.rows.interface import Rows
from epsilearn.solvers import Problem, minimise
from epsilearn.studies.study import Progress, each

__all__ = [
    "COLOURS", "DATA", "FOLDS", "METHODS", "SEED", "Sample", "Simulation", "Summary", "Task", "fold_tasks", "folds",
    "make_sample", "measure", "summaries",
]  # fmt: skip

Array = NDArray[np.float64]

DIMENSION, FOLDS, STRENGTH, SEED = 10, 5, 0.01, 2008
MARGIN, BAND, FLIPS = 0.03, 0.1, 0.2
DATA = ("separable", "unseparable")
# As the paper calls them: noise on the result, noise in the objective, none.
METHODS = {"output": "sensitivity", "objective": "new method", "standard": "no privacy"}
COLOURS = {"paper": plots.BLUE, "tight": plots.ORANGE}


@dataclass(frozen=True)
class Sample:
    """Points on the unit sphere, their labels (-1 or 1), and the direction that labelled them."""

    points: Array
    labels: Array
    direction: Array


@dataclass(frozen=True)
class Simulation:
    """The sizes of a run.

    Attributes
    ----------
    points : int
        Points in each data set.
    draws : int
        Draws of the noise for each test error, in each of five folds.
    budget : float
        n times epsilon, n being the points that a fold trains on.
    """

    points: int = 17_500
    draws: int = 200
    budget: float = 280.0

    def __post_init__(self) -> None:
        # With fewer there is nothing to see, and with very few the learning curves' pieces are empty.
        check_integer("points", self.points, least=100)
        check_integer("draws", self.draws)
        check_positive("budget", self.budget)

    @property
    def training(self) -> int:
        """How many points a fold trains on."""
        return self.points - len(folds(self.points)[0])

    @property
    def epsilon(self) -> float:
        """The table's epsilon."""
        return self.budget / self.training


@dataclass(frozen=True)
class Task:
    """One fold of one data set, trained on its first ``rows`` points; ``epsilon`` None is without privacy."""

    data: str
    points: int
    fold: int
    rows: int
    epsilon: float | None
    draws: int


@dataclass(frozen=True)
class Measured:
    """The test errors of one method in one task, one for each draw, and the epsilon that its guarantee states."""

    method: str
    calibration: str | None
    proven: float | None
    strength: float
    errors: Array


@dataclass(frozen=True)
class Summary:
    """The test error of one method in one setting, over all folds and draws.

    Attributes
    ----------
    data, method, calibration, rows, epsilon
        The setting: data set, method, constants, training points and the epsilon asked for.
    proven : float or None
        The epsilon that the guarantee states. With the paper's constants it can exceed the one asked for.
    strength : float
        The regularisation used; the tight constants raise it where the one asked for cannot be private enough.
    mean, deviation : float
        Over all draws in all folds.
    fold_deviation : float
        Between the means of the folds.
    draws : int
        Draws of the noise in each fold.
    """

    data: str
    method: str
    calibration: str | None
    rows: int
    epsilon: float | None
    proven: float | None
    strength: float
    mean: float
    deviation: float
    fold_deviation: float
    draws: int

    @property
    def reach(self) -> float:
        """Half of the 95 % interval of the mean over draws, the folds being as they are."""
        return 1.96 * self.deviation / math.sqrt(FOLDS * self.draws)

    @property
    def holds(self) -> bool:
        """Whether what was asked for is proven, but for the hundredth that hides the solver's error."""
        return (self.proven or 0.0) <= 1.011 * (self.epsilon or 0.0)


def make_sample(data: str, points: int, seed: int = SEED) -> Sample:
    """Uniform points on the sphere, labelled by a random direction.

    Parameters
    ----------
    data : {"separable", "unseparable"}
        Without any point closer than 0.03 to the separator; or with such points, and with labels flipped with
        probability 0.2 where the distance is at most 0.1.
    points : int
        How many.
    seed : int
        What the points follow from. The data are not private, so a seed does no harm; the noise has none.

    Examples
    --------
    >>> sample = make_sample("separable", 1000)
    >>> bool(abs(sample.points @ sample.direction).min() >= 0.03)
    True
    """
    generator = np.random.default_rng([seed, DATA.index(data)])
    direction = _on_sphere(generator, 1)[0]
    if data == "separable":
        # More than nine tenths of the points lie outside the margin; twice as many as needed are plenty.
        found = _on_sphere(generator, 2 * points + 100)
        found = found[np.abs(found @ direction) >= MARGIN][:points]
        return Sample(found, np.sign(found @ direction), direction)
    found = _on_sphere(generator, points)
    scores = found @ direction
    flipped = (np.abs(scores) <= BAND) & (generator.random(points) < FLIPS)
    return Sample(found, np.where(flipped, -1.0, 1.0) * np.sign(scores), direction)


def _on_sphere(generator: np.random.Generator, points: int) -> Array:
    normal = generator.normal(size=(points, DIMENSION))
    scaled: Array = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    return scaled


def folds(points: int) -> list[NDArray[np.intp]]:
    """The positions that each fold tests on. Points are independent, so neighbours may share a fold."""
    return np.array_split(np.arange(points), FOLDS)


def measure(task: Task) -> list[Measured]:
    """Fit on the task's training points as often as it says, and test on its fold."""
    sample, tested = make_sample(task.data, task.points), folds(task.points)[task.fold]
    trained = np.delete(np.arange(task.points), tested)[: task.rows]
    rows = as_rows(sample.points[trained], sample.labels[trained], Bounds(1.0, intercept=0.0))
    test = (sample.points[tested], sample.labels[tested])
    if task.epsilon is None:
        weights = np.asarray(minimise(Problem(rows, Logistic(), STRENGTH), 1e-9).coef)
        return [Measured("standard", None, None, STRENGTH, _test_errors(weights[None, :], *test))]
    return [
        _measure_private(rows, test, method, calibration, task.epsilon, task.draws)
        for method in ("output", "objective")
        for calibration in COLOURS
    ]


def _measure_private(
    rows: Rows, test: tuple[Array, Array], method: str, calibration: str, epsilon: float, draws: int
) -> Measured:
    plan = erm.plan(
        Logistic(), erm.Table.of(rows), strength=STRENGTH, epsilon=epsilon, method=method, calibration=calibration
    )
    draw = _releaser(plan, rows)
    releases = [draw() for _ in range(draws)]
    weights = np.array([release.value for release in releases])
    return Measured(method, calibration, releases[0].guarantee.epsilon, plan.strength, _test_errors(weights, *test))


def _releaser(plan: erm.Plan, rows: Rows) -> Callable[[], Release]:
    """What draws once. Noise on the result needs one minimiser for all draws; noise in the objective one for each."""
    if plan.method == "objective":
        return lambda: erm.execute(plan, Logistic(), rows)
    solution = minimise(Problem(rows, Logistic(), plan.strength), plan.certificate)
    return lambda: perturb_output(
        lambda: solution, law=plan.law, promise=plan.promise, ledger=None, purpose="study", random_state=None
    )


def _test_errors(weights: Array, points: Array, labels: Array) -> Array:
    """The share of points on the wrong side, for each row of weights."""
    errors: Array = np.mean(np.sign(weights @ points.T) != labels, axis=1)
    return errors


def fold_tasks(simulation: Simulation, rows: int, epsilon: float | None) -> list[Task]:
    """One setting, in every fold of both data sets. Without privacy there is nothing to draw."""
    draws = 1 if epsilon is None else simulation.draws
    return [Task(data, simulation.points, fold, rows, epsilon, draws) for data in DATA for fold in range(FOLDS)]


def summaries(tasks: Sequence[Task], progress: Progress) -> list[Summary]:
    """Do the tasks and summarise over folds."""
    groups: dict[Any, list[Measured]] = {}
    for task, results in zip(tasks, each(measure, tasks, progress), strict=True):
        for result in results:
            key = (replace(task, fold=0), result.method, result.calibration)
            groups.setdefault(key, []).append(result)
    return [_summarise(task, group) for (task, *_), group in groups.items()]


def _summarise(task: Task, group: list[Measured]) -> Summary:
    first, errors = group[0], np.array([result.errors for result in group])
    return Summary(
        data=task.data,
        method=first.method,
        calibration=first.calibration,
        rows=task.rows,
        epsilon=task.epsilon,
        proven=first.proven,
        strength=first.strength,
        mean=float(errors.mean()),
        deviation=float(errors.std()),
        fold_deviation=float(errors.mean(axis=1).std()),
        draws=task.draws,
    )
