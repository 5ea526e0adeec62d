"""What private Frank-Wolfe needs of a convex set: its minimisers, its size, and its corners if they are few."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from epsilearn.checks import check_integer
from epsilearn.constraints.geometry import read_only, sampled_mean

__all__ = ["ConstraintSet", "CoordinateCorners", "Corners", "PointCorners"]

Array = NDArray[np.float64]


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
        object.__setattr__(self, "points", read_only("points", self.points))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PointCorners) and np.array_equal(self.points, other.points)

    def __hash__(self) -> int:
        return hash((self.points.shape, self.points.tobytes()))

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
    >>> import numpy as np
    >>> from epsilearn.constraints import ConstraintSet, probe
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

        return sampled_mean(extents, features)


@lru_cache(maxsize=64)
def _remembered_width(constraint: ConstraintSet, features: int) -> float:
    return constraint._sampled_width(features)
