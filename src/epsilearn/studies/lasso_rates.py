"""How the private LASSO's excess risk falls as records are added, beside the rate n^(-2/3).

Talwar, Thakurta and Zhang (2015) prove that rate for their private Frank-Wolfe method, and that no private method has
a much better one on every data set. Here the excess empirical risk is measured on two families: the data set of their
lower bound, as large as fits (:mod:`epsilearn.studies.hard_instance`), and Gaussian records with a sparse signal.

Run it with ``python -m epsilearn.studies.lasso_rates``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import ArrayLike, NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from scipy import stats

from epsilearn import plots
from epsilearn.calibration.frank_wolfe import SquaredSlope
from epsilearn.checks import check_integer, check_positive
from epsilearn.constraints import L1Ball
from epsilearn.errors import InvalidInput
from epsilearn.frank_wolfe import PathTable, plan
from epsilearn.lasso import Lasso
from epsilearn.studies.figure1 import save
from epsilearn.studies.hard_instance import (
    SIZES,
    Quadratic,
    hard_instance,
    instance_sizes,
    least_over_l1_ball,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

__all__ = [
    "Measured", "Problem", "Rate", "Study", "fit_private_lasso", "fit_rate", "gaussian_problem", "hard_problem",
    "main", "measure", "problems", "rates_figure", "run", "write",
]  # fmt: skip

Array = NDArray[np.float64]
# Features, targets, epsilon and delta make coefficients.
Fit = Callable[[Any, Array, float, float], ArrayLike]

SEED, RADIUS, PAPER_SLOPE = 2015, 1.0, -2 / 3
FEATURES, SIGNAL, NOISE, SPREAD = 500, (0.3, -0.3, 0.2, -0.1, 0.1), 0.1, 0.5
DECADES = (3.0, 3.5, 4.0, 4.5, 5.0, 5.5)
CHUNK, RESAMPLES = 8192, 2000
# A line through two points leaves nothing to judge its slope by.
FEWEST_SIZES = 3
# A path of two points is one step of length 2/3, however many records there are.
FEWEST_STEPS = 10
FAMILIES = {"hard": "Hard instance", "gaussian": "Gaussian records"}
COLOURS = {"hard": plots.ORANGE, "gaussian": plots.BLUE}
SINGLE: Any = {"ms": 5, "mew": 0, "alpha": 0.4}
MEAN: Any = {"ms": 6}
FITTED: Any = {"ls": "-", "lw": 1.5}
REFERENCE: Any = {"ls": "--", "lw": 1.2, "color": "#222222"}
ZERO: Any = {"ls": ":", "lw": 1.5, "color": plots.GREY}
CAVEAT = "The proof's constants do not apply at these sizes:\nthis is a measurement, not a proven limit."


@dataclass(frozen=True)
class Study:
    """What a run measures.

    Attributes
    ----------
    epsilon : float
        Of each fit; its delta is n^(-1.1).
    repetitions : int
        Fits of each data set, each with fresh noise.
    largest : int
        The largest size of the hard instance, from 3 to 10. Size 7 takes 0.3 GB, size 10 takes 1.3 GB.
    decades : sequence of float
        The powers of ten that are sizes of the Gaussian family.

    Examples
    --------
    >>> Study(largest=3, decades=(3, 3.5, 4)).sizes("gaussian")
    [1000, 3162, 10000]
    >>> Study(largest=3).sizes("hard")
    [138, 1044, 4126]
    """

    epsilon: float = 1.0
    repetitions: int = 20
    largest: int = 7
    decades: Sequence[float] = DECADES

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)
        # One fit says nothing of the spread between fits.
        check_integer("repetitions", self.repetitions, least=2)
        check_integer("largest", self.largest, least=FEWEST_SIZES)
        if self.largest > SIZES[-1]:
            raise InvalidInput(f"largest must be at most {SIZES[-1]}, got {self.largest}")

    def sizes(self, family: str) -> list[int]:
        """How many records the data sets of a family have."""
        if family == "hard":
            return [rows for _, rows, _ in instance_sizes()[: self.largest]]
        return [round(10**power) for power in self.decades]


@dataclass(frozen=True, eq=False)
class Problem:
    """One data set, the risk of a model on it, and the least risk over the l1 ball."""

    family: str
    X: Any
    y: Array
    risk: Callable[[Array], float]
    least: float


@dataclass(frozen=True)
class Measured:
    """The excess risks on one data set.

    Attributes
    ----------
    family, rows, features, epsilon, delta
        The setting.
    least : float
        The least risk over the l1 ball.
    zero : float
        The excess risk of the model that is zero everywhere, which costs no privacy.
    excess : list of float
        The private models' risks minus the least, one for each repetition.
    steps : int
        How many points the private path has, by its plan.
    """

    family: str
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


def hard_problem(rows: int, seed: int = SEED) -> Problem:
    """The hard instance with at most so many rows.

    Examples
    --------
    >>> problem = hard_problem(138)
    >>> problem.least < problem.risk(np.zeros(100))
    True
    """
    instance = hard_instance(rows, random_state=np.random.default_rng([seed, 0, rows]))
    return Problem("hard", instance.X, instance.y, instance.risk, instance.least_risk(RADIUS))


def gaussian_problem(rows: int, seed: int = SEED) -> Problem:
    """Gaussian features, five of which matter; features and targets are clipped to [-1, 1].

    Examples
    --------
    >>> problem = gaussian_problem(1000)
    >>> problem.X.shape, problem.X.dtype.name
    ((1000, 500), 'float32')
    >>> truth = np.zeros(500)
    >>> truth[:5] = 0.3, -0.3, 0.2, -0.1, 0.1
    >>> problem.least < problem.risk(truth)
    True
    """
    generator = np.random.default_rng([seed, 1, rows])
    # Half the memory of doubles; the risk is that of the rounded features, in doubles.
    X = generator.standard_normal((rows, FEATURES), dtype=np.float32)
    X *= np.float32(SPREAD)
    np.clip(X, -1, 1, out=X)
    signal = X[:, : len(SIGNAL)].astype(np.float64) @ np.array(SIGNAL)
    y = np.clip(signal + NOISE * generator.standard_normal(rows), -1, 1)
    risk = _mean_squared_loss(X, y)
    return Problem("gaussian", X, y, risk, least_over_l1_ball(risk, RADIUS).value)


def _mean_squared_loss(X: NDArray[np.float32], y: Array) -> Quadratic:
    """From second moments, so that one pass over the rows serves every model."""
    rows, features = X.shape
    moments, cross = np.zeros((features, features)), np.zeros(features)
    for start in range(0, rows, CHUNK):
        part = X[start : start + CHUNK].astype(np.float64)
        moments += part.T @ part
        cross += part.T @ y[start : start + CHUNK]
    moments /= rows
    return Quadratic(
        product=lambda theta: moments @ theta,
        linear=cross / rows,
        constant=float(y @ y) / rows,
        curvature=float(np.linalg.eigvalsh(moments)[-1]),
    )


def problems(study: Study) -> Iterator[Problem]:
    """Every data set of a study, made when it is its turn: together they fill the memory."""
    makers = {"hard": hard_problem, "gaussian": gaussian_problem}
    for family, make in makers.items():
        for rows in study.sizes(family):
            yield make(rows)


def fit_private_lasso(X: Any, y: Array, epsilon: float, delta: float) -> ArrayLike:
    """The coefficients of one private LASSO."""
    model = Lasso(epsilon=epsilon, delta=delta, radius=RADIUS, feature_bound=1.0, target_bound=1.0, n_steps="auto")
    coef: Array = model.fit(X, y).coef_
    return coef


def measure(
    problem: Problem,
    fit: Fit,
    *,
    epsilon: float,
    repetitions: int,
    advance: Callable[[], object] = lambda: None,
) -> Measured:
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
    advance : callable
        Called after each fit.

    Examples
    --------
    >>> problem = hard_problem(138)
    >>> zeros = lambda X, y, epsilon, delta: np.zeros(X.shape[1])
    >>> found = measure(problem, zeros, epsilon=1.0, repetitions=3)
    >>> found.excess == 3 * [found.zero]
    True
    """
    rows, features = problem.X.shape
    delta = rows**-1.1
    excess = []
    for _ in range(repetitions):
        theta = np.asarray(fit(problem.X, problem.y, epsilon, delta), dtype=np.float64)
        excess.append(problem.risk(theta) - problem.least)
        advance()
    zero = problem.risk(np.zeros(features)) - problem.least
    steps = _planned_steps(rows, features, epsilon, delta)
    return Measured(problem.family, rows, features, epsilon, delta, problem.least, zero, excess, steps)


