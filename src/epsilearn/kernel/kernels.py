"""Kernels, each with a public bound R on the length sqrt(K(x, x)) of a point's features.

A private point that is longer is brought inside, silently: rows of numbers are scaled down, and where a kernel is all
there is, the point's features are: K(x, y) becomes a_x a_y K(x, y). A public point that is longer is an error.

Every kernel also bounds the rounding of one of its values in floats, from public numbers alone, because a promise about
the function learned must hold for the function that is computed.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import laplacian_kernel, linear_kernel

from epsilearn.checks import check_integer, check_positive
from epsilearn.errors import InvalidInput, StateError
from epsilearn.rows.bounds import Bounds, row_norms, without_giants

__all__ = [
    "PUBLIC_SLACK",
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
# How much longer than the bound a public point that was let in can be.
PUBLIC_SLACK = 1 + 2.0**-28
_UNIT = 2.0**-53
# How far from symmetric, and from positive, a precomputed matrix may be, as a share of the bound's square.
_TOLERANCE = 2.0**-40


class Kernel(ABC):
    """A positive semidefinite function of two points, and how long a point's features may be.

    Attributes
    ----------
    bound : float
        R: public, at least sqrt(K(x, x)) for every point that is not scaled down.
    """

    #: Whether points are rows of numbers; otherwise only the kernel knows what they are.
    takes_rows: ClassVar[bool] = True

    @property
    @abstractmethod
    def bound(self) -> float: ...

    @property
    def description(self) -> str:
        """What the kernel is, in words that are the same in every process."""
        return repr(self)

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
        array = X.tocsr() if sparse.issparse(X) else np.asarray(X)
        if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "biuf":
            raise InvalidInput(f"points must be rows of numbers, got shape {array.shape}")
        if width is not None and array.shape[1] != width:
            raise InvalidInput(f"points must have {width} columns, as in training, got {array.shape[1]}")
        if not np.isfinite(array.data if sparse.issparse(array) else array).all():
            raise InvalidInput("points have NaN or infinite values; drop or fill them by a rule fixed beforehand")
        return array.astype(np.float64)

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
        rows = sparse.csr_array(points)
        rows.sum_duplicates()
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
        with np.errstate(divide="ignore"):
            factors: Array = np.minimum(1.0, self.bound * (1 - _CARE) / np.sqrt(self.squares(points)))
        return points, factors

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
        object.__setattr__(self, "data_norm", check_positive("data_norm", self.data_norm))

    @property
    def bound(self) -> float:
        return self.data_norm

    def matrix(self, first: Any, second: Any) -> Array:
        return _dense(linear_kernel(first, second))

    def squares(self, points: Any) -> Array:
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
        object.__setattr__(self, "data_norm", check_positive("data_norm", self.data_norm))
        if self.constant != 0:
            object.__setattr__(self, "constant", check_positive("constant", self.constant))

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
        object.__setattr__(self, "gamma", check_positive("gamma", self.gamma))

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

    Examples
    --------
    >>> RBF(gamma=1.0).matrix(np.zeros((1, 2)), np.zeros((1, 2)))
    array([[1.]])
    """

    def matrix(self, first: Any, second: Any) -> Array:
        # From differences: ||x||**2 - 2 <x, y> + ||y||**2, as scikit-learn has it, cancels where rows are long.
        with np.errstate(over="ignore"):
            values: Array = np.exp(-self.gamma * cdist(_dense(first), _dense(second), "sqeuclidean"))
        return values


