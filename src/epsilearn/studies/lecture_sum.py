"""The error of a noisy sum, beside the bounds of the lecture on differential privacy.

The lecture releases a sum of bits with Laplace noise of scale 1 / epsilon, and bounds its error by Chebyshev's
inequality: it is k or more with probability at most 2 / (epsilon k)^2. At epsilon = 0.1 it calls the answer 95 % sure
to be within about 14.5.

Real releases follow the noise's own law: at epsilon = 0.1, 95 % are within 30.0, Chebyshev's bound for that is 63.2,
and the 14.5 is the noise's standard deviation, 14.1, within which 76 % lie. The bound is true and twice too wide.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from epsilearn import plots, statistics
from epsilearn.checks import check_integer, check_positive
from epsilearn.studies.study import Drawing, Progress, Result, Sheet, each

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Errors", "Settings", "Tail", "run"]

Array = NDArray[np.float64]

SEED, SURE = 20, 0.95
LECTURE_EPSILON, LECTURE_ERROR = 0.1, 14.5
BATCH = 1000
WORDS = (
    "Two panels. Left: the probability that a noisy sum is off by k or more, measured, by the exact law and by "
    "Chebyshev's inequality, with the lecture's 14.5, the exact 30.0 and Chebyshev's 63.2 marked. Right: the error at "
    "95 % against epsilon, measured on the exact law's line, half of Chebyshev's and twice the lecture's."
)


@dataclass(frozen=True)
class Settings:
    """What to release.

    Attributes
    ----------
    epsilons : tuple of float
        The budgets; the first is the one whose whole distribution is shown.
    draws : int
        Releases at each.
    rows : int
        Bits in the sum.
    """

    epsilons: tuple[float, ...] = (LECTURE_EPSILON, 0.05, 0.2, 0.5, 1.0)
    draws: int = 100_000
    rows: int = 1000

    def __post_init__(self) -> None:
        for epsilon in self.epsilons:
            check_positive("epsilons", epsilon)
        check_integer("draws", self.draws, least=100)
        check_integer("rows", self.rows)

    @classmethod
    def quick(cls) -> Settings:
        """Fewer releases."""
        return cls(draws=5000)


@dataclass(frozen=True)
class Errors:
    """How far the releases at one epsilon are off.

    Attributes
    ----------
    epsilon : float
        The budget.
    deviation, exact_deviation : float
        Of the error: measured, and of the noise's law.
    within, low, high : float
        What 95 % of the errors are within, and the 95 % interval of that, from order statistics.
    exact, chebyshev : float
        The same by the noise's law and by Chebyshev's inequality.
    """

    epsilon: float
    deviation: float
    exact_deviation: float
    within: float
    low: float
    high: float
    exact: float
    chebyshev: float


@dataclass(frozen=True)
class Tail:
    """The probability of an error of ``k`` or more: measured, by the exact law and by Chebyshev's inequality."""

    k: float
    measured: float
    exact: float
    chebyshev: float


@dataclass(frozen=True)
class _Batch:
    epsilon: float
    rows: int
    draws: int


def run(settings: Settings, progress: Progress) -> Result:
    """Release the sum many times at each epsilon."""
    batches = [
        _Batch(epsilon, settings.rows, min(BATCH, settings.draws - start))
        for epsilon in settings.epsilons
        for start in range(0, settings.draws, BATCH)
    ]
    parts = list(zip(batches, each(_release, batches, progress), strict=True))
    errors = {e: np.concatenate([part for batch, part in parts if batch.epsilon == e]) for e in settings.epsilons}
    found = [_summary(epsilon, own) for epsilon, own in errors.items()]
    tails = _tails(settings.epsilons[0], errors[settings.epsilons[0]])
    return Result(
        settings=settings,
        seeds={"data": SEED},
        measured={"errors": [asdict(e) for e in found], "tail": [asdict(t) for t in tails]},
        figures={"lecture_sum": Drawing(_figure(settings, found, tails), WORDS)},
        sheets=[_sheet(settings, found)],
        seen=_sentences(settings.epsilons[0], errors[settings.epsilons[0]], found[0]),
    )


def _release(batch: _Batch) -> Array:
    """How far releases of one sum are off."""
    bits = np.random.default_rng(SEED).integers(2, size=batch.rows)
    total = float(bits.sum())
    released = [statistics.sum(bits, bounds=(0, 1), epsilon=batch.epsilon).value for _ in range(batch.draws)]
    errors: Array = np.abs(np.array(released, dtype=np.float64) - total)
    return errors


def _summary(epsilon: float, errors: Array) -> Errors:
    # The order statistics between which the true quantile lies, but for one time in twenty.
    ordered, count = np.sort(errors), len(errors)
    spread = 1.96 * math.sqrt(count * SURE * (1 - SURE))
    low, high = (ordered[min(max(round(count * SURE + way * spread), 0), count - 1)] for way in (-1, 1))
    return Errors(
        epsilon=epsilon,
        deviation=float(np.sqrt(np.mean(errors**2))),
        exact_deviation=math.sqrt(2) / epsilon,
        within=float(np.quantile(errors, SURE)),
        low=float(low),
        high=float(high),
        exact=math.log(1 / (1 - SURE)) / epsilon,
        chebyshev=math.sqrt(2 / (1 - SURE)) / epsilon,
    )


