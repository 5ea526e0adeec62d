"""The one exit: the exact mechanism's value, rounded to a public grid.

``value + scale * noise`` is a real number. What leaves the machine is that number rounded to a multiple of
``2**grid``, and nothing else: a function of the real mechanism's output alone, so the proof over the reals
carries over bit for bit. The grid comes from the noise's deviation, never from the data.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from flint import arb
from numpy.typing import NDArray

from epsilearn.balls import ball, precision
from epsilearn.errors import InvalidInput
from epsilearn.noise.bits import BitSource, SeededBits
from epsilearn.noise.quantiles import Quantile
from epsilearn.noise.variates import FIRST_BITS, Constant, RandomReal, Uniform, Variate, refine

__all__ = ["Number", "check_scale", "check_values", "grid_of", "prepare", "release", "round_exactly"]

Number = float | int | Fraction

GRID_BITS = 20
# Beyond these, grids and tails would leave the range of doubles.
_SMALLEST_SCALE, _LARGEST_SCALE = 2.0**-800, 2.0**800
_LARGEST_VALUE = 2.0**1000
# Below this many coordinates ball arithmetic is quick enough, and nothing needs compiling; fewer where it is compiled.
_SHORT, _SHORT_IF_COMPILED = 64, 4
# A process that has asked for so many numbers will ask for more, and had better compile.
_MANY = 1000
_compiled: set[str] = set()
_asked = 0


def check_scale(scale: float) -> float:
    """Refuse a noise scale that doubles cannot carry."""
    if not _SMALLEST_SCALE <= scale <= _LARGEST_SCALE:
        raise InvalidInput(
            f"the noise scale would be {scale:.3g}, outside [{_SMALLEST_SCALE:.0e}, {_LARGEST_SCALE:.0e}]: "
            "doubles cannot carry such noise; choose another budget, or rescale the data and its bounds"
        )
    return scale


def grid_of(deviation: float) -> int:
    """The exponent of the public grid: the noise's deviation times 2**-20, rounded down to a power of two.

    Examples
    --------
    >>> grid_of(1.0)
    -20
    """
    return math.frexp(check_scale(deviation))[1] - 1 - GRID_BITS


def release(
    values: Sequence[Number] | NDArray[np.float64],
    scale: RandomReal,
    quantile: Quantile,
    source: BitSource,
    grid: int,
) -> NDArray[np.float64]:
    """Every ``value + scale * noise`` rounded to a multiple of ``2**grid``; the noise is fresh and independent.

    ``scale`` may itself be random (the K-norm's common radius); it is one number for all coordinates. However it is
    computed, the same random bits give the same numbers.
    """
    words = source.words(len(values))
    interval = _as_interval(scale)  # now, because a random scale takes bits from the source
    short = _SHORT_IF_COMPILED if quantile.name in _compiled else _SHORT
    if len(values) <= short or not isinstance(values, np.ndarray):
        return np.array(
            [_one(value, scale, quantile, source, int(word), grid) for value, word in zip(values, words, strict=True)]
        )
    return _many(values, scale, interval, quantile, source, words, grid)


def prepare(count: int, quantile: Quantile, times: int = 1) -> None:
    """Load and compile what `release` of so many numbers will need, so that it cannot fail for want of it later."""
    global _asked
    _asked += count * times
    if count > _SHORT or _asked > _MANY:
        _many(np.zeros(1), Constant(1.0), (1.0, 0.0), quantile, SeededBits(0), np.full(1, 1 << 62, np.uint64), -20)
        _compiled.add(quantile.name)


def round_exactly(number: Callable[[int], arb], grid: int) -> float:
    """A random real number, given by ever tighter balls, rounded to a multiple of ``2**grid``."""

    def steps(bits: int) -> int | None:
        shifted = number(bits) * arb(2) ** -grid + arb(0.5)
        if not shifted.is_finite():
            return None
        whole = shifted.floor().unique_fmpz()
        return None if whole is None else int(whole)

    return _grid_point(refine(steps), grid)


def _one(value: Number, scale: RandomReal, quantile: Quantile, source: BitSource, word: int, grid: int) -> float:
    noise = Variate(quantile, source, Uniform(source, word))
    return round_exactly(lambda bits: ball(value) + scale.ball(bits) * noise.ball(bits), grid)


def _many(
    values: NDArray[np.float64],
    scale: RandomReal,
    interval: tuple[float, float],
    quantile: Quantile,
    source: BitSource,
    words: NDArray[np.uint64],
    grid: int,
) -> NDArray[np.float64]:
    from epsilearn.noise.kernels import round_to_grid
    from epsilearn.noise.tables import table_of

    table = table_of(quantile)
    middle, radius = interval
    out = np.empty(len(values))
    doubtful = np.empty(len(values), np.int64)
    count = round_to_grid(words, values, middle, radius, table.coefficients, table.errors, 2.0**grid, out, doubtful)
    for index in doubtful[:count]:
        out[index] = _one(float(values[index]), scale, quantile, source, int(words[index]), grid)
    return out


def _as_interval(scale: RandomReal) -> tuple[float, float]:
    """A double near the scale and a bound on their distance."""
    with precision(4 * FIRST_BITS):
        exact_scale = scale.ball(2 * FIRST_BITS)
        middle = float(exact_scale.mid())
        distance = float((exact_scale - ball(middle)).abs_upper())
        # Zero stays zero: the next double is subnormal, and those are slow.
        return middle, math.nextafter(distance, math.inf) if distance else 0.0


def _grid_point(steps: int, grid: int) -> float:
    """``steps * 2**grid`` as the nearest double; beyond the doubles, the last one."""
    try:
        return math.ldexp(float(steps), grid)
    except OverflowError:
        return sys.float_info.max if steps > 0 else -sys.float_info.max


def check_values(values: NDArray[np.float64], name: str = "a value to be released") -> None:
    """Refuse what the door cannot carry: NaN, infinities, magnitudes at the end of the doubles."""
    if not np.all(np.abs(values) <= _LARGEST_VALUE):
        raise InvalidInput(f"{name} is NaN, infinite or beyond 1e301; check the computation before it")
