"""Public maps from points to a finite number of features, whose inner products are a kernel, exactly or nearly.

A map is fixed before any private record is looked at. With one, a kernel machine is a linear model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh

from epsilearn.checks import check_integer, check_share
from epsilearn.errors import InvalidInput
from epsilearn.kernel.kernels import RBF, Kernel, Laplacian, Linear, Polynomial
from epsilearn.kernel.monomials import countable, monomial_count, monomials
from epsilearn.quiet import quietly
from epsilearn.rows.bounds import without_giants

__all__ = ["NOTHING", "FeatureMap", "Fourier", "Identity", "Landmarks", "Monomials", "exact_map"]

Array = NDArray[np.float64]

_BLOCK = 1 << 22  # numbers held at a time
# Directions in which landmarks differ by less than this share of the largest are left out: floats cannot tell them.
_FLAT = 1e-10
# Public points whose squared features are all below this share of the squared bound are as good as none.
NOTHING = 1e-100
_MOST_WAVES = 1_000_000
_LEAST_SINGLE, _LARGEST_SINGLE = 1e-30, 1e36


class FeatureMap(ABC):
    """A public map to ``columns`` features, none longer than ``bound`` altogether.

    Attributes
    ----------
    kernel : Kernel
        Whose points it takes.
    columns : int
        How many features there are.
    bound : float
        The longest a point's features can be.
    """

    kernel: Kernel
    columns: int
    bound: float

    @abstractmethod
    def features(self, points: Any) -> Any:
        """Features of a few points: a dense or sparse matrix."""

    def basis(self) -> bytes:
        """What the map rests on beyond its settings, where that is not the same on every machine."""
        return b""

    def rest_on(self, basis: bytes) -> None:  # noqa: B027 - most maps rest on nothing
        """Take over the basis of the same map, computed elsewhere."""

    def blocks(self, points: Any, factors: Array | None = None) -> Iterator[tuple[slice, Any]]:
        """Features of many points, a few at a time; ``factors`` multiply the kernel's own, where given."""
        rows = max(1, _BLOCK // self.columns)
        count = self.kernel.count(points)
        for start in range(0, count, rows):
            here = slice(start, min(start + rows, count))
            features = self.features(self.kernel.part(points, here))
            yield here, features if factors is None or (factors[here] == 1).all() else _times(features, factors[here])

    @quietly()
    def private_table(self, points: Any) -> Any:
        """Features of private points, brought inside the kernel's bound."""
        return self.table(*self.kernel.inside(points))

    def table(self, points: Any, factors: Array | None = None) -> Any:
        """Features of all points as one matrix; single precision where it is dense, since rows are what it says."""
        blocks = self.blocks(points, factors)
        here, features = next(blocks)
        if sparse.issparse(features):
            return sparse.vstack([features, *(block for _, block in blocks)], format="csr")
        table = np.empty((self.kernel.count(points), self.columns), np.float32)
        table[here] = features
        for here, features in blocks:
            table[here] = features
        return table

    @quietly()
    def scores(self, points: Any, weights: Array, factors: Array | None = None) -> Array:
        """<weights, features> at public points, however many; ``weights`` may have several columns."""
        out = np.empty((self.kernel.count(points), *weights.shape[1:]))
        for here, features in self.blocks(points, factors):
            out[here] = features @ weights
        return out


class Identity(FeatureMap):
    """The linear kernel's: a row is its own features."""

    def __init__(self, kernel: Linear, width: int) -> None:
        self.kernel, self.columns, self.bound = kernel, width, kernel.bound

    def features(self, points: Any) -> Any:
        return points

    def table(self, points: Any, factors: Array | None = None) -> Any:  # noqa: ARG002 - rows are scaled themselves
        return points


class Monomials(FeatureMap):
    """The polynomial kernel's: all products of entries, sparse where rows are."""

    def __init__(self, kernel: Polynomial, width: int) -> None:
        self.kernel, self.bound = kernel, _single(kernel.bound)
        self.columns = monomial_count(width, kernel.degree)
        self._polynomial = kernel

    def features(self, points: Any) -> Any:
        return monomials(points, self._polynomial.degree, self._polynomial.constant)


class Landmarks(FeatureMap):
    """The kernel's feature vector, projected onto the ``rank`` directions in which public points Z vary most.

    psi(x) = A k_Z(x) with A K_ZZ A' = 1. As a projection it is no longer than the kernel's own. With ``whitening`` each
    direction is also divided by a power of how much the landmarks vary along it, and rows longer than the landmarks'
    median length are scaled down to it: a few long directions then no longer use up all of the bound, and the same
    noise hides less. All of it comes from public points.

    Parameters
    ----------
    kernel : Kernel
        Any.
    landmarks : collection of points
        Public.
    rank : int or callable, optional
        How many directions to keep, or a rule that says so from the landmarks' variance along each, largest first; all
        that floats can tell apart by default.
    whitening : float
        0 for the projection itself, 1 for equal variation along all directions.

    Examples
    --------
    >>> Z = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> map = Landmarks(RBF(1.0), Z)
    >>> psi = map.features(Z)
    >>> np.allclose(psi @ psi.T, RBF(1.0).matrix(Z, Z))
    True
    """

    def __init__(
        self, kernel: Kernel, landmarks: Any, rank: int | Callable[[Array], int] | None = None, whitening: float = 0.0
    ) -> None:
        whitening = check_share("whitening", whitening)
        self.kernel, self.bound = kernel, _single(kernel.bound)
        self.landmarks = kernel.points(landmarks)
        kernel.check_public(self.landmarks)
        gram = kernel.matrix(self.landmarks, self.landmarks)
        sizes, directions = eigh(gram)
        sizes, directions = sizes[::-1], directions[:, ::-1]
        if not sizes[0] > NOTHING * kernel.bound**2:
            raise InvalidInput(
                "the landmarks all have features of length 0, or next to it beside the kernel's bound; choose others"
            )
        most = int((sizes > _FLAT * sizes[0]).sum())
        self.spectrum: Array = sizes[:most] / len(sizes)
        wanted = most if rank is None else rank(self.spectrum) if callable(rank) else check_integer("rank", rank)
        self.columns = min(wanted, most)
        self.projection: Array = np.ascontiguousarray(directions[:, : self.columns] / np.sqrt(sizes[: self.columns]))
        self.factors: Array | None = None
        if whitening > 0:
            factors = self.spectrum[: self.columns] ** (-whitening / 2)
            own = gram @ self.projection * factors
            median = float(np.median(np.linalg.norm(own, axis=1)))
            if not median > 0:
                raise InvalidInput("half of the landmarks or more have features of length 0; choose others")
            self.factors, self.bound = factors / median, 1.0

    @classmethod
    def restored(
        cls, kernel: Kernel, landmarks: Array, projection: Array, factors: Array | None, bound: float
    ) -> Landmarks:
        """The same map as one whose numbers were kept, to the last bit."""
        found = cls.__new__(cls)
        found.kernel, found.landmarks, found.bound = kernel, landmarks, bound
        found.projection, found.factors, found.columns = projection, factors, projection.shape[1]
        return found

    def basis(self) -> bytes:
        return self.projection.tobytes()

    def rest_on(self, basis: bytes) -> None:
        self.projection = np.frombuffer(basis).reshape(-1, self.columns)

    def features(self, points: Any) -> Any:
        return self.whitened(self.kernel.matrix(points, self.landmarks) @ self.projection)

    def blocks(self, points: Any, factors: Array | None = None) -> Iterator[tuple[slice, Any]]:
        # Points that come with factors may be private.
        kernel = self.kernel if factors is None else self.kernel.total
        for here, values in kernel.blocks(points, self.landmarks):
            scaled = values if factors is None else kernel.within(values * factors[here][:, None])
            yield here, self.whitened(scaled @ self.projection)

    def whitened(self, projected: Array) -> Array:
        """The features of points from their plain projection onto the first directions."""
        features = projected if self.factors is None else projected * self.factors
        # A projection is no longer than what it is one of, but floats' can be, where landmarks hardly differ.
        features /= np.maximum(1.0, np.linalg.norm(features, axis=1) / (self.bound * (1 - 2.0**-40)))[:, None]
        return features


class Fourier(FeatureMap):
    """Random cosines and sines (Rahimi and Recht 2007) for a kernel of x - y: the earlier papers' way.

    The frequencies are public and drawn once from a seed that is part of the model.

    Examples
    --------
    >>> map = Fourier(RBF(0.5), width=2, count=2000, seed=0)
    >>> psi = map.features(np.array([[0.0, 0.0], [1.0, 0.0]]))
    >>> bool(abs(psi[0] @ psi[1] - np.exp(-0.5)) < 0.1)
    True
    """

    def __init__(self, kernel: Kernel, width: int, count: int, seed: int = 0) -> None:
        if not isinstance(kernel, (RBF, Laplacian)):
            raise InvalidInput("random features need a kernel of x - y: RBF or Laplacian; use landmarks for others")
        pairs = check_integer("n_features", count, least=2) // 2
        if count > _MOST_WAVES:
            raise InvalidInput(f"n_features must be at most {_MOST_WAVES}; choose fewer, or use landmarks")
        self.kernel, self.columns, self.bound = kernel, 2 * pairs, 1.0 + 1e-12
        generator = np.random.default_rng(check_integer("feature_seed", seed, least=0))
        if isinstance(kernel, RBF):
            self._frequencies = generator.normal(scale=np.sqrt(2 * kernel.gamma), size=(width, pairs))
        else:
            self._frequencies = generator.standard_cauchy(size=(width, pairs)) * kernel.gamma

    def features(self, points: Any) -> Any:
        # Of rows so long that a product would overflow only a power of two is left out: each row's own affair.
        phases = without_giants(points)[0] @ self._frequencies
        waves: Array = np.hstack([np.cos(phases), np.sin(phases)]) / np.sqrt(self.columns / 2)
        return waves


def _single(bound: float) -> float:
    """A bound on features that are kept in single precision: beyond it, some records' would leave their range."""
    if not _LEAST_SINGLE <= bound <= _LARGEST_SINGLE:
        raise InvalidInput(
            f"the kernel's bound must lie between {_LEAST_SINGLE:g} and {_LARGEST_SINGLE:g} where features are written "
            f"out, got {bound:g}; rescale the points, and the bound with them"
        )
    return bound


def _times(features: Any, factors: Array) -> Any:
    return sparse.diags_array(factors) @ features if sparse.issparse(features) else features * factors[:, None]


def exact_map(kernel: Kernel, width: int) -> FeatureMap | None:
    """The kernel's own feature map where it is finite and small enough to be written out."""
    if isinstance(kernel, Linear):
        return Identity(kernel, width)
    if isinstance(kernel, Polynomial) and countable(width, kernel.degree):
        return Monomials(kernel, width)
    return None
