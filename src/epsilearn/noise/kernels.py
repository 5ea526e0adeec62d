"""The fused float passes behind the door and the noisy maximum.

Plain IEEE additions and multiplications only (no fast-math, no library functions), so that every rounding
is accounted for: each result comes with a bound on its distance from the exact one, and whatever the bound
cannot decide is handed back. Fusing a product and a sum would only make the error smaller.
"""

from __future__ import annotations

import numpy as np

from epsilearn.compiled import compiled

__all__ = ["BLOCK", "CELLS", "CELL_BITS", "DEGREE", "FIRST_OCTAVE", "contenders", "round_to_grid"]

# The tables' layout. It stands here, where it is compiled in: numba's cache notices a change of this file only.
FIRST_OCTAVE, LAST_OCTAVE = 20, 62
CELL_BITS = 4
CELLS = (LAST_OCTAVE - FIRST_OCTAVE + 1) << CELL_BITS
DEGREE = 9

_SHIFT = 52 - CELL_BITS
_BASE = (1023 + FIRST_OCTAVE) << CELL_BITS
_ROWS = CELLS + 2
_BELOW_TOP = np.uint64((1 << 63) - 1)
_MANTISSA = np.int64((1 << 52) - 1)
_ONE = np.int64(1023 << 52)
_HALF_WIDTH = 2.0 ** -(CELL_BITS + 1)
_CELL_MASK = np.int64((1 << CELL_BITS) - 1)
_UNIT = 2.0**-52  # twice the unit roundoff
_UNDERFLOW = 2.0**-1000  # every quantity here is scaled to stay far above this
_SLACK = 1.0 + 2.0**-20  # covers the roundings of the error bound itself
_LARGEST = 2.0**51

BLOCK = 4096


@compiled
def _quantiles(words, coefficients, errors, tails, rows, quantile, error):  # pragma: no cover - compiled
    """Quantiles of a block of words, and how far each can be from the exact one."""
    count = len(words)
    for i in range(count):
        tails[i] = np.float64(np.int64(words[i] & _BELOW_TOP))
    bits = tails[:count].view(np.int64)
    for i in range(count):
        row = (bits[i] >> _SHIFT) - _BASE + 1
        row = min(max(row, 0), _ROWS - 1)
        rows[i] = row + np.int64(words[i] >> np.uint64(63)) * _ROWS
    for i in range(count):
        cell = (bits[i] >> _SHIFT) & _CELL_MASK
        bits[i] = (bits[i] & _MANTISSA) | _ONE
        # 1 + (2 cell + 1) / 32 has six digits: the difference is exact.
        tails[i] -= 1.0 + (2.0 * cell + 1.0) * _HALF_WIDTH
    for i in range(count):
        row, x = rows[i], tails[i]
        value = coefficients[row, DEGREE]
        for k in range(DEGREE - 1, -1, -1):
            value = value * x + coefficients[row, k]
        quantile[i] = value
        error[i] = errors[row]


@compiled
def round_to_grid(words, values, scale, scale_error, coefficients, errors, grid, out, doubtful):  # pragma: no cover
    """Round ``values + scale * quantile(words)`` to multiples of ``grid``, a power of two.

    Writes the indices whose rounding is not certain to ``doubtful`` and returns how many they are.
    """
    tails, quantile, error = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    rows = np.empty(BLOCK, np.int64)
    per_grid = 1.0 / grid
    open_count = 0
    for start in range(0, len(words), BLOCK):
        stop = min(start + BLOCK, len(words))
        _quantiles(words[start:stop], coefficients, errors, tails, rows, quantile, error)
        for i in range(stop - start):
            noise = scale * quantile[i]
            total = values[start + i] + noise
            bound = scale * error[i] + scale_error * (abs(quantile[i]) + error[i])
            bound = (bound + _UNIT * (abs(noise) + abs(total)) + _UNDERFLOW) * _SLACK
            steps = total * per_grid
            nearest = np.rint(steps)
            out[start + i] = nearest * grid + 0.0  # never -0.0: its sign would tell more than the grid
            certain = 0.5 - abs(steps - nearest) > bound * per_grid * _SLACK and abs(steps) < _LARGEST
            if not certain:
                doubtful[open_count] = start + i
                open_count += 1
    return open_count


@compiled
def contenders(
    words, scores, scale, coefficients, errors, offset, best, found, found_words, found_upper
):  # pragma: no cover - compiled
    """Scan a stretch of candidates for those whose noisy score may be the greatest.

    ``best`` is the greatest certain lower end so far; it and the number of contenders are returned.
    """
    tails, quantile, error = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    rows = np.empty(BLOCK, np.int64)
    count = 0
    for start in range(0, len(words), BLOCK):
        stop = min(start + BLOCK, len(words))
        _quantiles(words[start:stop], coefficients, errors, tails, rows, quantile, error)
        for i in range(stop - start):
            noise = scale * quantile[i]
            total = scores[start + i] + noise
            bound = (scale * error[i] + _UNIT * (abs(noise) + abs(total)) + _UNDERFLOW) * _SLACK
            best = max(best, total - bound - _UNIT * abs(total))
            quantile[i], error[i] = total, bound
        for i in range(stop - start):
            upper = quantile[i] + error[i] + _UNIT * abs(quantile[i])
            if not upper < best:
                found[count] = offset + start + i
                found_words[count] = words[start + i]
                found_upper[count] = upper
                count += 1
    return best, count
