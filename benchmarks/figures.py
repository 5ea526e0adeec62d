"""The figures of the page, in the project's palette."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scoreboard import BEST, DEFAULTS, LIMIT, OURS, PURE, epsilons, find, names

from epsilearn.plots import BLUE, GREY, INK, ORANGE, PALETTE, house_style, new_figure, save

__all__ = ["draw"]

Line = dict[str, Any]
# Who, which settings, colour, line style: the same library has the same colour everywhere.
SERIES = (
    (OURS, DEFAULTS, "epsilearn, defaults", BLUE, "-"),
    (PURE, DEFAULTS, "epsilearn, pure", BLUE, "--"),
    ("Opacus", BEST, "Opacus, best of grid", ORANGE, "-"),
    ("Opacus", DEFAULTS, "Opacus, defaults", ORANGE, ":"),
    ("diffprivlib", BEST, "diffprivlib, best of grid", PALETTE[2], "-"),
    ("diffprivlib", DEFAULTS, "diffprivlib, defaults", PALETTE[2], ":"),
)


def draw(results: Line, folder: Path) -> None:
    """Both figures."""
    save(accuracy(results), folder / "accuracy.svg")
    save(seconds(results), folder / "seconds.svg")


def accuracy(results: Line) -> Any:
    """A panel for each table: accuracy by epsilon, error bars, and the limit without privacy."""
    tables = names(results)
    with house_style():
        figure, panels = new_figure(9.6, 3.1 * -(-len(tables) // 3) + 0.5, columns=3, rows=-(-len(tables) // 3))
        for axes, name in zip(panels, tables, strict=False):
            _panel(axes, results, name)
        for axes in panels[len(tables) :]:
            axes.remove()
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _panel(axes: Any, results: Line, name: str) -> None:
    places = range(len(epsilons(results)))
    for shift, (method, kind, label, color, style) in enumerate(SERIES):
        found = [find(results, name, method, epsilon, kind) for epsilon in epsilons(results)]
        shown = [(place, line) for place, line in zip(places, found, strict=True) if line and "mean" in line]
        if not shown and axes.get_subplotspec().num1 > 0:
            continue
        # Beside each other, so that bars of equal height can be told apart.
        across = [place + 0.05 * (shift - (len(SERIES) - 1) / 2) for place, _ in shown]
        means, errors = [100 * line["mean"] for _, line in shown], [100 * line["error"] for _, line in shown]
        axes.errorbar(
            across, means, errors, label=label, color=color, ls=style, marker="o", ms=4, lw=1.6, capsize=2.5,
            mfc="white" if kind == DEFAULTS and method != OURS else color,
        )  # fmt: skip
    limit = find(results, name, LIMIT, None, BEST)
    if limit and "mean" in limit:
        axes.axhline(100 * limit["mean"], color=INK, ls="--", lw=1, label="without privacy")
    axes.set_title(name)
    axes.set_xticks(list(places), [f"{epsilon:g}" for epsilon in epsilons(results)])
    axes.set_xlim(-0.3, len(places) - 0.7)
    axes.set(xlabel="ε", ylabel="accuracy, %")


def seconds(results: Line) -> Any:
    """Seconds of a fit on a logarithmic axis, a group of points for each table."""
    colours = {"epsilearn": BLUE, "Opacus": ORANGE, "diffprivlib": PALETTE[2], "scikit-learn": GREY}
    lines = results["speed"]["seconds"]
    tables = names(results)
    with house_style():
        figure, (axes,) = new_figure(8.2, 0.55 * len(tables) + 1.6)
        whos = list(dict.fromkeys(line["who"] for line in lines))
        for order, who in enumerate(whos):
            library, _, kind = who.rstrip(")").partition(" (")
            # One below the other, so that points of equal time can be told apart.
            shift = 0.09 * (order - (len(whos) - 1) / 2)
            here = [line for line in lines if line["who"] == who and "seconds" in line]
            axes.plot(
                [line["seconds"] for line in here], [tables.index(line["table"]) + shift for line in here], ls="",
                marker="D" if library == "epsilearn" else "o", ms=7, color=colours[library], label=who,
                mfc="white" if kind == DEFAULTS else colours[library],
            )  # fmt: skip
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_yticks(range(len(tables)), tables)
        axes.set_ylim(len(tables) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        for place in range(1, len(tables)):
            axes.axhline(place - 0.5, color=GREY, alpha=0.2, lw=0.8)
        axes.set_xlabel("seconds of a fit at ε = 1")
        figure.legend(loc="outside lower center", ncols=3)
    return figure
