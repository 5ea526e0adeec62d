"""Balls of several norms, and the simplex."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from epsilearn.checks import check_integer, check_positive
from epsilearn.constraints.geometry import (
    finite,
    mean_largest_length,
    mean_length,
    outward,
    row_bounds,
    to_unit_size,
)
from epsilearn.constraints.interface import ConstraintSet, CoordinateCorners, Corners
from epsilearn.errors import InvalidInput

__all__ = ["GroupBall", "L1Ball", "L2Ball", "LqBall", "Simplex", "named_set"]

Array = NDArray[np.float64]


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
        return outward(2 * self.radius)


class _OnAxes(_Sized):
    """A set whose vertices lie on the axes, on both sides of 0 or on one."""

    signed: ClassVar[bool]

    def minimiser(self, direction: Array) -> Array:
        vector = finite(direction)
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
        return outward(self.radius * row_bounds(largest, length, features)[0])

    def corners(self, features: int) -> Corners:  # noqa: ARG002
        return CoordinateCorners(self.radius, self.signed)

    def width(self, features: int) -> float:
        return self.radius * mean_largest_length(((1, features),))


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
        return outward(math.sqrt(2) * self.radius) if features > 1 else 0.0


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
        scaled = to_unit_size(direction)
        return -self.radius * (scaled / (float(np.linalg.norm(scaled)) or 1.0))

    def _within(self, point: Array, tolerance: float) -> Any:
        return np.linalg.norm(point) <= 1 + tolerance

    def l1_norm(self, features: int) -> float:
        return outward(self.radius * math.sqrt(features))

    def reach(self, largest: float, length: float, features: int) -> float:
        return outward(self.radius * row_bounds(largest, length, features)[1])

    def width(self, features: int) -> float:
        return self.radius * mean_length(features)


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
        scaled = to_unit_size(direction)
        with np.errstate(under="ignore"):
            sizes: Array = np.abs(scaled) ** (1 / (self.q - 1))
            norm = float((sizes**self.q).sum()) ** (1 / self.q)
        return -self.radius * np.sign(scaled) * (sizes / (norm or 1.0))

    def _within(self, point: Array, tolerance: float) -> Any:
        return (np.abs(point) ** self.q).sum() ** (1 / self.q) <= 1 + tolerance

    def l1_norm(self, features: int) -> float:
        return outward(self.radius * features ** ((self.q - 1) / self.q))

    def reach(self, largest: float, length: float, features: int) -> float:
        largest, length = row_bounds(largest, length, features)
        # ||x||_q' for the conjugate q' > 2: the sum of |x|^q' is at most largest^(q' - 2) length^2.
        share = 2 * (self.q - 1) / self.q
        return outward(self.radius * outward(length**share * largest ** (1 - share)))


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
        scaled = to_unit_size(direction)
        chosen = np.where(self._layout[0] == self._group_lengths(scaled).argmax(), -scaled, 0.0)
        return self.radius * (chosen / (float(np.linalg.norm(chosen)) or 1.0))

    def _within(self, point: Array, tolerance: float) -> Any:
        return self._group_lengths(point).sum() <= 1 + tolerance

    def l1_norm(self, features: int) -> float:  # noqa: ARG002
        return outward(self.radius * math.sqrt(self._layout[1].max()))

    def reach(self, largest: float, length: float, features: int) -> float:  # noqa: ARG002
        # The best s lies in one group, and meets no more entries of x than the group has.
        return outward(self.radius * row_bounds(largest, length, int(self._layout[1].max()))[1])

    def width(self, features: int) -> float:  # noqa: ARG002
        sizes, counts = np.unique(self._layout[1], return_counts=True)
        return self.radius * mean_largest_length(tuple(zip(sizes.tolist(), counts.tolist(), strict=True)))


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
