"""The fused float passes behind `epsilearn.noise.lottery`: exponentials, their sums, and where a point falls.

Plain IEEE additions, multiplications and divisions only, so that every rounding is accounted for. A column stands for
one ticket of weight exp(logit - shift), or for two of weights exp(logit - shift) and exp(-logit - shift); its logit is
``first * moved + second * still``, with two whole numbers of its own.
"""

from __future__ import annotations

import numpy as np

from epsilearn.compiled import compiled
from epsilearn.exponentials import exponentials

__all__ = ["BLOCK", "largest_logit", "locate", "sum_blocks", "touch", "weigh"]

BLOCK = 256  # columns whose weights are summed by themselves
_STRETCH = 1024


@compiled
def largest_logit(moved, still, first, second, signed):  # pragma: no cover - compiled
    """The largest logit of all tickets."""
    most = -np.inf
    for j in range(len(moved)):
        logit = first * moved[j] + second * still[j]
        most = max(most, abs(logit) if signed else logit)
    return most


@compiled
def weigh(moved, still, first, second, shift, signed, columns, weights, sums):  # pragma: no cover - compiled
    """Renew the weights of some columns and add them to their blocks' sums.

    Returns the largest logit and the largest |first * moved| + |second * still|.
    """
    most, size = -np.inf, 0.0
    logits, up, down = np.empty(_STRETCH), np.empty(_STRETCH), np.empty(_STRETCH)
    for start in range(0, len(columns), _STRETCH):
        count = min(_STRETCH, len(columns) - start)
        for i in range(count):
            j = columns[start + i]
            a, b = first * moved[j], second * still[j]
            logit = a + b
            most = max(most, abs(logit) if signed else logit)
            size = max(size, abs(a) + abs(b))
            # A logit far above the shift is caught by its size: the caller starts again with a larger shift.
            logits[i] = logit - shift
        exponentials(logits[:count], up)
        if signed and shift == 0.0:
            for i in range(count):
                down[i] = 1.0 / up[i]
        elif signed:
            for i in range(count):
                logits[i] = -2.0 * shift - logits[i]
            exponentials(logits[:count], down)
        else:
            down[:count] = 0.0
        for i in range(count):
            j = columns[start + i]
            weights[j] = up[i] + down[i]
            sums[j // BLOCK] += weights[j]
    return most, size


@compiled
def touch(columns, seen, weights, still_sums):  # pragma: no cover - compiled
    """Take columns seen for the first time out of the sums of those that stand still."""
    fresh = np.zeros(len(still_sums), np.bool_)
    for j in columns:
        if not seen[j]:
            seen[j] = True
            fresh[j // BLOCK] = True
    for block in range(len(still_sums)):
        if fresh[block]:
            total = 0.0
            for j in range(block * BLOCK, min((block + 1) * BLOCK, len(weights))):
                if not seen[j]:
                    total += weights[j]
            still_sums[block] = total


@compiled
def sum_blocks(sums):  # pragma: no cover - compiled
    """The total. What is lost in each addition is kept apart, so that millions of columns cost no accuracy."""
    high, low = 0.0, 0.0
    for block in range(len(sums)):
        total = high + sums[block]
        part = total - high
        low += (high - (total - part)) + (sums[block] - part)
        high = total
    return high + low


@compiled
def locate(weights, sums, point, margin):  # pragma: no cover - compiled
    """The column in which ``point`` falls, and how far into it; a column of -1 if ``margin`` leaves it open."""
    high, low = 0.0, 0.0
    block = 0
    while block < len(sums) - 1:
        total = high + sums[block]
        part = total - high
        lost = low + ((high - (total - part)) + (sums[block] - part))
        if point < total + lost:
            break
        high, low = total, lost
        block += 1
    rest = (point - high) - low
    if rest < margin and block > 0:
        return -1, 0.0
    start = block * BLOCK
    stop = min(start + BLOCK, len(weights))
    for j in range(start, stop):
        if rest < weights[j]:
            # The last column has nothing after it: its upper end is the total itself.
            last = j == len(weights) - 1
            if (rest < margin and j > 0) or (weights[j] - rest < margin and not last):
                return -1, 0.0
            return j, rest
        rest -= weights[j]
    return -1, 0.0
