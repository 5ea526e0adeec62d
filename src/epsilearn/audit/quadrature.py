"""Nodes to integrate densities at, which have corners at known places and are smooth in between."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["graded_edges", "nodes", "product_nodes"]

Array = NDArray[np.float64]

_STEEP = 9.0  # how much finer edges are at a centre than far away: about e to this


def nodes(edges: Array, each: int = 2) -> tuple[Array, Array]:
    """Points and weights of Gauss and Legendre, so many in each cell between two edges.

    Examples
    --------
    >>> points, weights = nodes(np.array([0.0, 0.5, 2.0]))
    >>> round(float(weights @ points**3), 9)  # two nodes are exact up to the third power
    4.0
    """
    places, shares = np.polynomial.legendre.leggauss(each)
    middles, halves = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    return (middles[:, None] + halves[:, None] * places).ravel(), (halves[:, None] * shares).ravel()


def graded_edges(centres: Sequence[float], extent: float, count: int) -> Array:
    """Edges around each of these centres, finest there, where densities have their corners."""
    spread = np.sinh(np.linspace(-_STEEP, _STEEP, count)) / math.sinh(_STEEP)
    edges: Array = np.unique(np.concatenate([centre + extent * spread for centre in {*centres}]))
    return edges


def product_nodes(axes: Sequence[Array]) -> tuple[Array, Array]:
    """Points of shape (nodes, axes), and the logarithms of their weights, of cells between edges along each axis."""
    placed = [nodes(edges) for edges in axes]
    points = np.stack([axis.ravel() for axis in np.meshgrid(*[p for p, _ in placed], indexing="ij")], axis=1)
    weights = np.meshgrid(*[np.log(w) for _, w in placed], indexing="ij")
    return points, np.sum([axis.ravel() for axis in weights], axis=0)
