"""Private logistic regression: the epsilon curves of Figure 2 c and d (2008).

Chaudhuri and Monteleoni vary epsilon with all training points: both methods approach the error without privacy as it
grows, the new method sooner. At the smallest epsilons they find the sensitivity method ahead, with both near chance.

The order is the same here, from n epsilon = 28 to 2,800. At the smallest epsilons both are near chance, and the
sensitivity method is not clearly ahead anywhere. The paper's constants for the new method prove what they claim only
from n lambda epsilon = 2 on: a claimed 0.002 is proven as 0.0034.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from epsilearn.checks import check_integer
from epsilearn.studies.error_curves import LINES, curve_sheet, curves_figure, own_curve
from epsilearn.studies.simulations import (
    DATA,
    SEED,
    Simulation,
    Summary,
    Task,
    fold_tasks,
    summaries,
)
from epsilearn.studies.study import Drawing, Progress, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Settings", "epsilon_figure", "run", "tasks"]

WORDS = (
    "Test error against epsilon on a logarithmic axis, one panel for each data set: all lines fall from near chance "
    "towards the error without privacy, noise in the objective first; bands are 95 % intervals of the means."
)


@dataclass(frozen=True)
class Settings(Simulation):
    """The sizes of a run: see `Simulation`.

    Attributes
    ----------
    decade : int
        At how many epsilons the error is measured for each power of ten.
    """

    draws: int = 50
    decade: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("decade", self.decade)

    @classmethod
    def quick(cls) -> Settings:
        """Half of the epsilons, a few draws."""
        return cls(draws=10, decade=2)

    @property
    def epsilons(self) -> list[float]:
        """Where the error is measured: from a tenth of the table's epsilon to ten times that."""
        return [self.epsilon * 10 ** (power / self.decade) for power in range(-self.decade, self.decade + 1)]


def run(settings: Settings, progress: Progress) -> Result:
    """Measure both data sets at every epsilon."""
    found = summaries(tasks(settings), progress)
    return Result(
        settings=settings,
        seeds={"data": SEED},
        measured={"summaries": [asdict(s) for s in found]},
        figures={"epsilon_curves": Drawing(epsilon_figure(settings, found), WORDS)},
        sheets=[curve_sheet(found, data, "epsilon", settings.draws) for data in DATA],
        seen=_sentences(found),
    )


def tasks(settings: Settings) -> list[Task]:
    """Every epsilon, and none, with all training points."""
    budgets = [*settings.epsilons, None]
    return [task for epsilon in budgets for task in fold_tasks(settings, settings.training, epsilon)]


def epsilon_figure(settings: Settings, found: list[Summary]) -> Figure:
    """Test error by epsilon."""

    def finish(panel: Axes, data: str) -> None:
        panel.set_title(f"{data.capitalize()}, {settings.training:,} points")
        panel.set(xlabel="epsilon", xscale="log")
        panel.set_xticks([settings.epsilon * factor for factor in (0.1, 0.25, 1, 2.5, 10)])
        panel.set_xticks([], minor=True)
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:.3g}")

    return curves_figure(found, "epsilon", finish)


def _sentences(found: list[Summary]) -> list[str]:
    lines = []
    for data in DATA:
        output, objective = (own_curve(found, data, method, "tight", "epsilon")[0] for method in LINES)
        lines.append(
            f"{data.capitalize()} data, smallest epsilon {output.epsilon:.3g}, tight constants: {output.mean:.3f} with "
            f"noise on the result and {objective.mean:.3f} in the objective, give or take "
            f"{max(output.reach, objective.reach):.3f}."
        )
    open_claims = [s for s in own_curve(found, DATA[0], "objective", "paper", "epsilon") if not s.holds]
    if open_claims:
        claims = ", ".join(f"{s.epsilon:.3g} as {s.proven:.3g}" for s in open_claims)
        lines.append(f"Paper's constants for noise in the objective, claimed and proven epsilon: {claims}.")
    return lines
