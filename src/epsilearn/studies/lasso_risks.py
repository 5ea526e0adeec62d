"""How the private LASSO's excess risk is measured against the number of records, and how its slope is judged.

``lasso_rate`` and ``lasso_hard_instance`` are the two families of data it is measured on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from epsilearn import plots
from epsilearn.calibration.frank_wolfe import SquaredSlope
from epsilearn.checks import check_integer, check_positive
from epsilearn.constraints import L1Ball
from epsilearn.errors import InvalidInput
from epsilearn.frank_wolfe import PathTable, plan
from epsilearn.lasso import Lasso
from epsilearn.studies.study import Progress, Sheet, each

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

__all__ = [
    "FEWEST_SIZES", "PAPER_SLOPE", "RADIUS", "SEED", "Fits", "Measured", "Problem", "Rate", "fit_private_lasso",
    "fit_rate", "measure", "measure_all", "rates_figure", "report", "sentences", "sheets",
]  # fmt: skip

Array = NDArray[np.float64]
# Features, targets, epsilon and delta make coefficients.
Fit = Callable[[Any, Array, float, float], ArrayLike]

SEED, RADIUS, PAPER_SLOPE = 2015, 1.0, -2 / 3
RESAMPLES = 2000
# A line through two points leaves nothing to judge its slope by.
FEWEST_SIZES = 3
# A path of two points is one step of length 2/3, however many records there are.
FEWEST_STEPS = 10
SINGLE: Any = {"ms": 5, "mew": 0, "alpha": 0.4}
MEAN: Any = {"ms": 6}
FITTED: Any = {"ls": "-", "lw": 1.5}
REFERENCE: Any = {"ls": "--", "lw": 1.2, "color": plots.INK}
ZERO: Any = {"ls": ":", "lw": 1.5, "color": plots.GREY}


@dataclass(frozen=True)
class Fits:
    """What is fitted to every data set of a family.

    Attributes
    ----------
    epsilons : tuple of float
        The budgets; delta is n^(-1.1).
    repetitions : int
        Fits of each data set at each budget, each with fresh noise.
    """

    epsilons: tuple[float, ...] = (1.0, 5.0, 20.0)
    repetitions: int = 10

    def __post_init__(self) -> None:
        for epsilon in self.epsilons:
            check_positive("epsilons", epsilon)
        # One fit says nothing of the spread between fits.
        check_integer("repetitions", self.repetitions, least=2)


@dataclass(frozen=True, eq=False)
class Problem:
    """One data set, the risk of a model on it, and the least risk over the l1 ball."""

    X: Any
    y: Array
    risk: Callable[[Array], float]
    least: float


@dataclass(frozen=True)
class Measured:
    """The excess risks on one data set at one budget.

    Attributes
    ----------
    rows, features : int
        Its size.
    epsilon, delta : float
        The budget of each fit.
    least : float
        The least risk over the l1 ball.
    zero : float
        The excess risk of the model that is zero everywhere.
    excess : list of float
        The private models' risks minus the least, one for each repetition.
    steps : int
        How many points the private path has, by its plan.
    """

    rows: int
    features: int
    epsilon: float
    delta: float
    least: float
    zero: float
    excess: list[float]
    steps: int

    @property
    def settled(self) -> bool:
        """Whether the path is long enough for its rate to show; the slope is fitted to these alone."""
        return self.steps >= FEWEST_STEPS

    @property
    def mean(self) -> float:
        """The mean excess risk."""
        return float(np.mean(self.excess))

    @property
    def deviation(self) -> float:
        """Between fits."""
        return float(np.std(self.excess, ddof=1))

    @property
    def reach(self) -> float:
        """Half of the 95 % interval of the mean (Student's t)."""
        count = len(self.excess)
        return float(stats.t.ppf(0.975, count - 1)) * self.deviation / math.sqrt(count)


@dataclass(frozen=True)
class Rate:
    """A power law ``level * n**slope`` fitted to mean excess risks.

    Attributes
    ----------
    slope, level : float
        By least squares on logarithms, every data set counting the same.
    lower, upper : float
        The 95 % confidence interval of the slope from the residuals of the line (Student's t). It holds the noise of
        the fits and the bends of the true curve, which is no exact power law. This is the one that is reported.
    noise_lower, noise_upper : float
        The 95 % interval of a bootstrap over repetitions: what the noise of the fits alone does to the slope.
    """

    slope: float
    level: float
    lower: float
    upper: float
    noise_lower: float
    noise_upper: float


@dataclass(frozen=True)
class _Task:
    """One data set at one budget; the data are made where the task is done."""

    make: Callable[[int], Problem]
    rows: int
    epsilon: float
    repetitions: int


def measure_all(make: Callable[[int], Problem], sizes: Sequence[int], fits: Fits, progress: Progress) -> list[Measured]:
    """Every size at every budget, the budgets one after the other."""
    # The largest first, lest one processor waits for the other at the end.
    tasks = [_Task(make, rows, epsilon, fits.repetitions) for rows in sorted(sizes)[::-1] for epsilon in fits.epsilons]
    return sorted(each(_measure_task, tasks, progress), key=lambda m: (fits.epsilons.index(m.epsilon), m.rows))


def _measure_task(task: _Task) -> Measured:
    return measure(task.make(task.rows), fit_private_lasso, epsilon=task.epsilon, repetitions=task.repetitions)


def fit_private_lasso(X: Any, y: Array, epsilon: float, delta: float) -> ArrayLike:
    """The coefficients of one private LASSO."""
    model = Lasso(epsilon=epsilon, delta=delta, radius=RADIUS, feature_bound=1.0, target_bound=1.0, n_steps="auto")
    coef: Array = model.fit(X, y).coef_
    return coef


def measure(problem: Problem, fit: Fit, *, epsilon: float, repetitions: int) -> Measured:
    """Fit one data set as often as said; only the noise differs between fits.

    Parameters
    ----------
    problem : Problem
        The data set.
    fit : callable
        Makes coefficients from features, targets, epsilon and delta.
    epsilon : float
        Handed to each fit, with delta n^(-1.1).
    repetitions : int
        How many fits.

    Examples
    --------
    >>> from epsilearn.studies.lasso_hard_instance import hard_problem
    >>> zeros = lambda X, y, epsilon, delta: np.zeros(X.shape[1])
    >>> found = measure(hard_problem(138), zeros, epsilon=1.0, repetitions=3)
    >>> found.excess == 3 * [found.zero]
    True
    """
    rows, features = problem.X.shape
    delta = rows**-1.1
    excess = []
    for _ in range(repetitions):
        theta = np.asarray(fit(problem.X, problem.y, epsilon, delta), dtype=np.float64)
        excess.append(problem.risk(theta) - problem.least)
    zero = problem.risk(np.zeros(features)) - problem.least
    steps = _planned_steps(rows, features, epsilon, delta)
    return Measured(rows, features, epsilon, delta, problem.least, zero, excess, steps)


def _planned_steps(rows: int, features: int, epsilon: float, delta: float) -> int:
    table = PathTable(rows, features, feature_bound=1.0)
    return plan(SquaredSlope(1.0), table, L1Ball(RADIUS), epsilon=epsilon, delta=delta).steps


def fit_rate(rows: Sequence[int], excess: Sequence[Sequence[float]], seed: int = SEED) -> Rate:
    """The slope of the mean excess risk against the number of rows, both as logarithms.

    Parameters
    ----------
    rows : sequence of int
        At least three sizes.
    excess : sequence of sequence of float
        The excess risks at each size.
    seed : int
        What the bootstrap follows from.

    Examples
    --------
    >>> rate = fit_rate([100, 1000, 10_000], [[0.1, 0.1], [0.01, 0.01], [0.001, 0.001]])
    >>> round(rate.slope, 6), round(rate.level, 6)
    (-1.0, 10.0)
    """
    if len(rows) < FEWEST_SIZES:
        raise InvalidInput(f"a slope with an interval needs at least {FEWEST_SIZES} sizes, got {len(rows)}")
    means = np.array([np.mean(repeated) for repeated in excess])
    if not (means > 0).all():
        raise InvalidInput("a power law needs positive mean excess risks")
    line = stats.linregress(np.log(rows), np.log(means))
    reach = float(stats.t.ppf(0.975, len(rows) - 2) * line.stderr)
    noise_lower, noise_upper = np.quantile(_resampled_slopes(rows, excess, seed), [0.025, 0.975])
    return Rate(
        slope=float(line.slope),
        level=float(np.exp(line.intercept)),
        lower=float(line.slope) - reach,
        upper=float(line.slope) + reach,
        noise_lower=float(noise_lower),
        noise_upper=float(noise_upper),
    )


def _resampled_slopes(rows: Sequence[int], excess: Sequence[Sequence[float]], seed: int) -> Array:
    """Slopes after drawing the repetitions at each size again, with replacement."""
    generator = np.random.default_rng(seed)
    drawn = [generator.choice(np.asarray(own), size=(RESAMPLES, len(own))).mean(axis=1) for own in excess]
    centred = np.log(rows) - np.mean(np.log(rows))
    slopes: Array = centred @ np.log(drawn) / (centred @ centred)
    return slopes


def _at(found: Iterable[Measured], epsilon: float) -> list[Measured]:
    return [m for m in found if m.epsilon == epsilon]


def _fitted(found: list[Measured]) -> list[Measured]:
    """The data sets the slope is fitted to: the settled ones, or all if these are too few."""
    settled = [m for m in found if m.settled]
    return settled if len(settled) >= FEWEST_SIZES else found


def _rate(found: list[Measured]) -> Rate:
    own = _fitted(found)
    return fit_rate([m.rows for m in own], [m.excess for m in own])


def rates_figure(fits: Fits, found: list[Measured], name: str, colour: str) -> Figure:
    """Excess risk by records, both as logarithms, one panel for each budget."""
    with plots.house_style():
        figure, panels = plots.new_figure(max(6.4, 3.0 * len(fits.epsilons)), 4.2, columns=len(fits.epsilons))
        for panel, epsilon in zip(panels, fits.epsilons, strict=True):
            _draw_panel(panel, _at(found, epsilon), colour)
            # Room for a line between title and panel.
            panel.set_title(f"{name}, epsilon = {epsilon:g}", pad=20)
            panel.set(xlabel="number of records")
        panels[0].set_ylabel("excess empirical risk")
        figure.legend(handles=_key(fits, colour), loc="outside lower center", ncols=2 if len(fits.epsilons) < 3 else 3)
    return figure


def _draw_panel(panel: Axes, found: list[Measured], colour: str) -> None:
    rate, own = _rate(found), _fitted(found)
    rows, means = np.array([m.rows for m in found]), np.array([m.mean for m in found])
    panel.set(xscale="log", yscale="log")
    for measured in found:
        panel.plot(np.full(len(measured.excess), measured.rows), measured.excess, ".", color=colour, **SINGLE)
    plots.band(panel, rows, means, [m.reach for m in found], color=colour, ls="")
    fitted = np.isin(rows, [m.rows for m in own])
    panel.plot(rows[fitted], means[fitted], "o", color=colour, **MEAN)
    panel.plot(rows[~fitted], means[~fitted], "o", color=colour, mfc="none", **MEAN)
    panel.plot(rows[fitted], rate.level * rows[fitted] ** rate.slope, color=colour, **FITTED)
    # Through the middle of the points, so that only its steepness can differ.
    middle = np.exp(np.mean(np.log(means[fitted])) - PAPER_SLOPE * np.mean(np.log(rows[fitted])))
    panel.plot(rows, middle * rows**PAPER_SLOPE, **REFERENCE)
    panel.plot(rows, [m.zero for m in found], **ZERO)
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    panel.annotate(
        f"slope {rate.slope:.2f}, 95% interval {rate.lower:.2f} to {rate.upper:.2f}", (0, 1), xytext=(0, 5),
        xycoords="axes fraction", textcoords="offset points", fontsize=8, color=colour, va="bottom",
    )  # fmt: skip


def _key(fits: Fits, colour: str) -> list[Line2D]:
    """What the marks mean."""
    from matplotlib.lines import Line2D

    marks = {"color": colour, "ls": ""}
    return [
        Line2D([], [], marker=".", label="one private LASSO", **{**SINGLE, **marks}),
        Line2D([], [], marker="o", label=f"mean of {fits.repetitions}; band: its 95% interval", **{**MEAN, **marks}),
        Line2D([], [], marker="o", mfc="none", label="path too short to fit", **{**MEAN, **marks}),
        Line2D([], [], label="fitted slope", **{**FITTED, "color": colour}),
        Line2D([], [], label="the paper's rate, slope -2/3", **REFERENCE),
        Line2D([], [], label="all coefficients zero", **ZERO),
    ]


def sheets(fits: Fits, found: list[Measured], name: str) -> list[Sheet]:
    """The slopes, and what they were fitted to."""
    slopes = []
    for epsilon in fits.epsilons:
        own = _at(found, epsilon)
        rate, fitted = _rate(own), _fitted(own)
        numbers = (rate.slope, rate.lower, rate.upper, rate.noise_lower, rate.noise_upper)
        slopes.append((f"{epsilon:g}", *(f"{number:.2f}" for number in numbers), f"{len(fitted)} of {len(own)}"))
    columns = ("epsilon", "slope", "95% from", "to", "noise alone from", "to", "tables fitted")
    first = Sheet(f"{name}: slopes of the excess risk; the paper's rate is {PAPER_SLOPE:.2f}", columns, slopes, texts=0)
    title = f"{name}: excess empirical risk, {fits.repetitions} fits each"
    heads = ("epsilon", "records", "columns", "points of the path", "least risk", "excess", "deviation", "zero model")
    return [first, Sheet(title, heads, [_cells(m) for m in found], texts=0)]


def _cells(m: Measured) -> tuple[str, ...]:
    # Fits that end alike differ by nothing but the rounding of their mean.
    deviation = 0.0 if m.deviation < 1e-12 * m.mean else m.deviation
    numbers = (f"{number:.3g}" for number in (m.least, m.mean, deviation, m.zero))
    return (f"{m.epsilon:g}", f"{m.rows:,}", f"{m.features:,}", f"{m.steps:,}", *numbers)


def sentences(fits: Fits, found: list[Measured], name: str) -> list[str]:
    """The slopes in words."""
    lines = []
    for epsilon in fits.epsilons:
        rate = _rate(_at(found, epsilon))
        lines.append(
            f"{name}, epsilon = {epsilon:g}: slope {rate.slope:.2f}, 95 % interval {rate.lower:.2f} to "
            f"{rate.upper:.2f} (residuals of the line, Student's t)."
        )
    return lines


def report(fits: Fits, found: list[Measured]) -> dict[str, Any]:
    """All numbers."""
    return {
        "radius": RADIUS,
        "delta": "n**-1.1",
        "paper_slope": PAPER_SLOPE,
        "interval": "95 %, regression standard error with Student's t; noise_*: bootstrap over repetitions",
        "rates": {f"{epsilon:g}": asdict(_rate(_at(found, epsilon))) for epsilon in fits.epsilons},
        "fits": [{**asdict(m), "mean": m.mean} for m in found],
    }
