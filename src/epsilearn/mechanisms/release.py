"""What a mechanism hands back, and the order in which it does things: promise, debit, noise, release."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from scipy import stats

from epsilearn.checks import check_probability
from epsilearn.guarantee import Guarantee
from epsilearn.mechanisms.tape import bits_of, charged
from epsilearn.noise.bits import BitSource
from epsilearn.noise.quantiles import LAPLACE, NORMAL, Quantile
from epsilearn.noise.variates import Constant, Gamma, RandomReal, Root
from epsilearn.quiet import quietly

__all__ = ["FAIR_BITS", "NoiseLaw", "Release", "Spender", "spending"]


FAIR_BITS = "the operating system's random bits are fair"


class Spender(Protocol):
    """What a mechanism needs of a ledger."""

    def spend(self, guarantee: Guarantee, purpose: str) -> Any:
        """A context that debits on entering, yields the stamped guarantee, and marks delivery on leaving."""


@dataclass(frozen=True)
class NoiseLaw:
    """The distribution of the noise in each released number. It is public.

    Attributes
    ----------
    kind : {"laplace", "k-norm", "gaussian", "gumbel"}
        The family; "gumbel" is the exponential mechanism's, on the scores it chooses by.
    scale : float
        Its scale.
    dimension : int
        How many numbers were released together.
    step : float
        The grid the result was rounded to: 1 for counts, next to nothing otherwise.
    """

    kind: str
    scale: float
    dimension: int = 1
    step: float = 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise in one coordinate."""
        factor = {
            "laplace": np.sqrt(2),
            "gaussian": 1.0,
            "k-norm": np.sqrt(self.dimension + 1),
            "gumbel": np.pi / np.sqrt(6),
        }[self.kind]
        return float(self.scale * factor)

    def half_width(self, confidence: float) -> float:
        """How far one coordinate's noise strays with probability at most ``1 - confidence``.

        Examples
        --------
        >>> round(NoiseLaw("laplace", 10.0).half_width(0.95), 1)
        30.0
        """
        check_probability("confidence", confidence)
        if self.kind == "gumbel":
            raise TypeError("a choice has no noise of its own; only released numbers have an interval")
        if self.kind == "laplace":
            width = stats.laplace.isf((1 - confidence) / 2, scale=self.scale)
        elif self.kind == "gaussian":
            width = stats.norm.isf((1 - confidence) / 2, scale=self.scale)
        else:
            # A coordinate is at most the norm, which is Gamma distributed.
            width = stats.gamma.isf(1 - confidence, self.dimension, scale=self.scale)
        return float(width + self.step / 2)

    @property
    def quantile(self) -> Quantile:
        """The distribution that is multiplied by `radius`."""
        return LAPLACE if self.kind == "laplace" else NORMAL

    def radius(self, source: BitSource) -> RandomReal:
        """What each draw is multiplied by: the scale, or for the K-norm one random length for all coordinates."""
        if self.kind != "k-norm":
            return Constant(self.scale)
        # sqrt(2 V) times a normal vector, V ~ Gamma((d + 1) / 2), has the K-norm's density: see docs/theory/door.md.
        return Root(self.scale, Gamma(Fraction(self.dimension + 1, 2), source))

    def times(self, factor: float) -> NoiseLaw:
        return replace(self, scale=self.scale * factor, step=self.step * factor)


@dataclass(frozen=True)
class Release:
    """A private value, what it promises, and how noisy it is.

    Attributes
    ----------
    value : float, int or ndarray
        What may leave the machine.
    guarantee : Guarantee
        The promise.
    noise : NoiseLaw or None
        The law of the added noise, where noise was added to numbers.
    """

    value: Any
    guarantee: Guarantee
    noise: NoiseLaw | None = None

    def interval(self, confidence: float = 0.95) -> tuple[Any, Any]:
        """A range that holds each true number with the given confidence. Computed from public noise only.

        Examples
        --------
        >>> import epsilearn
        >>> low, high = epsilearn.laplace(100.0, sensitivity=1, epsilon=1.0).interval(0.95)
        >>> round(high - low, 2)
        5.99
        """
        if self.noise is None:
            raise TypeError("a choice has no noise of its own; only released numbers have an interval")
        half = self.noise.half_width(confidence)
        return self.value - half, self.value + half


@contextmanager
def spending(
    guarantee: Guarantee, ledger: Spender | None, purpose: str, random_state: int | BitSource | None
) -> Iterator[tuple[BitSource, Guarantee]]:
    """Debit first, then hand out the bits; a seeded source voids the promise, and a ledger refuses that.

    Inside, nothing raises or warns, whatever the caller told numpy or Python: that it did would tell of the records.
    """
    source = bits_of(random_state)
    if source.seeded:
        guarantee = guarantee.void("seeded")
    with ExitStack() as stack:
        stamped = guarantee if ledger is None else stack.enter_context(ledger.spend(guarantee, purpose))
        stack.enter_context(quietly())
        yield stack.enter_context(charged(source, stamped, purpose)), stamped
