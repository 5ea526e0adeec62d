"""Learning with kernels: how exact private answers can be (2013).

Jain and Thakurta answer exponentially many questions about one kernel machine, each within a printed tolerance that
falls like the root of n lambda epsilon, and at T public points with noise that grows like the root of T.

Computed, not simulated. For 10,000 questions the printed tolerance exceeds every possible prediction until n lambda
epsilon is about 1.6 million; a sparse vector session, solved for the least tolerance, is useful from 4,800. A Gaussian
process answers any number of questions with the noise of one: a deviation of 0.017 where independent noise for 1,000
has 0.5 to 1.9.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from epsilearn import plots
from epsilearn.calibration.additive import gaussian_scale
from epsilearn.calibration.concentrated import concentrated_budget
from epsilearn.calibration.kernel import printed_laplace_scale, printed_session, sparse_session
from epsilearn.checks import check_budget, check_integer, check_positive, check_probability
from epsilearn.kernel.semi_interactive import laplace_each
from epsilearn.studies.study import Drawing, Progress, Result, Sheet, each

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Deviations", "Settings", "Tolerances", "answers_figure", "deviations", "first_useful", "run", "tolerances"]

WORDS = (
    "Two panels. Left: the tolerance of a session's answers against n lambda epsilon; as printed it falls below the "
    "largest prediction at 1.6 million, by the sparse vector technique at 4,800. Right: the error of an "
    "answer against the number of questions; a Gaussian process is flat and lowest, all others grow."
)


@dataclass(frozen=True)
class Settings:
    """The setting of both panels: L = R = C = 1.

    Attributes
    ----------
    epsilon, delta : float
        The budget.
    failure : float
        The probability that some answer of a session is further off than its tolerance.
    questions : int
        How many answers a session gives, for the left panel.
    rows, strength : int and float
        n and lambda of the right panel.
    sizes : int
        At how many values of n lambda epsilon, from 100 to 10^8, the left panel is computed.
    counts : tuple of int
        At how many questions the right panel is computed.
    """

    epsilon: float = 1.0
    delta: float = 1e-6
    failure: float = 0.05
    questions: int = 10_000
    rows: int = 500_000
    strength: float = 1e-3
    sizes: int = 49
    counts: tuple[int, ...] = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_probability("delta", self.delta)
        check_probability("failure", self.failure)
        check_positive("strength", self.strength)
        check_integer("sizes", self.sizes, least=2)
        for name, number in (("questions", self.questions), ("rows", self.rows), *(("counts", c) for c in self.counts)):
            check_integer(name, number)

    @classmethod
    def quick(cls) -> Settings:
        """Fewer points of the curves."""
        return cls(sizes=13, counts=(1, 10, 100, 1000))


@dataclass(frozen=True)
class Tolerances:
    """How far an answer of a session may be off, at one n lambda epsilon."""

    size: float
    printed: float
    tight: float
    updates: int


@dataclass(frozen=True)
class Deviations:
    """The standard deviation of an answer's noise, for one number of questions, and the tolerances of sessions."""

    questions: int
    printed: float
    laplace: float
    gaussian: float
    process: float
    printed_session: float
    sparse_session: float


def run(settings: Settings, progress: Progress) -> Result:
    """Compute both panels."""
    sizes = [float(size) for size in np.geomspace(1e2, 1e8, settings.sizes)]
    left = each(partial(tolerances, settings), sizes, progress)
    right = each(partial(deviations, settings), settings.counts, progress)
    return Result(
        settings=settings,
        seeds={},
        measured={"tolerances": [asdict(t) for t in left], "deviations": [asdict(d) for d in right]},
        figures={"kernel_answers": Drawing(answers_figure(settings, left, right), WORDS)},
        sheets=_sheets(settings, left, right),
        seen=_sentences(left, right),
    )


def tolerances(settings: Settings, size: float) -> Tolerances:
    """The tolerances at one n lambda epsilon."""
    s, strong = settings, size / settings.epsilon  # n lambda
    printed = printed_session(1, strong, 1.0, 1.0, 1.0, s.epsilon, s.delta, s.questions, s.failure)
    tight = sparse_session(2 / strong, concentrated_budget(s.epsilon, s.delta), 1.0, 1.0, s.questions, s.failure)
    return Tolerances(size, printed.tolerance, tight.tolerance, tight.updates)


def deviations(settings: Settings, count: int) -> Deviations:
    """The deviations for one number of questions."""
    sensitivity = 2 / (settings.rows * settings.strength)
    one = gaussian_scale(sensitivity, settings.epsilon, settings.delta)
    printed = math.sqrt(2) * printed_laplace_scale(sensitivity, count, settings.epsilon, settings.delta)
    laplace = math.sqrt(2) * sensitivity / laplace_each(count, settings.epsilon, settings.delta)
    size = settings.rows * settings.strength * settings.epsilon
    session = tolerances(replace(settings, questions=count), size)
    return Deviations(count, printed, laplace, math.sqrt(count) * one, one, session.printed, session.tight)