def _planned_steps(rows: int, features: int, epsilon: float, delta: float) -> int:
    table = PathTable(rows, features, feature_bound=1.0)
    return plan(SquaredSlope(1.0), table, L1Ball(RADIUS), epsilon=epsilon, delta=delta).steps


def run(study: Study, fit: Fit = fit_private_lasso) -> list[Measured]:
    """Measure every data set of a study, with a bar on a terminal."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("fitting", total=study.repetitions * sum(len(study.sizes(f)) for f in FAMILIES))
        return [
            measure(
                problem,
                fit,
                epsilon=study.epsilon,
                repetitions=study.repetitions,
                advance=lambda: progress.advance(bar),
            )
            for problem in problems(study)
        ]


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


def _rates(found: Iterable[Measured]) -> dict[str, Rate]:
    groups = {family: _fitted([m for m in found if m.family == family]) for family in FAMILIES}
    return {family: fit_rate([m.rows for m in own], [m.excess for m in own]) for family, own in groups.items()}


def _fitted(found: list[Measured]) -> list[Measured]:
    """The data sets the slope is fitted to: the settled ones, or all if these are too few."""
    settled = [m for m in found if m.settled]
    return settled if len(settled) >= FEWEST_SIZES else found


def rates_figure(study: Study, found: list[Measured]) -> Figure:
    """Excess risk by records, both as logarithms, one panel for each family."""
    rates = _rates(found)
    with plots.house_style():
        figure, panels = plots.new_figure(8.2, 4.6, columns=2)
        for panel, (family, name) in zip(panels, FAMILIES.items(), strict=True):
            _draw_family(panel, [m for m in found if m.family == family], rates[family], COLOURS[family])
            # Room for the lines between title and panel.
            panel.set_title(f"{name}, epsilon = {study.epsilon:g}", pad=42)
            panel.set(xlabel="number of records", ylabel="excess empirical risk")
        _write_above(panels[0], 0, CAVEAT, plots.GREY)
        figure.legend(handles=_key(study), loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _draw_family(panel: Axes, found: list[Measured], rate: Rate, colour: str) -> None:
    rows, means = np.array([m.rows for m in found]), np.array([m.mean for m in found])
    for measured in found:
        own = np.array(measured.excess)
        panel.plot(np.full(len(own), measured.rows), own, ".", color=colour, **SINGLE)
    fitted = np.isin(rows, [m.rows for m in _fitted(found)])
    panel.plot(rows[fitted], means[fitted], "o", color=colour, **MEAN)
    panel.plot(rows[~fitted], means[~fitted], "o", color=colour, mfc="none", **MEAN)
    panel.plot(rows[fitted], rate.level * rows[fitted] ** rate.slope, color=colour, **FITTED)
    # Through the middle of the points, so that only its steepness can differ.
    middle = np.exp(np.mean(np.log(means[fitted])) - PAPER_SLOPE * np.mean(np.log(rows[fitted])))
    panel.plot(rows, middle * rows**PAPER_SLOPE, **REFERENCE)
    panel.plot(rows, [m.zero for m in found], **ZERO)
    panel.set(xscale="log", yscale="log")
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    _write_above(panel, 2, f"slope {rate.slope:.2f}, 95% interval {rate.lower:.2f} to {rate.upper:.2f}", colour)


def _write_above(panel: Axes, line: int, text: str, colour: str) -> None:
    """Write between panel and title, so many lines above the panel."""
    panel.annotate(
        text, (0, 1), xytext=(0, 5 + 12 * line), xycoords="axes fraction", textcoords="offset points",
        fontsize=8, color=colour, va="bottom", annotation_clip=False,
    )  # fmt: skip


def _key(study: Study) -> list[Line2D]:
    """What the marks mean in either panel, in no panel's colour."""
    from matplotlib.lines import Line2D

    marks = {"color": plots.GREY, "ls": ""}
    return [
        Line2D([], [], marker=".", label="one private LASSO", **{**SINGLE, **marks}),
        Line2D([], [], marker="o", label=f"mean of {study.repetitions}", **{**MEAN, **marks}),
        Line2D([], [], marker="o", mfc="none", label="path too short to fit", **{**MEAN, **marks}),
        Line2D([], [], label="fitted slope", **{**FITTED, "color": plots.GREY}),
        Line2D([], [], label="the paper's rate, slope -2/3", **REFERENCE),
        Line2D([], [], label="all coefficients zero", **ZERO),
    ]


