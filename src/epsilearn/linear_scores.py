"""Scores of very many columns as two whole numbers each and two factors: what paths hand to private choices."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

__all__ = ["LinearScores"]

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class LinearScores:
    """``first * moved + second * still`` for every column that is present, exactly, and 0 for the others.

    Attributes
    ----------
    count : int
        How many columns there are, present or absent.
    present : array of int64
        The columns that are present, increasing.
    still : array of int64
        One number for each of them, below 2**62; the same along a whole path.
    touched : array of int64
        Which of those present (by position) have a ``moved`` other than zero; it only grows, or starts anew with
        another ``generation``.
    moved : array of int64
        Their numbers, below 2**62.
    first, second : Fraction
        The factors; ``second`` is the same along a whole path.
    generation : int
        Changes when ``touched`` is put into another order.
    """

    count: int
    present: Integers
    still: Integers
    touched: Integers
    moved: Integers
    first: Fraction
    second: Fraction
    generation: int
