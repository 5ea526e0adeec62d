"""Releasing a minimiser: noise on the result (output perturbation) or in the objective (objective perturbation).

The order is always debit, noise, solve, release: a solver that fails has cost its budget and released nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from epsilearn.guarantee import Guarantee
from epsilearn.mechanisms.release import NoiseLaw, Release, Spender, spending
from epsilearn.noise.bits import BitSource
from epsilearn.noise.door import check_scale, grid_of, prepare, release
from epsilearn.noise.quantiles import NORMAL
from epsilearn.noise.variates import Constant, Gamma, RandomReal, Root

__all__ = ["DRAW_BITS", "Drawn", "perturb_objective", "perturb_output"]

Array = NDArray[np.float64]

# Noise that enters an objective is rounded to a grid this many bits below its deviation.
DRAW_BITS = 40


class Minimiser(Protocol):
    """A point; the caller has made sure of its certificate."""

    @property
    def coef(self) -> Array | list[Fraction]: ...


@dataclass(frozen=True)
class Drawn:
    """Noise for an objective, in doubles, and a bound on its distance from the exact noise."""

    vector: Array
    error: float


def perturb_output(
    solve: Callable[[], Minimiser],
    *,
    law: NoiseLaw,
    promise: Guarantee,
    ledger: Spender | None,
    purpose: str,
    random_state: int | BitSource | None,
) -> Release:
    """The minimiser plus noise of the given law (K-norm or Gaussian), through the door."""
    check_scale(law.scale)
    prepare(law.dimension, NORMAL)
    with spending(promise, ledger, purpose, random_state) as (source, stamped):
        return Release(_through_the_door(solve().coef, law, source), stamped, law)


def perturb_objective(
    solve: Callable[[Drawn], Minimiser],
    *,
    law: NoiseLaw,
    polish: NoiseLaw,
    promise: Guarantee,
    ledger: Spender | None,
    purpose: str,
    random_state: int | BitSource | None,
) -> Release:
    """Draw noise of the given law for the objective, minimise, and release the result with a little more noise.

    The exact minimiser would be private by itself. A solver's is only close to it, and how it is off depends on the
    data; ``polish`` hides that.
    """
    check_scale(law.scale)
    check_scale(polish.scale)
    prepare(law.dimension, NORMAL)
    with spending(promise, ledger, purpose, random_state) as (source, stamped):
        solution = solve(_draw(law, source))
        return Release(_through_the_door(solution.coef, polish, source), stamped)


def _draw(law: NoiseLaw, source: BitSource) -> Drawn:
    grid = grid_of(law.deviation) + 20 - DRAW_BITS
    vector = release(np.zeros(law.dimension), _radius(law, source), NORMAL, source, grid)
    return Drawn(vector, math.sqrt(law.dimension) * 2.0 ** (grid - 1) * (1 + 1e-12))


def _through_the_door(coef: Array | list[Fraction], law: NoiseLaw, source: BitSource) -> Array:
    return release(coef, _radius(law, source), NORMAL, source, grid_of(law.deviation))


def _radius(law: NoiseLaw, source: BitSource) -> RandomReal:
    if law.kind == "gaussian":
        return Constant(law.scale)
    return Root(law.scale, Gamma(Fraction(law.dimension + 1, 2), source))
