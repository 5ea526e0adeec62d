"""The noisy maximum: the index the exact mechanism would choose, at the speed of floats.

Every noisy score is computed in floats with a rigorous interval. If the lower end of the best exceeds the
upper end of all others, the float answer is the exact answer. Otherwise the contenders' own bits are extended
(never redrawn) until one certainly wins.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from epsilearn.balls import ball
from epsilearn.noise.bits import BitSource, SeededBits
from epsilearn.noise.quantiles import GUMBEL, Quantile
from epsilearn.noise.variates import Uniform, Variate, refine

__all__ = ["noisy_argmax", "prepare"]

_STRETCH = 1 << 16
_SHORT = 64


def noisy_argmax(scores: NDArray[np.float64], scale: float, source: BitSource, quantile: Quantile = GUMBEL) -> int:
    """The index of the greatest ``score + scale * noise``, exactly."""
    if len(scores) <= _SHORT:
        indices, words = np.arange(len(scores)), source.words(len(scores))
    else:
        indices, words = _scan(np.ascontiguousarray(scores, np.float64), scale, source, quantile)
    noisy = {
        int(index): (float(scores[index]), Variate(quantile, source, Uniform(source, int(word))))
        for index, word in zip(indices, words, strict=True)
    }
    return _winner(noisy, scale)


def prepare(count: int, quantile: Quantile = GUMBEL) -> None:
    """Load and compile what `noisy_argmax` of so many scores will need."""
    if count > _SHORT:
        _scan(np.zeros(1), 1.0, SeededBits(0), quantile)


def _scan(
    scores: NDArray[np.float64], scale: float, source: BitSource, quantile: Quantile
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """The candidates that floats cannot rule out, and their random words."""
    from epsilearn.noise.kernels import contenders
    from epsilearn.noise.tables import table_of

    table = table_of(quantile)
    best = -np.inf
    found, words_found = np.empty(_STRETCH, np.int64), np.empty(_STRETCH, np.uint64)
    upper = np.empty(_STRETCH)
    kept: list[tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.float64]]] = []
    for offset in range(0, len(scores), _STRETCH):
        stretch = scores[offset : offset + _STRETCH]
        best, count = contenders(
            source.words(len(stretch)), stretch, scale, table.coefficients, table.errors,
            offset, best, found, words_found, upper,
        )  # fmt: skip
        kept.append((found[:count].copy(), words_found[:count].copy(), upper[:count].copy()))
    indices, words, uppers = (np.concatenate(column) for column in zip(*kept, strict=True))
    alive = ~(uppers < best)
    return indices[alive], words[alive]


def _winner(noisy: dict[int, tuple[float, Variate]], scale: float) -> int:
    standing = dict(noisy)

    def attempt(bits: int) -> int | None:
        totals = {index: ball(score) + ball(scale) * noise.ball(bits) for index, (score, noise) in standing.items()}
        finite = [total.lower() for total in totals.values() if total.is_finite()]
        if not finite:
            return None
        floor = max(finite)
        for index, total in totals.items():
            if total < floor:
                del standing[index]
        return next(iter(standing)) if len(standing) == 1 else None

    return refine(attempt)
