"""Numbers on their way to the door, exactly as given: nothing is rounded to a double unnoticed."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilearn.errors import InvalidInput
from epsilearn.noise.door import Number, check_values
from epsilearn.quiet import quietly

__all__ = ["Values", "as_values", "exactly"]

Values = Sequence[Number] | NDArray[np.float64]

_LARGEST = 1 << 1000
_DOUBLES = 1 << 53


@quietly()
def as_values(value: Any, name: str = "the value to be released") -> tuple[Values, tuple[int, ...]]:
    """The numbers and the shape to give them back in: doubles if nothing is lost, else integers and fractions."""
    array = _as_array(value, name)
    if array.size == 0:
        raise InvalidInput(f"{name} is empty; give at least one number")
    flat = array.ravel()
    if array.dtype.kind == "O":
        return _from_objects(flat.tolist(), name), array.shape
    if array.dtype.kind in "iu" and max(-int(flat.min()), int(flat.max())) > _DOUBLES:
        return [int(v) for v in flat], array.shape
    floats = np.ascontiguousarray(flat, np.float64)
    check_values(floats, name)
    return floats, array.shape


def _as_array(value: Any, name: str) -> NDArray[Any]:
    # Lists become objects first: numpy would round a large integer beside a float without a word.
    listed = isinstance(value, (list, tuple, int, float, Fraction, np.generic))
    try:
        array = np.array(value, dtype=object) if listed else np.asarray(value)
    except (TypeError, ValueError):
        array = np.empty(0, "U1")
    if array.dtype.kind not in "iufO" or array.dtype.itemsize > 8:
        raise InvalidInput(f"{name} must be a number or a rectangular array of numbers")
    return array


def _from_objects(numbers: list[Any], name: str) -> Values:
    known = [exactly(number, name) for number in numbers]
    if any(isinstance(n, Fraction) or (isinstance(n, int) and abs(n) > _DOUBLES) for n in known):
        return known
    floats = np.array(known, np.float64)
    check_values(floats, name)
    return floats


def exactly(number: Any, name: str) -> Number:
    """One number as it is: integers above 2**53 must not be rounded to doubles on the way in."""
    if isinstance(number, np.generic):
        number = number.item()
    if isinstance(number, bool) or not isinstance(number, (int, float, Fraction)):
        raise InvalidInput(f"{name} must be a number or a rectangular array of numbers")
    if not -_LARGEST <= number <= _LARGEST:
        raise InvalidInput(f"{name} is NaN, infinite or beyond 1e301; check the computation before it")
    return number
