"""Convex sets of weights, known by their linear minimisers. Everything here is public geometry: no set ever sees data.

Private Frank-Wolfe (Talwar, Thakurta and Zhang 2015, "Nearly Optimal Private LASSO") walks inside such a set. Call
``check`` once before the other methods: they take it that the set lives in R^features.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.optimize import linprog
from scipy.special import gammaincc, poch

from epsilearn.checks import check_integer, check_positive
from epsilearn.errors import InvalidInput

__all__ = [
    "ConstraintSet", "CoordinateCorners", "Corners", "GroupBall", "L1Ball", "L2Ball", "LqBall", "PointCorners",
    "OWN_SETS", "Polytope", "Simplex", "named_set", "probe",
]  # fmt: skip

Array = NDArray[np.float64]


def _outward(number: float) -> float:
    """A little more, to cover the roundings of a few operations, underflow among them."""
    return math.nextafter(number * (1 + 1e-12), math.inf)


def _finite(direction: Any) -> Array:
    vector: Array = np.asarray(direction, dtype=np.float64)
    if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
        raise InvalidInput("direction must be a vector of finite numbers, one for each feature; rescale the features")
    return vector


def _scaled(direction: Any) -> Array:
    """The direction with its largest entry at 1 or -1, so that powers of it neither overflow nor all vanish."""
    vector = _finite(direction)
    return vector / (float(np.abs(vector).max()) or 1.0)


def _lengths(rows: Array) -> Array:
    """The l2 norm of each row, without overflow or underflow."""
    scales: Array = np.abs(rows).max(axis=1)
    shares = rows / np.where(scales > 0, scales, 1.0)[:, np.newaxis]
    lengths: Array = scales * np.sqrt((shares**2).sum(axis=1))
    return lengths


def _row_bounds(largest: float, length: float, features: int) -> tuple[float, float]:
    """Each of the two norms of a row bounds the other; with both tightened, both are finite."""
    if not (largest >= 0 and length >= 0 and min(largest, length) < math.inf):
        raise InvalidInput("largest and length must be at least 0 and one of them finite; give a bound on the rows")
    largest = min(largest, length)
    return largest, min(length, _outward(largest * math.sqrt(features)))


@lru_cache(maxsize=256)
def _mean_largest_length(groups: tuple[tuple[int, int], ...]) -> float:
    """E max ||b_g||_2 over groups of standard normals, given as pairs (size, how many): the integral of 1 - prod F."""
    sizes, counts = np.array(groups, dtype=np.float64).T

    def exceeded(length: float) -> float:
        with np.errstate(divide="ignore"):  # log 0 is right where a group is surely longer
            return -math.expm1(counts @ np.log1p(-gammaincc(sizes / 2, length * length / 2)))

    # Lengths are 1-Lipschitz in b: below and above these limits the integrand is 1 and 0 to the last bit.
    middle = math.sqrt(sizes.max())
    low, high = max(0.0, middle - 10), middle + math.sqrt(2 * math.log(counts.sum())) + 10
    return low + float(quad(exceeded, low, high, limit=200, epsabs=0, epsrel=1e-10)[0])


def _mean_length(dimension: int) -> float:
    """E ||b||_2 = sqrt(2) Gamma((p + 1) / 2) / Gamma(p / 2)."""
    return math.sqrt(2) * float(poch(dimension / 2, 0.5))


def _sampled_mean(extents: Callable[[Array], Array], dimension: int) -> float:
    """The mean of extents over standard normal rows, with a deviation of 1.7 % at most (for a single segment).

    The length of a row is independent of where it points, and its mean is known: only the latter is sampled.
    """
    draws, batch = min(2000, max(16, 10**7 // dimension)), max(1, 2**20 // dimension)
    generator = np.random.default_rng(20150618)
    total = 0.0
    for start in range(0, draws, batch):
        rows = generator.standard_normal((min(batch, draws - start), dimension))
        total += float((extents(rows) / _lengths(rows)).sum())
    return _mean_length(dimension) * total / draws


def _read_only(name: str, points: Any) -> Array:
    """A private copy of points, one in each row."""
    try:
        copy: Array = np.array(points, dtype=np.float64) + 0.0  # -0.0 equals 0.0, and must have the same hash
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be a matrix of numbers, with rows of one length, one for each point") from None
    if copy.ndim != 2 or not copy.size:
        raise InvalidInput(f"{name} must be a matrix, one point in each row, got an array of the shape {copy.shape}")
    if not (np.abs(copy) <= 1e300).all():  # so that neither sums nor differences overflow
        raise InvalidInput(f"{name} must be finite and of at most 1e300; rescale the features")
    copy.flags.writeable = False
    return copy


@dataclass(frozen=True)
class CoordinateCorners:
    """Vertices on the axes: radius * (e_0, e_1, ...), or radius * (e_0, -e_0, e_1, -e_1, ...) if signed.

    Examples
    --------
    >>> CoordinateCorners(2.0, signed=True).point(3, features=3)
    array([ 0., -2.,  0.])
    """

    radius: float
    signed: bool

    def count(self, features: int) -> int:
        return (1 + self.signed) * features

    def point(self, index: int, features: int) -> Array:
        coordinate, negative = divmod(index, 2) if self.signed else (index, 0)
        corner = np.zeros(features)
        corner[coordinate] = -self.radius if negative else self.radius
        return corner


@dataclass(frozen=True, eq=False)
class PointCorners:
    """Vertices anywhere, one in each row.

    Examples
    --------
    >>> PointCorners([[0, 1], [2, 3], [4, 4]]).point(1, features=2)
    array([2., 3.])
    """

    points: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", _read_only("points", self.points))

    def count(self, features: int) -> int:  # noqa: ARG002
        return len(self.points)

    def point(self, index: int, features: int) -> Array:  # noqa: ARG002
        return np.array(self.points[index])


Corners = CoordinateCorners | PointCorners


class ConstraintSet(ABC):
    """A compact convex set in R^features. It is public, and taken not to change once made.

    Your own needs ``minimiser``, ``contains``, ``l1_norm``, ``diameter`` and ``reach``; check it with `probe`.

    Examples
    --------
    >>> class Box(ConstraintSet):  # every weight between -1 and 1
    ...     def minimiser(self, direction):
    ...         return -np.sign(direction)
    ...     def contains(self, point, tolerance=1e-9):
    ...         return bool(np.all(np.abs(point) <= 1 + tolerance))
    ...     def l1_norm(self, features):
    ...         return float(features)
    ...     def diameter(self, features):
    ...         return 2.000001 * features**0.5
    ...     def reach(self, largest, length, features):
    ...         return 1.000001 * features**0.5 * min(length, largest * features**0.5)
    >>> probe(Box(), features=4)
    >>> round(Box().width(4), 1)  # 4 E|b|, sampled
    3.2
    """

    def check(self, features: int) -> None:
        """Raise `InvalidInput` if the set cannot live in R^features."""
        check_integer("features", features)

    @abstractmethod
    def minimiser(self, direction: Array) -> Array:
        """A point s of the set with the least <s, direction>, dense and of doubles."""

    @abstractmethod
    def contains(self, point: Array, tolerance: float = 1e-9) -> bool:
        """Whether a point lies in the set, up to a tolerance relative to the set's size."""

    @abstractmethod
    def l1_norm(self, features: int) -> float:
        """An upper bound on ||s||_1 in the set."""

    @abstractmethod
    def diameter(self, features: int) -> float:
        """An upper bound on the l2 distance of two points of the set."""

    @abstractmethod
    def reach(self, largest: float, length: float, features: int) -> float:
        """An upper bound on |<x, s>| over the set and all x with ||x||_inf <= largest and ||x||_2 <= length."""

    def corners(self, features: int) -> Corners | None:  # noqa: ARG002
        """The vertices, where there are few; else None."""
        return None

    def width(self, features: int) -> float:
        """The Gaussian width E sup |<b, s>| for b ~ N(0, I); sampled from a fixed seed unless there is a formula."""
        try:
            hash(self)
        except TypeError:  # somebody's own set, which cannot be remembered
            return self._sampled_width(features)
        return _remembered_width(self, features)

    def _sampled_width(self, features: int) -> float:
        def extents(directions: Array) -> Array:
            return np.array([max(b @ self.minimiser(-b), -(b @ self.minimiser(b))) for b in directions])

        return _sampled_mean(extents, features)


