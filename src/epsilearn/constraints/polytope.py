"""The convex hull of given points."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from epsilearn.checks import check_integer
from epsilearn.constraints.geometry import lengths, outward, read_only, row_bounds, sampled_mean, to_unit_size
from epsilearn.constraints.interface import ConstraintSet, Corners, PointCorners
from epsilearn.errors import InvalidInput

__all__ = ["Polytope"]

Array = NDArray[np.float64]


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
        # What was given, not the copy, tells whether it was a private table.
        object.__setattr__(self, "_given", self.vertices)
        object.__setattr__(self, "vertices", read_only("vertices", self.vertices))

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
        scaled = to_unit_size(direction)
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
        return outward(float(np.abs(self.vertices).sum(axis=1).max()))

    def diameter(self, features: int) -> float:
        if len(self.vertices) ** 2 * features <= 10**8:
            return outward(max(float(lengths(self.vertices - vertex).max()) for vertex in self.vertices))
        # Too many pairs: twice the largest distance from one point is no less.
        return outward(2 * float(lengths(self.vertices - self.vertices.mean(axis=0)).max()))

    def reach(self, largest: float, length: float, features: int) -> float:
        largest, length = row_bounds(largest, length, features)
        sums: Array = np.abs(self.vertices).sum(axis=1)
        with np.errstate(over="ignore"):
            return outward(float(np.minimum(largest * sums, length * lengths(self.vertices)).max()))

    def corners(self, features: int) -> Corners:  # noqa: ARG002
        return PointCorners(self.vertices)

    def _sampled_width(self, features: int) -> float:
        rows: Array = self.vertices / self._scale
        if len(rows) < features:  # only the points' inner products matter: turn them into fewer axes
            rows = np.linalg.qr(rows.T)[1].T
        return self._scale * sampled_mean(lambda b: np.abs(b @ rows.T).max(axis=1), rows.shape[1])


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
