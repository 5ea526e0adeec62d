"""The distributions of noise, each as its quantile function seen from either end.

``at(tail, upper)`` is the point that leaves probability ``tail`` above it (``upper``) or below it. Written in
the distance to the nearer end, nothing cancels however far out the point lies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flint import arb

__all__ = ["EXPONENTIAL", "GUMBEL", "LAPLACE", "NORMAL", "Quantile"]


@dataclass(frozen=True)
class Quantile:
    """A distribution on the line, by the quantile function of each half."""

    name: str
    upper: Callable[[arb], arb]
    lower: Callable[[arb], arb]
    symmetric: bool = False

    def at(self, tail: arb, upper: bool) -> arb:
        return self.upper(tail) if upper else self.lower(tail)


def _laplace(tail: arb) -> arb:
    return -(2 * tail).log()


def _normal(tail: arb) -> arb:
    return (2 * tail).erfcinv() * arb(2).sqrt()


LAPLACE = Quantile("laplace", _laplace, lambda tail: -_laplace(tail), symmetric=True)
NORMAL = Quantile("normal", _normal, lambda tail: -_normal(tail), symmetric=True)
GUMBEL = Quantile("gumbel", lambda tail: -(-(-tail).log1p()).log(), lambda tail: -(-tail.log()).log())
EXPONENTIAL = Quantile("exponential", lambda tail: -tail.log(), lambda tail: -(-tail).log1p())