@lru_cache(maxsize=64)
def _remembered_width(constraint: ConstraintSet, features: int) -> float:
    return constraint._sampled_width(features)


class _Sized(ConstraintSet):
    """A set of some radius; the unit one says which points are within. Its diameter is a ball's."""

    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", check_positive("radius", self.radius))

    def contains(self, point: Array, tolerance: float = 1e-9) -> bool:
        with np.errstate(all="ignore"):  # overflow ends in inf or NaN, which no comparison finds small
            return bool(self._within(np.asarray(point, dtype=np.float64) / self.radius, tolerance))

    @abstractmethod
    def _within(self, point: Array, tolerance: float) -> Any: ...

    def diameter(self, features: int) -> float:  # noqa: ARG002
        return _outward(2 * self.radius)


class _OnAxes(_Sized):
    """A set whose vertices lie on the axes, on both sides of 0 or on one."""

    signed: ClassVar[bool]

    def minimiser(self, direction: Array) -> Array:
        vector = _finite(direction)
        index = int(np.abs(vector).argmax() if self.signed else vector.argmin())
        point = np.zeros(vector.size)
        point[index] = -self.radius if self.signed and vector[index] > 0 else self.radius
        return point

    def _within(self, point: Array, tolerance: float) -> Any:
        # On the simplex the two sums together leave no room for negative entries.
        inside = np.abs(point).sum() <= 1 + tolerance
        return inside and (self.signed or abs(point.sum() - 1) <= tolerance)

    def l1_norm(self, features: int) -> float:  # noqa: ARG002
        return self.radius

    def reach(self, largest: float, length: float, features: int) -> float:
        return _outward(self.radius * _row_bounds(largest, length, features)[0])

    def corners(self, features: int) -> Corners:  # noqa: ARG002
        return CoordinateCorners(self.radius, self.signed)

    def width(self, features: int) -> float:
        return self.radius * _mean_largest_length(((1, features),))


