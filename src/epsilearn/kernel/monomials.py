"""The polynomial kernel's features, written out: sparse in, sparse out.

(<x, y> + c)**p is the inner product of all monomials of degree p in (x, sqrt(c)), the monomial of exponents k weighted
by sqrt(p! / (k_1! k_2! ...)): the multinomial theorem. A row with m entries has (m + p) choose p of them, whatever the
number of columns.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from epsilearn.compiled import compiled
from epsilearn.errors import InvalidInput

__all__ = ["countable", "monomial_count", "monomials"]

_MOST_COLUMNS = 2**62
_MOST_MONOMIALS = 200_000
_MOST_DEGREE = 100  # factorials are doubles up to 170


def monomial_count(columns: int, degree: int) -> int:
    """How many monomials of this degree there are in so many columns and a constant.

    Examples
    --------
    >>> monomial_count(54, 3)
    29260
    """
    return math.comb(columns + degree, degree)


def monomials(points: Any, degree: int, constant: float) -> Any:
    """Rows of monomials whose inner products are the polynomial kernel's values.

    Parameters
    ----------
    points : array or sparse matrix of shape (rows, columns)
        The rows.
    degree : int
        p.
    constant : float
        c, at least 0.

    Returns
    -------
    sparse array of shape (rows, monomial_count(columns, degree))

    Examples
    --------
    >>> rows = monomials(np.array([[1.0, 2.0]]), degree=2, constant=1.0)
    >>> float((rows @ rows.T).toarray()[0, 0])  # (1 + 4 + 1)**2
    36.0...
    """
    rows = sparse.csr_array(points, dtype=np.float64)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    columns = monomial_count(rows.shape[1], degree)
    if columns > _MOST_COLUMNS:
        raise InvalidInput(f"{rows.shape[1]} columns have too many monomials of degree {degree}; use public landmarks")
    # The constant comes last in every row; without one it stays away.
    entries = np.diff(rows.indptr).astype(np.int64) + (1 if constant else 0)
    sizes = np.array(
        [math.comb(int(m) + degree - 1, degree) if m else 0 for m in np.arange(entries.max(initial=0) + 1)]
    )
    indptr = np.concatenate([[0], np.cumsum(sizes[entries])])
    indices, values = np.empty(indptr[-1], np.int64), np.empty(indptr[-1])
    _expand(
        rows.data, rows.indices, rows.indptr, math.sqrt(constant), rows.shape[1], degree, _binomials(rows, degree),
        _roots(degree), indptr, indices, values,
    )  # fmt: skip
    expanded = sparse.csr_array((values, indices, indptr), shape=(rows.shape[0], columns))
    expanded.sort_indices()
    return expanded


def countable(columns: int, degree: int) -> bool:
    """Whether there are few enough of them to be written out, and their ranks can be counted in 64 bits."""
    if degree > _MOST_DEGREE:
        return False
    top = columns + degree
    return monomial_count(columns, degree) <= _MOST_MONOMIALS and math.comb(top, min(degree, top // 2)) < 2**62


def _binomials(rows: Any, degree: int) -> NDArray[np.int64]:
    """n choose k for the ranks below: n up to columns + degree, k from 1 to degree."""
    tops = range(rows.shape[1] + degree + 1)
    return np.array([[math.comb(n, k) for k in range(1, degree + 1)] for n in tops], np.int64)


def _roots(degree: int) -> NDArray[np.float64]:
    """sqrt(k!) for each k up to the degree."""
    return np.sqrt([float(math.factorial(k)) for k in range(degree + 1)])


@compiled
def _expand(
    data, indices, indptr, last, columns, degree, binomials, roots, out_indptr, out_indices, out_values
):  # pragma: no cover - compiled
    """Every non-decreasing choice of ``degree`` entries of a row, with repetition."""
    choice = np.empty(degree, np.int64)
    for i in range(len(indptr) - 1):
        begin, own = indptr[i], indptr[i + 1] - indptr[i]
        count = own + 1 if last != 0.0 else own
        if count == 0:
            continue
        choice[:] = 0
        for position in range(out_indptr[i], out_indptr[i + 1]):
            value, weight, run, rank = 1.0, roots[degree], 1, np.int64(0)
            for k in range(degree):
                entry = choice[k]
                column = indices[begin + entry] if entry < own else columns
                value *= data[begin + entry] if entry < own else last
                # Shifted by its place, a non-decreasing choice is an increasing one, and has a rank among those.
                rank += binomials[column + k, k]
                if k > 0 and choice[k - 1] == entry:
                    run += 1
                elif k > 0:
                    weight /= roots[run]
                    run = 1
            out_values[position] = value * (weight / roots[run])
            out_indices[position] = rank
            # The next choice: raise the last entry that can be raised, and let those after it follow.
            k = degree - 1
            while k >= 0 and choice[k] == count - 1:
                k -= 1
            if k >= 0:
                choice[k:] = choice[k] + 1
