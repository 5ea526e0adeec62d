"""What the kernel paper's two experiments share: one table of private records, many methods, curves over epsilon."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epsilearn import plots
from epsilearn.checks import check_budget, check_integer
from epsilearn.kernel.erm import KernelProblem
from epsilearn.kernel.features import FeatureMap
from epsilearn.kernel.model import KernelLearner
from epsilearn.studies.study import Sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "Bench", "Line", "Measured", "Note", "Remembered", "Splits", "collected", "curves_figure", "proven_sentences",
    "report", "report_sheet",
]  # fmt: skip

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Splits:
    """What both experiments repeat.

    Attributes
    ----------
    repetitions : int
        Splits of the data, each with noise of its own.
    epsilons : tuple of float
        The budgets.
    delta : float
        Their delta.
    """

    repetitions: int = 5
    epsilons: tuple[float, ...] = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
    delta: float = 1e-6

    def __post_init__(self) -> None:
        check_integer("repetitions", self.repetitions)
        for epsilon in self.epsilons:
            check_budget(epsilon, self.delta)


@dataclass(frozen=True)
class Note:
    """What one method reached at one budget in one split; see `Measured`."""

    method: str
    epsilon: float | None
    value: float
    proven: float | None = None


@dataclass(frozen=True)
class Measured:
    """What one method reached at one budget, over all repetitions.

    Attributes
    ----------
    method : str
        Its name.
    epsilon : float or None
        The budget; None for methods without privacy.
    proven : float or None
        The epsilon that is proven, where the method's constants are a paper's.
    values : list of float
        One for each repetition.
    """

    method: str
    epsilon: float | None
    proven: float | None
    values: list[float]

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float:
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0


@dataclass(frozen=True)
class Line:
    """How a method is drawn: in which colour of the palette, and how; rings show what lies under them."""

    method: str
    colour: int
    style: str = "-"
    marker: str = "o"
    ring: bool = False


class Remembered(FeatureMap):
    """A map whose features of one table are known already, so that several fits on it cost one computation."""

    def __init__(self, features: FeatureMap, table: Any) -> None:
        self.kernel, self.columns, self.bound = features.kernel, features.columns, features.bound
        self._features, self._table = features, table

    def features(self, points: Any) -> Any:
        return self._features.features(points)

    def blocks(self, points: Any, factors: Array | None = None) -> Iterator[tuple[slice, Any]]:
        return self._features.blocks(points, factors)

    def table(self, points: Any, factors: Array | None = None) -> Any:  # noqa: ARG002 - of these points
        return self._table


class Bench:
    """Learners that share one problem, solved once for each regularisation: only their noise differs.

    Parameters
    ----------
    template : KernelLearner
        One that knows the kernel, the classes or the target's bound, and the landmarks.
    X, y
        The private records.
    """

    def __init__(self, template: KernelLearner, X: Any, y: Any) -> None:
        self._template = template
        self._problem, self._assumptions = template._problem(X, y, {})
        self._solved: dict[float, KernelProblem] = {}

    def fit(self, learner: KernelLearner) -> KernelLearner:
        """The learner, fitted to the shared records; it may be of any kind, with any budget."""
        for name in ("kernel_", "classes_", "n_features_in_", "_width_", "_middle_"):
            if hasattr(self._template, name):
                setattr(learner, name, getattr(self._template, name))
        problem = self._problem
        learner.alpha_ = learner._strength(problem.loss, problem.n, problem.bound)
        learner._learn(self._at(learner.alpha_), self._assumptions)
        return learner

    def values(self, strength: float, points: Any) -> Array:
        """The minimiser's own values, without privacy."""
        kernel = self._template.kernel_
        return self._at(strength).solve().values(kernel.inside(kernel.points(points))[0])

    def _at(self, strength: float) -> KernelProblem:
        if strength not in self._solved:
            problem = self._problem.with_strength(strength)
            minimum = problem.solve()
            solved = copy(problem)
            setattr(solved, "solve", lambda _progress=None: minimum)  # noqa: B010 - found once, used by all
            # One at a time is kept: budgets come one after the other.
            self._solved = {strength: solved}
        return self._solved[strength]


def collected(notes: Iterable[Note]) -> list[Measured]:
    """What was noted, one entry for each method and budget."""
    found: dict[tuple[str, float | None], tuple[float | None, list[float]]] = {}
    for note in notes:
        found.setdefault((note.method, note.epsilon), (note.proven, []))[1].append(float(note.value))
    return [Measured(method, epsilon, proven, values) for (method, epsilon), (proven, values) in found.items()]


def curves_figure(title: str, ylabel: str, found: list[Measured], curves: list[Line]) -> Figure:
    """Means over epsilon in bands of a deviation, one line a method; those without privacy as horizontal lines."""
    with plots.house_style():
        figure, (panel,) = plots.new_figure(8.6, 4.8)
        for curve in curves:
            _draw_curve(panel, [m for m in found if m.method == curve.method], curve)
        budgets = sorted({m.epsilon for m in found if m.epsilon is not None})
        panel.set(xscale="log", xlabel="epsilon", ylabel=ylabel)
        panel.set_xticks(budgets, [f"{epsilon:g}" for epsilon in budgets])
        panel.minorticks_off()
        panel.set_title(title)
        figure.legend(*panel.get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    return figure


def _draw_curve(panel: Axes, own: list[Measured], curve: Line) -> None:
    colour = plots.PALETTE[curve.colour]
    if own and own[0].epsilon is None:
        panel.axhline(own[0].mean, color=colour, ls=curve.style, lw=1, label=curve.method)
    elif own:
        x = [m.epsilon or 0.0 for m in own]
        style: Any = {"ls": curve.style, "marker": curve.marker, "ms": 4, "lw": 1.4, "label": curve.method}
        if curve.ring:
            style |= {"ms": 7, "mfc": "none"}
        plots.band(panel, x, [m.mean for m in own], [m.deviation for m in own], color=colour, **style)


def report_sheet(title: str, found: list[Measured]) -> Sheet:
    """One row a method, one column a budget."""
    budgets = sorted({m.epsilon for m in found if m.epsilon is not None})
    rows = []
    for method in dict.fromkeys(m.method for m in found):
        own = {m.epsilon: m for m in found if m.method == method}
        rows.append((method, *(_cell(own.get(epsilon, own.get(None))) for epsilon in budgets)))
    return Sheet(title, ("method", *(f"{epsilon:g}" for epsilon in budgets)), rows)


def _cell(measured: Measured | None) -> str:
    return "" if measured is None else f"{measured.mean:.3f}"


def proven_sentences(found: list[Measured]) -> list[str]:
    """What is proven for methods whose constants are a paper's, budget by budget."""
    lines = []
    for method in dict.fromkeys(m.method for m in found if m.proven is not None):
        own = [m for m in found if m.method == method]
        pairs = ", ".join(f"{m.epsilon:g}: {m.proven:.2g}" for m in own)
        lines.append(f"{method.capitalize()}, epsilon claimed and proven: {pairs}.")
    return lines


def report(found: list[Measured]) -> list[dict[str, Any]]:
    """All numbers."""
    return [{**asdict(m), "mean": m.mean, "deviation": m.deviation} for m in found]