@dataclass(frozen=True)
class L1Ball(_OnAxes):
    """The weights whose absolute values sum to at most the radius: the LASSO's set, for few weights that matter.

    Examples
    --------
    >>> L1Ball(3.0).minimiser(np.array([1.0, -2.0]))
    array([0., 3.])
    """

    radius: float = 1.0
    signed: ClassVar[bool] = True


@dataclass(frozen=True)
class Simplex(_OnAxes):
    """The weights of at least 0 that sum to the radius.

    Examples
    --------
    >>> Simplex().minimiser(np.array([1.0, -2.0, 0.0]))
    array([0., 1., 0.])
    """

    radius: float = 1.0
    signed: ClassVar[bool] = False

    def diameter(self, features: int) -> float:
        return _outward(math.sqrt(2) * self.radius) if features > 1 else 0.0


@dataclass(frozen=True)
class L2Ball(_Sized):
    """The weights of Euclidean length at most the radius.

    Examples
    --------
    >>> L2Ball(10.0).minimiser(np.array([3.0, -4.0]))
    array([-6.,  8.])
    """

    radius: float = 1.0

    def minimiser(self, direction: Array) -> Array:
        scaled = _scaled(direction)
        return -self.radius * (scaled / (float(np.linalg.norm(scaled)) or 1.0))

    def _within(self, point: Array, tolerance: float) -> Any:
        return np.linalg.norm(point) <= 1 + tolerance

    def l1_norm(self, features: int) -> float:
        return _outward(self.radius * math.sqrt(features))

    def reach(self, largest: float, length: float, features: int) -> float:
        return _outward(self.radius * _row_bounds(largest, length, features)[1])

    def width(self, features: int) -> float:
        return self.radius * _mean_length(features)