@dataclass(frozen=True)
class Laplacian(_OfDistance):
    """exp(-gamma ||x - y||_1): every point has length 1.

    Examples
    --------
    >>> Laplacian(gamma=1.0).matrix(np.zeros((1, 2)), np.zeros((1, 2)))
    array([[1.]])
    """

    def matrix(self, first: Any, second: Any) -> Array:
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
        object.__setattr__(self, "mass", check_positive("mass", self.mass))

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
        with np.errstate(over="ignore"):
            sums: Array = points.sum(axis=1)
        return sums

    def inside(self, points: Any) -> tuple[Any, Array]:
        largest = np.maximum(points.max(axis=1), 1.0)
        shares = points / largest[:, None]  # so that no sum overflows
        with np.errstate(divide="ignore", over="ignore"):
            factors = np.minimum(largest, self.mass * (1 - _CARE) / shares.sum(axis=1))
        return shares * factors[:, None], np.ones(len(points))

    def rounding(self, width: int) -> float:
        return 1.01 * (width + 4) * _UNIT * self.mass


@dataclass(frozen=True)
class UserKernel(Kernel):
    """Any positive semidefinite function of two points, which may be anything: texts, sets, graphs.

    Parameters
    ----------
    function : callable
        K of two points.
    declared : float
        A public bound on sqrt(K(x, x)); private points beyond it are scaled down.
    accuracy : float
        A public bound on the rounding of one value, as a share of ``declared**2``.

    Examples
    --------
    >>> common = UserKernel(lambda a, b: float(len(a & b)), declared=2.0)
    >>> common.matrix([{1, 2}, {3}], [{2, 3}])
    array([[1.],
           [1.]])
    """

    function: Callable[[Any, Any], float]
    declared: float
    accuracy: float = 1e-14
    takes_rows: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "declared", check_positive("declared", self.declared))
        object.__setattr__(self, "accuracy", check_positive("accuracy", self.accuracy))

    @property
    def bound(self) -> float:
        return self.declared

    @property
    def description(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"UserKernel({name}, declared={self.declared!r}, accuracy={self.accuracy!r})"

    def rounding(self, width: int) -> float:  # noqa: ARG002 - the author's word
        return self.accuracy * self.declared**2

    def points(self, X: Any, width: int | None = None) -> Sequence[Any]:  # noqa: ARG002 - points can be anything
        points = list(X) if not isinstance(X, str) else []
        if not points:
            raise InvalidInput("points must be a list of at least one")
        return points

    def width(self, points: Any) -> int:  # noqa: ARG002
        return 1

    def count(self, points: Any) -> int:
        return len(points)

    def join(self, collections: Sequence[Any]) -> Any:
        return [point for points in collections for point in points]

    def encode(self, points: Any) -> list[bytes]:
        try:
            return [json.dumps(_plain(point), sort_keys=True, ensure_ascii=False).encode() for point in points]
        except TypeError:
            raise InvalidInput(
                "these points cannot be written down, so the same question could not be told from another; let the "
                "kernel take texts, numbers, lists, sets or dictionaries of them"
            ) from None

    def decode(self, codes: Sequence[bytes]) -> Any:
        return [_from_plain(json.loads(code)) for code in codes]

    def matrix(self, first: Any, second: Any) -> Array:
        values = np.array([[self._value(a, b) for b in second] for a in first])
        return _finite(values.reshape(len(first), len(second)))

    def squares(self, points: Any) -> Array:
        return np.maximum(_finite(np.array([self._value(a, a) for a in points])), 0.0)

    def _value(self, first: Any, second: Any) -> float:
        try:
            return float(self.function(first, second))
        except Exception as error:
            kind = type(error).__name__
        # Raised out here, without the error itself, which may quote a private point.
        raise InvalidInput(f"the kernel's function raised {kind} for two points; it must give a number for any two")


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
    takes_rows: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "declared", check_positive("declared", self.declared))
        values = np.array(self.values, dtype=np.float64)
        if values.ndim != 2 or values.shape[0] != values.shape[1] or not values.size:
            raise InvalidInput(f"a Gram matrix must be square, got shape {values.shape}")
        _finite(values)
        # What is judged is what will be used: points beyond the bound brought inside.
        inside = np.minimum(1.0, self.declared / np.sqrt(np.maximum(np.diag(values), self.declared**2)))
        judged, tolerance = values * inside * inside[:, None], _TOLERANCE * self.declared**2
        if not np.allclose(judged, judged.T, rtol=0, atol=tolerance):
            raise InvalidInput("a Gram matrix must be symmetric; the matrix given is not")
        if float(np.linalg.eigvalsh(judged)[0]) < -tolerance:
            raise InvalidInput("the Gram matrix has negative eigenvalues, so it is no kernel's; clip them, or mend it")
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    @property
    def bound(self) -> float:
        return self.declared

    @property
    def description(self) -> str:
        return f"Precomputed({len(self.values)} objects, declared={self.declared!r})"

    def rounding(self, width: int) -> float:  # noqa: ARG002
        # A matrix that is all but positive is that close to one that is.
        return 2 * _TOLERANCE * self.declared**2

    def width(self, points: Any) -> int:  # noqa: ARG002
        return 1

    def encode(self, points: Any) -> list[bytes]:
        return [b"%d" % number for number in points]

    def decode(self, codes: Sequence[bytes]) -> Any:
        return np.array([int(code) for code in codes])

    def points(self, X: Any, width: int | None = None) -> NDArray[np.int64]:  # noqa: ARG002
        numbers = np.asarray(X)
        numbers = numbers[:, 0] if numbers.ndim == 2 and numbers.shape[1] == 1 else numbers
        if numbers.ndim != 1 or not len(numbers) or numbers.dtype.kind not in "iuf" or not _whole(numbers):
            raise InvalidInput("points of a precomputed kernel are whole numbers: rows of its matrix")
        if numbers.min() < 0 or numbers.max() >= len(self.values):
            raise InvalidInput(f"points of this kernel lie between 0 and {len(self.values) - 1}")
        return numbers.astype(np.int64)

    def matrix(self, first: Any, second: Any) -> Array:
        values: Array = self.values[np.ix_(first, second)]
        return values

    def squares(self, points: Any) -> Array:
        values: Array = np.maximum(np.diag(self.values)[points], 0.0)
        return values

    def __deepcopy__(self, memo: dict[int, Any]) -> Precomputed:
        return self  # it never changes

    def __reduce__(self) -> NoReturn:
        raise StateError(
            "a Gram matrix holds the private records' values and is not pickled, nor is a model that holds one; what "
            "may leave are the model's points_ and dual_coef_, or its coef_"
        )


