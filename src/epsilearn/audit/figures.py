"""What an audit saw, drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from epsilearn import plots
from epsilearn.audit.bits import BitFinding
from epsilearn.audit.counts import clopper_pearson, error_rates
from epsilearn.audit.finding import Claim, Finding
from epsilearn.audit.laws import ExactFinding
from epsilearn.audit.membership import Membership

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["exact_figure", "figure_of", "finding_figure", "membership_figure"]

Array = NDArray[np.float64]

_RATES = np.concatenate([np.geomspace(1e-4, 0.01, 40), np.linspace(0.0125, 0.9999, 160)])


def figure_of(found: Finding | BitFinding | Membership | ExactFinding, title: str) -> Figure:
    """Whatever an audit found, drawn."""
    if isinstance(found, Membership):
        return membership_figure(found, title)
    if isinstance(found, ExactFinding):
        return exact_figure(found, title)
    return finding_figure(found.finding if isinstance(found, BitFinding) else found, title)


def _headline(figure: Figure, title: str, refuted: bool, claim: Claim) -> None:
    text = f"{title}: {'refuted' if refuted else 'not refuted'}\n{claim}"
    figure.suptitle(text, x=0.01, ha="left", weight="bold")


def finding_figure(finding: Finding, title: str) -> Figure:
    """The epsilons, what was looked for, and how the two kinds of error trade off."""
    with plots.house_style():
        figure, (epsilons, event, errors) = plots.new_figure(11.0, 3.5, columns=3)
        _draw_epsilons(epsilons, finding)
        _draw_event(event, finding)
        _draw_errors(errors, finding)
        _headline(figure, title, finding.refuted, finding.claim)
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
    most = f"{finding.largest_bound:.3g}"
    if finding.largest_gaussian_bound is not None:
        most += f", if Gaussian {finding.largest_gaussian_bound:.3g},"
    label = f"epsilon\n(so many runs can show {most} at most)"
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
    _draw_limits(panel, finding)
    panel.plot([0, 1], [1, 0], color=plots.GREY, lw=0.8, ls=":")
    panel.set(xlim=(0, 1), ylim=(0, 1), xlabel="false alarms", ylabel="misses")
    panel.legend(loc="upper right")
    panel.set_title("Errors (shaded: forbidden)")


def _draw_limits(panel: Axes, finding: Finding) -> None:
    """The event's two rates, and how far each may be off towards the claim: what the verdict goes by."""
    runs, failure = finding.judged, (1 - finding.confidence) / 2
    alarms, misses = finding.hits[1] / runs, 1 - finding.hits[0] / runs
    most_alarms = float(clopper_pearson(finding.hits[1], runs, failure)[1])
    most_misses = 1 - float(clopper_pearson(finding.hits[0], runs, failure)[0])
    label = f"limits at {finding.confidence:.10g}"
    panel.plot([alarms, most_alarms], [misses, misses], color=plots.INK, lw=1.2, marker="|", ms=6, label=label)
    panel.plot([alarms, alarms], [misses, most_misses], color=plots.INK, lw=1.2, marker="_", ms=6)
    panel.plot(most_alarms, most_misses, "+", color=plots.INK, ms=9, mew=1.5)
    panel.plot(alarms, misses, "o", color=plots.ORANGE, ms=6, label="the event")


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
        _headline(figure, title, membership.refuted, membership.claim)
    return figure


def _draw_attack(panel: Axes, membership: Membership, scale: str) -> None:
    limits = _limits(membership.claim)
    alarms, found = membership.curve()
    band = membership.band
    panel.fill_between(_RATES, limits, 1, color=plots.BLUE, alpha=0.12, lw=0)
    panel.plot(_RATES, limits, color=plots.BLUE, lw=1.2, label="limit of every attack")
    if scale == "linear":  # the band is of one width, and says nothing of very few false alarms
        label = f"where its true rates are, at {membership.confidence:.10g}"
        low, high = np.interp(_RATES - band, alarms, found) - band, np.interp(_RATES + band, alarms, found) + band
        panel.fill_between(
            _RATES, np.maximum(low, 0), np.minimum(high, 1), color=plots.ORANGE, alpha=0.2, lw=0, label=label
        )
    panel.plot(alarms, found, color=plots.ORANGE, lw=1.5, label=f"attack, area {membership.area:.3f}")
    panel.plot(_RATES, _RATES, color=plots.GREY, lw=0.8, ls=":", label="blind guessing")
    least = 1e-3 if scale == "log" else 0.0
    panel.set(
        xscale=scale, yscale=scale, xlim=(least, 1), ylim=(least, 1), xlabel="false alarms", ylabel="target found"
    )


def exact_figure(finding: ExactFinding, title: str) -> Figure:
    """Which delta is true at each epsilon, in either direction, and which is claimed."""
    with plots.house_style():
        figure, (panel,) = plots.new_figure(6.4, 3.9)
        _draw_curves(panel, finding)
        _headline(figure, title, finding.refuted, finding.claim)
    return figure


def _draw_curves(panel: Axes, finding: ExactFinding) -> None:
    claim = finding.claim
    grid = np.linspace(0, 1.25 * max(claim.epsilon, finding.real), 161)
    real = np.array([finding.laws.deltas(float(epsilon)) for epsilon in grid])
    claimed = np.array([claim.curve.delta(float(epsilon)) for epsilon in grid])
    least = min(claim.delta, 1e-4) / 100 if claim.delta else 1e-6
    panel.fill_between(grid, np.maximum(claimed, least), 1, color=plots.BLUE, alpha=0.12, lw=0)
    panel.plot(grid, np.maximum(claimed, least), color=plots.BLUE, lw=1.2, label="claimed, at most (shaded: forbidden)")
    for deltas, style, name in zip(real.T, ("-", "--"), ("first against second", "second against first"), strict=True):
        seen = np.where(deltas > least, deltas, np.nan)
        panel.plot(grid, seen, color=plots.ORANGE, lw=1.5, ls=style, label=f"true, {name}")
    word = "the exact minimiser's epsilon" if finding.laws.before_polish else "the true epsilon"
    margin = f" ± {finding.error:.1g}" if finding.error else ""
    where = max(claim.delta, least)
    panel.plot(
        finding.real, where, "o", color=plots.ORANGE, ms=6, clip_on=False, label=f"{word}: {finding.real:.4g}{margin}"
    )
    panel.plot(
        claim.epsilon, where, "o", color=plots.BLUE, ms=6, clip_on=False, label=f"the claim: {claim.epsilon:.4g}"
    )
    panel.set(yscale="log", xlim=(0, grid[-1]), ylim=(least, 1), xlabel="epsilon", ylabel="delta")
    panel.legend(loc="best", fontsize=8)
    panel.set_title(f"Delta at each epsilon{'' if claim.delta else ' (the lower edge is 0)'}")