@dataclass(frozen=True)
class LqBall(_Sized):
    """The weights whose lq norm is at most the radius, for 1 < q < 2: between the l1 ball and the l2 ball.

    Examples
    --------
    >>> LqBall(1.5).minimiser(np.array([1.0, 1.0])).round(3)
    array([-0.63, -0.63])
    """

    q: float
    radius: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "q", check_positive("q", self.q))
        if not 1 < self.q < 2:
            raise InvalidInput(f"q must lie strictly between 1 and 2, got {self.q}; use L1Ball for 1, L2Ball for 2")

    def minimiser(self, direction: Array) -> Array:
        scaled = _scaled(direction)
        with np.errstate(under="ignore"):
            sizes: Array = np.abs(scaled) ** (1 / (self.q - 1))
            norm = float((sizes**self.q).sum()) ** (1 / self.q)
        return -self.radius * np.sign(scaled) * (sizes / (norm or 1.0))

    def _within(self, point: Array, tolerance: float) -> Any:
        return (np.abs(point) ** self.q).sum() ** (1 / self.q) <= 1 + tolerance

    def l1_norm(self, features: int) -> float:
        return _outward(self.radius * features ** ((self.q - 1) / self.q))

    def reach(self, largest: float, length: float, features: int) -> float:
        largest, length = _row_bounds(largest, length, features)
        # ||x||_q' for the conjugate q' > 2: the sum of |x|^q' is at most largest^(q' - 2) length^2.
        share = 2 * (self.q - 1) / self.q
        return _outward(self.radius * _outward(length**share * largest ** (1 - share)))


