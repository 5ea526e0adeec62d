"""A public function: the sum of a few coefficients times the features of public points."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from epsilearn.kernel.features import NOTHING, FeatureMap
from epsilearn.kernel.kernels import Kernel

__all__ = ["Hypothesis"]

Array = NDArray[np.float64]


class Hypothesis:
    """f(x) = sum of coefficients times K(z, x) over public points z; it holds nothing private.

    Parameters
    ----------
    kernel : Kernel
        K.
    features : FeatureMap, optional
        Where K is that of a finite map.

    Examples
    --------
    >>> from epsilearn.kernel import RBF
    >>> function = Hypothesis(RBF(1.0))
    >>> function.add(np.zeros((1, 2)), np.array([2.0]))
    >>> function.values(np.array([[0.0, 0.0], [9.0, 9.0]])).round(3).tolist()
    [2.0, 0.0]
    """

    def __init__(self, kernel: Kernel, features: FeatureMap | None = None) -> None:
        self.kernel, self.features = kernel, features
        self.points: Any = None
        self.coef: Array = np.empty(0)
        self._weights: Array = np.empty(0)

    def add(self, points: Any, coef: Array) -> None:
        """Add coefficients times the features of these points."""
        self.points = points if self.points is None else self.kernel.join([self.points, points])
        self.coef = np.append(self.coef, coef)
        if self.features is not None:
            added = sum(block.T @ coef[here] for here, block in self.features.blocks(points))
            self._weights = added if not len(self._weights) else self._weights + added

    def values(self, points: Any, factors: Array | None = None) -> Array:
        """The function at any number of points, memory bounded; ``factors`` multiply their features, where given."""
        if self.points is None:
            return np.zeros(self.kernel.count(points))
        if self.features is not None:
            return self.features.scores(points, self._weights, factors)
        # Total and bounded: which points there are depends on records, and so may what a predictor is asked about.
        inside = np.ones(self.kernel.count(points)) if factors is None else factors
        return self.kernel.total.sums(points, self.points, self.coef, inside)

    def weights(self, columns: int) -> Array:
        """The same function as weights of a finite map's features."""
        return self._weights if len(self._weights) else np.zeros(columns)

    def move(self, distance: float, square: float) -> float:
        """The coefficient that makes up for a distance at a point with this K(z, z).

        None where its features are as good as none: a coefficient beyond the doubles would spoil all later values.
        """
        bound = self.kernel.bound if self.features is None else self.features.bound
        return distance / square if square > NOTHING * bound**2 else 0.0

    def squares(self, points: Any) -> Array:
        """K(z, z) at each point."""
        if self.features is None:
            return self.kernel.squares(points)
        out = np.empty(self.kernel.count(points))
        for here, block in self.features.blocks(points):
            out[here] = np.asarray(
                block.multiply(block).sum(axis=1) if hasattr(block, "multiply") else (block**2).sum(1)
            ).ravel()
        return out

    def gram(self, points: Any) -> Array:
        """K between all pairs of a few points."""
        if self.features is None:
            return self.kernel.matrix(points, points)
        # In the blocks in which values are computed: the same features, to the last bit.
        blocks = [block for _, block in self.features.blocks(points)]
        table = sparse.vstack(blocks, format="csr") if sparse.issparse(blocks[0]) else np.concatenate(blocks)
        product = table @ table.T
        return np.asarray(product.toarray() if sparse.issparse(product) else product, np.float64)
