"""exp for arrays, from additions and multiplications alone.

No library function and no fast-math: the error is bounded by counting roundings, and a number's exponential depends on
that number and nothing else: not on its place in the array, nor on the machine.
"""

from __future__ import annotations

import numpy as np

from epsilearn.compiled import compiled

__all__ = ["EXPONENTIAL_ERROR", "exponentials", "exponentials_near"]

# Relative error of `exponentials`: a dozen roundings (most of them of terms far below 1), the remainder 0.35**14 / 14!
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
def exponentials_near(x, out):  # pragma: no cover - compiled
    """exp of each number within `EXPONENTIAL_ERROR`; none may be beyond 700 from 0. ``out`` may not be ``x``."""
    scale = np.empty(len(x))
    bits = scale.view(np.int64)
    for i in range(len(x)):
        rounded = x[i] * _LOG2_E + _ROUNDER
        k = rounded - _ROUNDER
        scale[i] = rounded
        r = (x[i] - k * _LOG_2) - k * _LOG_2_REST
        r2 = r * r
        r4 = r2 * r2
        # exp's series to the 13th power, in pairs of pairs: short chains keep the processor busy.
        first = (1.0 + r) + r2 * (0.5 + r * (1.0 / 6.0))
        second = (1.0 / 24.0 + r * (1.0 / 120.0)) + r2 * (1.0 / 720.0 + r * (1.0 / 5040.0))
        third = (1.0 / 40320.0 + r * (1.0 / 362880.0)) + r2 * (1.0 / 3628800.0 + r * (1.0 / 39916800.0))
        fourth = 1.0 / 479001600.0 + r * (1.0 / 6227020800.0)
        out[i] = first + r4 * (second + r4 * (third + r4 * fourth))
    for i in range(len(x)):
        bits[i] = (bits[i] + _BIAS) << _EXPONENT
    for i in range(len(x)):
        out[i] *= scale[i]


@compiled
def exponentials(x, out):  # pragma: no cover - compiled
    """The same for any numbers; those beyond 700 from 0 count as 700 from it."""
    near = np.empty(len(x))
    for i in range(len(x)):
        near[i] = min(max(x[i], -_FARTHEST), _FARTHEST)
    exponentials_near(near, out)