@dataclass(frozen=True)
class GroupBall(_Sized):
    """The weights whose groups have l2 lengths that sum to at most the radius, for few groups that matter.

    Parameters
    ----------
    groups : sequence of int
        The label of each feature's group.
    radius : float

    Examples
    --------
    >>> GroupBall((0, 0, 1), radius=10.0).minimiser(np.array([3.0, -4.0, 4.5]))
    array([-6.,  8.,  0.])
    """

    groups: Sequence[int]
    radius: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        labels = np.asarray(self.groups)
        if labels.ndim != 1 or not labels.size or labels.dtype.kind not in "iu":
            raise InvalidInput(
                "groups must be a sequence of whole numbers, one for each feature; "
                "np.unique(names, return_inverse=True)[1] turns names into numbers"
            )
        object.__setattr__(self, "groups", tuple(labels.tolist()))

    @cached_property
    def _layout(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Each feature's group, counted from 0, and each group's size."""
        _, group, sizes = np.unique(np.array(self.groups), return_inverse=True, return_counts=True)
        return group, sizes

    def _group_lengths(self, point: Array) -> Array:
        self.check(point.size)
        with np.errstate(under="ignore"):
            return np.sqrt(np.bincount(self._layout[0], weights=point * point))

    def check(self, features: int) -> None:
        if check_integer("features", features) != len(self.groups):
            raise InvalidInput(f"groups has {len(self.groups)} labels, the data {features} features; give one for each")

    def minimiser(self, direction: Array) -> Array:
        scaled = _scaled(direction)
        chosen = np.where(self._layout[0] == self._group_lengths(scaled).argmax(), -scaled, 0.0)
        return self.radius * (chosen / (float(np.linalg.norm(chosen)) or 1.0))

    def _within(self, point: Array, tolerance: float) -> Any:
        return self._group_lengths(point).sum() <= 1 + tolerance

    def l1_norm(self, features: int) -> float:  # noqa: ARG002
        return _outward(self.radius * math.sqrt(self._layout[1].max()))

    def reach(self, largest: float, length: float, features: int) -> float:  # noqa: ARG002
        # The best s lies in one group, and meets no more entries of x than the group has.
        return _outward(self.radius * _row_bounds(largest, length, int(self._layout[1].max()))[1])

    def width(self, features: int) -> float:  # noqa: ARG002
        sizes, counts = np.unique(self._layout[1], return_counts=True)
        return self.radius * _mean_largest_length(tuple(zip(sizes.tolist(), counts.tolist(), strict=True)))


@dataclass(frozen=True, eq=False)
class Polytope(ConstraintSet):
    """The convex hull of given points, one in each row.

    Examples
    --------
    >>> triangle = Polytope([[0, 0], [1, 0], [0, 1]])
    >>> triangle.minimiser(np.array([-1.0, 2.0])), triangle.contains([0.3, 0.3]), triangle.contains([0.6, 0.6])
    (array([1., 0.]), True, False)
    """

    vertices: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "vertices", _read_only("vertices", self.vertices))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polytope) and np.array_equal(self.vertices, other.vertices)

    def __hash__(self) -> int:
        return hash((self.vertices.shape, self.vertices.tobytes()))

    def __reduce__(self) -> tuple[Any, ...]:  # an array forgets in a copy that it is read-only
        return type(self), (self.vertices,)

    @property
    def _scale(self) -> float:
        return float(np.abs(self.vertices).max()) or 1.0

    def check(self, features: int) -> None:
        width = self.vertices.shape[1]
        if check_integer("features", features) != width:
            raise InvalidInput(f"vertices have {width} entries each, the data {features} features; make them agree")

    def minimiser(self, direction: Array) -> Array:
        scaled = _scaled(direction)
        self.check(scaled.size)
        return np.array(self.vertices[int((self.vertices @ scaled).argmin())])

    def contains(self, point: Array, tolerance: float = 1e-9) -> bool:
        vector: Array = np.asarray(point, dtype=np.float64)
        self.check(vector.size)
        room = tolerance * self._scale
        if not ((vector >= self.vertices.min(axis=0) - room) & (vector <= self.vertices.max(axis=0) + room)).all():
            return False
        is_vertex = bool((self.vertices == vector).all(axis=1).any())
        return is_vertex or _distance_to_hull(self.vertices / self._scale, vector / self._scale) <= tolerance

    def l1_norm(self, features: int) -> float:  # noqa: ARG002
        return _outward(float(np.abs(self.vertices).sum(axis=1).max()))

    def diameter(self, features: int) -> float:
        if len(self.vertices) ** 2 * features <= 10**8:
            return _outward(max(float(_lengths(self.vertices - vertex).max()) for vertex in self.vertices))
        # Too many pairs: twice the largest distance from one point is no less.
        return _outward(2 * float(_lengths(self.vertices - self.vertices.mean(axis=0)).max()))

    def reach(self, largest: float, length: float, features: int) -> float:
        largest, length = _row_bounds(largest, length, features)
        sums: Array = np.abs(self.vertices).sum(axis=1)
        with np.errstate(over="ignore"):
            return _outward(float(np.minimum(largest * sums, length * _lengths(self.vertices)).max()))

    def corners(self, features: int) -> Corners:  # noqa: ARG002
        return PointCorners(self.vertices)

    def _sampled_width(self, features: int) -> float:
        rows: Array = self.vertices / self._scale
        if len(rows) < features:  # only the points' inner products matter: turn them into fewer axes
            rows = np.linalg.qr(rows.T)[1].T
        return self._scale * _sampled_mean(lambda b: np.abs(b @ rows.T).max(axis=1), rows.shape[1])


def _distance_to_hull(vertices: Array, point: Array) -> float:
    """The largest entry of the difference to the nearest mixture of vertices, by a linear programme."""
    count, features = vertices.shape
    slack = -np.ones((features, 1))
    sides = np.block([[vertices.T, slack], [-vertices.T, slack]])
    total = np.append(np.ones(count), 0.0)[np.newaxis]
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = linprog(1 - total[0], sides, np.append(point, -point), total, [1.0], options=options)
    if found.x is None:
        return math.inf
    shares = np.maximum(found.x[:-1], 0)
    return float(np.abs(shares @ vertices / shares.sum() - point).max())


# Sets whose oracles need no probing.
OWN_SETS = (L1Ball, Simplex, L2Ball, LqBall, GroupBall, Polytope)


def named_set(name: str, radius: float) -> ConstraintSet:
    """The set of that name: "l1", "simplex" or "l2".

    Examples
    --------
    >>> named_set("l1", 2.0)
    L1Ball(radius=2.0)
    """
    sets: dict[str, Callable[[float], ConstraintSet]] = {"l1": L1Ball, "simplex": Simplex, "l2": L2Ball}
    if not isinstance(name, str) or name not in sets:
        raise InvalidInput(
            f"a named set is one of {', '.join(map(repr, sets))}, got {name!r}; for another one pass an object: "
            "LqBall(q, radius), GroupBall(groups, radius), Polytope(vertices) or your own ConstraintSet"
        )
    return sets[name](radius)


def probe(constraint: ConstraintSet, features: int) -> None:
    """Refuse a set whose answers to a handful of public questions contradict each other.

    What passes may still be wrong elsewhere; the sets of this module need no probe.

    Examples
    --------
    >>> probe(L2Ball(2.0), features=10)
    """
    if not isinstance(constraint, ConstraintSet):
        raise InvalidInput(f"a constraint must be a ConstraintSet, got {type(constraint).__name__}; derive from it")
    constraint.check(features)
    axes = np.vstack([np.eye(1, features, place) for place in sorted({0, features // 2, features - 1})])
    fixed = np.vstack([axes, np.ones(features)])
    directions = np.vstack([fixed, -fixed, np.random.default_rng(8).standard_normal((8, features))])
    answers = np.array([_answer(constraint, direction) for direction in directions])
    _check_least(constraint, directions, answers)
    _check_sizes(constraint, directions, answers)


def _asked(constraint: ConstraintSet, method: str, *arguments: Any) -> Any:
    try:
        return getattr(constraint, method)(*arguments)
    except Exception as error:
        raise InvalidInput(f"{type(constraint).__name__}.{method} raised {type(error).__name__}; mend it") from error


def _answer(constraint: ConstraintSet, direction: Array) -> Array:
    name = f"{type(constraint).__name__}.minimiser"
    answer = _asked(constraint, "minimiser", direction.copy())
    if not isinstance(answer, np.ndarray) or answer.shape != direction.shape or answer.dtype.kind != "f":
        raise InvalidInput(f"{name} must return an array of floats of the direction's shape, {direction.shape}")
    if not np.isfinite(answer).all():
        raise InvalidInput(f"{name} returned NaN or infinity; scale the direction before taking powers of it")
    if not _asked(constraint, "contains", answer):
        raise InvalidInput(f"{name} returned a point that contains() refuses; mend one of the two")
    return answer.astype(np.float64)


def _check_least(constraint: ConstraintSet, directions: Array, answers: Array) -> None:
    """No answer may be beaten by another point of the set: any answer, its opposite, or one further out."""
    values = (directions * answers).sum(axis=1)
    allowed = 1e-6 * _lengths(directions) * _lengths(answers).max()
    others = [other for answer in answers for other in (-answer, 1.1 * answer) if _asked(constraint, "contains", other)]
    if any((values > directions @ point + allowed).any() for point in [*answers, *others]):
        raise InvalidInput(
            f"{type(constraint).__name__}.minimiser returned a point that is not the least: another one in the set has "
            "a smaller product with the direction; return the argmin over s of <s, direction>"
        )


def _check_sizes(constraint: ConstraintSet, directions: Array, answers: Array) -> None:
    """The public bounds must hold at least for the answers."""
    features = directions.shape[1]
    distance = max(float(_lengths(answers - answer).max()) for answer in answers)
    attained: list[tuple[str, tuple[Any, ...], float]] = [
        ("l1_norm", (features,), float(np.abs(answers).sum(axis=1).max())),
        ("diameter", (features,), distance),
    ]
    products, largest = np.abs(directions @ answers.T).max(axis=1), np.abs(directions).max(axis=1)
    for size, length, product in zip(largest.tolist(), _lengths(directions).tolist(), products.tolist(), strict=True):
        attained += [("reach", (size, bound * (1 + 1e-12), features), product) for bound in (length, math.inf)]
    for method, arguments, least in attained:
        if not least <= _asked(constraint, method, *arguments) * (1 + 1e-9):
            raise InvalidInput(
                f"{type(constraint).__name__}.{method} is less than what points returned by minimiser attain; "
                "return an upper bound over the whole set"
            )
