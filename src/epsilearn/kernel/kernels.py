"""Kernels, each with a public bound R on the length sqrt(K(x, x)) of a point's features.

A private point that is longer is brought inside, silently: rows of numbers are scaled down, and where a kernel is all
there is, the point's features are: K(x, y) becomes a_x a_y K(x, y). A public point that is longer is an error.

Every kernel also bounds the rounding of one of its values in floats, from public numbers alone, because a promise about
the function learned must hold for the function that is computed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import laplacian_kernel, linear_kernel

from epsilearn.checks import LARGEST_SIZE, LEAST_SIZE, check_integer, check_size
from epsilearn.errors import InvalidInput
from epsilearn.quiet import quietly
from epsilearn.rows.bounds import Bounds, row_norms, without_giants

__all__ = [
    "CARE",
    "PUBLIC_SLACK",
    "HistogramIntersection",
    "Kernel",
    "Laplacian",
    "Linear",
    "Polynomial",
    "RBF",
]

Array = NDArray[np.float64]

_BLOCK = 1 << 22  # kernel values held at a time
# A float's idea of a length is off by this at most, relative, for up to a million terms.
CARE = 2.0**-30
# How much longer than the bound a public point that was let in can be.
PUBLIC_SLACK = 1 + 2.0**-28
_UNIT = 2.0**-53


class Kernel(ABC):
    """A positive semidefinite function of two points, and how long a point's features may be.

    Attributes
    ----------
    bound : float
        R: public, at least sqrt(K(x, x)) for every point that is not scaled down.
    """

    #: Whether points are rows of numbers; otherwise only the kernel knows what they are.
    takes_rows: ClassVar[bool] = True
    #: What a guarantee must assume of the kernel, where that is its author's word.
    assumptions: ClassVar[tuple[str, ...]] = ()

    @property
    @abstractmethod
    def bound(self) -> float: ...

    @property
    def description(self) -> str:
        """What the kernel is, in words that are the same in every process."""
        return repr(self)

    @property
    def total(self) -> Kernel:
        """The same kernel for pairs with a private point, of which none can make it fail."""
        return self

    def within(self, values: Array) -> Array:
        """Values between points inside the bound, none larger than those can be; most kernels have no others."""
        return values

    @abstractmethod
    def matrix(self, first: Any, second: Any) -> Array:
        """K between two collections of points."""

    @abstractmethod
    def squares(self, points: Any) -> Array:
        """K(x, x) for each point."""

    @abstractmethod
    def rounding(self, width: int) -> float:
        """A bound on the rounding of one value between points inside the bound, of so many columns."""

    def points(self, X: Any, width: int | None = None) -> Any:
        """A collection of points, checked: rows of numbers (of ``width`` columns) unless a kernel says otherwise."""
        array = _canonical(X) if sparse.issparse(X) else np.asarray(X)
        if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "biuf":
            raise InvalidInput(f"points must be rows of numbers, got shape {array.shape}")
        if width is not None and array.shape[1] != width:
            raise InvalidInput(f"points must have {width} columns, as in training, got {array.shape[1]}")
        if not np.isfinite(array.data if sparse.issparse(array) else array).all():
            raise InvalidInput("points have NaN or infinite values; drop or fill them by a rule fixed beforehand")
        return array.astype(np.float64)

    def keeping(self, points: Any) -> Kernel:  # noqa: ARG002 - most cannot tell
        """The same kernel, which refuses these private points as public ones where it can tell them."""
        return self

    def width(self, points: Any) -> int:
        """How many columns points have; 1 where they are not rows of numbers."""
        return int(points.shape[1])

    def count(self, points: Any) -> int:
        """How many points a collection has."""
        return int(points.shape[0])

    def part(self, points: Any, here: slice) -> Any:
        """Some of the points."""
        return points[here]

    def join(self, collections: Sequence[Any]) -> Any:
        """Several collections as one."""
        if any(sparse.issparse(points) for points in collections):
            return sparse.vstack([sparse.csr_array(points) for points in collections], format="csr")
        return np.concatenate(collections)

    def encode(self, points: Any) -> list[bytes]:
        """Each point as bytes: equal for equal points, whatever they came in."""
        rows = sparse.csr_array(points, copy=True)
        rows.eliminate_zeros()
        edges = zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
        return [
            np.array([rows.shape[1], stop - start], "<i8").tobytes()
            + rows.indices[start:stop].astype("<i8").tobytes()
            + rows.data[start:stop].astype("<f8").tobytes()
            for start, stop in edges
        ]

    def decode(self, codes: Sequence[bytes]) -> Any:
        """The points that were encoded, as one collection."""
        width = int(np.frombuffer(codes[0], "<i8", 1)[0])
        rows = np.zeros((len(codes), width))
        for row, code in zip(rows, codes, strict=True):
            entries = int(np.frombuffer(code, "<i8", 2)[1])
            row[np.frombuffer(code, "<i8", entries, 16)] = np.frombuffer(code, "<f8", entries, 16 + 8 * entries)
        return rows

    def inside(self, points: Any) -> tuple[Any, Array]:
        """Private points brought inside the bound, and what to multiply their features by."""
        with quietly():
            factors: Array = np.minimum(1.0, self.bound * (1 - CARE) / np.sqrt(self.squares(points)))
        return points, factors

    def check_public(self, points: Any) -> None:
        """Refuse public points that are longer than the bound."""
        if not (np.sqrt(self.squares(points)) <= self.bound * (1 + CARE)).all():
            raise InvalidInput(
                f"a public point has sqrt(K(z, z)) above the declared bound {self.bound:g}; scale it down, or declare "
                "a larger bound before anything is fitted"
            )

    @quietly()
    def sums(self, points: Any, centres: Any, coef: Array, factors: Array | None = None) -> Array:
        """The sum of coefficients times K(centre, point) at any number of points, memory bounded.

        ``factors`` multiply the points' features, where given, and bring them inside the bound.
        """
        out = np.empty(self.count(points))
        for here, block in self.blocks(points, centres):
            out[here] = (block if factors is None else self.within(block * factors[here][:, None])) @ coef
        return out

    def blocks(self, first: Any, second: Any) -> Iterator[tuple[slice, Array]]:
        """K between two collections, a few rows at a time, so that memory stays bounded."""
        rows = max(1, _BLOCK // max(self.width(first), self.count(second)))
        for start in range(0, self.count(first), rows):
            here = slice(start, min(start + rows, self.count(first)))
            yield here, self.matrix(self.part(first, here), second)


class _OfProducts(Kernel):
    """A kernel of <x, y>, for rows of norm at most ``data_norm``; longer private rows are scaled down to it."""

    data_norm: float

    def inside(self, points: Any) -> tuple[Any, Array]:
        points, norms = without_giants(points)
        factors = Bounds(self.data_norm, intercept=0.0).factors(norms, points.shape[1])
        scaled = sparse.diags_array(factors) @ points if sparse.issparse(points) else points * factors[:, None]
        return scaled, np.ones(len(factors))


@dataclass(frozen=True)
class Linear(_OfProducts):
    """<x, y>, for rows of norm at most ``data_norm``.

    Examples
    --------
    >>> Linear(2.0).matrix(np.array([[1.0, 1.0]]), np.array([[0.0, 3.0]]))
    array([[3.]])
    """

    data_norm: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "data_norm", check_size("data_norm", self.data_norm))

    @property
    def bound(self) -> float:
        return self.data_norm

    def matrix(self, first: Any, second: Any) -> Array:
        return _dense(linear_kernel(first, second))

    def squares(self, points: Any) -> Array:
        with quietly():
            return row_norms(points) ** 2

    def rounding(self, width: int) -> float:
        return 1.01 * (width + 4) * _UNIT * self.bound**2


@dataclass(frozen=True)
class Polynomial(_OfProducts):
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
        object.__setattr__(self, "data_norm", check_size("data_norm", self.data_norm))
        if self.constant != 0:
            object.__setattr__(self, "constant", check_size("constant", self.constant))
        # By its logarithm, which is a number whatever the degree.
        power = self.degree * math.log10(self.data_norm**2 + self.constant)
        if not abs(power) <= 2 * math.log10(LARGEST_SIZE):
            raise InvalidInput(
                f"(data_norm**2 + constant)**degree must lie between {LEAST_SIZE**2:g} and {LARGEST_SIZE**2:g}; choose "
                "a lower degree, or rescale the rows"
            )

    @property
    def bound(self) -> float:
        return _up((self.data_norm**2 + self.constant) ** (self.degree / 2))

    def matrix(self, first: Any, second: Any) -> Array:
        # scikit-learn's polynomial_kernel raises to a power by pow, which takes longer than all the products.
        base = _dense(linear_kernel(first, second))
        base += self.constant
        values = base.copy() if self.degree > 1 else base
        for _ in range(self.degree - 1):
            values *= base
        return values

    def squares(self, points: Any) -> Array:
        with quietly():
            powers: Array = (row_norms(points) ** 2 + self.constant) ** self.degree
        return powers

    def rounding(self, width: int) -> float:
        # An error of the product grows by the degree; the power itself is good to a few units.
        return 1.01 * (self.degree * (width + 6) + 8) * _UNIT * self.bound**2


@dataclass(frozen=True)
class _OfDistance(Kernel):
    """A kernel that is 1 at distance 0: every point has length 1."""

    gamma: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", check_size("gamma", self.gamma))

    @property
    def bound(self) -> float:
        return 1.0

    def squares(self, points: Any) -> Array:
        return np.ones(self.count(points))

    def inside(self, points: Any) -> tuple[Any, Array]:
        return points, np.ones(self.count(points))

    def rounding(self, width: int) -> float:
        # A distance D summed from differences errs by a share of itself, and D e**-D is at most 1 / e.
        return 1.01 * (width + 12) * _UNIT


@dataclass(frozen=True)
class RBF(_OfDistance):
    """exp(-gamma ||x - y||**2): every point has length 1.

    ``gamma`` lies between 1e-100 and 1e100: a distance too large for a double then truly gives 0.

    Examples
    --------
    >>> RBF(gamma=1.0).matrix(np.zeros((1, 2)), np.zeros((1, 2)))
    array([[1.]])
    """

    def matrix(self, first: Any, second: Any) -> Array:
        # From differences: ||x||**2 - 2 <x, y> + ||y||**2, as scikit-learn has it, cancels where rows are long.
        with quietly():
            values: Array = np.exp(-self.gamma * cdist(_dense(first), _dense(second), "sqeuclidean"))
        return values


@dataclass(frozen=True)
class Laplacian(_OfDistance):
    """exp(-gamma ||x - y||_1): every point has length 1.

    ``gamma`` lies between 1e-100 and 1e100: a distance too large for a double then truly gives 0.

    Examples
    --------
    >>> Laplacian(gamma=1.0).matrix(np.zeros((1, 2)), np.zeros((1, 2)))
    array([[1.]])
    """

    def matrix(self, first: Any, second: Any) -> Array:
        # In silence: records so far apart that their distance overflows would say so.
        with quietly():
            return _dense(laplacian_kernel(_dense(first), _dense(second), gamma=self.gamma))


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
        object.__setattr__(self, "mass", check_size("mass", self.mass))

    @property
    def bound(self) -> float:
        return _up(math.sqrt(self.mass))

    def points(self, X: Any, width: int | None = None) -> Any:
        array = super().points(X.toarray() if sparse.issparse(X) else X, width)
        if (array < 0).any():
            raise InvalidInput("histograms have no negative entries; count something, or use another kernel")
        return array

    def matrix(self, first: Any, second: Any) -> Array:
        total = np.zeros((len(first), len(second)))
        for column in range(first.shape[1]):
            total += np.minimum.outer(first[:, column], second[:, column])
        return total

    def squares(self, points: Any) -> Array:
        with quietly():
            sums: Array = points.sum(axis=1)
        return sums

    def inside(self, points: Any) -> tuple[Any, Array]:
        largest = np.maximum(points.max(axis=1), 1.0)
        shares = points / largest[:, None]  # so that no sum overflows
        with quietly():
            factors = np.minimum(largest, self.mass * (1 - CARE) / shares.sum(axis=1))
        return shares * factors[:, None], np.ones(len(points))

    def rounding(self, width: int) -> float:
        return 1.01 * (width + 4) * _UNIT * self.mass


def _canonical(X: Any) -> Any:
    """A sparse matrix with one entry a place: several would add up in a product and not in a norm."""
    rows = sparse.csr_array(X, copy=True)
    with quietly():
        rows.sum_duplicates()
    return rows


def _up(number: float) -> float:
    """A little more, to cover the roundings of a few operations."""
    return number * (1 + 1e-14)


def _dense(values: Any) -> Array:
    return np.asarray(values.toarray() if sparse.issparse(values) else values, np.float64)
