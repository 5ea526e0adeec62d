"""Sums of very many arrays: whole numbers exactly, doubles as if in twice the precision.

How many arrays are added, in which order and in which groups then hardly matters: parts of a table can be summed
wherever they are, and a table of a million million rows has the rounding of one of a few thousand.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Total", "roundings"]

_UNIT = 2.0**-53


def roundings(addends: int) -> float:
    """How often an addend of such a sum is rounded, in effect: the sum errs by at most so many units of sum |x|.

    With s and e the sum and the exact error of each addition in doubles, what is kept is s and the sum of all e, which
    are at most u sum |x| each and are added in doubles, in any order: their sum errs by at most (N u)**2 sum |x|, and
    adding it to s in the end by u |sum x|. Ogita, Rump and Oishi (2005) call it Sum2.

    Examples
    --------
    >>> roundings(1000) < 1.1, roundings(2**30) < 140
    (True, True)
    """
    return 1.01 * (1 + _UNIT * float(addends) ** 2)


class Total:
    """A running sum of arrays of one shape and kind. Its own arrays are never changed in place.

    Examples
    --------
    >>> total = Total()
    >>> for number in (1.0, 1e100, 1.0, -1e100):
    ...     total.add(np.array([number]))
    >>> total.value.tolist()
    [2.0]
    """

    def __init__(self) -> None:
        self._sum: Any = None
        self._rest: Any = None

    @property
    def value(self) -> NDArray[Any]:
        """The sum, rounded once more where it is not of whole numbers."""
        assert self._sum is not None
        found: NDArray[Any] = self._sum if self._rest is None else self._sum + self._rest
        return found

    def add(self, addend: Any) -> None:
        """Add an array: of doubles, of int64, or of Python's own whole numbers."""
        array = np.asarray(addend)
        if self._sum is None:
            self._sum = array.copy()
            self._rest = np.zeros_like(array) if array.dtype.kind == "f" else None
            return
        if self._rest is None:
            self._sum = self._sum + array
            return
        total = self._sum + array
        # What the rounded sum lacks, exactly: whatever of it came from either side.
        part = total - self._sum
        self._rest = self._rest + ((self._sum - (total - part)) + (array - part))
        self._sum = total

    def merged(self, other: Total) -> Total:
        """A new total of all that both hold.

        Neither is touched: an engine that runs an addition again, after a failure, must find what it found before.
        """
        both = copy.copy(self)
        if other._sum is not None:
            both.add(other._sum)
            if both._rest is not None:
                both._rest = both._rest + other._rest
        return both
