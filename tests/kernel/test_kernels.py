"""Kernels: values, bounds, and points of any kind."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from scipy import sparse

from epsilearn.balls import ball, precision
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
    lengths = _lengths_inside(kernel, points)
    assert (lengths <= kernel.bound).all()
    assert (lengths > 0.999 * kernel.bound).all()
    with pytest.raises(InvalidInput, match="above the declared bound"):
        kernel.check_public(points)
    # Points inside are left alone, and a point at zero is no trouble.
    inside = kernel.points(np.vstack([0.01 * ROWS, np.zeros((1, 5))]))
    scaled, factors = kernel.inside(inside)
    assert (factors == 1).all()
    np.testing.assert_array_equal(scaled, inside)


@pytest.mark.parametrize("kernel", [Linear(0.5), Polynomial(3, 1.0, 0.5), RBF(1.0), HistogramIntersection(0.5)])
def test_giants_are_brought_inside_like_any_other_private_point(kernel):
    giants = kernel.points(np.array([[1e308, 1e308, 1e300], [5e-324, 0.0, 0.0], [1e160, 0.0, 2.0]]))
    lengths = _lengths_inside(kernel, giants)
    assert (lengths <= kernel.bound).all()
    points, _ = kernel.inside(giants)
    assert np.isfinite(kernel.matrix(points, points)).all()


def _lengths_inside(kernel, points):
    points, factors = kernel.inside(points)
    return factors * np.sqrt(kernel.squares(points))


@BY_NAME
def test_no_value_is_further_off_than_the_bound_on_its_rounding(kernel, formula):
    """Against exact arithmetic, on points as long as the bound allows (and RBF's far from the origin)."""
    generator = np.random.default_rng(1)
    points = generator.dirichlet(np.ones(200) / 5, 6)
    if isinstance(kernel, (RBF, Laplacian)):
        points = 1e6 + 0.1 * generator.normal(size=(6, 200))
    points, _ = kernel.inside(kernel.points(points))
    found = kernel.matrix(points, points)
    with precision(200):
        errors = [ball(float(found[i, j])) - _exactly(kernel, points[i], points[j]) for i in range(6) for j in range(6)]
        assert all(abs(error) <= kernel.rounding(200) for error in errors)


def _exactly(kernel, x, y):
    pairs = [(ball(float(a)), ball(float(b))) for a, b in zip(x, y, strict=True)]
    if isinstance(kernel, HistogramIntersection):
        return sum((a.min(b) for a, b in pairs), ball(0))
    if isinstance(kernel, RBF):
        return (-ball(kernel.gamma) * sum(((a - b) ** 2 for a, b in pairs), ball(0))).exp()
    if isinstance(kernel, Laplacian):
        return (-ball(kernel.gamma) * sum((abs(a - b) for a, b in pairs), ball(0))).exp()
    product = sum((a * b for a, b in pairs), ball(0))
    return product if isinstance(kernel, Linear) else (product + ball(kernel.constant)) ** kernel.degree


@pytest.mark.parametrize(
    ("kernel", "points"),
    [
        (RBF(1.0), ROWS),
        (Linear(1.0), sparse.random_array((6, 9), density=0.3, rng=2, format="csr")),
        (UserKernel(spectrum, 4.0), WORDS),
        (UserKernel(lambda a, b: float(len(a & b)), 4.0), [frozenset({1, 2}), frozenset({"a"})]),
        (UserKernel(lambda a, b: 1.0, 4.0), [((1, "x"), 2.5), ((), None)]),
        (Precomputed(ROWS @ ROWS.T, 1.0), np.arange(40)),
    ],
    ids=["rows", "sparse", "texts", "sets", "tuples", "precomputed"],
)
def test_points_written_down_read_back_the_same(kernel, points):
    points = kernel.points(points)
    codes = kernel.encode(points)
    again = kernel.decode(codes)
    assert kernel.encode(again) == codes
    assert len(set(codes)) == kernel.count(points)
    if isinstance(points, list):
        assert again == points
    else:
        np.testing.assert_array_equal(again, points.toarray() if sparse.issparse(points) else points)


def test_the_same_row_has_the_same_code_whatever_it_came_in():
    row = np.array([[0.0, -0.0, 2.0]])
    repeated = sparse.csr_array((np.array([1.0, 1.0]), np.array([2, 2]), np.array([0, 2])), shape=(1, 3))
    codes = {RBF().encode(RBF().points(form))[0] for form in (row, sparse.csr_array(row), repeated, row.astype(int))}
    assert len(codes) == 1


def test_points_that_cannot_be_written_down_are_refused():
    with pytest.raises(InvalidInput, match="cannot be written down"):
        UserKernel(lambda a, b: 1.0, 1.0).encode([object()])


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
    _, factors = kernel.inside(points)
    assert (factors**2 * kernel.squares(points) <= 9.0).all()


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
        (lambda: RBF().points(np.ones((1, 3)), width=2), "must have 2 columns"),
        (lambda: UserKernel(spectrum, 1.0).points("text"), "a list"),
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