def _report_table(study: Study, found: list[Measured]) -> Table:
    title = f"Excess empirical risk of the private LASSO, epsilon = {study.epsilon:g}, {study.repetitions} fits each"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("data", no_wrap=True)
    for name in ("records", "columns", "points", "least", "excess", "deviation", "zero model"):
        table.add_column(name, justify="right", no_wrap=True)
    for m in found:
        numbers = (m.least, m.mean, float(np.std(m.excess, ddof=1)), m.zero)
        sizes = (f"{m.rows:,}", f"{m.features:,}", f"{m.steps:,}")
        table.add_row(m.family, *sizes, *(f"{number:.3g}" for number in numbers))
    return table


def _sentences(found: list[Measured]) -> str:
    lines = [
        f"{FAMILIES[family]}: slope {rate.slope:.3f}, 95 % interval {rate.lower:.3f} to {rate.upper:.3f} (residuals of "
        f"the line, Student's t); noise of the fits alone {rate.noise_lower:.3f} to {rate.noise_upper:.3f} (bootstrap)."
        for family, rate in _rates(found).items()
    ]
    return "\n" + "\n".join(lines) + "\nHard instance: " + CAVEAT.replace("\n", " ") + "\n"


def _report(study: Study, found: list[Measured]) -> dict[str, Any]:
    settings = {
        **asdict(study), "radius": RADIUS, "seed": SEED, "delta": "n**-1.1", "paper_slope": PAPER_SLOPE,
        "interval": "95 %, regression standard error with Student's t; noise_*: bootstrap over repetitions",
        "caveat": "hard: " + CAVEAT.replace("\n", " "),
    }  # fmt: skip
    return {
        "study": settings,
        "rates": {family: asdict(rate) for family, rate in _rates(found).items()},
        "measured": [{**asdict(m), "mean": m.mean} for m in found],
    }


