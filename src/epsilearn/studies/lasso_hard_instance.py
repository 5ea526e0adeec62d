"""The private LASSO: records on which no private method does much better (2015).

Talwar, Thakurta and Zhang prove that on some data every private method's excess risk is about n^(-2/3) at least: a
fingerprinting code padded with constant columns, beside orthogonal records. As printed the construction needs about
10^11 columns.

Built at sizes that fit into memory, where its proof says nothing, the measured slope comes down to -0.72 at epsilon =
20. At small epsilon it is steeper, because the path's own oscillation, which falls faster, is still the larger part:
the bound is met from above.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from epsilearn import plots
from epsilearn.checks import check_integer
from epsilearn.errors import InvalidInput
from epsilearn.studies.hard_instance import SIZES, hard_instance, instance_sizes
from epsilearn.studies.lasso_risks import (
    FEWEST_SIZES,
    RADIUS,
    SEED,
    Fits,
    Problem,
    measure_all,
    rates_figure,
    report,
    sentences,
    sheets,
)
from epsilearn.studies.study import Drawing, Progress, Result

__all__ = ["CAVEAT", "Settings", "hard_problem", "run"]

CAVEAT = "The proof's constants do not apply at these sizes: this is a measurement, not a proven limit."
NAME = "Hard instance"
WORDS = (
    "Excess empirical risk against the number of records of the hard instance, both as logarithms, one panel for each "
    "epsilon: the larger epsilon, the closer the slope comes to the dashed line's -2/3, and the risk to that of the "
    "model that is zero everywhere."
)


@dataclass(frozen=True)
class Settings(Fits):
    """What is measured: see `Fits`.

    Attributes
    ----------
    largest : int
        The largest size of the hard instance, from 3 to 10. Size 7 takes 0.3 GB, size 10 takes 1.3 GB.

    Examples
    --------
    >>> Settings(largest=3).sizes
    [138, 1044, 4126]
    """

    largest: int = 7

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("largest", self.largest, least=FEWEST_SIZES)
        if self.largest > SIZES[-1]:
            raise InvalidInput(f"largest must be at most {SIZES[-1]}, got {self.largest}")

    @classmethod
    def quick(cls) -> Settings:
        """One budget, a few fits of the smaller tables."""
        return cls(epsilons=(20.0,), repetitions=5, largest=5)

    @property
    def sizes(self) -> list[int]:
        """How many records the tables have."""
        return [rows for _, rows, _ in instance_sizes()[: self.largest]]


def run(settings: Settings, progress: Progress) -> Result:
    """Measure every table at every budget."""
    found = measure_all(hard_problem, settings.sizes, settings, progress)
    return Result(
        settings=settings,
        seeds={"data": SEED},
        measured={"caveat": CAVEAT, **report(settings, found)},
        figures={"lasso_hard_instance": Drawing(rates_figure(settings, found, NAME, plots.ORANGE), WORDS)},
        sheets=sheets(settings, found, NAME),
        seen=[*sentences(settings, found, NAME), CAVEAT],
    )


def hard_problem(rows: int, seed: int = SEED) -> Problem:
    """The hard instance with at most so many rows.

    Examples
    --------
    >>> problem = hard_problem(138)
    >>> problem.least < problem.risk(np.zeros(100))
    True
    """
    instance = hard_instance(rows, random_state=np.random.default_rng([seed, 0, rows]))
    return Problem(instance.X, instance.y, instance.risk, instance.least_risk(RADIUS))
