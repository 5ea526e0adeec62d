"""Errata: printed constants that fail, caught in the act.

The four papers and the lecture print several constants that do not give what is claimed. A claim of privacy is false as
soon as one pair of neighbours contradicts it, and where the mechanism is small the true epsilon of a pair can be
computed.

Every claim below fails on its pair, by factors from 1.4 to 47: a claimed 0.1 is really 3.23 (Theorem 2, 2008), a
claimed 1 is really 6.28 (kernels, Algorithm 3). The LASSO's printed noise is caught only at a large epsilon, 29.5 for a
claimed 20; at a claimed 1 the same pair shows 0.64, since composition has slack to spare. Audits of real releases
refute the three that were tried.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from epsilearn import plots
from epsilearn.audit import Finding, audit
from epsilearn.checks import check_integer, check_positive
from epsilearn.studies.claims import AUDITED, CLAIMS, NUMBERS, Audited, Claim, Number, lasso_pair, theorem_2
from epsilearn.studies.study import Drawing, Progress, Result, Sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Curve", "Settings", "run"]

WORDS = (
    "Two panels. Left: for each printed claim, the claimed epsilon and, further right, the real one on a pair of "
    "neighbours; three have a lower bound from an audit between the two. Right: the real and the proven epsilon of "
    "Theorem 2 of 2008 against n lambda epsilon; both rise far above the claim as that falls below 2."
)


@dataclass(frozen=True)
class Settings:
    """How long to look.

    Attributes
    ----------
    trials : int
        Runs of each audited mechanism on either neighbour.
    epsilon : float
        The claim of the curve on the right.
    points : int
        At how many values of n lambda epsilon, from 10^-4 to 10, it is computed.
    """

    trials: int = 20_000
    epsilon: float = 0.1
    points: int = 41

    def __post_init__(self) -> None:
        check_integer("trials", self.trials, least=100)
        check_positive("epsilon", self.epsilon)
        check_integer("points", self.points, least=2)

    @classmethod
    def quick(cls) -> Settings:
        """Fewer trials and points."""
        return cls(trials=3000, points=21)


@dataclass(frozen=True)
class Curve:
    """Theorem 2 of 2008 at one n lambda epsilon: the real epsilon on a pair, and what is proven for all pairs."""

    size: float
    real: float
    proven: float


def run(settings: Settings, progress: Progress) -> Result:
    """Compute what is claimed and what is real, and audit three of the claims."""
    claims = [claim() for claim in CLAIMS]
    numbers = [number() for number in NUMBERS]
    audits = (_audited(make(), settings.trials) for make in AUDITED)
    findings = dict(progress(audits, len(AUDITED)))
    curve = _curve(settings)
    return Result(
        settings=settings,
        seeds={},
        measured={
            "claims": [asdict(claim) for claim in claims],
            "audits": {name: finding.to_dict() for name, finding in findings.items()},
            "numbers": [asdict(number) for number in numbers],
            "theorem_2": [asdict(point) for point in curve],
        },
        figures={"errata": Drawing(_figure(settings, claims, findings, curve), WORDS)},
        sheets=[_claims_sheet(claims, findings), _numbers_sheet(numbers)],
        seen=_sentences(claims, findings),
    )


def _audited(case: Audited, trials: int) -> tuple[str, Finding]:
    return case.name, audit(case.mechanism, case.first, case.second, claimed_epsilon=case.claimed, trials=trials)


def _curve(settings: Settings) -> list[Curve]:
    sizes = [float(size) for size in np.geomspace(1e-4, 10, settings.points)]
    return [Curve(size, *theorem_2(size / settings.epsilon, settings.epsilon)) for size in sizes]


def _claims_sheet(claims: list[Claim], findings: dict[str, Finding]) -> Sheet:
    rows = []
    for claim in claims:
        finding = findings.get(claim.name)
        cells = (f"{claim.claimed:g}", f"{claim.real:.3g}", f"{claim.delta:g}")
        rows.append((claim.name, claim.pair, *cells, "" if finding is None else f"{finding.lower_bound:.2f}"))
    columns = ("where", "neighbours", "claimed", "real", "delta", "audit: at least")
    return Sheet("Epsilon, claimed and real on one pair of neighbours", columns, rows, texts=2)


def _numbers_sheet(numbers: list[Number]) -> Sheet:
    rows = [(number.name, number.printed, number.computed) for number in numbers]
    return Sheet("Other numbers", ("where", "printed", "computed"), rows)


def _sentences(claims: list[Claim], findings: dict[str, Finding]) -> list[str]:
    failed = [claim for claim in claims if claim.real > claim.claimed]
    worst = max(claims, key=lambda claim: claim.real / claim.claimed)
    refuted = [name for name, finding in findings.items() if finding.refuted]
    return [
        f"{len(failed)} of {len(claims)} claims fail on their pair; the furthest off is {worst.name}: "
        f"{worst.claimed:g} claimed, {worst.real:.3g} real.",
        f"Audits of real releases refute {len(refuted)} of {len(findings)}: {'; '.join(refuted) or 'none'}.",
        f"Not caught: on its pair the LASSO's printed noise has a real epsilon of {lasso_pair(1.0).real:.2g} at a "
        "claimed 1.",
    ]


def _figure(settings: Settings, claims: list[Claim], findings: dict[str, Finding], curve: list[Curve]) -> Figure:
    with plots.house_style():
        figure, (pairs, theorem) = plots.new_figure(9.2, 4.2, columns=2)
        _draw_pairs(pairs, claims, findings)
        _draw_theorem(theorem, settings, curve)
        figure.legend(*pairs.get_legend_handles_labels(), loc="outside lower left", ncols=3)
    return figure


def _draw_pairs(panel: Axes, claims: list[Claim], findings: dict[str, Finding]) -> None:
    places = np.arange(len(claims))
    claimed, real = [claim.claimed for claim in claims], [claim.real for claim in claims]
    panel.hlines(places, claimed, real, color=plots.GREY, lw=1)
    panel.plot(claimed, places, "o", color=plots.BLUE, ms=6, label="claimed")
    panel.plot(real, places, "s", color=plots.ORANGE, ms=6, label="real, on one pair")
    audited = [(findings[c.name].lower_bound, place) for place, c in enumerate(claims) if c.name in findings]
    panel.plot(*zip(*audited, strict=True), "|", color=plots.INK, ms=11, mew=1.8, label="audit: at least")
    for place, claim in zip(places, claims, strict=True):
        panel.annotate(
            f"{claim.real:.3g}", (claim.real, place), xytext=(7, 0), textcoords="offset points", va="center",
            color=plots.ORANGE, fontsize=8,
        )  # fmt: skip
    panel.set(xscale="log", xlabel="epsilon", xlim=(0.06, 80), yticks=places)
    panel.set_yticklabels([claim.name for claim in claims], color=plots.INK)
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.tick_params(axis="y", length=0)
    panel.invert_yaxis()
    panel.set_title("Claimed and real")


def _draw_theorem(panel: Axes, settings: Settings, curve: list[Curve]) -> None:
    sizes = [point.size for point in curve]
    panel.set(xscale="log", yscale="log")
    panel.plot(sizes, [point.proven for point in curve], color=plots.PALETTE[2], ls="--", lw=1.5)
    panel.plot(sizes, [point.real for point in curve], color=plots.ORANGE, lw=1.5)
    panel.axhline(settings.epsilon, color=plots.BLUE, lw=1.5)
    panel.axvline(2, color=plots.GREY, lw=0.8, ls=":")
    # Where the two lines have parted, so that either label has room on its own side.
    middle, first = curve[round(0.6 * (len(curve) - 1))], curve[0]
    for name, place, offset, side, colour in (
        ("proven", (middle.size, middle.proven), (7, 3), "left", plots.PALETTE[2]),
        ("real, x = 1\nagainst x = 0", (middle.size, middle.real), (-9, -14), "right", plots.ORANGE),
        ("claimed", (first.size, settings.epsilon), (6, 5), "left", plots.BLUE),
    ):
        panel.annotate(name, place, xytext=offset, textcoords="offset points", ha=side, color=colour)
    panel.text(2, 0.98, "2 ", transform=panel.get_xaxis_transform(), color=plots.GREY, ha="right", va="top")
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.set(xlabel="n lambda epsilon", ylabel="epsilon")
    panel.set_title(f"2008, Theorem 2 at a claimed {settings.epsilon:g}")