def write(study: Study, found: list[Measured], folder: Path) -> None:
    """Put ``lasso_rates`` into the folder, as JSON, PNG and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lasso_rates.json").write_text(json.dumps(_report(study, found), indent=1) + "\n")
    save(rates_figure(study, found), folder / "lasso_rates")


def main(
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("studies-output"),
    epsilon: Annotated[float, typer.Option(help="The budget of each fit.")] = 1.0,
    repetitions: Annotated[int, typer.Option(help="Fits of each data set.")] = 20,
    largest: Annotated[int, typer.Option(help="The largest hard instance, 3 to 10; 7 takes 0.3 GB, 10 1.3 GB.")] = 7,
    fast: Annotated[bool, typer.Option("--fast", help="Three fits at most, and the three smallest data sets.")] = False,
) -> None:
    """Measure how the private LASSO's excess risk falls as records are added."""
    try:
        study = Study(epsilon, repetitions, largest)
    except InvalidInput as error:
        raise typer.BadParameter(str(error)) from None
    if fast:
        study = Study(epsilon, min(repetitions, 3), FEWEST_SIZES, DECADES[:FEWEST_SIZES])
    found = run(study)
    console = Console(highlight=False)
    console.print(_report_table(study, found), _sentences(found))
    write(study, found, out)
    console.print(f"Written to {out}")


if __name__ == "__main__":
    typer.run(main)
