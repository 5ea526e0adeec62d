"""Kernels, each with a public bound R on the length sqrt(K(x, x)) of a point's features.

A private point that is longer is scaled down in the feature space, silently: K(x, y) becomes a_x a_y K(x, y) with
a_x = min(1, R / sqrt(K(x, x))). A public point that is longer is an error.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics.pairwise import laplacian_kernel, linear_kernel, polynomial_kernel, rbf_kernel
from sklearn.utils.extmath import row_norms

from epsilearn.checks import check_integer, check_positive
from epsilearn.errors import InvalidInput

__all__ = [
    "HistogramIntersection",
    "Kernel",
    "Laplacian",
    "Linear",
    "Polynomial",
    "Precomputed",
    "RBF",
    "UserKernel",
]

Array = NDArray[np.float64]

_BLOCK = 1 << 22  # kernel values held at a time
# A float's idea of a length is off by this at most, relative, for up to a million terms.
_CARE = 2.0**-30


class Kernel(ABC):
    """A positive semidefinite function of two points, and how long a point's features may be.

    Attributes
    ----------
    bound : float
        R: public, at least sqrt(K(x, x)) for every point that is not scaled down.
    """

    @property
    @abstractmethod
    def bound(self) -> float: ...

    @abstractmethod
    def matrix(self, first: Any, second: Any) -> Array:
        """K between two collections of points."""

    @abstractmethod
    def squares(self, points: Any) -> Array:
        """K(x, x) for each point."""

    def points(self, X: Any) -> Any:
        """A collection of points, checked; rows of numbers unless a kernel says otherwise."""
        array = X.tocsr() if sparse.issparse(X) else np.asarray(X)
        if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "biuf":
            raise InvalidInput(f"points must be rows of numbers, got shape {array.shape}")
        if not np.isfinite(array.data if sparse.issparse(array) else array).all():
            raise InvalidInput("points have NaN or infinite values; drop or fill them by a rule fixed beforehand")
        return array.astype(np.float64)

    def count(self, points: Any) -> int:
        """How many points a collection has."""
        return int(points.shape[0])

    def part(self, points: Any, here: slice) -> Any:
        """Some of the points."""
        return points[here]

    def factors(self, points: Any) -> Array:
        """What to multiply private points' features by so that none is longer than the bound."""
        with np.errstate(divide="ignore"):
            factors: Array = np.minimum(1.0, self.bound * (1 - _CARE) / np.sqrt(self.squares(points)))
        return factors

    def check_public(self, points: Any) -> None:
        """Refuse public points that are longer than the bound."""
        if not (np.sqrt(self.squares(points)) <= self.bound * (1 + _CARE)).all():
            raise InvalidInput(
                f"a public point has sqrt(K(z, z)) above the declared bound {self.bound:g}; scale it down, or declare "
                "a larger bound before anything is fitted"
            )

    def blocks(self, first: Any, second: Any) -> Iterator[tuple[slice, Array]]:
        """K between two collections, a few rows at a time, so that memory stays bounded."""
        rows = max(1, _BLOCK // max(1, self.count(second)))
        for start in range(0, self.count(first), rows):
            here = slice(start, min(start + rows, self.count(first)))
            yield here, self.matrix(self.part(first, here), second)


@dataclass(frozen=True)
class Linear(Kernel):
    """<x, y>, for rows of norm at most ``data_norm``.

    Examples
    --------
    >>> Linear(2.0).matrix(np.array([[1.0, 1.0]]), np.array([[0.0, 3.0]]))
    array([[3.]])
    """

    data_norm: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "data_norm", check_positive("data_norm", self.data_norm))

    @property
    def bound(self) -> float:
        return self.data_norm

    def matrix(self, first: Any, second: Any) -> Array:
        return _dense(linear_kernel(first, second))

    def squares(self, points: Any) -> Array:
        norms: Array = row_norms(points, squared=True)
        return norms


@dataclass(frozen=True)
class Polynomial(Kernel):
    """(<x, y> + constant)**degree, for rows of norm at most ``data_norm``.

    Examples
    --------
    >>> Polynomial(degree=3, constant=1.0, data_norm=1.0).bound ** 2  # 2**3
    8.0...
    """

    degree: int = 3
    constant: float = 1.0
    data_norm: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", check_integer("degree", self.degree))
        object.__setattr__(self, "data_norm", check_positive("data_norm", self.data_norm))
        if self.constant != 0:
            object.__setattr__(self, "constant", check_positive("constant", self.constant))

    @property
    def bound(self) -> float:
        return _up((self.data_norm**2 + self.constant) ** (self.degree / 2))

    def matrix(self, first: Any, second: Any) -> Array:
        return _dense(polynomial_kernel(first, second, degree=self.degree, gamma=1.0, coef0=self.constant))

    def squares(self, points: Any) -> Array:
        powers: Array = (row_norms(points, squared=True) + self.constant) ** self.degree
        return powers


@dataclass(frozen=True)
class _OfDistance(Kernel):
    """A kernel that is 1 at distance 0: every point has length 1."""

    gamma: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", check_positive("gamma", self.gamma))

    @property
    def bound(self) -> float:
        return 1.0

    def squares(self, points: Any) -> Array:
        return np.ones(self.count(points))


@dataclass(frozen=True)
class RBF(_OfDistance):
    """exp(-gamma ||x - y||**2): every point has length 1.

    Examples
    --------
    >>> RBF(gamma=1.0).matrix(np.zeros((1, 2)), np.zeros((1, 2)))
    array([[1.]])
    """

    def matrix(self, first: Any, second: Any) -> Array:
        return _dense(rbf_kernel(first, second, gamma=self.gamma))


