"""Figures 1 and 2 of Chaudhuri and Monteleoni, *Privacy-preserving logistic regression* (2008).

Two data sets on the unit sphere in ten dimensions, one linearly separable and one not; logistic regression with noise
on the result (their sensitivity method) and in the objective (their new method); the test error over five folds, with
the paper's constants and with this project's. ``docs/studies.md`` has the results and says what the paper leaves open.

Run it with ``python -m epsilearn.studies.figure1``.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from joblib import Parallel, delayed
from matplotlib import rc_context
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from epsilearn import erm, plots
from epsilearn.checks import check_integer, check_positive
from epsilearn.errors import InvalidInput
from epsilearn.losses import Logistic
from epsilearn.mechanisms.minimum import perturb_output
from epsilearn.mechanisms.release import Release
from epsilearn.rows import Bounds, as_rows
from epsilearn.rows.interface import Rows
from epsilearn.solvers import Problem, minimise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "PRINTED", "Sample", "Study", "Summary", "Task", "curve_tasks", "curves_figure", "error_table", "folds", "main",
    "make_sample", "run", "save", "table_figure", "table_tasks",
]  # fmt: skip

Array = NDArray[np.float64]

DIMENSION, FOLDS, STRENGTH, SEED = 10, 5, 0.01, 2008
MARGIN, BAND, FLIPS = 0.03, 0.1, 0.2
DATA = ("separable", "unseparable")
# As the paper calls them: noise on the result, noise in the objective, none.
METHODS = {"output": "sensitivity", "objective": "new method", "standard": "no privacy"}
COLOURS = {"paper": plots.BLUE, "tight": plots.ORANGE}
# Figure 1 as printed: the mean and the number after the plus-minus sign.
PRINTED = {
    ("separable", "output"): (0.2962, 0.0617),
    ("separable", "objective"): (0.1426, 0.1284),
    ("separable", "standard"): (0.0, 0.0016),
    ("unseparable", "output"): (0.3257, 0.0536),
    ("unseparable", "objective"): (0.1903, 0.1105),
    ("unseparable", "standard"): (0.0530, 0.1105),
}


@dataclass(frozen=True)
class Sample:
    """Points on the unit sphere, their labels (-1 or 1), and the direction that labelled them."""

    points: Array
    labels: Array
    direction: Array


@dataclass(frozen=True)
class Study:
    """The sizes of a run.

    Attributes
    ----------
    points : int
        Points in each data set.
    draws : int
        Draws of the noise for each test error in the table.
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

    def settings(self) -> dict[str, float]:
        """What a run can be repeated from, but for its noise."""
        return {**asdict(self), "epsilon": self.epsilon, "alpha": STRENGTH, "folds": FOLDS, "seed": SEED}

    @property
    def curve_draws(self) -> int:
        """Draws for each test error in the curves, which have many more of them than the table."""
        return math.ceil(self.draws / 4)

    @property
    def training(self) -> int:
        """How many points a fold trains on."""
        return self.points - len(folds(self.points)[0])

    @property
    def epsilon(self) -> float:
        """The table's epsilon."""
        return self.budget / self.training

    @property
    def other_epsilon(self) -> float:
        """What epsilon would be if n were all points."""
        return self.budget / self.points

    @property
    def sizes(self) -> list[int]:
        """Where learning curves are measured: every 1,000 of the paper's 14,000 training points."""
        return [round(self.training * part / 14) for part in range(1, 15)]

    @property
    def epsilons(self) -> list[float]:
        """Where epsilon curves are measured: from a tenth of the table's epsilon to ten times that."""
        return [self.epsilon * 10 ** (power / 4) for power in range(-4, 5)]


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
        lambda: solution, law=plan.law, promise=plan.promise, ledger=None, purpose="figure 1", random_state=None
    )


def _test_errors(weights: Array, points: Array, labels: Array) -> Array:
    """The share of points on the wrong side, for each row of weights."""
    errors: Array = np.mean(np.sign(weights @ points.T) != labels, axis=1)
    return errors


def table_tasks(study: Study) -> list[Task]:
    """What Figure 1 needs, with n read both ways."""
    budgets = [(None, 1), (study.epsilon, study.draws), (study.other_epsilon, study.draws)]
    return [task for budget, draws in budgets for task in _tasks(study, study.training, budget, draws)]


def curve_tasks(study: Study) -> list[Task]:
    """What Figure 2 needs: learning curves at the table's epsilon, epsilon curves with all training points."""
    settings: list[tuple[int, float | None]] = [(size, study.epsilon) for size in study.sizes]
    settings += [(size, None) for size in study.sizes]
    settings += [(study.training, epsilon) for epsilon in study.epsilons]
    return [task for setting in settings for task in _tasks(study, *setting, study.curve_draws)]