def _whole(numbers: NDArray[Any]) -> bool:
    return bool(np.isfinite(numbers).all() and (numbers == np.floor(numbers)).all())


def _up(number: float) -> float:
    """A little more, to cover the roundings of a few operations."""
    return number * (1 + 1e-14)


def _dense(values: Any) -> Array:
    return np.asarray(values.toarray() if sparse.issparse(values) else values, np.float64)


def _finite(values: Array) -> Array:
    if not np.isfinite(values).all():
        raise InvalidInput("the kernel has NaN or infinite values; it must be finite for every pair of points")
    return values


def _plain(point: Any) -> Any:
    """A point as JSON has it; sets, whose order means nothing, are sorted."""
    if isinstance(point, (set, frozenset)):
        return {"set": sorted((_plain(item) for item in point), key=lambda item: json.dumps(item, sort_keys=True))}
    if isinstance(point, dict):
        return {"map": sorted([_plain(k), _plain(v)] for k, v in point.items())}
    if isinstance(point, (list, tuple)):
        return [_plain(item) for item in point]
    return point.item() if isinstance(point, np.generic) else point


def _from_plain(point: Any) -> Any:
    if isinstance(point, list):
        return tuple(_from_plain(item) for item in point)
    if isinstance(point, dict) and "set" in point:
        return frozenset(_from_plain(item) for item in point["set"])
    if isinstance(point, dict):
        return {_from_plain(k): _from_plain(v) for k, v in point["map"]}
    return point