@dataclass(frozen=True)
class Laplacian(_OfDistance):
    """exp(-gamma ||x - y||_1): every point has length 1.

    Examples
    --------
    >>> Laplacian(gamma=1.0).matrix(np.zeros((1, 2)), np.zeros((1, 2)))
    array([[1.]])
    """

    def matrix(self, first: Any, second: Any) -> Array:
        return _dense(laplacian_kernel(first, second, gamma=self.gamma))


@dataclass(frozen=True)
class HistogramIntersection(Kernel):
    """The sum of min(x_j, y_j), for histograms whose entries sum to at most ``mass``.

    Examples
    --------
    >>> HistogramIntersection().matrix(np.array([[0.5, 0.5]]), np.array([[0.2, 0.8]]))
    array([[0.7]])
    """

    mass: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "mass", check_positive("mass", self.mass))

    @property
    def bound(self) -> float:
        return _up(math.sqrt(self.mass))

    def points(self, X: Any) -> Any:
        array = super().points(X.toarray() if sparse.issparse(X) else X)
        if (array < 0).any():
            raise InvalidInput("histograms have no negative entries; count something, or use another kernel")
        return array

    def matrix(self, first: Any, second: Any) -> Array:
        total = np.zeros((len(first), len(second)))
        for column in range(first.shape[1]):
            total += np.minimum.outer(first[:, column], second[:, column])
        return total

    def squares(self, points: Any) -> Array:
        sums: Array = points.sum(axis=1)
        return sums


@dataclass(frozen=True)
class UserKernel(Kernel):
    """Any positive semidefinite function of two points, which may be anything: texts, sets, graphs.

    Parameters
    ----------
    function : callable
        K of two points.
    declared : float
        A public bound on sqrt(K(x, x)); private points beyond it are scaled down.

    Examples
    --------
    >>> common = UserKernel(lambda a, b: float(len(a & b)), declared=2.0)
    >>> common.matrix([{1, 2}, {3}], [{2, 3}])
    array([[1.],
           [1.]])
    """

    function: Callable[[Any, Any], float]
    declared: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "declared", check_positive("declared", self.declared))

    @property
    def bound(self) -> float:
        return self.declared

    def points(self, X: Any) -> Sequence[Any]:
        points = list(X)
        if not points:
            raise InvalidInput("there must be at least one point")
        return points

    def count(self, points: Any) -> int:
        return len(points)

    def matrix(self, first: Any, second: Any) -> Array:
        values = np.array([[float(self.function(a, b)) for b in second] for a in first])
        return _finite(values.reshape(len(first), len(second)))

    def squares(self, points: Any) -> Array:
        return _finite(np.array([float(self.function(a, a)) for a in points]))


@dataclass(frozen=True)
class Precomputed(Kernel):
    """A matrix of all kernel values there will ever be; a point is the number of its row.

    Parameters
    ----------
    values : array of shape (objects, objects)
        Symmetric and positive semidefinite. Private and public objects both have a row.
    declared : float
        A public bound on sqrt(K(x, x)); private points beyond it are scaled down.

    Examples
    --------
    >>> Precomputed(np.eye(3), declared=1.0).matrix(np.array([0, 1]), np.array([1]))
    array([[0.],
           [1.]])
    """

    values: Array = field(compare=False, repr=False)
    declared: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "declared", check_positive("declared", self.declared))
        values = np.array(self.values, dtype=np.float64)
        if values.ndim != 2 or values.shape[0] != values.shape[1] or not values.size:
            raise InvalidInput(f"a Gram matrix must be square, got shape {values.shape}")
        _finite(values)
        scale = float(np.abs(values).max()) or 1.0
        if not np.allclose(values, values.T, rtol=0, atol=1e-9 * scale):
            raise InvalidInput("a Gram matrix must be symmetric; the matrix given is not")
        if float(np.linalg.eigvalsh(values)[0]) < -1e-9 * scale * len(values):
            raise InvalidInput("the Gram matrix has negative eigenvalues, so it is no kernel's; clip them, or mend it")
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    @property
    def bound(self) -> float:
        return self.declared

    def points(self, X: Any) -> NDArray[np.int64]:
        numbers = np.asarray(X)
        numbers = numbers[:, 0] if numbers.ndim == 2 and numbers.shape[1] == 1 else numbers
        if numbers.ndim != 1 or not len(numbers) or not np.array_equal(numbers, np.asarray(numbers, np.int64)):
            raise InvalidInput("points of a precomputed kernel are whole numbers: rows of its matrix")
        if numbers.min() < 0 or numbers.max() >= len(self.values):
            raise InvalidInput(f"points of this kernel lie between 0 and {len(self.values) - 1}")
        return numbers.astype(np.int64)

    def matrix(self, first: Any, second: Any) -> Array:
        values: Array = self.values[np.ix_(first, second)]
        return values

    def squares(self, points: Any) -> Array:
        values: Array = np.diag(self.values)[points]
        return values


def _up(number: float) -> float:
    """A little more, to cover the roundings of a few operations."""
    return number * (1 + 1e-14)


def _dense(values: Any) -> Array:
    return np.asarray(values.toarray() if sparse.issparse(values) else values, np.float64)


def _finite(values: Array) -> Array:
    if not np.isfinite(values).all():
        raise InvalidInput("the kernel has NaN or infinite values; it must be finite for every pair of points")
    return values