def _tails(epsilon: float, errors: Array) -> list[Tail]:
    steps = np.linspace(0.5, 80, 54) * LECTURE_EPSILON / epsilon
    return [
        Tail(float(k), float(np.mean(errors >= k)), math.exp(-k * epsilon), min(1.0, 2 / (epsilon * k) ** 2))
        for k in steps
    ]


def _figure(settings: Settings, found: list[Errors], tails: list[Tail]) -> Figure:
    with plots.house_style():
        figure, (tail, width) = plots.new_figure(8.6, 4.0, columns=2)
        _draw_tail(tail, settings, found[0], tails)
        _draw_widths(width, found)
        figure.legend(*width.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _draw_tail(panel: Axes, settings: Settings, first: Errors, tails: list[Tail]) -> None:
    k, measured = [t.k for t in tails], np.array([t.measured for t in tails])
    panel.set(yscale="log", ylim=(3e-4, 1.5))
    panel.plot(k, [t.chebyshev for t in tails], color=plots.ORANGE, lw=1.5)
    panel.plot(k, [t.exact for t in tails], color=plots.BLUE, lw=1.5)
    seen = measured > 0
    reach = 1.96 * np.sqrt(measured * (1 - measured) / settings.draws)
    style = {"ls": "", "marker": "o", "ms": 3.5}
    plots.band(panel, np.array(k)[seen], measured[seen], reach[seen], color=plots.PALETTE[2], **style)
    panel.axhline(1 - SURE, color=plots.GREY, lw=0.8, ls="--")
    panel.text(0.5, (1 - SURE) * 0.93, "5 %", color=plots.GREY, fontsize=8, va="top")
    lecture = LECTURE_ERROR * LECTURE_EPSILON / first.epsilon
    for place, colour in ((lecture, plots.INK), (first.exact, plots.BLUE), (first.chebyshev, plots.ORANGE)):
        panel.plot(place, 1 - SURE, "v", color=colour, ms=7)
        panel.annotate(
            f"{place:.1f}", (place, 1 - SURE), xytext=(6, 4), textcoords="offset points", color=colour, fontsize=8,
        )  # fmt: skip
    panel.set(xlabel="k", ylabel="probability of an error of k or more")
    panel.set_title(f"Noisy sum, epsilon = {first.epsilon:g}")


def _draw_widths(panel: Axes, found: list[Errors]) -> None:
    own = sorted(found, key=lambda e: e.epsilon)
    x = [e.epsilon for e in own]
    panel.set(xscale="log", yscale="log")
    panel.plot(x, [e.chebyshev for e in own], color=plots.ORANGE, lw=1.5, label="Chebyshev's bound")
    panel.plot(x, [e.exact for e in own], color=plots.BLUE, lw=1.5, label="exact law")
    panel.plot(
        x, [LECTURE_ERROR * LECTURE_EPSILON / e for e in x], color=plots.INK, lw=1.2, ls="--", label="the lecture's"
    )
    spans = np.array([[e.within - e.low, e.high - e.within] for e in own]).T
    panel.errorbar(
        x, [e.within for e in own], spans, color=plots.PALETTE[2], ls="", marker="o", ms=4, capsize=3, label="measured"
    )
    panel.set_xticks(x, [f"{epsilon:g}" for epsilon in x])
    panel.minorticks_off()
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.set(xlabel="epsilon", ylabel="error that 95 % stay within")
    panel.set_title("95 % of the answers are within")


def _sheet(settings: Settings, found: list[Errors]) -> Sheet:
    rows = []
    for e in found:
        lecture = LECTURE_ERROR * LECTURE_EPSILON / e.epsilon
        numbers = (e.deviation, e.exact_deviation, e.within, e.exact, e.chebyshev, lecture)
        rows.append((f"{e.epsilon:g}", *(f"{number:.2f}" for number in numbers)))
    columns = ("epsilon", "deviation", "by its law", "95 % within", "by its law", "Chebyshev", "the lecture's")
    return Sheet(f"Error of a noisy sum of bits, {settings.draws:,} releases each", columns, rows, texts=0)


def _sentences(epsilon: float, errors: Array, first: Errors) -> list[str]:
    lecture = LECTURE_ERROR * LECTURE_EPSILON / epsilon
    share = float(np.mean(errors <= lecture))
    return [
        f"At epsilon = {epsilon:g}, 95 % of the answers are within {first.within:.1f} ({first.low:.1f} to "
        f"{first.high:.1f}); by the noise's law {first.exact:.1f}, by Chebyshev's inequality {first.chebyshev:.1f}.",
        f"Within {lecture:g}, which the lecture calls 95 % sure, are {share:.1%}; its noise has a standard deviation "
        f"of {first.exact_deviation:.1f}.",
    ]
