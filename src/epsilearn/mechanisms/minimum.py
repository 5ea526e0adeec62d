"""Releasing a minimiser: noise on the result (output perturbation) or in the objective (objective perturbation).

The order is always debit, noise, solve, release: a solver that fails has cost its budget and released nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from epsilearn.guarantee import Guarantee
from epsilearn.mechanisms.additive import add_noise, noisy_numbers
from epsilearn.mechanisms.release import NoiseLaw, Release, Spender, spending
from epsilearn.mechanisms.tape import answered
from epsilearn.noise.bits import BitSource
from epsilearn.noise.door import GRID_BITS, check_scale, grid_of, prepare, release

__all__ = ["Drawn", "Noisy", "drawing_error", "perturb_objective", "perturb_output", "perturb_steps"]

Array = NDArray[np.float64]
# Numbers plus noise of a law, through the door.
Noisy = Callable[[Any, NoiseLaw], Array]

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
    prepare(law.dimension, law.quantile)
    with spending(promise, ledger, purpose, random_state) as (source, stamped):
        return Release(noisy_numbers(solve().coef, law, source, grid_of(law.deviation)), stamped, law)


def perturb_objective(
    solve: Callable[[Drawn, Noisy], Minimiser],
    *,
    law: NoiseLaw,
    polish: NoiseLaw,
    stability: float,
    promise: Guarantee,
    ledger: Spender | None,
    purpose: str,
    random_state: int | BitSource | None,
) -> Release:
    """Draw noise of the given law for the objective, minimise, and release the result with a little more noise.

    The exact minimiser would be private by itself. A solver's is only close to it, and how it is off depends on the
    data; ``polish`` hides that. ``solve`` may ask for other numbers first, and gets them with the noise it names; the
    promise and the debit are for all of it. ``stability`` is how far the minimiser can move when one record is
    replaced and the noise is not; an audit holds the fit to it.
    """
    check_scale(law.scale)
    check_scale(polish.scale)
    prepare(law.dimension, law.quantile)
    with spending(promise, ledger, purpose, random_state) as (source, stamped):
        solution = solve(_draw(law, source), lambda values, its_law: add_noise(values, its_law, source))
        return Release(_polished(solution.coef, polish, stability, source), stamped)


def perturb_steps(
    walk: Callable[[Noisy], Array],
    *,
    steps: int,
    law: NoiseLaw,
    promise: Guarantee,
    ledger: Spender | None,
    purpose: str,
    random_state: int | BitSource | None,
) -> Release:
    """Where a walk of so many steps ends that learns of the records only through numbers with noise, of laws it names.

    ``promise`` and debit are for all of them; ``law`` is what the release says of its noise.
    """
    check_scale(law.scale)
    prepare(law.dimension, law.quantile, times=steps)
    with spending(promise, ledger, purpose, random_state) as (source, stamped):
        return Release(walk(lambda values, its_law: add_noise(values, its_law, source)), stamped, law)


def drawing_error(law: NoiseLaw) -> float:
    """A bound on the rounding of noise drawn for an objective. Public."""
    return math.sqrt(law.dimension) * 2.0 ** (_drawing_grid(law) - 1) * (1 + 1e-12)


def _drawing_grid(law: NoiseLaw) -> int:
    return grid_of(law.deviation) + GRID_BITS - DRAW_BITS


def _draw(law: NoiseLaw, source: BitSource) -> Drawn:
    grid = _drawing_grid(law)
    vector = answered(
        source, "noise", (law, grid), lambda: None,
        lambda: release(np.zeros(law.dimension), law.radius(source), law.quantile, source, grid),
    )  # fmt: skip
    return Drawn(vector, drawing_error(law))


def _polished(coef: Array | list[Fraction], law: NoiseLaw, stability: float, source: BitSource) -> Array:
    return answered(
        source, "minimiser", (law, stability), lambda: coef,
        lambda: release(coef, law.radius(source), law.quantile, source, grid_of(law.deviation)),
    )  # fmt: skip
