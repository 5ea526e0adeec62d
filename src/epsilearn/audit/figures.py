"""What an audit saw, drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from epsilearn import plots
from epsilearn.audit.counts import error_rates
from epsilearn.audit.finding import Claim, Finding
from epsilearn.audit.membership import Membership

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["finding_figure", "membership_figure"]

Array = NDArray[np.float64]

_RATES = np.concatenate([np.geomspace(1e-4, 0.01, 40), np.linspace(0.0125, 0.9999, 160)])


def finding_figure(finding: Finding, title: str) -> Figure:
    """The epsilons, what was looked for, and how the two kinds of error trade off."""
    with plots.house_style():
        figure, (epsilons, event, errors) = plots.new_figure(11.0, 3.5, columns=3)
        _draw_epsilons(epsilons, finding)
        _draw_event(event, finding)
        _draw_errors(errors, finding)
        figure.suptitle(f"{title}: {'refuted' if finding.refuted else 'not refuted'}", x=0.01, ha="left", weight="bold")
    return figure


def _draw_epsilons(panel: Axes, finding: Finding) -> None:
    bounds = [("at least", finding.lower_bound, plots.ORANGE), ("claimed", finding.claim.epsilon, plots.BLUE)]
    if finding.gaussian_bound is not None:
        bounds.insert(1, ("at least, if\nGaussian", finding.gaussian_bound, plots.PALETTE[4]))
    for place, (_, value, colour) in enumerate(bounds):
        panel.hlines(place, 0, value, color=colour, lw=1)
        panel.plot(value, place, "o", color=colour, ms=7)
        panel.annotate(
            f"{value:.3g}", (value, place), xytext=(0, 7), textcoords="offset points", ha="center", color=colour
        )
    panel.axvline(finding.claim.epsilon, color=plots.BLUE, lw=0.8, ls=":")
    label = f"epsilon (so many runs can show {finding.reach:.3g} at most)"
    panel.set(xlabel=label, xlim=(0, 1.2 * max(value for _, value, _ in bounds)), ylim=(len(bounds) - 0.5, -0.6))
    panel.set_yticks(range(len(bounds)), [name for name, _, _ in bounds])
    panel.tick_params(axis="y", length=0)
    panel.set_title(f"Epsilon, at confidence {finding.confidence:.10g}")


def _draw_event(panel: Axes, finding: Finding) -> None:
    """Two histograms on one axis, the tails cut off, and the event as a shaded half."""
    everything = np.concatenate(finding.strengths)
    low, high = np.quantile(everything, [0.005, 0.995])
    low, high = min(low, finding.threshold), max(high, finding.threshold)
    room = 0.05 * (high - low) or 1.0
    edges = np.linspace(low - room, high + room, 60)
    names = (finding.favoured, "second" if finding.favoured == "first" else "first")
    for name, strengths, colour in zip(names, finding.strengths, (plots.ORANGE, plots.BLUE), strict=True):
        heights, _ = np.histogram(np.clip(strengths, edges[0], edges[-1]), edges)
        panel.stairs(heights, edges, color=colour, lw=1.5, label=f"{name} data set")
    panel.axvspan(finding.threshold, edges[-1], color=plots.ORANGE, alpha=0.12, lw=0)
    panel.axvline(finding.threshold, color=plots.ORANGE, lw=0.8)
    panel.set(xlim=(edges[0], edges[-1]), ylim=(0, None), xlabel=_short(finding.event), ylabel="runs")
    panel.legend(loc="best", fontsize=8)
    panel.set_title(f"The event (shaded): {finding.hits[0]} to {finding.hits[1]}")


def _short(event: str) -> str:
    name = event.rsplit(" ", 2)[0].rstrip(",")
    return f"{name}, reversed" if "<=" in event else name


def _draw_errors(panel: Axes, finding: Finding) -> None:
    better, worse = finding.strengths
    alarms, found = error_rates(worse, better)
    panel.fill_between(_RATES, 0, 1 - _limits(finding.claim), color=plots.BLUE, alpha=0.12, lw=0)
    panel.plot(_RATES, 1 - _limits(finding.claim), color=plots.BLUE, lw=1.2, label="limit of the claim")
    panel.plot(alarms, 1 - found, color=plots.ORANGE, lw=1.5, label="seen")
    panel.plot(finding.hits[1] / finding.judged, 1 - finding.hits[0] / finding.judged, "o", color=plots.ORANGE, ms=6)
    panel.plot([0, 1], [1, 0], color=plots.GREY, lw=0.8, ls=":")
    panel.set(xlim=(0, 1), ylim=(0, 1), xlabel="false alarms", ylabel="misses")
    panel.legend(loc="upper right")
    panel.set_title("Errors (shaded: forbidden)")


def _limits(claim: Claim) -> Array:
    return np.array([claim.limit(float(rate)) for rate in _RATES])


def membership_figure(membership: Membership, title: str) -> Figure:
    """The attacker's curve with its band, and the limit of every attack; on logarithmic axes as well."""
    with plots.house_style():
        figure, panels = plots.new_figure(8.6, 3.9, columns=2)
        for panel, scale in zip(panels, ("linear", "log"), strict=True):
            _draw_attack(panel, membership, scale)
        panels[0].legend(loc="lower right")
        panels[0].set_title("Was the target in the table?")
        panels[1].set_title("The same for few false alarms")
        figure.suptitle(f"{title}: {membership.claim}", x=0.01, ha="left", weight="bold")
    return figure


def _draw_attack(panel: Axes, membership: Membership, scale: str) -> None:
    limits = _limits(membership.claim)
    alarms, found = membership.curve()
    reach = membership.reach
    panel.fill_between(_RATES, limits, 1, color=plots.BLUE, alpha=0.12, lw=0)
    panel.plot(_RATES, limits, color=plots.BLUE, lw=1.2, label="limit of every attack")
    if scale == "linear":  # the band is of one width, and says nothing of very few false alarms
        low, high = np.interp(_RATES - reach, alarms, found) - reach, np.interp(_RATES + reach, alarms, found) + reach
        panel.fill_between(_RATES, np.maximum(low, 0), np.minimum(high, 1), color=plots.ORANGE, alpha=0.2, lw=0)
    panel.plot(alarms, found, color=plots.ORANGE, lw=1.5, label=f"attack, area {membership.area:.3f}")
    panel.plot(_RATES, _RATES, color=plots.GREY, lw=0.8, ls=":", label="blind guessing")
    least = 1e-3 if scale == "log" else 0.0
    panel.set(
        xscale=scale, yscale=scale, xlim=(least, 1), ylim=(least, 1), xlabel="false alarms", ylabel="target found"
    )
