"""Quantile functions as piecewise polynomials with a proven error, for millions of draws.

A 64-bit word is one bit for the half of the distribution and a 63-bit integer m for the distance to that
half's end, tail = m / 2**64. Each octave 2**e <= m < 2**(e+1) is cut into 16 cells, and in each cell the
quantile function is a polynomial in x = m / 2**e - (centre of the cell). The stored error of a cell covers,
for every word in it and whatever the bits after the 64th turn out to be:

- the Taylor remainder and the rounding of the coefficients to doubles,
- every rounding of Horner's rule,
- the rounding of m to a double, and the 2**-64 that the word leaves open.

All of it is bounded in ball arithmetic by `certify`, never measured. Words so close to the end that the open
bits matter (m < 2**20) have no finite error and are left to ball arithmetic.

``python -m epsilearn.noise.tables`` writes the file; the tests certify it anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from flint import arb, arb_series, ctx
from numpy.typing import NDArray

from epsilearn.balls import ball, precision, round_up
from epsilearn.noise.kernels import CELL_BITS, CELLS, DEGREE, FIRST_OCTAVE
from epsilearn.noise.quantiles import GUMBEL, LAPLACE, NORMAL, Quantile

__all__ = ["SERIES", "Table", "certify", "table_of"]

_TERMS = 24
_HALF_WIDTH = 2.0 ** -(CELL_BITS + 1)
# A double in a cell may stand for a word just outside it: conversion (2**-53) and open bits (2**-20).
_REACH = _HALF_WIDTH + 2.0**-19
_PATH = Path(__file__).with_name("tables.npz")


@dataclass(frozen=True)
class Table:
    """Coefficients and errors; row 0 and the last row of each half are sentinels with infinite error."""

    coefficients: NDArray[np.float64]
    errors: NDArray[np.float64]


Series = Callable[[arb_series], arb_series]


def _gumbel_upper(tail: arb_series) -> arb_series:
    return -(-(1 - tail).log()).log()


def _normal_series(tail: arb_series) -> arb_series:
    """The inverse of the normal tail probability, as the reversion of its Taylor series."""
    root = arb(2).sqrt()
    constant, step = tail.coeffs()[0], tail.coeffs()[1]
    start = (2 * constant).erfcinv() * root
    forward = (arb_series([start, 1], prec=_TERMS + 1) / root).erfc() / 2
    shifted = arb_series([0, *forward.coeffs()[1:]], prec=_TERMS + 1)
    inverse = shifted.reversion().coeffs()
    return arb_series([start, *(c * step**k for k, c in enumerate(inverse) if k)], prec=_TERMS + 1)


# The halves to tabulate. Both halves of a symmetric distribution are one.
SERIES: dict[str, Series] = {
    "laplace_upper": lambda tail: -(2 * tail).log(),
    "normal_upper": _normal_series,
    "gumbel_upper": _gumbel_upper,
    "gumbel_lower": lambda tail: -(-tail.log()).log(),
}


def _expand(series: Series, octave: int, centre: arb) -> list[arb]:
    """Taylor coefficients, in x, of the quantile at tail = 2**(octave - 64) * (centre + x)."""
    unit, before = arb(2) ** (octave - 64), ctx.cap
    ctx.cap = _TERMS + 1  # flint cuts every series off at this global
    try:
        found = series(arb_series([centre * unit, unit], prec=_TERMS + 1)).coeffs()
    finally:
        ctx.cap = before
    if len(found) != _TERMS + 1:
        raise ArithmeticError(f"{_TERMS + 1} Taylor coefficients were asked for, {len(found)} came")
    return list(found)


def _centre(cell: int) -> float:
    return 1.0 + (2 * cell + 1) * _HALF_WIDTH


def _coefficients(series: Series, octave: int, cell: int) -> list[float]:
    return [float(c.mid()) for c in _expand(series, octave, arb(_centre(cell)))[: DEGREE + 1]]


def certify(series: Series, octave: int, cell: int, coefficients: NDArray[np.float64]) -> float:
    """A bound on |polynomial in floats - quantile| over every word of the cell, open bits included."""
    with precision(256):
        reach = arb(_REACH)
        exactly = _expand(series, octave, arb(_centre(cell)))
        nearby = _expand(series, octave, arb(_centre(cell), _REACH))
        approximation = sum(
            (abs(exactly[k] - ball(float(coefficients[k])) if k <= DEGREE else exactly[k]) * reach**k)
            for k in range(_TERMS)
        )
        remainder = abs(nearby[_TERMS]) * reach**_TERMS
        # |true m - double| is at most half an ulp of a 63-bit integer plus the unit left open.
        argument = abs(nearby[1]) * (arb(2) ** -53 + arb(2) ** -octave)
        return round_up((approximation + remainder + argument + _horner_rounding(coefficients)) * arb(1.0001))


def _horner_rounding(coefficients: NDArray[np.float64]) -> arb:
    """Running error bound of Horner's rule: |fl(p x + c) - (p x + c)| <= u (2 |p x| + |c|) at each step."""
    unit, reach = arb(2) ** -52, arb(_REACH)
    size, error = abs(ball(float(coefficients[-1]))), arb(0)
    for c in coefficients[-2::-1]:
        error = reach * error + unit * (2 * reach * size + abs(ball(float(c))))
        size = reach * size + abs(ball(float(c))) + error
    return error


def build() -> dict[str, NDArray[np.float64]]:
    """Compute and certify every table. Takes a few seconds."""
    arrays: dict[str, NDArray[np.float64]] = {}
    for name, series in SERIES.items():
        coefficients: NDArray[np.float64] = np.zeros((CELLS + 2, DEGREE + 1))
        errors: NDArray[np.float64] = np.full(CELLS + 2, math.inf)
        for row in range(CELLS):
            octave, cell = FIRST_OCTAVE + (row >> CELL_BITS), row & ((1 << CELL_BITS) - 1)
            with precision(256):
                coefficients[row + 1] = _coefficients(series, octave, cell)
            errors[row + 1] = certify(series, octave, cell, coefficients[row + 1])
        arrays[name] = coefficients
        arrays[name + "_error"] = errors
    return arrays


@cache
def table_of(quantile: Quantile) -> Table:
    """The stored table of a distribution: the lower half's rows, then the upper half's."""
    if quantile not in (LAPLACE, NORMAL, GUMBEL):
        raise KeyError(f"no table for {quantile.name}")
    with np.load(_PATH, allow_pickle=False) as arrays:
        upper, upper_error = arrays[quantile.name + "_upper"], arrays[quantile.name + "_upper_error"]
        if quantile.symmetric:
            lower, lower_error = -upper, upper_error
        else:
            lower, lower_error = arrays[quantile.name + "_lower"], arrays[quantile.name + "_lower_error"]
    return Table(np.concatenate([lower, upper]), np.concatenate([lower_error, upper_error]))


if __name__ == "__main__":
    np.savez_compressed(_PATH, allow_pickle=False, **build())
    print(f"wrote {_PATH.name}")
