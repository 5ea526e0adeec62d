"""How the curves of the 2008 paper's Figure 2 are drawn: the test error of both methods with both sets of constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from epsilearn import plots
from epsilearn.studies.simulations import COLOURS, DATA, FOLDS, METHODS, Summary
from epsilearn.studies.study import Sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["LINES", "curve_sheet", "curves_figure", "own_curve"]

# The private methods, and how their lines are drawn.
LINES = {"output": ("--", "^"), "objective": ("-", "o")}


def own_curve(found: list[Summary], data: str, method: str, calibration: str | None, place: str) -> list[Summary]:
    """One line of a panel, from left to right."""
    own = [s for s in found if (s.data, s.method, s.calibration) == (data, method, calibration)]
    return sorted(own, key=lambda s: float(getattr(s, place)))


def curve_sheet(found: list[Summary], data: str, place: str, draws: int) -> Sheet:
    """The lines of a panel as columns: noise on the result and in the objective, paper's constants and tight ones."""
    lines = [own_curve(found, data, method, calibration, place) for method in LINES for calibration in COLOURS]
    rows = []
    for on_result, tight_on_result, in_objective, tight_in_objective in zip(*lines, strict=True):
        where = f"{on_result.rows:,}" if place == "rows" else f"{on_result.epsilon:.3g}"
        proven = f"{in_objective.proven:.3g}"
        errors = [f"{s.mean:.3f}" for s in (on_result, tight_on_result, in_objective, tight_in_objective)]
        rows.append((where, *errors[:3], proven, errors[3]))
    title = (
        f"{data.capitalize()} data: test error with noise on the result and in the objective, {FOLDS} x {draws} draws"
    )
    head = "points" if place == "rows" else "epsilon"
    columns = (head, "result, paper's", "result, tight", "objective, paper's", "proven epsilon", "objective, tight")
    return Sheet(title, columns, rows, texts=0)


def curves_figure(found: list[Summary], place: str, finish: Callable[[Axes, str], None]) -> Figure:
    """One panel for each data set.

    Parameters
    ----------
    found : list of Summary
        What was measured.
    place : {"rows", "epsilon"}
        What the horizontal axis shows.
    finish : callable
        Gives a panel its title and its horizontal axis, told the data set.
    """
    with plots.house_style():
        figure, panels = plots.new_figure(8.2, 4.2, columns=2)
        for data, panel in zip(DATA, panels, strict=True):
            _draw_panel(panel, found, data, place)
            finish(panel, data)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _draw_panel(panel: Axes, found: list[Summary], data: str, place: str) -> None:
    """Lines of the errors; a hollow marker where the paper's claim is not proven."""
    for method, (line, marker) in LINES.items():
        for calibration, colour in COLOURS.items():
            own = own_curve(found, data, method, calibration, place)
            x, y = [getattr(s, place) for s in own], [s.mean for s in own]
            name = f"{METHODS[method]}, {calibration} constants"
            style: Any = {"ls": line, "marker": marker, "ms": 4, "lw": 1.5, "label": name}
            plots.band(panel, x, y, [s.reach for s in own], color=colour, **style)
            open_claims = [i for i, s in enumerate(own) if not s.holds]
            panel.plot(x, y, marker + " ", ms=4, color=colour, mfc="white", zorder=3, markevery=open_claims)
    _draw_plain(panel, own_curve(found, data, "standard", None, "rows"), place)
    panel.plot([], [], "o ", ms=4, color=plots.BLUE, mfc="white", label="proven only for a larger epsilon")
    panel.set(ylim=(-0.01, 0.56), ylabel="test error")


def _draw_plain(panel: Axes, plain: list[Summary], place: str) -> None:
    style: Any = {"color": plots.GREY, "ls": ":", "label": METHODS["standard"]}
    if place == "rows":
        panel.plot([s.rows for s in plain], [s.mean for s in plain], **style)
    else:
        panel.axhline(plain[-1].mean, **style)
