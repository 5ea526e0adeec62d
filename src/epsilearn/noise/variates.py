"""Random real numbers, known to as many digits as anyone has asked for.

A variate is a function of infinitely many fair bits. It draws only those it needs: ``ball(bits)`` returns
a ball that certainly contains its value, computed from the first ``bits`` random bits, and asking for more
bits only ever cuts the same value finer. Nothing is redrawn.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Protocol, TypeVar

from flint import arb, fmpz

from epsilearn.balls import ball, precision
from epsilearn.errors import EntropyError
from epsilearn.noise.bits import BitSource
from epsilearn.noise.quantiles import NORMAL, Quantile

__all__ = ["Constant", "Gamma", "RandomReal", "Root", "Uniform", "Variate", "decide", "refine"]

Answer = TypeVar("Answer")

FIRST_BITS = 64
# Fair bits leave a comparison open after this many draws with probability 2**-16000: the source is broken.
MOST_BITS = 1 << 14


class RandomReal(Protocol):
    """A real number that can be enclosed as tightly as wanted."""

    def ball(self, bits: int) -> arb:
        """A ball around the value, from the first ``bits`` random bits of each ingredient."""


class Uniform:
    """A uniform variate on [0, 1], as a growing prefix of its binary digits."""

    __slots__ = ("_known", "_prefix", "_source")

    def __init__(self, source: BitSource, prefix: int | None = None, known: int = FIRST_BITS) -> None:
        self._source = source
        self._known = known
        self._prefix = source.integer(known) if prefix is None else prefix

    def digits(self, bits: int) -> tuple[int, int]:
        """The known digits as an integer, and how many they are: at least ``bits``."""
        if bits > self._known:
            more = bits - self._known
            self._prefix = (self._prefix << more) | self._source.integer(more)
            self._known = bits
        return self._prefix, self._known

    def ball(self, bits: int) -> arb:
        """A ball around the variate, from at least its first ``bits`` digits."""
        digits, known = self.digits(bits)
        return arb((fmpz(2 * digits + 1), -known - 1), (fmpz(1), -known - 1))

    def tail(self, bits: int) -> tuple[arb, bool]:
        """The distance to the nearer end of [0, 1], as a ball, and whether that end is the upper one."""
        digits, known = self.digits(bits)
        upper = bool(digits >> (known - 1))
        rest = digits & ((1 << (known - 1)) - 1)
        # The open digits can be anything from 000… to 111…: midpoint rest + 1/2, radius 1/2.
        return arb((fmpz(2 * rest + 1), -known - 1), (fmpz(1), -known - 1)), upper


class Variate:
    """One draw from a distribution given by its quantile function."""

    __slots__ = ("_quantile", "_uniform")

    def __init__(self, quantile: Quantile, source: BitSource, uniform: Uniform | None = None) -> None:
        self._quantile = quantile
        self._uniform = uniform or Uniform(source)

    def digits(self) -> tuple[int, int]:
        """The random digits drawn so far, as an integer, and how many they are."""
        return self._uniform.digits(0)

    def ball(self, bits: int) -> arb:
        tail, upper = self._uniform.tail(bits)
        return self._quantile.at(tail, upper)


class Constant:
    """A number that is not random, for places that take a random one."""

    __slots__ = ("_number",)

    def __init__(self, number: float | int | Fraction) -> None:
        self._number = number

    def ball(self, bits: int) -> arb:  # noqa: ARG002 - it is known already
        return ball(self._number)


class Root:
    """``factor * sqrt(2 * square)``: turns a Gamma variate into the K-norm's common radius."""

    __slots__ = ("_factor", "_square")

    def __init__(self, factor: float, square: RandomReal) -> None:
        self._factor = factor
        self._square = square

    def ball(self, bits: int) -> arb:
        return ball(self._factor) * (2 * self._square.ball(bits)).sqrt()


class Gamma:
    """One draw of Gamma(shape, 1), shape at least 1.

    Marsaglia and Tsang (2000): with c = shape - 1/3, x normal, v = (1 + x / sqrt(9 c))**3 and u uniform,
    accept c v if v > 0 and log u < x**2 / 2 + c - c v + c log v. Exact over the reals; here every comparison
    is decided in ball arithmetic, so it is exact on this machine too.
    """

    __slots__ = ("_normal", "_offset")

    def __init__(self, shape: Fraction, source: BitSource) -> None:
        if shape < 1:
            raise ValueError("the sampler needs a shape of at least 1")
        self._offset = shape - Fraction(1, 3)
        while True:
            self._normal = Variate(NORMAL, source)
            if decide(self._cube_root) and self._accepts(Uniform(source)):
                return

    def _accepts(self, uniform: Uniform) -> bool:
        def slack(bits: int) -> arb:
            tail, upper = uniform.tail(bits)
            log_uniform = (-tail).log1p() if upper else tail.log()
            c, x = ball(self._offset), self._normal.ball(bits)
            v = self._cube_root(bits) ** 3
            return x * x / 2 + c * (1 - v + v.log()) - log_uniform

        return decide(slack)

    def _cube_root(self, bits: int) -> arb:
        return 1 + self._normal.ball(bits) / (9 * ball(self._offset)).sqrt()

    def ball(self, bits: int) -> arb:
        return ball(self._offset) * self._cube_root(bits) ** 3


def refine(attempt: Callable[[int], Answer | None]) -> Answer:
    """Call ``attempt(bits)`` with more and more bits until it answers."""
    bits = FIRST_BITS
    while bits <= MOST_BITS:
        # Ball radii come from the random bits, not from rounding: work well below the last of them.
        with precision(bits + 64):
            answer = attempt(bits)
        if answer is not None:
            return answer
        bits *= 2
    raise EntropyError(
        f"{MOST_BITS} random bits did not decide a rounding, which fair bits do not do; nothing was released"
    )


def decide(difference: Callable[[int], arb]) -> bool:
    """Whether a random real number is positive, cutting it finer until that is certain."""

    def sign(bits: int) -> bool | None:
        value = difference(bits)
        if value > 0:
            return True
        return False if value < 0 else None

    return refine(sign)
