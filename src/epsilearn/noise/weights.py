"""The fused float passes behind `epsilearn.noise.lottery`: weights, their sums by blocks, and where a point falls.

Plain IEEE additions, multiplications and divisions only, so that every rounding is accounted for. A column stands for
one ticket of weight exp(logit - shift), or for two of weights exp(logit - shift) and exp(-logit - shift); its logit is
``first * moved + second * still``, with two whole numbers of its own. Blocks are stretches of the columns that are
present; the absent ones between them have logit 0 and are never looked at one by one.
"""

from __future__ import annotations

import numpy as np

from epsilearn.compiled import compiled
from epsilearn.exponentials import exponentials, exponentials_near

__all__ = ["BLOCK", "leave_out", "locate", "sum_blocks", "sum_still", "weigh"]

BLOCK = 64  # present columns whose weights are summed by themselves

_STRETCH = 1024
_NEAR = 690.0
_SIZE_BITS = np.int64((1 << 63) - 1)
_HALF_BITS = np.int64(1022 << 52)  # a half, as the whole number its bits make


@compiled
def _small(logits):  # pragma: no cover - compiled
    """Whether all are below 1/2 in size; exponents are compared as whole numbers, many at a time."""
    bits = logits.view(np.int64)
    largest = np.int64(0)
    for i in range(len(bits)):
        largest = max(largest, bits[i] & _SIZE_BITS)
    return largest < _HALF_BITS


@compiled
def _pairs(x, out):  # pragma: no cover - compiled
    """exp(x) + exp(-x) below 1/2 by its series to the 14th power; what is left is below 2**-60 of it."""
    for i in range(len(x)):
        y = x[i] * x[i]
        rest = 1.0 + y * (1.0 / 182.0)
        rest = 1.0 + y * (1.0 / 132.0) * rest
        rest = 1.0 + y * (1.0 / 90.0) * rest
        rest = 1.0 + y * (1.0 / 56.0) * rest
        rest = 1.0 + y * (1.0 / 30.0) * rest
        rest = 1.0 + y * (1.0 / 12.0) * rest
        out[i] = 2.0 + y * rest


@compiled
def weigh(moved, still, first, second, shift, signed, weights):  # pragma: no cover - compiled
    """The columns' weights. Returns a bound on |first * moved| + |second * still|.

    Logits far above the shift are cut off; the total then shows it.
    """
    most_moved, most_still = np.int64(0), np.int64(0)
    for i in range(len(weights)):
        most_moved = max(most_moved, abs(moved[i]))
        most_still = max(most_still, abs(still[i]))
    size = abs(first) * most_moved + abs(second) * most_still
    near = shift == 0.0 and size < _NEAR
    logits, down = np.empty(_STRETCH), np.empty(_STRETCH)
    for start in range(0, len(weights), _STRETCH):
        count = min(_STRETCH, len(weights) - start)
        up = weights[start : start + count]
        for i in range(count):
            logits[i] = (first * moved[start + i] + second * still[start + i]) - shift
        if near and signed and _small(logits[:count]):
            _pairs(logits[:count], up)
            continue
        if near:
            exponentials_near(logits[:count], up)
            if signed:
                for i in range(count):
                    up[i] += 1.0 / up[i]
            continue
        exponentials(logits[:count], up)
        if signed:
            for i in range(count):
                logits[i] = -2.0 * shift - logits[i]
            exponentials(logits[:count], down)
            for i in range(count):
                up[i] += down[i]
    return size


@compiled
def leave_out(columns, place, start, weights, sums):  # pragma: no cover - compiled
    """Give columns touched for the first time a place, and take them out of the sums of those that stand still."""
    fresh = np.zeros(len(sums), np.bool_)
    for i in range(start, len(columns)):
        place[columns[i]] = i
        fresh[columns[i] // BLOCK] = True
    for block in range(len(sums)):
        if fresh[block]:
            total = 0.0
            for j in range(block * BLOCK, min((block + 1) * BLOCK, len(weights))):
                if place[j] < 0:
                    total += weights[j]
            sums[block] = total


@compiled
def sum_still(weights, sums):  # pragma: no cover - compiled
    """Each block's sum of weights."""
    for block in range(len(sums)):
        total = 0.0
        for j in range(block * BLOCK, min((block + 1) * BLOCK, len(weights))):
            total += weights[j]
        sums[block] = total


@compiled
def sum_blocks(columns, ordered, weights, sums):  # pragma: no cover - compiled
    """Add touched columns' weights to their blocks, and then all blocks: the total.

    What is lost in each of the last additions is kept apart, so that millions of columns cost no accuracy.
    """
    if not ordered:
        for i in range(len(columns)):
            sums[columns[i] // BLOCK] += weights[i]
    elif len(columns) > 0:
        # Neighbours mostly share a block: its sum is held back until it is complete.
        block, part_of_block = columns[0] // BLOCK, 0.0
        for i in range(len(columns)):
            here = columns[i] // BLOCK
            if here != block:
                sums[block] += part_of_block
                block, part_of_block = here, 0.0
            part_of_block += weights[i]
        sums[block] += part_of_block
    high, low = 0.0, 0.0
    for each in sums:
        total = high + each
        part = total - high
        low += (high - (total - part)) + (each - part)
        high = total
    return high + low


@compiled
def locate(sums, still_weights, place, weights, present, columns, absent, point, margin):  # pragma: no cover - compiled
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
    # A block begins at its first column, the first of all at column 0; it ends where the next one begins.
    column = np.int64(present[block * BLOCK]) if block > 0 else np.int64(0)
    stop = min((block + 1) * BLOCK, len(present))
    for j in range(block * BLOCK, stop + 1):
        end = present[j] if j < len(present) else columns
        gap = end - column
        if gap > 0 and rest < gap * absent:
            step = min(np.int64(rest / absent), gap - 1)
            rest -= step * absent
            found = column + step
            if (rest < margin and found > 0) or (absent - rest < margin and found < columns - 1):
                return -1, 0.0
            return found, rest
        rest -= gap * absent
        if j == stop:
            break
        own = weights[place[j]] if place[j] >= 0 else still_weights[j]
        if rest < own:
            if (rest < margin and present[j] > 0) or (own - rest < margin and present[j] < columns - 1):
                return -1, 0.0
            return present[j], rest
        rest -= own
        column = present[j] + 1
    return -1, 0.0