def _tasks(study: Study, rows: int, epsilon: float | None, draws: int) -> list[Task]:
    draws = 1 if epsilon is None else draws
    return [Task(data, study.points, fold, rows, epsilon, draws) for data in DATA for fold in range(FOLDS)]


def run(tasks: list[Task], jobs: int = 1) -> list[Summary]:
    """Do the tasks, in so many processes at a time, and summarise over folds."""
    # A task repeated by another part of the study is done once.
    tasks = list(dict.fromkeys(tasks))
    work = Parallel(n_jobs=jobs, return_as="generator")(delayed(measure)(task) for task in tasks)
    groups: dict[Any, list[Measured]] = {}
    for task, results in zip(tasks, _watched(work, len(tasks)), strict=True):
        for result in results:
            key = (replace(task, fold=0), result.method, result.calibration)
            groups.setdefault(key, []).append(result)
    return [_summarise(task, group) for (task, *_), group in groups.items()]


def _watched(work: Iterable[list[Measured]], total: int) -> Iterator[list[Measured]]:
    """The same, with a bar on a terminal."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        yield from progress.track(work, total=total, description="fitting")


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


def error_table(study: Study, found: list[Summary]) -> Table:
    """Figure 1: the printed means, and beside them those with the paper's constants and with the tight ones."""
    title = f"Test error, mean of {FOLDS} folds with {study.draws} draws each; epsilon = {study.epsilon:.4g}"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in ("data", "method"):
        table.add_column(name, no_wrap=True)
    for name in ("printed", "paper's\nconstants", "off", "proven\nepsilon", "tight\nconstants", "proven\nepsilon"):
        table.add_column(name, justify="right", no_wrap=True)
    for (data, method), (printed, _) in PRINTED.items():
        paper, tight = (_find(found, data, method, study.epsilon, c) for c in COLOURS)
        cells = [f"{printed:.3f}", f"{paper.mean:.3f}", f"{abs(paper.mean - printed):.3f}"]
        if paper.proven and tight.proven:
            cells += [f"{paper.proven:.6g}", f"{tight.mean:.3f}", f"{tight.proven:.6g}"]
        table.add_row(data, METHODS[method], *cells)
    return table


def _find(found: list[Summary], data: str, method: str, epsilon: float, calibration: str) -> Summary:
    """The summary of this setting. Without privacy there is one for every epsilon and calibration."""
    setting = (None, None) if method == "standard" else (epsilon, calibration)
    return next(s for s in found if (s.data, s.method, s.epsilon, s.calibration) == (data, method, *setting))


def largest_distance(found: list[Summary], epsilon: float) -> float:
    """How far the means with the paper's constants lie from the printed ones, at most."""
    return max(abs(_find(found, *key, epsilon, "paper").mean - printed) for key, (printed, _) in PRINTED.items())


def _both_readings(study: Study, table: list[Summary]) -> str:
    return (
        f"\nThe paper states no epsilon. With {study.budget:g} / {study.training:,} training points the means lie "
        f"within {largest_distance(table, study.epsilon):.3f} of the printed ones; with {study.budget:g} / "
        f"{study.points:,} points in all, epsilon = {study.other_epsilon:.4g}, within "
        f"{largest_distance(table, study.other_epsilon):.3f}.\n"
    )


def table_figure(study: Study, found: list[Summary]) -> Figure:
    """Figure 1 as bars."""
    with plots.house_style():
        figure, panels = plots.new_figure(8.2, 3.4, columns=2)
        for data, panel in zip(DATA, panels, strict=True):
            _draw_bars(panel, study, found, data)
        panels[1].set_yticklabels([])
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _draw_bars(panel: Axes, study: Study, found: list[Summary], data: str) -> None:
    series = [("printed in 2008", plots.GREY, [PRINTED[data, method][0] for method in METHODS])]
    for calibration, colour in COLOURS.items():
        # Without privacy there are no constants to choose: one bar.
        methods = [m for m in METHODS if m != "standard" or calibration == "paper"]
        means = [_find(found, data, method, study.epsilon, calibration).mean for method in methods]
        series.append((f"measured, {calibration} constants", colour, means))
    for place, (name, colour, means) in enumerate(series):
        bars = panel.barh(np.arange(len(means)) + 0.27 * (place - 1), means, height=0.24, color=colour, label=name)
        panel.bar_label(bars, fmt="%.3f", padding=3, color=colour, fontsize=8)
    panel.set(
        xlim=(0, 0.38),
        xticks=(0, 0.1, 0.2, 0.3),
        xlabel="test error",
        yticks=range(len(METHODS)),
        title=data.capitalize(),
    )
    panel.set_yticklabels(list(METHODS.values()), color="#222222")
    panel.tick_params(axis="y", length=0)
    panel.invert_yaxis()


