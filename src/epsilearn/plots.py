"""Figures, in one colour-blind-safe style."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from epsilearn.whole_files import whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from epsilearn.explanation import Explanation

__all__ = [
    "BLUE", "GREY", "INK", "ORANGE", "PALETTE", "band", "explanation_figure", "house_style", "new_figure", "save",
]  # fmt: skip

# Okabe and Ito's palette, without its yellow, which is too pale for lines on white; grey and ink for what is not data.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
BLUE, ORANGE, GREY, INK = PALETTE[0], PALETTE[1], "#666666", "#222222"

_STYLE: Any = {
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "legend.frameon": False,
    "savefig.dpi": 160,
    # The names inside an SVG follow from this word, not from chance.
    "svg.hashsalt": "epsilearn",
    "figure.constrained_layout.use": True,
}


@contextmanager
def house_style() -> Iterator[None]:
    """Everything drawn inside looks alike."""
    from matplotlib import rc_context

    with rc_context(_STYLE):
        yield


def new_figure(width: float, height: float, columns: int = 1, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure in the house style, drawn without any display; its panels row by row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with house_style():
        figure = Figure(figsize=(width, height), dpi=160)
        FigureCanvasAgg(figure)
        axes = [figure.add_subplot(rows, columns, i + 1) for i in range(rows * columns)]
    return figure, axes


def band(axes: Axes, x: ArrayLike, middle: ArrayLike, reach: ArrayLike, *, color: str, **line: Any) -> None:
    """A line, and around it a band of so much to either side.

    On a logarithmic axis a band that reaches to zero or below ends at a thousandth of the line.
    """
    centre, spread = np.asarray(middle, dtype=np.float64), np.asarray(reach, dtype=np.float64)
    low = centre - spread
    if axes.get_yscale() == "log":
        low = np.maximum(low, centre / 1000)
    axes.fill_between(np.asarray(x), low, centre + spread, color=color, alpha=0.18, lw=0)
    axes.plot(x, centre, color=color, **line)


def save(figure: Figure, path: Path) -> None:
    """Write a figure whole or not at all, in the format its name ends with; the same bytes for the same figure."""
    kind = path.suffix.removeprefix(".")
    metadata: Any = {"Date": None} if kind == "svg" else None
    content = BytesIO()
    with whole_file(path) as write, house_style():
        figure.savefig(content, format=kind, metadata=metadata)
        write(content.getvalue())


def explanation_figure(meaning: Explanation) -> Figure:
    """The guessing game on the left, the best test on the right."""
    with house_style():
        figure, (game, test) = new_figure(8.2, 3.4, columns=2)
        _draw_game(game, meaning)
        _draw_test(test, meaning)
    return figure


def _draw_game(axes: Axes, meaning: Explanation) -> None:
    from epsilearn.explanation import winning_probability

    reach = max(3.0, 1.5 * meaning.epsilon)
    grid = np.linspace(reach / 200, reach, 200)
    axes.plot(grid, [winning_probability(e, meaning.delta) for e in grid], color=BLUE, lw=2)
    axes.plot(grid, np.minimum(np.exp(np.minimum(grid, 50)) / 2, 1), color=GREY, lw=1, ls="--")
    axes.axhline(0.5, color=GREY, lw=0.8, ls=":")
    axes.plot(meaning.epsilon, meaning.winning_probability, "o", color=ORANGE, ms=7, zorder=3)
    axes.annotate(
        f"{meaning.winning_probability:.1%}",
        (meaning.epsilon, meaning.winning_probability),
        xytext=(8, -14),
        textcoords="offset points",
        color=ORANGE,
        weight="bold",
    )
    axes.text(reach, 0.505, "coin flip", color=GREY, ha="right", va="bottom", fontsize=8)
    axes.text(reach, 1.005, "textbook bound $e^\\epsilon/2$, capped", color=GREY, ha="right", va="bottom", fontsize=8)
    axes.set(xlim=(0, reach), ylim=(0.45, 1.07), xlabel="epsilon", ylabel="chance of guessing right")
    axes.set_title("Which of two records is yours?")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")


def _draw_test(axes: Axes, meaning: Explanation) -> None:
    from epsilearn.explanation import detection_rate

    alarms = np.concatenate([np.geomspace(1e-5, 0.01, 50), np.linspace(0.011, 0.9999, 150)])
    found = [detection_rate(meaning.epsilon, meaning.delta, float(a)) for a in alarms]
    axes.fill_between(alarms, alarms, found, color=BLUE, alpha=0.15, lw=0)
    axes.plot(alarms, found, color=BLUE, lw=2)
    axes.plot([0, 1], [0, 1], color=GREY, lw=0.8, ls=":")
    axes.plot(0.05, meaning.detection_rate, "o", color=ORANGE, ms=7, zorder=3)
    axes.annotate(
        f"{meaning.detection_rate:.1%} at 5% false alarms",
        (0.05, meaning.detection_rate),
        xytext=(0.4, 0.12),
        textcoords="axes fraction",
        color=ORANGE,
        weight="bold",
        va="center",
        arrowprops={"arrowstyle": "-", "color": ORANGE, "lw": 0.8, "shrinkB": 4},
    )
    axes.text(0.72, 0.66, "blind guessing", color=GREY, ha="left", va="top", fontsize=8)
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="false alarms", ylabel="your record found")
    axes.set_title("No test does better than this")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:.0%}")
