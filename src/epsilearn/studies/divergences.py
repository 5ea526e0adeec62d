"""Exact divergences between what neighbours release, for mechanisms small enough to compute.

What is computed here needs no proof and no sampling: the probabilities of every output on both of two neighbouring
tables. The ``errata`` study holds printed claims against it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom

from epsilearn.audit.exact import minimiser_log_density
from epsilearn.calibration.kernel import PrintedRounds
from epsilearn.mechanisms.release import NoiseLaw

__all__ = ["noisy_choices", "objective_loss", "search_outputs"]

Array = NDArray[np.float64]
# A record of one feature, and its label.
Record = tuple[float, float]


def objective_loss(
    loss: Any, first: Sequence[Record], second: Sequence[Record], n_strength: float, rate: float
) -> float:
    """The largest log ratio of the densities of two neighbours' minimisers, noise b of density exp(-rate |b|) added.

    One feature, so the minimiser w of sum of losses + (n_strength / 2) w**2 + b w is a number, b a function of it, and
    its density that of b times the curvature. The ratio is evaluated on a fine grid, so it is attained: no smaller
    epsilon is true.
    """
    reach = 2 * len(first) / n_strength + 60 / (rate * n_strength)
    grid = np.concatenate([np.linspace(-reach, reach, 40_001), np.linspace(-5, 5, 40_001)])[:, None]
    law = NoiseLaw("k-norm", 1 / rate)

    def log_density(records: Sequence[Record]) -> Array:
        matrix, targets = (np.array(column) for column in zip(*records, strict=True))
        return minimiser_log_density(loss, matrix[:, None], targets, n_strength, law, grid)

    return float(np.abs(log_density(first) - log_density(second)).max())


def noisy_choices(gap: float, scale: float, choices: int) -> tuple[Array, Array]:
    """How often the better of two corners is chosen, on neighbours whose scores differ by ``gap`` in opposite ways.

    Each choice takes the least of two scores after Laplace noise of the given scale on both, independently of the
    other choices, so that the count is a binomial variate. Returned are logarithms of its probabilities.
    """
    size = abs(gap) / scale
    # The difference of two Laplace variates exceeds x with probability (2 + x) e^-x / 4.
    chance = 1 - (2 + size) / 4 * math.exp(-size)
    counts = np.arange(choices + 1)
    return binom.logpmf(counts, choices, chance), binom.logpmf(counts, choices, 1 - chance)


def search_outputs(constants: PrintedRounds, minimiser: tuple[float, float], angle: float, width: int = 60) -> Array:
    """The law of what Algorithm 3 of the kernel paper releases, as logarithms: a linear kernel, two candidates.

    The candidates are unit vectors at plus and minus the angle to the horizontal, mirrored; the released hypothesis is
    step * (i z1 + j z2), and the law of (i, j) is carried forward round by round. Each round chooses a candidate
    with weight exp(exponent * distance), and moves if the distance there, with Laplace noise of scale 1 / (2 rate),
    exceeds the tolerance.
    """
    across, along = math.cos(angle), math.sin(angle)
    candidates = np.array([[across, along], [-across, along]])
    counts = np.arange(-(width // 4), width)
    own, other = counts[:, None], counts[None, :]
    cosine = along**2 - across**2
    values = candidates @ np.array(minimiser)
    moves = own + cosine * other, other + cosine * own
    distances = [value - constants.step * move for value, move in zip(values, moves, strict=True)]
    first = expit(constants.exponent * (np.abs(distances[0]) - np.abs(distances[1])))
    shares = (first, 1 - first)
    law = np.zeros((len(counts), len(counts)))
    law[width // 4, width // 4] = 1.0
    # Probabilities of choosing a candidate and moving towards it, or away.
    ups, downs = (
        [s * _beyond(constants.tolerance - way * d, constants.rate) for s, d in zip(shares, distances, strict=True)]
        for way in (1, -1)
    )
    stays = 1 - sum(ups) - sum(downs)
    for _ in range(constants.count):
        moved = law * stays
        for axis in (0, 1):
            moved += np.roll(law * ups[axis], 1, axis) + np.roll(law * downs[axis], -1, axis)
        law = moved
    if law[0].sum() + law[-1].sum() + law[:, 0].sum() + law[:, -1].sum() > 1e-12:
        raise ValueError("the hypothesis can leave the grid; widen it")
    return np.log(np.maximum(law.ravel(), 1e-300))


def _beyond(distance: Array, rate: float) -> Array:
    """The probability that Laplace noise of scale 1 / (2 rate) exceeds a distance."""
    far = 0.5 * np.exp(-2 * rate * np.abs(distance))
    tail: Array = np.where(distance > 0, far, 1 - far)
    return tail
