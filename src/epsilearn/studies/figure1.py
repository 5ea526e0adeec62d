"""Private logistic regression: the test errors of Figure 1 (2008).

Chaudhuri and Monteleoni compare two ways of adding noise to logistic regression on simulated data: to the result, by
its sensitivity, and to the objective, their new method. In their table the new method errs about half as often on
separable data, 0.143 against 0.296, and much less on unseparable data, 0.190 against 0.326. They state no epsilon; n
epsilon = 280 fits, n being the 14,000 points that a fold trains on.

With the paper's constants every mean lands within 0.02 of the printed one, and the new method wins on both data sets.
Tight constants take 0.03 to 0.04 off the sensitivity method's error, and change nothing for the new method, whose
printed constants are proven here up to the hundredth that hides the solver's error.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from epsilearn import plots
from epsilearn.studies.simulations import (
    COLOURS,
    DATA,
    FOLDS,
    METHODS,
    SEED,
    Simulation,
    Summary,
    Task,
    fold_tasks,
    summaries,
)
from epsilearn.studies.study import Drawing, Progress, Result, Sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PRINTED", "Settings", "bars_figure", "error_sheet", "largest_distance", "run", "tasks"]

# Figure 1 as printed: the mean and the number after the plus-minus sign.
PRINTED = {
    ("separable", "output"): (0.2962, 0.0617),
    ("separable", "objective"): (0.1426, 0.1284),
    ("separable", "standard"): (0.0, 0.0016),
    ("unseparable", "output"): (0.3257, 0.0536),
    ("unseparable", "objective"): (0.1903, 0.1105),
    ("unseparable", "standard"): (0.0530, 0.1105),
}
WORDS = (
    "Bars of the mean test error for both data sets: for noise on the result, noise in the objective and no privacy, "
    "as printed, as measured with the paper's constants and as measured with tight constants."
)


@dataclass(frozen=True)
class Settings(Simulation):
    """The sizes of a run: see `Simulation`."""

    @classmethod
    def quick(cls) -> Settings:
        """Every point, a few draws."""
        return cls(draws=25)

    @property
    def other_epsilon(self) -> float:
        """What epsilon would be if n were all points."""
        return self.budget / self.points


def run(settings: Settings, progress: Progress) -> Result:
    """Measure the table, with n read both ways."""
    found = summaries(tasks(settings), progress)
    return Result(
        settings=settings,
        seeds={"data": SEED},
        measured={"epsilon": settings.epsilon, "summaries": [asdict(s) for s in found]},
        figures={"figure1": Drawing(bars_figure(settings, found), WORDS)},
        sheets=[error_sheet(settings, found)],
        seen=_sentences(settings, found),
    )


def tasks(settings: Settings) -> list[Task]:
    """What the table needs."""
    budgets = (None, settings.epsilon, settings.other_epsilon)
    return [task for budget in budgets for task in fold_tasks(settings, settings.training, budget)]


def error_sheet(settings: Settings, found: list[Summary]) -> Sheet:
    """The printed means, and beside them those with the paper's constants and with the tight ones."""
    title = f"Test error, mean of {FOLDS} folds with {settings.draws} draws each; epsilon = {settings.epsilon:.4g}"
    columns = ("data", "method", "printed", "paper's", "off", "proven epsilon", "tight", "proven epsilon")
    return Sheet(title, columns, [_row(settings, found, *key) for key in PRINTED], texts=2)


def _row(settings: Settings, found: list[Summary], data: str, method: str) -> tuple[str, ...]:
    printed = PRINTED[data, method][0]
    paper, tight = (_find(found, data, method, settings.epsilon, c) for c in COLOURS)
    cells = (data, METHODS[method], f"{printed:.3f}", f"{paper.mean:.3f}", f"{abs(paper.mean - printed):.3f}")
    if paper.proven is None or tight.proven is None:
        return cells
    return (*cells, f"{paper.proven:.4g}", f"{tight.mean:.3f}", f"{tight.proven:.4g}")


def _find(found: list[Summary], data: str, method: str, epsilon: float, calibration: str) -> Summary:
    """The summary of this setting. Without privacy there is one for every epsilon and calibration."""
    setting = (None, None) if method == "standard" else (epsilon, calibration)
    return next(s for s in found if (s.data, s.method, s.epsilon, s.calibration) == (data, method, *setting))


def largest_distance(found: list[Summary], epsilon: float) -> float:
    """How far the means with the paper's constants lie from the printed ones, at most."""
    return max(abs(_find(found, *key, epsilon, "paper").mean - printed) for key, (printed, _) in PRINTED.items())


def _sentences(settings: Settings, found: list[Summary]) -> list[str]:
    near, far = (largest_distance(found, epsilon) for epsilon in (settings.epsilon, settings.other_epsilon))
    return [
        f"The paper states no epsilon. With {settings.budget:g} / {settings.training:,} training points the means lie "
        f"within {near:.3f} of the printed ones; with {settings.budget:g} / {settings.points:,} points in all, "
        f"epsilon = {settings.other_epsilon:.4g}, within {far:.3f}.",
        *(_comparison(settings, found, data) for data in DATA),
    ]


def _comparison(settings: Settings, found: list[Summary], data: str) -> str:
    output, objective = (_find(found, data, method, settings.epsilon, "paper") for method in ("output", "objective"))
    return (
        f"{data.capitalize()} data, paper's constants: {output.mean:.3f} with noise on the result and "
        f"{objective.mean:.3f} with noise in the objective, each give or take {max(output.reach, objective.reach):.3f}."
    )


def bars_figure(settings: Settings, found: list[Summary]) -> Figure:
    """The table as bars, with the 95 % interval of each measured mean."""
    with plots.house_style():
        figure, panels = plots.new_figure(8.2, 3.6, columns=2)
        for data, panel in zip(DATA, panels, strict=True):
            _draw_bars(panel, settings, found, data)
        panels[1].set_yticklabels([])
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _draw_bars(panel: Axes, settings: Settings, found: list[Summary], data: str) -> None:
    printed = [PRINTED[data, method][0] for method in METHODS]
    _draw_series(panel, -0.27, printed, [0.0] * len(printed), plots.GREY, "printed in 2008")
    for place, (calibration, colour) in enumerate(COLOURS.items()):
        # Without privacy there are no constants to choose: one bar.
        methods = [m for m in METHODS if m != "standard" or calibration == "paper"]
        own = [_find(found, data, method, settings.epsilon, calibration) for method in methods]
        name = f"measured, {calibration} constants"
        _draw_series(panel, 0.27 * place, [s.mean for s in own], [s.reach for s in own], colour, name)
    panel.set(xlim=(0, 0.4), xticks=(0, 0.1, 0.2, 0.3), xlabel="test error", yticks=range(len(METHODS)))
    panel.set_title(data.capitalize())
    panel.set_yticklabels(list(METHODS.values()), color=plots.INK)
    panel.tick_params(axis="y", length=0)
    panel.invert_yaxis()


def _draw_series(panel: Axes, offset: float, means: list[float], reaches: list[float], colour: str, name: str) -> None:
    places = np.arange(len(means)) + offset
    # A bar without an interval has none drawn, not one of no length.
    errors = reaches if any(reaches) else None
    style = {"ecolor": plots.INK, "elinewidth": 1.0}
    bars = panel.barh(places, means, xerr=errors, height=0.24, color=colour, label=name, error_kw=style)
    panel.bar_label(bars, fmt="%.3f", padding=3, color=colour, fontsize=8)
