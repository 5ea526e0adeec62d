"""Ball arithmetic, exact decimals and rounding against the user's favour.

A *ball* is python-flint's ``arb``: a midpoint and a radius that certainly contain the real number meant.
Everything that must hold for real numbers, and not just for floats that look like them, is computed here.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction

from flint import arb, ctx, fmpq, fmpz

__all__ = ["as_fraction", "ball", "decimal_down", "decimal_up", "exact", "precision", "round_down", "round_up"]

# flint keeps its working precision in one global. The lock keeps two threads from restoring each
# other's value; it is renewed in a forked child, where another thread may have held it for ever.
_lock = threading.RLock()


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Work with ``bits`` bits of precision inside the block, and leave the caller's setting as it was."""
    with _lock:
        before = ctx.prec
        ctx.prec = bits
        try:
            yield
        finally:
            ctx.prec = before


def exact(number: float) -> Fraction:
    """The decimal number a person wrote, as an exact fraction.

    A budget of 0.1 means one tenth, not the double nearest to it, so ten of them make 1 exactly.
    The shortest decimal that reads back as the same double is that number.

    Examples
    --------
    >>> 10 * exact(0.1) == 1
    True
    """
    if isinstance(number, Fraction):
        return number
    return Fraction(repr(float(number)))


def as_fraction(number: float | int | Fraction) -> Fraction:
    """Exactly this number: integers and fractions of any size, doubles, and numpy's scalars."""
    return Fraction(number) if isinstance(number, (int, float, Fraction)) else Fraction(number.item())


def ball(number: float | int | Fraction | arb) -> arb:
    """``number`` as a ball: exact for floats and integers, as tight as the precision for fractions."""
    if isinstance(number, arb):
        return number
    if isinstance(number, Fraction):
        return arb(fmpq(fmpz(number.numerator), fmpz(number.denominator)))
    if isinstance(number, int):
        return arb(fmpz(number))
    return arb(float(number))


def round_up(number: float | int | Fraction | arb) -> float:
    """The least double that is certainly not below ``number``, read as a double and as a decimal.

    Examples
    --------
    >>> from fractions import Fraction
    >>> round_up(Fraction(1, 3)) > Fraction(1, 3)
    True
    >>> round_up(2)
    2.0
    """
    bound = _bound(number, upper=True)
    nearest = _to_float(bound)
    while math.isfinite(nearest) and not (Fraction(nearest) >= bound and exact(nearest) >= bound):
        nearest = math.nextafter(nearest, math.inf)
    return nearest


def round_down(number: float | int | Fraction | arb) -> float:
    """The greatest double that is certainly not above ``number``, read as a double and as a decimal."""
    bound = _bound(number, upper=False)
    nearest = _to_float(bound)
    while math.isfinite(nearest) and not (Fraction(nearest) <= bound and exact(nearest) <= bound):
        nearest = math.nextafter(nearest, -math.inf)
    return nearest


def decimal_up(number: Fraction) -> float:
    """The least double whose decimal is not below ``number``: for budgets, which are decimals.

    Examples
    --------
    >>> decimal_up(exact(0.1) + exact(0.2))
    0.3
    """
    nearest = _to_float(number)
    return nearest if math.isinf(nearest) or exact(nearest) >= number else math.nextafter(nearest, math.inf)


def decimal_down(number: Fraction) -> float:
    """The greatest double whose decimal is not above ``number``."""
    nearest = _to_float(number)
    return nearest if exact(nearest) <= number else math.nextafter(nearest, -math.inf)


def _bound(number: float | int | Fraction | arb, *, upper: bool) -> Fraction:
    if not isinstance(number, arb):
        return Fraction(number)
    if not number.is_finite():
        raise ArithmeticError("a ball that should be finite is not: the precision was too low")
    end = number.upper() if upper else number.lower()
    mantissa, exponent = end.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def _to_float(bound: Fraction) -> float:
    try:
        return float(bound)
    except OverflowError:
        return math.inf if bound > 0 else -math.inf
