"""Rows in memory: one contract for every layout, and rounding bounds checked in extended precision."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from epsilearn.errors import InvalidInput
from epsilearn.losses import Huber, HuberisedHinge, Logistic, Loss, Squared
from epsilearn.rows import Bounds, DenseRows, SparseRows, as_rows

LAYOUTS = {
    "C order": np.ascontiguousarray,
    "Fortran order": np.asfortranarray,
    "every other row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "pandas": pd.DataFrame,
    "polars": lambda X: pl.DataFrame({f"c{j}": X[:, j] for j in range(X.shape[1])}),
    "csr": sparse.csr_array,
    "csc": sparse.csc_matrix,
    "coo": sparse.coo_array,
}
LOSSES = [Logistic(), HuberisedHinge(0.5), Squared(1.0), Huber(0.5, 1.0)]


class Unknown(Logistic):
    """The logistic loss under a name the compiled passes do not know."""


def table(n: int = 5000, d: int = 7, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, d)) * (generator.random((n, d)) < 0.6)
    X[0] = 0.0
    return X, generator.choice([-1.0, 1.0], n), generator.normal(size=d + 1)


def clipped(X: np.ndarray, bounds: Bounds) -> np.ndarray:
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    scaled = X * np.minimum(1, bounds.data_norm / np.maximum(norms, 1e-300))
    return np.hstack([scaled, np.full((len(X), 1), bounds.intercept)])[:, : X.shape[1] + (bounds.intercept != 0)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", [*LOSSES, Unknown()], ids=repr)
@pytest.mark.parametrize("intercept", [0.0, 0.7])
def test_sums_against_plain_numpy(layout, loss, intercept):
    X, y, coef = table()
    bounds = Bounds(1.5, intercept=intercept)
    rows = as_rows(LAYOUTS[layout](X), y, bounds)
    Z = clipped(X, bounds)
    coef = coef[: rows.d]
    sums = rows.sums(loss, coef, hessian=rows.dense)
    scores = Z @ coef
    assert sums.value == pytest.approx(loss.value(scores, y).mean(), rel=1e-10)
    np.testing.assert_allclose(sums.gradient, Z.T @ loss.slope(scores, y) / len(y), atol=1e-11)
    hessian = (Z * loss.curvature(scores, y)[:, None]).T @ Z / len(y)
    if rows.dense:
        np.testing.assert_allclose(sums.hessian, hessian, atol=1e-10)
    np.testing.assert_allclose(rows.product(coef), hessian @ coef, atol=1e-10)


@pytest.mark.parametrize("make", [np.ascontiguousarray, np.asfortranarray, sparse.csr_array])
def test_single_precision_is_read_as_it_is(make):
    X, y, coef = table()
    narrow = X.astype(np.float32)
    sums = as_rows(make(narrow), y, Bounds(1.5)).sums(Logistic(), coef)
    wide = as_rows(np.ascontiguousarray(narrow.astype(float)), y, Bounds(1.5)).sums(Logistic(), coef)
    np.testing.assert_allclose(sums.gradient, wide.gradient, atol=1e-12)


def test_no_copy_is_made_of_what_can_be_read():
    X, y, _ = table()
    assert DenseRows(X, y, Bounds())._X is X
    assert DenseRows(np.asfortranarray(X), y, Bounds())._X.flags.f_contiguous
    before = X.copy()
    DenseRows(X, y, Bounds(0.1)).sums(Logistic(), np.zeros(8))
    np.testing.assert_array_equal(X, before)
    compressed = sparse.csr_array(X)
    assert np.shares_memory(SparseRows(compressed, y, Bounds())._X.data, compressed.data)


def exact_gradient(rows: DenseRows, X: np.ndarray, y: np.ndarray, coef: np.ndarray, loss: Loss) -> list[Fraction]:
    """Rational arithmetic throughout; slopes of piecewise linear losses are rational."""
    total = [Fraction(0)] * len(coef)
    weights = [Fraction(c) for c in coef]
    for x, target, factor in zip(X, y, rows._factors, strict=True):
        row = [Fraction(v) * Fraction(factor) for v in x] + [Fraction(rows._bounds.intercept)]
        score = sum((a * b for a, b in zip(row, weights, strict=True)), Fraction(0))
        residual = score - Fraction(target)
        slope = max(-Fraction(loss.threshold), min(Fraction(loss.threshold), residual))
        total = [t + slope * a for t, a in zip(total, row, strict=True)]
    return [t / len(X) for t in total]


@pytest.mark.parametrize("make", [np.ascontiguousarray, np.asfortranarray, sparse.csr_array])
@pytest.mark.parametrize("size", [1.0, 1e6])
def test_the_rounding_bound_holds_against_rational_arithmetic(make, size):
    X, y, coef = table(n=700, d=5, seed=3)
    loss, coef = Huber(0.7, 1.0), coef[:6] * size
    rows = as_rows(make(X), y, Bounds(1.0))
    sums = rows.sums(loss, coef)
    exact = exact_gradient(rows, X, y, coef, loss)
    error = math.sqrt(sum(float(Fraction(g) - e) ** 2 for g, e in zip(sums.gradient, exact, strict=True)))
    assert 0 < error <= sums.error
    assert sums.error <= rows.rounding(loss, float(np.linalg.norm(coef)) * 1.001)
    assert sums.error < 1e-11 * size


def test_the_rounding_bound_for_the_logistic_loss_in_balls():
    from flint import arb

    from epsilearn.balls import ball, precision

    X, y, coef = table(n=400, d=5, seed=4)
    rows = as_rows(X, y, Bounds(1.0))
    sums = rows.sums(Logistic(), coef[:6])
    with precision(200):
        total = [arb(0)] * 6
        for x, target, factor in zip(X, y, rows._factors, strict=True):
            row = [ball(float(v)) * ball(float(factor)) for v in x] + [arb(1)]
            margin = ball(float(target)) * sum((a * ball(float(c)) for a, c in zip(row, coef, strict=False)), arb(0))
            slope = -ball(float(target)) / (1 + margin.exp())
            total = [t + slope * a for t, a in zip(total, row, strict=True)]
        errors = [float((t / 400 - ball(float(g))).abs_upper()) for t, g in zip(total, sums.gradient, strict=True)]
    assert 0 < math.hypot(*errors) <= sums.error < 1e-12


def test_clipped_rows_lie_inside_the_bound_exactly():
    """Half of all rows clipped in plain floats exceed the bound by a rounding; none of these do."""
    generator = np.random.default_rng(5)
    X = generator.normal(size=(2000, 9)) * 10
    for make in (np.ascontiguousarray, sparse.csr_array):
        rows = as_rows(make(X), np.ones(2000), Bounds(1.3, intercept=0.5))
        for x, factor in zip(X, rows._factors, strict=True):
            square = sum(Fraction(v) ** 2 for v in x) * Fraction(factor) ** 2
            assert Fraction(1.3) ** 2 * Fraction(999_999, 10**6) < square <= Fraction(1.3) ** 2
    assert Fraction(rows.norm) ** 2 >= Fraction(1.3) ** 2 + Fraction(1, 4)


def test_short_rows_are_left_alone():
    rows = as_rows(np.array([[0.1, 0.2], [0.0, 0.0]]), np.ones(2), Bounds(1.0))
    assert (rows._factors == 1).all()
    empty = as_rows(sparse.csr_array((3, 4)), np.ones(3), Bounds(1.0))
    assert np.isfinite(empty.sums(Logistic(), np.zeros(5)).gradient).all()


@pytest.mark.filterwarnings("error")
def test_large_and_tiny_features():
    for size in (1e200, 1e-200, 1e-310):
        rows = as_rows(np.array([[size, -size]]), np.ones(1), Bounds(1.0))
        sums = rows.sums(Logistic(), np.ones(3))
        assert np.isfinite(sums.gradient).all()
        assert (rows._factors * size * math.sqrt(2) <= 1.0).all()
        compressed = as_rows(sparse.csr_array(np.array([[size, -size]])), np.ones(1), Bounds(1.0))
        np.testing.assert_allclose(compressed._factors, rows._factors, rtol=1e-12)
    # A huge row is scaled to the bound, not to nothing.
    huge = as_rows(np.array([[3e200, 4e200]]), np.ones(1), Bounds(1.0, intercept=0.0))
    np.testing.assert_allclose(huge.sums(Logistic(), np.zeros(2)).gradient, [-0.3, -0.4], rtol=1e-9)


def test_duplicates_in_a_sparse_matrix_are_added():
    twice = sparse.coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(1, 3))
    rows = SparseRows(twice, np.ones(1), Bounds(10.0, intercept=0.0))
    assert rows.sums(Squared(1.0), np.zeros(3)).gradient.tolist() == [0.0, -3.0, 0.0]


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_parts(make):
    X, y, coef = table(n=100)
    rows, chosen = as_rows(make(X), y, Bounds()), np.array([3, 50, 99])
    part = rows.part(chosen)
    assert (part.n, part.d) == (3, rows.d)
    alone = as_rows(make(X[chosen]), y[chosen], Bounds()).sums(Logistic(), coef)
    np.testing.assert_array_equal(part.sums(Logistic(), coef).gradient, alone.gradient)


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.array([[1.0, math.nan]]), [1.0]),
        (np.array([[math.inf]]), [1.0]),
        (np.zeros((0, 3)), []),
        (np.zeros((3, 0)), [1.0] * 3),
        (np.zeros(3), [1.0] * 3),
        (np.array([["a"]]), [1.0]),
        (np.array([[1j]]), [1.0]),
        (np.zeros((3, 2)), [1.0] * 2),
        (np.zeros((2, 2)), [1.0, math.nan]),
        (sparse.csr_array(np.array([[math.nan]])), [1.0]),
        (sparse.csr_array((0, 3)), []),
    ],
)
def test_bad_tables(X, y):
    with pytest.raises(InvalidInput):
        as_rows(X, y, Bounds())


def test_bad_bounds():
    for options in ({"data_norm": 0.0}, {"data_norm": math.inf}, {"intercept": -1.0}, {"intercept": math.nan}):
        with pytest.raises(InvalidInput):
            Bounds(**options)


@pytest.mark.parametrize("make", [np.ascontiguousarray, np.asfortranarray, sparse.csr_array])
def test_cancelling_scores_are_counted_in_the_rounding(make):
    """Large weights that cancel: the score is all rounding error, and so is the slope."""
    from epsilearn.balls import ball, precision

    generator = np.random.default_rng(7)
    X = generator.uniform(0.1, 0.9, size=(40, 2))
    coef = np.array([1e9, -1e9 * 0.7, 3e8 * math.pi])
    X[:, 0] = (0.7 * X[:, 1] * 1e9 - 3e8 * math.pi) / 1e9
    rows = as_rows(make(X), np.ones(40), Bounds(2.0))
    sums = rows.sums(Logistic(), coef)
    with precision(200):
        exact = rows.gradient_in_balls(Logistic(), [Fraction(float(c)) for c in coef])
        errors = [float((e - ball(float(g))).abs_upper()) for e, g in zip(exact, sums.gradient, strict=True)]
    assert 1e-9 < math.hypot(*errors) <= sums.error
