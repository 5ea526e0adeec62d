"""Public bounds on rows, and how rows are brought inside them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from epsilearn.checks import check_positive
from epsilearn.errors import InvalidInput
from epsilearn.quiet import quietly

__all__ = ["Bounds", "row_norms", "without_giants"]

_LEAST_NORM, _LARGEST_NORM = 1e-100, 1e100


@dataclass(frozen=True)
class Bounds:
    """A bound on the norm of a row's features, and the constant of the intercept's column (0 for none).

    Examples
    --------
    >>> Bounds(1.0, intercept=1.0).norm  # doctest: +ELLIPSIS
    1.41421...
    """

    data_norm: float = 1.0
    intercept: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "data_norm", check_positive("data_norm", self.data_norm))
        if not _LEAST_NORM <= self.data_norm <= _LARGEST_NORM:
            raise InvalidInput(
                f"data_norm must lie between {_LEAST_NORM:g} and {_LARGEST_NORM:g}; rescale the features"
            )
        intercept = check_positive("intercept", self.intercept) if self.intercept else 0.0
        object.__setattr__(self, "intercept", intercept)

    @property
    def norm(self) -> float:
        """The bound R on a row's norm once the intercept's column is appended, rounded up."""
        return math.nextafter(math.hypot(self.data_norm, self.intercept), math.inf)

    @quietly()
    def factors(self, norms: NDArray[np.float64], terms: Any) -> NDArray[np.float64]:
        """What to multiply each row by so that its exact norm is at most the bound.

        ``norms`` are floats, off by at most ``terms`` roundings (a number, or one for each row, and then that row's
        own: one record must not move the others); aiming that much lower makes the exact product safe.
        A row is then the real vector factor times x: nothing is rounded, so nothing is lost.
        """
        target = self.data_norm * (1 - 2.0**-40 - (terms + 8) * 2.0**-52)
        factors: NDArray[np.float64] = np.minimum(1.0, target / norms)
        return factors


@quietly()
def without_giants(X: Any) -> tuple[Any, NDArray[np.float64]]:
    """The rows and their norms, those beyond any bound brought down by a power of two first.

    No product with what is left overflows. It is each record's own affair: what happens to one depends on nothing
    else. The caller's table is copied only if it has any giants.
    """
    X = X.tocsr() if sparse.issparse(X) else X
    norms = row_norms(X)
    giants = np.flatnonzero(~(norms <= _LARGEST_NORM))
    if not len(giants):
        return X, norms
    # In the same order: how the other rows are read must not depend on there being a giant.
    X = X.copy() if sparse.issparse(X) else X.copy(order="K")
    for row in giants:
        entries = slice(X.indptr[row], X.indptr[row + 1]) if sparse.issparse(X) else row
        home = X.data if sparse.issparse(X) else X
        power = np.frexp(_LARGEST_NORM / np.abs(home[entries]).max())[1] - 1
        home[entries] = np.ldexp(home[entries], power)
        norms[row] = _careful_norm(home[entries])
    return X, norms


@quietly()
def row_norms(X: Any) -> NDArray[np.float64]:
    """The norm of each row of an array or a sparse matrix in compressed form, also where squares leave the doubles."""
    if sparse.issparse(X):
        squares = np.append(np.square(X.data, dtype=np.float64), 0.0)
        norms = np.sqrt(np.add.reduceat(squares, X.indptr[:-1]))
        norms[np.diff(X.indptr) == 0] = 0.0
    else:
        norms = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))
    for odd in np.flatnonzero((norms > 1e150) | (norms < 1e-140)):
        norms[odd] = _careful_norm(X.data[X.indptr[odd] : X.indptr[odd + 1]] if sparse.issparse(X) else X[odd])
    return np.asarray(norms, np.float64)


def _careful_norm(values: NDArray[Any]) -> float:
    largest = float(np.abs(values).max(initial=0.0))
    return largest * float(np.linalg.norm(values.astype(np.float64) / largest)) if largest else 0.0
