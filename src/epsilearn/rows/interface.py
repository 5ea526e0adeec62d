"""What every home of records offers: sums over all of them, each with a rigorous bound on its rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from epsilearn.losses import Loss
from epsilearn.rows.bounds import Bounds

__all__ = ["Moments", "Rows", "Sums"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sums:
    """Sums over all records, divided by their number.

    Attributes
    ----------
    value : float
        The mean loss.
    gradient : array of shape (d * outputs,)
        The mean gradient, the loss's outputs one after the other.
    error : float
        A bound on the norm of the gradient's rounding error, over every possible set of records.
    """

    value: float
    gradient: Array
    error: float


@dataclass(frozen=True)
class Moments:
    """Second moments, as sums over all records.

    Attributes
    ----------
    gram : array of shape (d, d)
        The sum of x x'.
    cross : array of shape (d,)
        The sum of x y.
    error : float
        A bound on the rounding, relative to n R**2 (in the Frobenius norm) and n R max|y| respectively.
    """

    gram: Array
    cross: Array
    error: float


class Rows(Protocol):
    """Records clipped to public bounds, the intercept's column included.

    Attributes
    ----------
    n, d : int
        How many records and columns. Public.
    norm : float
        The bound on a row's norm.
    bounds : Bounds
        The same in parts: the features' bound, and the intercept's constant.
    dense : bool
        Whether a Hessian matrix can be had, or only its products.
    elsewhere : bool
        Whether every look at them is a pass that is dear.
    """

    n: int
    d: int
    norm: float

    @property
    def bounds(self) -> Bounds: ...

    @property
    def dense(self) -> bool: ...

    @property
    def elsewhere(self) -> bool: ...

    def is_at(self, coef: Array) -> bool:
        """Whether this was the ``coef`` of the last `sums`."""

    def sums(self, loss: Loss, coef: Array, hessian: bool = False) -> Sums:
        """Value and gradient at ``coef``; ``hessian`` says that `hessian` comes next: one pass can serve both."""

    def gradient(self, loss: Loss, coef: Array) -> Array:
        """The mean gradient alone; `rounding` bounds its error too."""

    def product(self, vector: Array) -> Array:
        """The mean Hessian, at the ``coef`` of the last `sums`, times a vector."""

    def hessian(self) -> Array:
        """The mean Hessian at the ``coef`` of the last `sums`, where ``dense``; with several outputs its mean.

        For steering a solver; carries no bound on its rounding.
        """

    @property
    def rounding(self) -> Callable[[Loss, float], float]:
        """The bound on the gradient's rounding error at any point of at most this norm. Public, without the records."""

    def moments(self) -> Moments:
        """The sums of x x' and x y, where ``dense``."""

    def total(self, units: int) -> NDArray[np.int64]:
        """The sum of the rows without the intercept, each rounded to whole units, of which the bound is so many."""

    def spread(self, centre: Array, units: int) -> int:
        """The sum of the squared distances from ``centre``, as shares of the bound's square, cut at 1, in units."""

    def moved(self, centre: Array, radius: float, intercept: float) -> Rows:
        """The rows moved by ``centre`` and scaled to a bound of 1, both in shares of their bound."""

    def sample(self) -> Rows | None:
        """Some of the rows, in memory and few enough to be summed quickly; None if all are few. For a start only."""
