"""Kernels: values, bounds, and points of any kind."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from scipy import sparse

from epsilearn.errors import InvalidInput
from epsilearn.kernel import (
    RBF,
    HistogramIntersection,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    UserKernel,
    kernels,
)

GENERATOR = np.random.default_rng(0)
ROWS = GENERATOR.dirichlet(np.ones(5), 40)


def spectrum(a: str, b: str) -> float:
    """How many pairs of letters two words share."""
    return float(sum(a[i : i + 2] == b[j : j + 2] for i in range(len(a) - 1) for j in range(len(b) - 1)))


WORDS = ["private", "privacy", "kernel", "colonel", "convex", "vexed"]
ON_ROWS = [
    (Linear(1.0), lambda x, y: x @ y),
    (Polynomial(3, 1.0, 1.0), lambda x, y: (x @ y + 1) ** 3),
    (Polynomial(2, 0.0, 2.0), lambda x, y: (x @ y) ** 2),
    (RBF(0.7), lambda x, y: np.exp(-0.7 * np.sum((x - y) ** 2))),
    (Laplacian(0.7), lambda x, y: np.exp(-0.7 * np.sum(np.abs(x - y)))),
    (HistogramIntersection(1.0), lambda x, y: np.minimum(x, y).sum()),
]
BY_NAME = pytest.mark.parametrize(
    ("kernel", "formula"), ON_ROWS, ids=lambda value: getattr(type(value), "__name__", "")
)


@BY_NAME
def test_values_are_the_formulas_and_make_a_kernel(kernel, formula):
    points = kernel.points(ROWS)
    gram = kernel.matrix(points, points)
    expected = [[formula(x, y) for y in ROWS] for x in ROWS]
    np.testing.assert_allclose(gram, expected, rtol=1e-12, atol=1e-14)
    assert np.linalg.eigvalsh(gram)[0] > -1e-10
    np.testing.assert_allclose(kernel.squares(points), np.diag(gram), rtol=1e-12)


@BY_NAME
def test_no_point_inside_the_declared_range_is_longer_than_the_bound(kernel, formula):
    points = kernel.points(ROWS / ROWS.sum(axis=1, keepdims=True))
    assert (np.sqrt(kernel.squares(points)) <= kernel.bound * (1 + 1e-12)).all()
    kernel.check_public(points)
    # The bound is attained, so a smaller one would not do.
    corner = kernel.points(np.eye(5)[:1] * (kernel.data_norm if hasattr(kernel, "data_norm") else 1.0))
    assert np.sqrt(kernel.squares(corner))[0] == pytest.approx(kernel.bound, rel=1e-12)


@pytest.mark.parametrize("kernel", [Linear(0.5), Polynomial(3, 1.0, 0.5), HistogramIntersection(0.5)])
def test_longer_private_points_are_scaled_down_and_public_ones_refused(kernel):
    points = kernel.points(10 * ROWS)
    lengths = np.sqrt(kernel.squares(points))
    factors = kernel.factors(points)
    assert (factors * lengths <= kernel.bound).all()
    assert (factors * lengths > 0.999 * kernel.bound).all()
    with pytest.raises(InvalidInput, match="above the declared bound"):
        kernel.check_public(points)
    # Points inside are left alone, and a point at zero is no trouble.
    inside = kernel.points(np.vstack([0.01 * ROWS, np.zeros((1, 5))]))
    assert (kernel.factors(inside) == 1).all()


@pytest.mark.parametrize("kernel", [Linear(1.0), Polynomial(3, 1.0, 1.0), RBF(0.5), HistogramIntersection(1.0)])
def test_sparse_points_give_the_same_values(kernel):
    dense, rows = kernel.points(ROWS), kernel.points(sparse.csr_array(ROWS))
    np.testing.assert_allclose(kernel.matrix(rows, rows), kernel.matrix(dense, dense), rtol=1e-9)
    np.testing.assert_allclose(kernel.squares(rows), kernel.squares(dense), rtol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "points"),
    [(RBF(1.0), ROWS), (UserKernel(spectrum, 4.0), WORDS), (Precomputed(ROWS @ ROWS.T, 1.0), np.arange(40))],
    ids=["rbf", "texts", "precomputed"],
)
def test_blocks_put_together_are_the_matrix(kernel, points, monkeypatch):
    monkeypatch.setattr(kernels, "_BLOCK", 3 * len(points))
    points = kernel.points(points)
    parts = list(kernel.blocks(points, points))
    assert len(parts) == -(-len(points) // 3)
    np.testing.assert_allclose(np.vstack([values for _, values in parts]), kernel.matrix(points, points))
    assert [here.start for here, _ in parts] == list(range(0, len(points), 3))


def test_texts_are_points_too():
    kernel = UserKernel(spectrum, declared=3.0)
    points = kernel.points(WORDS)
    gram = kernel.matrix(points, points)
    assert gram[0, 1] == 4  # pr ri iv va
    assert np.linalg.eigvalsh(gram)[0] > -1e-9
    assert (kernel.factors(points) ** 2 * kernel.squares(points) <= 9.0).all()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: Precomputed(np.ones((2, 3))), "square"),
        (lambda: Precomputed(np.array([[1.0, 2.0], [0.0, 1.0]])), "symmetric"),
        (lambda: Precomputed(np.array([[1.0, 2.0], [2.0, 1.0]])), "negative eigenvalues"),
        (lambda: Precomputed(np.array([[np.nan]])), "finite"),
        (lambda: Precomputed(np.eye(3)).points([0, 3]), "between 0 and 2"),
        (lambda: Precomputed(np.eye(3)).points([0.5]), "whole numbers"),
        (lambda: UserKernel(lambda a, b: np.inf, 1.0).matrix([1], [1]), "finite"),
        (lambda: UserKernel(spectrum, 1.0).points([]), "at least one"),
        (lambda: HistogramIntersection().points(-ROWS), "negative entries"),
        (lambda: RBF().points(np.full((2, 2), np.nan)), "NaN"),
        (lambda: RBF().points(np.ones(3)), "rows of numbers"),
        (lambda: RBF(gamma=-1.0), "gamma"),
        (lambda: Polynomial(degree=0), "degree"),
        (lambda: Polynomial(constant=-1.0), "constant"),
        (lambda: Linear(data_norm=np.inf), "data_norm"),
        (lambda: UserKernel(spectrum, declared=0.0), "declared"),
    ],
)
def test_what_is_no_kernel_or_no_point_is_refused(wrong, words):
    with pytest.raises(InvalidInput, match=words):
        wrong()


@pytest.mark.parametrize("kernel", [*(kernel for kernel, _ in ON_ROWS), UserKernel(spectrum, 2.0)])
def test_kernels_are_values(kernel):
    assert pickle.loads(pickle.dumps(kernel)) == copy.deepcopy(kernel) == kernel
