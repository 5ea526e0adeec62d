"""exp for arrays, from additions and multiplications alone.

No library function and no fast-math: the error is bounded by counting roundings, and a number's exponential depends on
that number and nothing else: not on its place in the array, nor on the machine.
"""

from __future__ import annotations

import numpy as np

from epsilearn.compiled import compiled

__all__ = ["EXPONENTIAL_ERROR", "exponentials"]

# Relative error of `exponentials`: 14 Horner steps (most of them on terms far below 1), the remainder 0.35**14 / 14!
# and the reduction make 2**-50 at most.
EXPONENTIAL_ERROR = 2.0**-48

_FARTHEST = 700.0
_LOG2_E = 1.4426950408889634
# log 2 in two parts; the first ends in 21 zeros, so its product with a whole number below 2**21 is exact.
_LOG_2 = 0.6931471803691238
_LOG_2_REST = 1.9082149292705877e-10
# Added to a number below 2**51 it leaves the nearest whole number in the last digits.
_ROUNDER = 1.5 * 2.0**52
_BIAS = np.int64(1023)
_EXPONENT = np.int64(52)


@compiled
def exponentials(x, out):  # pragma: no cover - compiled
    """exp of each number within `EXPONENTIAL_ERROR`, those beyond 700 from 0 as if they were 700 from it."""
    whole = np.empty(len(x))
    for i in range(len(x)):
        whole[i] = min(max(x[i], -_FARTHEST), _FARTHEST) * _LOG2_E + _ROUNDER
    bits = whole.view(np.int64)
    for i in range(len(x)):
        k = whole[i] - _ROUNDER
        r = (min(max(x[i], -_FARTHEST), _FARTHEST) - k * _LOG_2) - k * _LOG_2_REST
        value = 1.0 / 6227020800.0
        value = value * r + 1.0 / 479001600.0
        value = value * r + 1.0 / 39916800.0
        value = value * r + 1.0 / 3628800.0
        value = value * r + 1.0 / 362880.0
        value = value * r + 1.0 / 40320.0
        value = value * r + 1.0 / 5040.0
        value = value * r + 1.0 / 720.0
        value = value * r + 1.0 / 120.0
        value = value * r + 1.0 / 24.0
        value = value * r + 1.0 / 6.0
        value = value * r + 0.5
        value = value * r + 1.0
        out[i] = value * r + 1.0
    for i in range(len(x)):
        bits[i] = (bits[i] + _BIAS) << _EXPONENT
    for i in range(len(x)):
        out[i] *= whole[i]