def curves_figure(study: Study, found: list[Summary]) -> Figure:
    """Figure 2: test error by training points (above) and by epsilon (below)."""
    with plots.house_style():
        figure, panels = plots.new_figure(8.2, 6.8, columns=2, rows=2)
        for data, learning, privacy in zip(DATA, panels[:2], panels[2:], strict=True):
            own = [s for s in found if s.data == data]
            _draw_curves(learning, [s for s in own if s.epsilon in (None, study.epsilon)], "rows")
            _draw_curves(privacy, [s for s in own if s.rows == study.training], "epsilon")
            learning.set(title=f"{data.capitalize()}, epsilon = {study.epsilon:.4g}", xlabel="training points", xlim=0)
            learning.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            learning.locator_params(axis="x", nbins=5)
            privacy.set(title=f"{data.capitalize()}, {study.training:,} points", xlabel="epsilon", xscale="log")
            privacy.set_xticks([study.epsilon * factor for factor in (0.1, 0.25, 1, 2.5, 10)])
            privacy.set_xticks([], minor=True)
            privacy.xaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _draw_curves(panel: Axes, found: list[Summary], place: str) -> None:
    """Lines of the errors; a hollow marker where the paper's claim is not proven."""
    for method, line, marker in (("output", "--", "^"), ("objective", "-", "o")):
        for calibration, colour in COLOURS.items():
            own = [s for s in found if (s.method, s.calibration) == (method, calibration)]
            own.sort(key=lambda s: float(getattr(s, place)))
            x, y = [getattr(s, place) for s in own], [s.mean for s in own]
            name = f"{METHODS[method]}, {calibration} constants"
            panel.plot(x, y, line, marker=marker, ms=4, lw=1.5, color=colour, label=name)
            open_claims = [i for i, s in enumerate(own) if not _holds(s)]
            panel.plot(x, y, marker + " ", ms=4, color=colour, mfc="white", markevery=open_claims)
    plain = sorted((s for s in found if s.method == "standard"), key=lambda s: s.rows)
    style: Any = {"color": plots.GREY, "ls": ":", "label": METHODS["standard"]}
    if place == "rows":
        panel.plot([s.rows for s in plain], [s.mean for s in plain], **style)
    else:
        panel.axhline(plain[-1].mean, **style)
    panel.plot([], [], "o ", ms=4, color=plots.BLUE, mfc="white", label="proven only for a larger epsilon")
    panel.set(ylim=(-0.01, 0.56), ylabel="test error")


def _holds(summary: Summary) -> bool:
    """Whether the claim is proven, but for the hundredth that hides the solver's error."""
    return (summary.proven or 0.0) <= 1.011 * (summary.epsilon or 0.0)


def save(figure: Figure, path: Path) -> None:
    """As PNG and as SVG; the same bytes for the same figure."""
    with rc_context({"svg.hashsalt": "epsilearn"}):
        figure.savefig(path.with_suffix(".png"))
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})


def main(
    output: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("studies-output"),
    draws: Annotated[int, typer.Option(help="Noise draws for each error of the table; curves take a quarter.")] = 200,
    points: Annotated[int, typer.Option(help="Points in each data set.")] = 17_500,
    budget: Annotated[float, typer.Option(help="Training points times epsilon.")] = 280.0,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = os.cpu_count() or 1,
    curves: Annotated[bool, typer.Option(help="Whether to measure the curves of Figure 2.")] = True,
    quick: Annotated[bool, typer.Option("--quick", help="At most 10 draws.")] = False,
) -> None:
    """Repeat Figures 1 and 2 of the 2008 paper on private logistic regression."""
    try:
        study = Study(points, min(draws, 10) if quick else draws, budget)
    except InvalidInput as error:
        raise typer.BadParameter(str(error)) from None
    output.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    table = run(table_tasks(study), jobs)
    console.print(error_table(study, table), _both_readings(study, table))
    save(table_figure(study, table), output / "figure1")
    found: dict[str, Any] = {"study": study.settings(), "figure1": [asdict(s) for s in table]}
    if curves:
        lines = run(curve_tasks(study), jobs)
        save(curves_figure(study, lines), output / "figure2")
        found["figure2"] = [asdict(s) for s in lines]
    (output / "figure1.json").write_text(json.dumps(found, indent=1) + "\n")
    console.print(f"Written to {output}")


if __name__ == "__main__":
    # Imported by its name, so that other processes find what they are sent.
    from epsilearn.studies import figure1  # noqa: PLW0406

    typer.run(figure1.main)
