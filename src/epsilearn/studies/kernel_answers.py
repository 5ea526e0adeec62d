"""How exact private answers of a kernel machine can be: the kernel paper's constants beside this project's.

Two panels, computed and not simulated. On the left, how far an answer of the interactive learner (Algorithm 1) may be
off, as printed and by the sparse vector technique, against n lambda epsilon: it is useful where that is below the
largest possible prediction. On the right, the error of an answer against the number of questions: the deviation of
independent noise and of a Gaussian process, and the sessions' tolerances.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from epsilearn import plots
from epsilearn.calibration.additive import gaussian_scale
from epsilearn.calibration.concentrated import concentrated_budget
from epsilearn.calibration.kernel import printed_laplace_scale, printed_session, sparse_session
from epsilearn.kernel.semi_interactive import laplace_each
from epsilearn.studies.figure1 import save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Deviations", "Study", "Tolerances", "answers_figure", "deviations", "tolerances", "write"]


@dataclass(frozen=True)
class Study:
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
    """

    epsilon: float = 1.0
    delta: float = 1e-6
    failure: float = 0.05
    questions: int = 10_000
    rows: int = 500_000
    strength: float = 1e-3


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


def tolerances(study: Study, sizes: Any = None) -> list[Tolerances]:
    """Tolerances over n lambda epsilon."""
    rho = concentrated_budget(study.epsilon, study.delta)
    found = []
    for size in np.geomspace(1e2, 1e8, 49) if sizes is None else sizes:
        strong = size / study.epsilon  # n lambda
        printed = printed_session(1, strong, 1.0, 1.0, 1.0, study.epsilon, study.delta, study.questions, study.failure)
        tight = sparse_session(2 / strong, rho, 1.0, 1.0, study.questions, study.failure)
        found.append(Tolerances(float(size), printed.tolerance, tight.tolerance, tight.updates))
    return found


def deviations(study: Study, counts: Any = None) -> list[Deviations]:
    """Deviations over the number of questions."""
    sensitivity = 2 / (study.rows * study.strength)
    one = gaussian_scale(sensitivity, study.epsilon, study.delta)
    found = []
    for count in (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000) if counts is None else counts:
        printed = math.sqrt(2) * printed_laplace_scale(sensitivity, count, study.epsilon, study.delta)
        laplace = math.sqrt(2) * sensitivity / laplace_each(count, study.epsilon, study.delta)
        size = study.rows * study.strength * study.epsilon
        session = tolerances(replace(study, questions=count), [size])[0]
        found.append(Deviations(count, printed, laplace, math.sqrt(count) * one, one, session.printed, session.tight))
    return found


def first_useful(found: list[Tolerances], name: str, limit: float) -> float:
    """The least n lambda epsilon of those computed at which a tolerance is below a limit."""
    return next((t.size for t in found if getattr(t, name) <= limit), math.inf)


def answers_figure(study: Study, left: list[Tolerances], right: list[Deviations]) -> Figure:
    """Both panels."""
    with plots.house_style():
        figure, (tolerance, deviation) = plots.new_figure(9.0, 4.8, columns=2)
        sizes = [t.size for t in left]
        tolerance.loglog(sizes, [t.printed for t in left], color=plots.ORANGE, label="Algorithm 1 as printed")
        tolerance.loglog(sizes, [t.tight for t in left], color=plots.BLUE, label="sparse vector, solved for the least")
        tolerance.axhline(1.0, color=plots.GREY, lw=0.8, ls="--")
        tolerance.text(sizes[-1], 1.12, "largest prediction", ha="right", color=plots.GREY, fontsize=8)
        for name, colour in (("printed", plots.ORANGE), ("tight", plots.BLUE)):
            where = first_useful(left, name, 1.0)
            if math.isfinite(where):
                tolerance.plot(where, 1.0, "o", color=colour, ms=5)
                tolerance.annotate(
                    f"useful from {where:.0e}", (where, 1.0), xytext=(-4, -13), textcoords="offset points",
                    ha="right", color=colour, fontsize=8,
                )  # fmt: skip
        tolerance.set(xlabel="n lambda epsilon", ylabel="tolerance of an answer")
        tolerance.set_title(f"Interactive sessions, {study.questions:,} questions")
        tolerance.legend(loc="upper right", fontsize=8)
        counts = [d.questions for d in right]
        for name, colour, style, label in (
            ("printed_session", plots.ORANGE, ":", "Algorithm 1 as printed, tolerance"),
            ("sparse_session", plots.BLUE, ":", "sparse vector, tolerance"),
            ("printed", plots.ORANGE, "-", "independent Laplace, usual constant"),
            ("laplace", plots.ORANGE, "--", "independent Laplace, composed exactly"),
            ("gaussian", plots.GREY, "-", "independent Gaussian"),
            ("process", plots.BLUE, "-", "Gaussian process"),
        ):
            deviation.loglog(counts, [getattr(d, name) for d in right], style, color=colour, label=label)
        deviation.set(xlabel="number of questions", ylabel="error of an answer (standard deviation, or tolerance)")
        deviation.set_title(f"All methods, n = {study.rows:,}, lambda = {study.strength:g}")
        figure.legend(*deviation.get_legend_handles_labels(), loc="outside lower right", ncols=2, fontsize=8)
    return figure


def report_tables(study: Study, left: list[Tolerances], right: list[Deviations]) -> tuple[Table, Table]:
    """The figures in words."""
    first = Table(title=f"Tolerance of {study.questions:,} answers, at most 1 in size", title_justify="left", box=None)
    for name in ("n lambda epsilon", "as printed", "sparse vector", "updates"):
        first.add_column(name, justify="right")
    for t in left[::8]:
        first.add_row(f"{t.size:.3g}", f"{t.printed:.3g}", f"{t.tight:.3g}", f"{t.updates:,}")
    second = Table(title="Standard deviation of an answer", title_justify="left", box=None)
    for name in ("questions", "Laplace, usual constant", "Laplace, exact", "Gaussian", "Gaussian process"):
        second.add_column(name, justify="right")
    for d in right:
        second.add_row(f"{d.questions:,}", *(f"{value:.3g}" for value in (d.printed, d.laplace, d.gaussian, d.process)))
    return first, second


def write(study: Study, left: list[Tolerances], right: list[Deviations], folder: Path) -> None:
    """Put ``kernel_answers`` into the folder, as JSON, PNG and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    report = {"study": asdict(study), "tolerances": [asdict(t) for t in left], "deviations": [asdict(d) for d in right]}
    (folder / "kernel_answers.json").write_text(json.dumps(report, indent=1) + "\n")
    save(answers_figure(study, left, right), folder / "kernel_answers")


def main(
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("studies-output"),
    epsilon: Annotated[float, typer.Option(help="The budget.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Its delta.")] = 1e-6,
) -> None:
    """Compute how exact private answers of a kernel machine can be."""
    study = Study(epsilon, delta)
    left, right = tolerances(study), deviations(study)
    console = Console(highlight=False)
    console.print(*report_tables(study, left, right), sep="\n")
    write(study, left, right, out)
    console.print(f"Written to {out}")


if __name__ == "__main__":
    typer.run(main)