def first_useful(found: list[Tolerances], name: str, limit: float) -> float:
    """The n lambda epsilon at which a tolerance falls to a limit, between the values computed; infinite if none."""
    sizes, values = np.log([t.size for t in found]), np.log([getattr(t, name) for t in found])
    if values[-1] > math.log(limit):
        return math.inf
    # Tolerances fall, so turned around they rise, as the interpolation wants them.
    return float(np.exp(np.interp(math.log(limit), values[::-1], sizes[::-1])))


def _two_digits(number: float) -> str:
    return f"{float(f'{number:.1e}'):,.0f}"


def answers_figure(settings: Settings, left: list[Tolerances], right: list[Deviations]) -> Figure:
    """Both panels."""
    with plots.house_style():
        figure, (tolerance, deviation) = plots.new_figure(9.0, 4.8, columns=2)
        _draw_tolerances(tolerance, settings, left)
        _draw_deviations(deviation, settings, right)
        figure.legend(*deviation.get_legend_handles_labels(), loc="outside lower right", ncols=2, fontsize=8)
    return figure


def _draw_tolerances(panel: Axes, settings: Settings, found: list[Tolerances]) -> None:
    sizes = [t.size for t in found]
    panel.loglog(sizes, [t.printed for t in found], color=plots.ORANGE, label="Algorithm 1 as printed")
    panel.loglog(sizes, [t.tight for t in found], color=plots.BLUE, label="sparse vector, solved for the least")
    panel.axhline(1.0, color=plots.GREY, lw=0.8, ls="--")
    panel.text(1.5e5, 0.9, "largest prediction", ha="center", va="top", color=plots.GREY, fontsize=8)
    for name, colour in (("printed", plots.ORANGE), ("tight", plots.BLUE)):
        where = first_useful(found, name, 1.0)
        if math.isfinite(where):
            panel.plot(where, 1.0, "o", color=colour, ms=5)
            panel.annotate(
                f"useful from {_two_digits(where)}", (where, 1.0), xytext=(5, 4), textcoords="offset points",
                color=colour, fontsize=8,
            )  # fmt: skip
    panel.set(xlabel="n lambda epsilon", ylabel="tolerance of an answer")
    panel.set_title(f"Interactive sessions, {settings.questions:,} questions")
    panel.legend(loc="upper right", fontsize=8)


def _draw_deviations(panel: Axes, settings: Settings, found: list[Deviations]) -> None:
    counts = [d.questions for d in found]
    for name, colour, style, label in (
        ("printed_session", plots.ORANGE, ":", "Algorithm 1 as printed, tolerance"),
        ("sparse_session", plots.BLUE, ":", "sparse vector, tolerance"),
        ("printed", plots.ORANGE, "-", "independent Laplace, usual constant"),
        ("laplace", plots.ORANGE, "--", "independent Laplace, composed exactly"),
        ("gaussian", plots.GREY, "-", "independent Gaussian"),
        ("process", plots.BLUE, "-", "Gaussian process"),
    ):
        panel.loglog(counts, [getattr(d, name) for d in found], style, color=colour, label=label)
    panel.set(xlabel="number of questions", ylabel="error of an answer (standard deviation, or tolerance)")
    panel.set_title(f"All methods, n = {settings.rows:,}, lambda = {settings.strength:g}")


def _sheets(settings: Settings, left: list[Tolerances], right: list[Deviations]) -> list[Sheet]:
    shown = left[:: max(1, (settings.sizes - 1) // 6)]
    first = Sheet(
        f"Tolerance of {settings.questions:,} answers, at most 1 in size",
        ("n lambda epsilon", "as printed", "sparse vector", "updates"),
        [(f"{t.size:.3g}", f"{t.printed:.3g}", f"{t.tight:.3g}", f"{t.updates:,}") for t in shown],
        texts=0,
    )
    second = Sheet(
        "Standard deviation of an answer",
        ("questions", "Laplace, usual constant", "Laplace, exact", "Gaussian", "Gaussian process"),
        [
            (f"{d.questions:,}", *(f"{value:.3g}" for value in (d.printed, d.laplace, d.gaussian, d.process)))
            for d in right
        ],
        texts=0,
    )
    return [first, second]


def _sentences(left: list[Tolerances], right: list[Deviations]) -> list[str]:
    printed, tight = (first_useful(left, name, 1.0) for name in ("printed", "tight"))
    most = right[-1]
    return [
        f"The tolerance falls below the largest prediction at n lambda epsilon = {_two_digits(printed)} as printed, "
        f"and at {_two_digits(tight)} by the sparse vector technique.",
        f"For {most.questions:,} questions an answer's noise has a deviation of {most.process:.2g} as a Gaussian "
        f"process, {most.gaussian:.2g} as independent Gaussian and {most.laplace:.2g} as independent Laplace noise.",
    ]
