"""The private LASSO: how its excess risk falls as records are added (2015).

Talwar, Thakurta and Zhang prove that the excess empirical risk of private Frank-Wolfe falls like n^(-2/3), whatever
the records are, with only a logarithm of the number of columns.

On Gaussian records, 500 columns of which five matter, nothing is hard: the risk falls faster than the bound, as it may,
with slopes of -1.03 at epsilon = 5 and -1.13 at 20. At epsilon = 1 three tables have paths long enough to fit, too few
to tell a slope.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epsilearn import plots
from epsilearn.checks import check_positive
from epsilearn.errors import InvalidInput
from epsilearn.studies.hard_instance import Quadratic, least_over_l1_ball
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

__all__ = ["Settings", "gaussian_problem", "run"]

Array = NDArray[np.float64]

FEATURES, SIGNAL, NOISE, SPREAD = 500, (0.3, -0.3, 0.2, -0.1, 0.1), 0.1, 0.5
CHUNK = 8192
NAME = "Gaussian records"
WORDS = (
    "Excess empirical risk against the number of records, both as logarithms, one panel for each epsilon: on Gaussian "
    "records it falls faster than the dashed line of slope -2/3."
)


@dataclass(frozen=True)
class Settings(Fits):
    """What is measured: see `Fits`.

    Attributes
    ----------
    decades : tuple of float
        The powers of ten that are numbers of records, at least three. From 10^5.5 records on the sums of a long path
        no longer fit the faster arithmetic, and a fit takes minutes.

    Examples
    --------
    >>> Settings(decades=(3.0, 3.5, 4.0)).sizes
    [1000, 3162, 10000]
    """

    decades: tuple[float, ...] = (3.0, 3.5, 4.0, 4.5, 5.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for power in self.decades:
            check_positive("decades", power)
        if len(self.decades) < FEWEST_SIZES:
            raise InvalidInput(f"decades must be at least {FEWEST_SIZES} powers, got {len(self.decades)}")

    @classmethod
    def quick(cls) -> Settings:
        """One budget, a few fits of the smaller tables."""
        return cls(epsilons=(20.0,), repetitions=5, decades=(3.0, 3.5, 4.0, 4.5))

    @property
    def sizes(self) -> list[int]:
        """How many records the tables have."""
        return [round(10**power) for power in self.decades]


def run(settings: Settings, progress: Progress) -> Result:
    """Measure every table at every budget."""
    found = measure_all(gaussian_problem, settings.sizes, settings, progress)
    return Result(
        settings=settings,
        seeds={"data": SEED},
        measured=report(settings, found),
        figures={"lasso_rate": Drawing(rates_figure(settings, found, NAME, plots.BLUE), WORDS)},
        sheets=sheets(settings, found, NAME),
        seen=sentences(settings, found, NAME),
    )


def gaussian_problem(rows: int, seed: int = SEED) -> Problem:
    """Gaussian features, five of which matter; features and targets are clipped to [-1, 1].

    Examples
    --------
    >>> problem = gaussian_problem(1000)
    >>> problem.X.shape, problem.X.dtype.name
    ((1000, 500), 'float32')
    >>> truth = np.zeros(500)
    >>> truth[:5] = 0.3, -0.3, 0.2, -0.1, 0.1
    >>> problem.least < problem.risk(truth)
    True
    """
    generator = np.random.default_rng([seed, 1, rows])
    # Half the memory of doubles; the risk is that of the rounded features, in doubles.
    X = generator.standard_normal((rows, FEATURES), dtype=np.float32)
    X *= np.float32(SPREAD)
    np.clip(X, -1, 1, out=X)
    signal = X[:, : len(SIGNAL)].astype(np.float64) @ np.array(SIGNAL)
    y = np.clip(signal + NOISE * generator.standard_normal(rows), -1, 1)
    risk = _mean_squared_loss(X, y)
    return Problem(X, y, risk, least_over_l1_ball(risk, RADIUS).value)


def _mean_squared_loss(X: NDArray[np.float32], y: Array) -> Quadratic:
    """From second moments, so that one pass over the rows serves every model."""
    rows, features = X.shape
    moments, cross = np.zeros((features, features)), np.zeros(features)
    for start in range(0, rows, CHUNK):
        part = X[start : start + CHUNK].astype(np.float64)
        moments += part.T @ part
        cross += part.T @ y[start : start + CHUNK]
    moments /= rows
    return Quadratic(
        product=lambda theta: moments @ theta,
        linear=cross / rows,
        constant=float(y @ y) / rows,
        curvature=float(np.linalg.eigvalsh(moments)[-1]),
    )
